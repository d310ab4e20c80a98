"""The configuration of a run on pictures alone: the method's recipe, the user's file over it, single keys over both."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.augment.ablation import Ablation, ablated
from twinlens.training.augment.recipe import AugmentRecipe
from twinlens.training.config import WholeConfig, one_line, read_toml
from twinlens.training.config_layers import merged, relative_to, with_settings
from twinlens.training.errors import ConfigError
from twinlens.training.known_keys import dotted_keys
from twinlens.training.methods.registry import check_method, image_method
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.run_files import CONFIG_FILE
from twinlens.training.run_records import recorded_config
from twinlens.training.sections.frozen import Frozen, NamedPath

if TYPE_CHECKING:
    from twinlens.training.methods.image_method import MethodOptions

# Section and key of what is a path.
PATHS = (("data", "path"), ("data", "images"), ("knn", "test"))

_Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class PicturesData(Frozen):
    """Where the pictures are.

    Attributes:
        path: A folder (of folders: each is a class), a list of pictures, or shards.
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

    path: NamedPath
    images: NamedPath | None = None
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
        optimiser: `sgd` and `lars` with `momentum`, `lars` for batches of thousands (You et al. 2017).
        learning_rate: After the warm-up; from there it falls to 0 by half a cosine.
        momentum: Of `sgd` and `lars`.
        weight_decay: Of matrices and filters; gains and biases are not decayed.
        warmup_share: Of the steps, with a rising learning rate.
        precision: bf16 keeps the weights in fp32 and computes in bfloat16; auto takes it where the processor has it.
        augmentation: `batched` (tensor code for the whole batch) or `exact` (torchvision, picture by picture).
        seed: Of the weights, the order of the pictures and every draw.
        log_every: Steps between two rows of metrics.csv, and between two lines; None: 20, or fewer where a run of fewer
            than 400 steps would have less than 20 rows.
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
    log_every: int | None = Field(default=None, ge=1)
    state_every: int = Field(default=500, ge=0)
    threads: int | None = Field(default=None, ge=1, le=1024)


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
    test: NamedPath | None = None


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
        check_method(self.method)
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
    instead: Path | None = None,
    run: Path | None = None,
) -> ImageTrainConfig:
    """The recipe of the method, then the user's TOML file, then `pictures`, then single settings, then the ablation.

    The method's own options are checked last, for that loads torch.

    Args:
        method: Its name.
        path: A TOML file; paths in it are relative to it. None: the recipe as it is.
        pictures: Stands for `data.path`.
        settings: Single values over all that; see `with_settings`.
        ablate: What is kept of the augmentation; None: all of it.
        instead: Of pictures, where nothing names any; None: they must be named.
        run: The folder of a run that goes on: its configuration stands in the place of the recipe, so that nothing but
            what a person gives anew can differ from it.

    Raises:
        ConfigError: if a file is missing or not TOML, or a key is unknown or a value out of range; it names the key; or
            if there is no run of this method in the folder.
    """
    recipe = tomllib.loads(recipe_text(method)) if run is None else _recorded(run, method)
    given = {} if path is None else relative_to(read_toml(path), path.parent, PATHS)
    if pictures is not None:
        given = merged(given, {"data": {"path": str(pictures)}})
    content = merged(recipe, with_settings(given, settings))
    origin = str(path) if path is not None else method
    if "method_options" in content:
        raise ConfigError(f"{origin}: unknown key method_options")
    data = content.setdefault("data", {})
    if isinstance(data, dict) and "path" not in data:
        if instead is None:
            raise ConfigError(f"{origin}: data.path is missing: name the pictures in the file or with --images")
        data["path"] = str(instead)
    options = content.pop("method", {})
    own = [f"method.{key}" for key in recipe.get("method", {})]
    try:
        config = ImageTrainConfig.model_validate({**content, "method": method})
    except ValidationError as error:
        raise ConfigError(f"{origin}: {one_line(error, ImageTrainConfig, others=own)}") from None
    kind = image_method(method)
    try:
        checked = kind.Options.model_validate(options).model_dump(mode="json")
    except ValidationError as error:
        others = dotted_keys(ImageTrainConfig)
        raise ConfigError(f"{origin}: {one_line(error, kind.Options, prefix='method', others=others)}") from None
    augment = config.augment if ablate is None else ablated(config.augment, ablate)
    return config.model_copy(update={"method_options": checked, "augment": augment})


def _recorded(run: Path, method: str) -> dict[str, Any]:
    """The configuration of a run in the form of a recipe."""
    content = recorded_config(run)
    found = content.pop("method", "clip")
    if found != method:
        raise ConfigError(f"{run} is a run of {found}; it cannot go on as {method}")
    try:
        ImageTrainConfig.model_validate({**content, "method": method})
    except ValidationError as error:
        raise ConfigError(f"{run / CONFIG_FILE}: {one_line(error, ImageTrainConfig)}") from None
    content["method"] = content.pop("method_options", {})
    return content


def recipe_text(method: str) -> str:
    """The TOML of a method's defaults.

    Raises:
        ConfigError: if there is no such method.
    """
    check_method(method)
    return (resources.files("twinlens.training") / "recipes" / f"{method}.toml").read_text(encoding="utf-8")
