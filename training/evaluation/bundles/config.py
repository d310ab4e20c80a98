"""What `twinlens eval` measures on: sections of a TOML file, or the same from options."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from twinlens.training.config import one_line, read_toml
from twinlens.training.data.errors import DataError
from twinlens.training.data.pictures_there import check_pictures_there
from twinlens.training.errors import ConfigError
from twinlens.training.evaluation.prompt_templates import PLACEHOLDER, checked, template_set
from twinlens.training.sections.frozen import Frozen, NamedPath

# The keys of a section that are paths.
_PATHS = ("path", "images")


class SetSection(Frozen):
    """What every set has.

    Attributes:
        path: Its file or folder.
        name: What the set is called; None: the folder it lies in.
        images: The folder that relative paths of pictures start from; None: the file's own.
        limit: Take at most so many pictures (rows, of wrong captions and pairs), spread evenly over all; classes stay
            all there are.
    """

    path: NamedPath
    name: str | None = None
    images: NamedPath | None = None
    limit: int | None = Field(default=None, ge=2)


class RetrievalSection(SetSection):
    """Pictures and captions: does each find the other?

    Attributes:
        path: A file of pictures and captions, as `twinlens train clip` takes it; or a folder with a `captions.jsonl`.
        image_column: Of the file.
        caption_column: Of the file.
    """

    image_column: str = "image"
    caption_column: str = "caption"


class ZeroShotSection(SetSection):
    """Pictures of known classes: does the name of the class find them, and do their neighbours?

    Attributes:
        path: A folder a class, a folder with a `labels.jsonl`, a list, or shards.
        templates: Sets of prompts, each measured on its own: `photo`, `plain`, `simple`, `openai`, or a file.
        prompts: Further prompts, together one more set.
        k: Neighbours that vote.
        image_column: Of a list.
        label_column: Of a list.
    """

    templates: tuple[str, ...] = ("photo",)
    prompts: tuple[str, ...] = ()
    k: int = Field(default=20, ge=1)
    image_column: str = "image"
    label_column: str = "label"


class CompositionalSection(SetSection):
    """Captions and minimally wrong ones (SugarCrepe): is the picture nearer to the right one?

    Attributes:
        path: A file of `image`, `caption`, `negative_caption` and maybe `type`; SugarCrepe's own `.json`, or a
            folder of these.
    """


class PairsSection(SetSection):
    """Pictures to choose between (Winoground, NLVR).

    Attributes:
        path: A file of `image_0`, `image_1`, `caption_0`, `caption_1`; or of `caption`, `image_true`, `image_false`.
    """


class ModelSection(Frozen):
    """Who is measured.

    Attributes:
        bundle: Its folder, its address, or `NAME/VERSION` in `./models`; a path is relative to where the command runs.
        server: HOST:PORT of a running server instead.
    """

    bundle: str | None = Field(default=None, min_length=1)
    server: str | None = Field(default=None, min_length=1)


class EvalConfig(Frozen):
    """The whole file.

    Attributes:
        model: Who is measured, unless the command line says so.
        retrieval: Sets of pictures and captions.
        zero_shot: Sets of pictures of known classes.
        compositional: Sets of right and wrong captions.
        pairs: Sets of pictures to choose between.
        max_unreadable_share: Stop when more than this share of a set, and more than three items, cannot be used.
    """

    model: ModelSection = ModelSection()
    retrieval: tuple[RetrievalSection, ...] = ()
    zero_shot: tuple[ZeroShotSection, ...] = ()
    compositional: tuple[CompositionalSection, ...] = ()
    pairs: tuple[PairsSection, ...] = ()
    max_unreadable_share: float = Field(default=0.01, ge=0, le=1)

    def is_empty(self) -> bool:
        """Whether there is nothing to measure on."""
        return not (self.retrieval or self.zero_shot or self.compositional or self.pairs)


def read_eval_config(path: Path) -> EvalConfig:
    """Reads a TOML file; paths of its sets are relative to it.

    Raises:
        ConfigError: if it is missing, not TOML, has an unknown key or a value out of range.
    """
    return eval_config(_relative_to(read_toml(path), path.parent), str(path))


def eval_config(content: Mapping[str, Any], whose: str) -> EvalConfig:
    """Checks what a file or options say.

    Args:
        content: By section.
        whose: What an error names.

    Raises:
        ConfigError: as `read_eval_config` does.
    """
    try:
        return EvalConfig.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{whose}: {one_line(error, EvalConfig)}") from None


def check_there(config: EvalConfig) -> None:
    """Refuses what is not there: before a model is loaded, and before minutes of work on the sets before it.

    Raises:
        ConfigError: if there is no such set of prompts.
        DataError: if there is no such file or folder.
    """
    for zero_shot in config.zero_shot:
        check_pictures_there(zero_shot.path)
        for which in zero_shot.templates:
            template_set(which)
        checked(zero_shot.prompts or (PLACEHOLDER,), "prompts")
    for section in (*config.retrieval, *config.compositional, *config.pairs):
        if not section.path.exists():
            raise DataError(f"there is no {section.path}")
    every: tuple[SetSection, ...] = (*config.retrieval, *config.zero_shot, *config.compositional, *config.pairs)
    for section in every:
        if section.images is not None and not section.images.is_dir():
            raise DataError(f"there is no folder {section.images} of pictures")


def _relative_to(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    def placed(key: str, value: Any) -> Any:
        # An empty name stays one, and is refused.
        return str(folder / value) if key in _PATHS and isinstance(value, str) and value else value

    def section(value: Any) -> Any:
        if not isinstance(value, list):
            return value
        tables = (each if not isinstance(each, dict) else {k: placed(k, v) for k, v in each.items()} for each in value)
        return [
            table if not isinstance(table, dict) or "templates" not in table else _with_template_files(table, folder)
            for table in tables
        ]

    return {name: section(value) for name, value in content.items()}


def _with_template_files(table: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Names of sets stay; a file beside the configuration is meant where there is one."""
    named = table["templates"]
    if not isinstance(named, list):
        return table
    files = [str(folder / each) if isinstance(each, str) and (folder / each).is_file() else each for each in named]
    return {**table, "templates": files}
