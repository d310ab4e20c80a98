"""The configuration of a run on pictures alone: the method's recipe, the user's file over it, single keys over both."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.augment.ablation import Ablation, ablated
from twinlens.training.augment.recipe import AugmentRecipe
from twinlens.training.config import ConfigError, Frozen, WholeConfig, one_line, read_toml
from twinlens.training.methods.image_method import MethodOptions
from twinlens.training.methods.registry import image_method
from twinlens.training.modules.backbone import BackboneConfig
from twinlens.training.run_records import recorded_config

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class PicturesData(Frozen):
    """Where the pictures are.

    Attributes:
        path: A folder (of folders: each is a class), a list of pictures, or shards; see `picture_sources`.
        images: The folder that relative paths of a list start from; None: the list's own.
        image_column: Of a list.
        label_column: Of a list; `label` may be absent, another one not.
        labels: False: take no notice of classes, such as where folders are albums.
        side: Side of the stored pictures that crops are cut from; None: the crop's own up to 32 pixels, else one and a
            half times that.
        limit: Take at most so many, spread evenly.
        max_unreadable_share: Stop when more than this share, and more than three pictures, cannot be read or are
            smaller than the crop; 0: at the first of them.
    """

    path: Path
    images: Path | None = None
    image_column: str = "image"
    label_column: str = "label"
    labels: bool = True
    side: int | None = Field(default=None, ge=8)
    limit: int | None = Field(default=None, ge=1)
    max_unreadable_share: float = Field(default=0.01, ge=0, le=1)


class ImageModelConfig(BackboneConfig):
    """The backbone, and how pixels are normalised.

    Attributes:
        name: What a person calls the model; None: the method.
        mean: Of the channels, on the scale 0 to 1.
        std: Likewise.
    """

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    mean: tuple[_Finite, _Finite, _Finite] = (0.485, 0.456, 0.406)
    std: tuple[_Positive, _Positive, _Positive] = (0.229, 0.224, 0.225)

    @model_validator(mode="after")
    def _can_be_exported(self) -> Self:
        try:
            PreprocessSpec(size=1, resize_size=1, mean=self.mean, std=self.std)
        except ValidationError:
            raise ValueError("mean and std are on the scale 0 to 1; pixels cannot be normalised by these") from None
        return self

    def backbone(self) -> BackboneConfig:
        """What `build_backbone` takes."""
        return BackboneConfig(timm=self.timm, stem=self.stem, arguments=self.arguments)


class ImageRunConfig(Frozen):
    """How long and how fast.

    Attributes:
        steps: Of the optimiser; None: `epochs`.
        epochs: Walks through the data, where `steps` is not given.
        batch_size: Pictures a step, of all processes together.
        chunk_size: Encode so many pictures at a time and keep only their embeddings, for batches larger than memory.
        warmup_share: Of the steps, with a rising learning rate.
        precision: bf16 keeps the weights in fp32 and computes in bfloat16; auto takes it where the processor has it.
        augmentation: `batched` (tensor code for the whole batch) or `exact` (torchvision, picture by picture).
        state_every: Write the state from which a run goes on (`--resume`) every so many steps, besides when it is
            interrupted; 0: only then.
        threads: Of torch; None leaves it alone.
    """

    steps: int | None = Field(default=None, ge=0)
    epochs: float = Field(default=100, gt=0)
    batch_size: int = Field(default=256, ge=1)
    chunk_size: int | None = Field(default=None, ge=2)
    optimiser: Literal["adamw", "sgd", "lars"] = "adamw"
    learning_rate: float = Field(default=1e-3, gt=0)
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=1e-4, ge=0)
    warmup_share: float = Field(default=0.05, ge=0, le=1)
    precision: Literal["auto", "fp32", "bf16"] = "auto"
    augmentation: Literal["batched", "exact"] = "batched"
    seed: int = Field(default=0, ge=0, lt=2**32)
    log_every: int = Field(default=20, ge=1)
    state_every: int = Field(default=500, ge=0)
    threads: int | None = Field(default=None, ge=1)


class KnnConfig(Frozen):
    """Weighted nearest neighbours during training (Wu et al. 2018), where pictures have classes.

    Attributes:
        every_epochs: How often; 0: only at the end.
        k: Neighbours.
        temperature: Of their weights.
        test: Labelled pictures to classify, read like `data.path` with all that the section says of it; None: those of
            training, each by the others.
    """

    every_epochs: float = Field(default=10, ge=0)
    k: int = Field(default=20, ge=1)
    temperature: float = Field(default=0.07, ge=0.001)
    test: Path | None = None


class ImageTrainConfig(WholeConfig):
    """The whole run. `method_options` has passed the method's own check of the section [method]."""

    method: str
    data: PicturesData
    model: ImageModelConfig = ImageModelConfig()
    augment: AugmentRecipe = AugmentRecipe()
    train: ImageRunConfig = ImageRunConfig()
    knn: KnnConfig = KnnConfig()
    method_options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _method_exists(self) -> Self:
        image_method(self.method)
        return self

    @property
    def size(self) -> int:
        """Side of a full crop, and of the pictures that the exported encoder takes."""
        return self.augment.size

    def options(self) -> MethodOptions:
        """The method's own options."""
        return image_method(self.method).Options.model_validate(self.method_options)


def read_image_config(
    method: str,
    path: Path | None = None,
    *,
    pictures: Path | None = None,
    settings: Sequence[str] = (),
    ablate: Ablation | None = None,
) -> ImageTrainConfig:
    """The recipe of the method, then the user's TOML file, then `pictures`, then single settings, then the ablation.

    A setting of `train.epochs` takes the place of the `train.steps` that stood in the file or in an earlier setting.

    Args:
        method: Its name.
        path: A TOML file; paths in it are relative to it. None: the recipe as it is.
        pictures: Stands for `data.path`.
        ablate: What is kept of the augmentation; None: all of it.
        settings: Each `section.key=value`, the value as TOML (a word that is no TOML value counts as a string).

    Raises:
        ConfigError: if a file is missing or not TOML, or a key is unknown or a value out of range; it names the key.
    """
    kind = image_method(method)
    recipe = tomllib.loads(recipe_text(method))
    given = {} if path is None else _relative_to(read_toml(path), path.parent)
    if pictures is not None:
        given = _merged(given, {"data": {"path": str(pictures)}})
    for setting in settings:
        given = _given_later(given, _setting(setting))
    content = _merged(recipe, given)
    origin = str(path) if path is not None else f"train {method}"
    if "method_options" in content:
        raise ConfigError(f"{origin}: unknown key method_options")
    data = content.get("data", {})
    if isinstance(data, Mapping) and "path" not in data:
        raise ConfigError(f"{origin}: data.path is missing: name the pictures in the file or with --images")
    options = content.pop("method", {})
    try:
        checked = kind.Options.model_validate(options).model_dump(mode="json")
    except ValidationError as error:
        raise ConfigError(f"{origin}: {one_line(error, prefix='method')}") from None
    try:
        config = ImageTrainConfig.model_validate({**content, "method": method, "method_options": checked})
    except ValidationError as error:
        raise ConfigError(f"{origin}: {one_line(error)}") from None
    if ablate is None:
        return config
    return config.model_copy(update={"augment": ablated(config.augment, ablate)})


def read_run_config(out: Path, method: str) -> ImageTrainConfig:
    """The configuration of the run in a folder.

    Raises:
        ConfigError: if there is none, it cannot be read, or it is a run of another method.
    """
    content = recorded_config(out)
    if content.get("method", "clip") != method:
        raise ConfigError(f"{out} is a run of {content.get('method', 'clip')}; it cannot go on as {method}")
    try:
        return ImageTrainConfig.model_validate(content)
    except ValidationError as error:
        raise ConfigError(f"{out / 'config.json'}: {one_line(error)}") from None


def recipe_text(method: str) -> str:
    """The TOML of a method's defaults.

    Raises:
        ConfigError: if there is no such method.
    """
    image_method(method)
    return (resources.files("twinlens.training") / "recipes" / f"{method}.toml").read_text(encoding="utf-8")


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    """Tables are merged key by key; everything else, lists too, is replaced."""
    merged = dict(below)
    for key, value in above.items():
        old = merged.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        merged[key] = _merged(old, value) if both else value  # type: ignore[arg-type]
    return merged


def _given_later(before: Mapping[str, Any], setting: Mapping[str, Any]) -> dict[str, Any]:
    """A setting over what was given before; epochs would be nothing beside the steps that stood there."""
    train, new = before.get("train"), setting.get("train")
    if isinstance(train, Mapping) and isinstance(new, Mapping) and "epochs" in new:
        before = {**before, "train": {key: value for key, value in train.items() if key != "steps"}}
    return _merged(before, setting)


def _setting(text: str) -> dict[str, Any]:
    name, equals, value = text.partition("=")
    parts = [part.strip() for part in name.split(".")]
    if not equals or not all(parts):
        raise ConfigError(f"--set takes SECTION.KEY=VALUE, for instance train.batch_size=128; found {text!r}")
    try:
        parsed: Any = tomllib.loads(f"value = {value.strip()}")["value"]
    except tomllib.TOMLDecodeError:
        parsed = value.strip()
    for part in reversed(parts):
        parsed = {part: parsed}
    return dict(parsed)


def _relative_to(content: dict[str, Any], folder: Path) -> dict[str, Any]:
    for section, key in (("data", "path"), ("data", "images"), ("knn", "test")):
        table = content.get(section)
        if isinstance(table, dict) and isinstance(table.get(key), str):
            content = _merged(content, {section: {key: str(folder / table[key])}})
    return content
