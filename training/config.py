"""The configuration of `twinlens train`: one frozen object, read once from a TOML file."""

from __future__ import annotations

import hashlib
import json
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from twinlens.training.config_layers import relative_to, with_settings
from twinlens.training.errors import ConfigError
from twinlens.training.known_keys import perhaps_key

# Section and key of what is a path.
PATHS = (
    ("data", "path"),
    ("data", "images"),
    ("model", "from_checkpoint"),
    ("model", "image_checkpoint"),
    ("hard_negatives", "manifest"),
)


class Frozen(BaseModel):
    """Base of all sections: unknown keys are errors, and so are numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _named(value: object) -> object:
    if value == "":  # which would be the current folder
        raise ValueError("it names nothing; give a file or a folder")
    return value


NamedPath = Annotated[Path, BeforeValidator(_named)]


class ScenesData(Frozen):
    """Built-in captioned scenes, drawn before training starts.

    Attributes:
        source: `scenes`.
        count: How many.
        seed: Of the drawing.
        start: Number of the first scene.
    """

    source: Literal["scenes"]
    count: int = Field(default=8000, ge=2)
    seed: int = Field(default=0, ge=0)
    start: int = Field(default=0, ge=0)


class CaptionsData(Frozen):
    """A JSONL, CSV or TSV file of pictures and captions.

    Attributes:
        source: `captions`.
        path: The file.
        images: The folder that relative paths of pictures start from; None: the file's own.
        image_column: Of the file.
        caption_column: Of the file.
        id_column: Of the file, what mined negatives name a pair by; None: `id` where there is one, else the path.
        limit: Take the first so many pairs only.
        max_unreadable_share: Stop when more than this share, and more than three pictures, cannot be read; 0: at the
            first of them.
    """

    source: Literal["captions"]
    path: NamedPath
    images: NamedPath | None = None
    image_column: str = "image"
    caption_column: str = "caption"
    id_column: str | None = None
    limit: int | None = Field(default=None, ge=1)
    max_unreadable_share: float = Field(default=0.01, ge=0, le=1)


class ModelConfig(Frozen):
    """Exactly one of `open_clip`, `config` and `from_checkpoint`.

    The two first start from random weights with a vocabulary learned from the captions; `from_checkpoint` goes on from
    a checkpoint, with its architecture, preprocessing and tokenizer. A run folder stands for the checkpoint in it.

    Attributes:
        open_clip: Name of a model of open_clip.
        config: An open_clip configuration: `embed_dim`, `vision_cfg`, `text_cfg`.
        from_checkpoint: A checkpoint or a run folder to go on from.
        image_checkpoint: An image encoder that a method on pictures alone has trained: it becomes the image tower, with
            a fresh projection on top and its own preprocessing; `config` then has no `vision_cfg`.
        name: What a person calls the model; None: "clip", or what the checkpoint is called.
        vocabulary_size: Of the tokenizer learned from the captions.
        position_std: Spread of the positions that a ResNet's attention pool starts with; None: open_clip's.
        mean: Of the channels, on the scale 0 to 1.
        std: Likewise.
    """

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    open_clip: str | None = None
    config: dict[str, Any] | None = None
    from_checkpoint: NamedPath | None = None
    image_checkpoint: NamedPath | None = None
    vocabulary_size: int = Field(default=4096, ge=259)
    position_std: float | None = Field(default=None, gt=0)
    mean: tuple[float, float, float] = (0.48145466, 0.4578275, 0.40821073)
    std: tuple[float, float, float] = (0.26862954, 0.26130258, 0.27577711)

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        given = [name for name in ("open_clip", "config", "from_checkpoint") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of open_clip, config, from_checkpoint (found: {len(given)})")
        kept = {"vocabulary_size", "position_std", "mean", "std"} & self._chosen()
        if self.from_checkpoint is not None and kept:
            raise ValueError(f"{min(kept)} is for a model from scratch; a checkpoint keeps its own")
        if self.image_checkpoint is not None:
            if self.from_checkpoint is not None:
                raise ValueError("from_checkpoint has an image tower already; leave image_checkpoint out")
            own = {"position_std", "mean", "std"} & self._chosen()
            if own:
                raise ValueError(f"{min(own)} is for an image tower from scratch; image_checkpoint keeps its own")
            if self.config is not None and self.config.get("vision_cfg"):
                raise ValueError("config.vision_cfg is for an image tower from scratch; image_checkpoint has its own")
        return self

    def _chosen(self) -> set[str]:
        """Keys of other values than the defaults; a recorded configuration holds these, too."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}


class RunConfig(Frozen):
    """How long and how fast.

    Attributes:
        steps: Of the optimiser.
        batch_size: Pairs a step.
        learning_rate: After the warm-up; from there it falls to 0 by half a cosine.
        warmup_steps: With a rising learning rate.
        weight_decay: Of matrices; gains, biases and temperature are not decayed.
        precision: bf16 keeps the weights in fp32 and computes in bfloat16.
        seed: Of the weights, the order of the pairs and every draw.
        log_every: Steps between two rows of metrics.csv, and between two lines.
        state_every: Write the state from which a run goes on (`--resume`) every so many steps, besides when it is
            interrupted; 0: only then.
        threads: Of torch; None leaves it alone.
    """

    steps: int = Field(default=1000, ge=1)
    batch_size: int = Field(default=128, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    warmup_steps: int = Field(default=50, ge=0)
    precision: Literal["fp32", "bf16"] = "fp32"
    seed: int = Field(default=0, ge=0, lt=2**32)
    log_every: int = Field(default=20, ge=1)
    state_every: int = Field(default=500, ge=0)
    threads: int | None = Field(default=None, ge=1, le=1024)


class HardNegativesConfig(Frozen):
    """Mined negatives (`twinlens mine`) that enter each batch; see `HardShare`.

    Attributes:
        manifest: What `twinlens mine` wrote.
        texts_per_anchor: Wrong captions for a pair.
        images_per_anchor: Wrong pictures for a pair.
        pairs_per_anchor: Whole pairs that take the place of random ones in the batch.
        weight: How much a caption or picture that is a negative only counts against one of the batch.
    """

    manifest: NamedPath
    texts_per_anchor: int = Field(default=2, ge=0)
    images_per_anchor: int = Field(default=0, ge=0)
    pairs_per_anchor: int = Field(default=0, ge=0)
    weight: float = Field(default=1.0, gt=0)

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.texts_per_anchor + self.images_per_anchor + self.pairs_per_anchor == 0:
            raise ValueError("texts_per_anchor, images_per_anchor and pairs_per_anchor are all 0")
        return self


class WholeConfig(Frozen):
    """Base of what describes a whole run."""

    def digest(self) -> str:
        """SHA-256 of the configuration, whatever the layout of its file."""
        return hashlib.sha256(json.dumps(self.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


class TrainConfig(WholeConfig):
    """The whole file."""

    data: Annotated[ScenesData | CaptionsData, Field(discriminator="source")]
    model: ModelConfig
    train: RunConfig = RunConfig()
    hard_negatives: HardNegativesConfig | None = None


def read_config(path: Path, settings: Sequence[str] = ()) -> TrainConfig:
    """Reads a TOML file; paths in it are relative to it.

    Args:
        path: The file.
        settings: Single values over it; see `with_settings`.

    Raises:
        ConfigError: if it is missing, not TOML, has an unknown key or a value out of range.
    """
    content = with_settings(relative_to(read_toml(path), path.parent, PATHS), settings)
    try:
        return TrainConfig.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{path}: {one_line(error, TrainConfig)}") from None


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a TOML file.

    Raises:
        ConfigError: if it is missing, cannot be read, or is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(f"no configuration at {path}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None


def one_line(error: ValidationError, model: type[BaseModel], *, prefix: str = "", others: Iterable[str] = ()) -> str:
    """The first thing that is wrong, by the key a person wrote, and what an unknown key may have meant.

    Args:
        error: What pydantic found.
        model: What it checked by.
        prefix: The section that was checked on its own.
        others: Further keys that there are elsewhere, dotted.
    """
    first = error.errors()[0]
    # The discriminator of a union is part of the location, but nobody wrote it in the file.
    parts = [prefix, *(str(part) for part in first["loc"] if part not in {"scenes", "captions"})]
    where = ".".join(part for part in parts if part)
    more = f" (and {error.error_count() - 1} more)" if error.error_count() > 1 else ""
    match first["type"]:
        case "extra_forbidden":
            return f"unknown key {where}{perhaps_key(model, first['loc'], others, prefix=prefix)}{more}"
        case "missing":
            return f"{where} is missing{more}"
        case "union_tag_not_found":
            return f"{where}.source is missing: 'scenes' or 'captions'{more}"
        case "union_tag_invalid":
            return f"{where}.source must be 'scenes' or 'captions'{more}"
        case "value_error":
            return f"{where}: {first['ctx']['error']}{more}"
        case _:
            return f"{where}: {first['msg'][0].lower()}{first['msg'][1:]}, found {first['input']!r}{more}"
