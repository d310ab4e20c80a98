"""Writes docs/reference from the code, so that it cannot rot; `--check` only compares (CI)."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import PydanticUndefined

from twinlens.__main__ import app
from twinlens.encoders.manifest import Manifest
from twinlens.server.settings import Settings
from twinlens.training.augment.recipe import AugmentRecipe, Blur, Jitter, SmallPictures, Solarize, ViewGroup
from twinlens.training.evaluation.bundles.config import (
    CompositionalSection,
    EvalConfig,
    ModelSection,
    PairsSection,
    RetrievalSection,
    ZeroShotSection,
)
from twinlens.training.image_config import ImageModelConfig, ImageRunConfig, KnnConfig, PicturesData, recipe_text
from twinlens.training.methods.registry import IMAGE_METHODS, image_method
from twinlens.training.sections.augment import PairAugmentConfig
from twinlens.training.sections.data import CaptionsData, CollectionData, FolderData, ScenesData, ShardsData
from twinlens.training.sections.hard_negatives import HardNegativesConfig
from twinlens.training.sections.loss import LossConfig
from twinlens.training.sections.model import ModelConfig
from twinlens.training.sections.run import RunConfig
from twinlens.training.sections.tuning import TuningConfig
from twinlens.training.sections.validation import ValidationConfig

REFERENCE = Path(__file__).resolve().parent / "reference"


# Commands are Any: Typer has them from click in older versions and from a copy of its own in newer ones.
def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            child = command.get_command(None, name)
            if child is not None and not child.hidden:
                yield from _commands(child, (*path, name))


def _option_row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    if is_argument:
        names = f"`{parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    default = parameter.default
    # Compared by identity: 0 is a default worth showing, and equals False.
    absent = default is None or default is False or default in ([], (), "") or callable(default)
    shown = "" if absent else f"`{default}`"
    text = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
    return f"| {names} | {text} | {'required' if parameter.required else shown} |"


def cli_reference() -> str:
    """The command line as Markdown: one section a command."""
    lines = ["# Commands", "", "Generated from `twinlens --help` by `make docs`.", ""]
    for path, command in _commands(app(), ("twinlens",)):
        lines += [f"## `{' '.join(path)}`", "", (command.help or "").strip(), ""]
        parameters = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
        if parameters:
            lines += ["| option | meaning | default |", "| --- | --- | --- |"]
            lines += [_option_row(p) for p in parameters]
            lines.append("")
    return "\n".join(lines)


def manifest_schema() -> str:
    """JSON Schema of bundle.json."""
    return json.dumps(Manifest.model_json_schema(), indent=2) + "\n"


def settings_reference() -> str:
    """The server's settings as Markdown."""
    lines = [
        "# Server settings",
        "",
        "Generated from the code by `make docs`. An option of `twinlens serve` overrules the",
    ]
    lines += ["environment, which overrules the TOML file given with `--config`.", ""]
    lines += ["| key in the file | environment | default |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        lines.append(f"| `{name}` | `TWINLENS_{name.upper()}` | {default} |")
    return "\n".join(lines) + "\n"


_TRAINING_HEAD = """# Settings of training

Generated from the code by `make docs`. A file has these sections; `--set SECTION.KEY=VALUE` goes over it, and
`twinlens train METHOD --show-config` prints all of it for a run. Paths in a file are relative to it.
"""


_PICTURES: Mapping[str, type[BaseModel]] = {
    "[data]": PicturesData,
    "[model]": ImageModelConfig,
    "[train]": ImageRunConfig,
    "[knn]": KnnConfig,
    "[augment]": AugmentRecipe,
    "[augment.small]": SmallPictures,
    "[[augment.views]]": ViewGroup,
    "Jitter of a view": Jitter,
    "Blur of a view": Blur,
    "Solarize of a view": Solarize,
}
_CAPTIONS: Mapping[str, type[BaseModel]] = {
    '[data], source = "scenes"': ScenesData,
    '[data], source = "captions"': CaptionsData,
    '[data], source = "folder"': FolderData,
    '[data], source = "shards"': ShardsData,
    '[data], source = "collection"': CollectionData,
    "[model]": ModelConfig,
    "[train]": RunConfig,
    "[tuning]": TuningConfig,
    "[loss]": LossConfig,
    "[augment]": PairAugmentConfig,
    "[hard_negatives]": HardNegativesConfig,
    "[validation]": ValidationConfig,
}


def training_settings() -> str:
    """The page as Markdown."""
    lines = [*_TRAINING_HEAD.splitlines(), "", "## Pictures alone", ""]
    for title, model in _PICTURES.items():
        lines += _section(title, model, _common(title))
    lines += _recipes()
    for method in IMAGE_METHODS:
        options = image_method(method).Options
        if options.model_fields:
            lines += _section(f"[method] of {method}", options, _recipe(method).get("method", {}))
    lines += ["## Captions (clip)", ""]
    for title, model in _CAPTIONS.items():
        lines += _section(title, model)
    return "\n".join(lines).rstrip() + "\n"


_EVALUATION_HEAD = """# Settings of `twinlens eval --config FILE`

Generated from the code by `make docs`. Every set of data is a table of its own, so its heading may come again. Paths in
a file are relative to it.
"""


_EVALUATION: Mapping[str, type[BaseModel]] = {
    "[model]": ModelSection,
    "[[retrieval]]": RetrievalSection,
    "[[zero_shot]]": ZeroShotSection,
    "[[compositional]]": CompositionalSection,
    "[[pairs]]": PairsSection,
    "At the top": EvalConfig,
}


def evaluation_settings() -> str:
    """The page as Markdown."""
    lines = [*_EVALUATION_HEAD.splitlines(), ""]
    for title, model in _EVALUATION.items():
        lines += _section(title, model)
    return "\n".join(lines).rstrip() + "\n"


def _section(title: str, model: type[BaseModel], over: Mapping[str, Any] | None = None) -> Iterator[str]:
    """A table of keys; `over` holds the defaults of a recipe, which go over the class's."""
    meanings = _meanings(model)
    yield from (f"### {title}", "", "| key | values | default | meaning |", "| --- | --- | --- | --- |")
    for name, field in model.model_fields.items():
        default = (over or {}).get(name, field.default)
        if isinstance(default, BaseModel) or _tables(default):
            shown = "below"
        elif default is PydanticUndefined:
            shown = "required"
        else:
            shown = "" if default is None else f"`{_plain(default)}`"
        meaning = meanings.get(name, "").replace("|", "\\|")
        yield f"| `{name}` | {_values(field.annotation)}{_bounds(field.metadata)} | {shown} | {meaning} |"
    yield ""


def _recipes() -> Iterator[str]:
    """What the recipes set of [train]: one row a method."""
    recipes = {method: _recipe(method).get("train", {}) for method in IMAGE_METHODS}
    keys = list(dict.fromkeys(key for recipe in recipes.values() for key in recipe))
    yield from ("### [train] as the recipes set it", "")
    yield f"| method | {' | '.join(f'`{key}`' for key in keys)} |"
    yield f"| --- |{' --- |' * len(keys)}"
    for method, recipe in recipes.items():
        cells = [f"`{_plain(recipe[key])}`" if key in recipe else "" for key in keys]
        yield f"| {method} | {' | '.join(cells)} |"
    yield from (
        "",
        "`mae` also sets `model.timm` and `model.arguments`; views are in [augmentation](../augmentation.md).",
        "",
    )


def _common(section: str) -> dict[str, Any]:
    """What all recipes set alike in a section."""
    tables = [_recipe(method).get(section.strip("[]"), {}) for method in IMAGE_METHODS]
    return {key: value for key, value in tables[0].items() if all(each.get(key) == value for each in tables)}


def _recipe(method: str) -> dict[str, Any]:
    return tomllib.loads(recipe_text(method))


def _meanings(model: type[BaseModel]) -> dict[str, str]:
    """From the sections `Attributes:` of the class and of those it comes from."""
    found: dict[str, str] = {}
    for kind in reversed(model.__mro__):
        text = (kind.__doc__ or "").partition("Attributes:\n")[2]
        for name, meaning in re.findall(r"^ {8}(\w+): (.*(?:\n {9,}.*)*)", text, re.MULTILINE):
            found[name] = " ".join(meaning.split()).replace("None: ", "unset: ").replace("None ", "unset ")
    return found


def _values(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Literal:
        return ", ".join(f"`{_plain(each)}`" for each in arguments)
    if origin is Union or type(annotation).__name__ == "UnionType":
        return ", ".join(_values(each) for each in arguments if each is not type(None))
    if origin is tuple:
        if arguments[-1] is not Ellipsis:
            return f"{len(arguments)} numbers"
        return "list of texts" if arguments[0] is str else "list of tables"
    if origin is dict or (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
        return "table"
    if origin is not None:  # Annotated
        return _values(arguments[0])
    names: dict[Any, str] = {bool: "true, false", int: "whole number", float: "number", str: "text", Path: "path"}
    return names[annotation]


def _bounds(metadata: list[Any]) -> str:
    signs = {"ge": "≥", "gt": ">", "le": "≤", "lt": "<"}
    parts = [f"{sign} {getattr(each, key)}" for each in metadata for key, sign in signs.items() if hasattr(each, key)]
    return f" {', '.join(parts)}" if parts else ""


def _tables(value: Any) -> bool:
    return isinstance(value, tuple) and any(isinstance(each, BaseModel) for each in value)


def _plain(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return str(list(value))
    return str(value)


def main() -> int:
    """Writes the pages, or with --check says which are not current."""
    pages = {
        "cli.md": cli_reference(),
        "settings.md": settings_reference(),
        "training.md": training_settings(),
        "evaluation.md": evaluation_settings(),
        "bundle.schema.json": manifest_schema(),
    }
    stale = []
    for name, text in pages.items():
        path = REFERENCE / name
        if "--check" in sys.argv[1:]:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"docs/reference is not current ({', '.join(stale)}): run make docs\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
