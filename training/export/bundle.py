"""From two torch towers to a published bundle."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from twinlens.encoders.manifest import (
    TRAINING_FILE,
    ImageTower,
    Lineage,
    Manifest,
    ScoringRule,
    TextTower,
    TowerFiles,
)
from twinlens.encoders.parity import DEFAULT_PARITY_TEXTS, default_parity_images, write_parity
from twinlens.encoders.publish import BundleDraft, publish
from twinlens.training.export.destination import check_destination, room_beside
from twinlens.training.export.errors import ExportError
from twinlens.training.export.towers import (
    IMAGE_FILE,
    TEXT_FILE,
    TOKENIZER_FILE,
    ImageExport,
    TextExport,
    export_image,
    export_text,
)
from twinlens.training.versions import versions

# Those that decide what a graph looks like.
_PACKAGES = ("twinlens", "torch", "onnx", "onnxscript", "open_clip_torch", "timm")


@dataclass(frozen=True)
class About:
    """What a bundle says of itself beside its towers; the fields are the manifest's."""

    name: str
    version: str
    scoring: ScoringRule
    lineage: Lineage = field(default_factory=Lineage)
    metrics: dict[str, float] = field(default_factory=dict)
    licence: str = ""
    languages: tuple[str, ...] = ()
    description: str = ""


def publish_towers(
    image: ImageExport | None,
    text: TextExport | None,
    about: About,
    destination: Path,
    progress: Callable[[str], None] = lambda _: None,
    keep: Callable[[Path], object] | None = None,
) -> Manifest:
    """Exports, checks and publishes; nothing appears at `destination` unless every check passed.

    The graphs must reproduce torch to a cosine of 0.9999 on batches of 1, 3 and 33 and on the parity pictures and
    texts, which start from raw bytes and strings as serving does.

    Args:
        image: The image tower, or None.
        text: The text tower, or None.
        about: Name, version, scoring and lineage.
        destination: The bundle's folder: new, empty, or holding a bundle of the same `space_id`.
        progress: Told, in one line, when a stage of a minute or more begins.
        keep: Writes the checkpoint that training goes on from to the path it is given; None: the bundle has none.

    Returns:
        The manifest as published.

    Raises:
        ExportError: if a tower cannot be exported or does not agree, or the folder is in use or on a full disk.
        BundleError: if `destination` holds another bundle.
    """
    check_destination(destination)
    with room_beside(destination) as folder:
        staging = folder / "bundle"
        staging.mkdir()
        images = default_parity_images() if image is not None else {}
        texts = DEFAULT_PARITY_TEXTS if text is not None else ()
        image_embeddings = text_embeddings = None
        if image is not None:
            progress("writing the graph of the image tower and comparing it with torch")
            image_embeddings = export_image(image, list(images.values()), staging)
        if text is not None:
            progress("writing the graph of the text tower and comparing it with torch")
            text_embeddings = export_text(text, texts, staging)
        dimensions = {e.shape[1] for e in (image_embeddings, text_embeddings) if e is not None}
        if len(dimensions) != 1:
            raise ExportError(f"both towers need the same dimension, got {sorted(dimensions)}")
        progress("checking and publishing the bundle")
        if keep is not None:
            keep(staging / TRAINING_FILE)
        write_parity(staging / "parity", images, texts, image_embeddings, text_embeddings)
        return publish(_draft(image, text, about, dimensions.pop()), staging, destination)


def _draft(image: ImageExport | None, text: TextExport | None, about: About, dimension: int) -> BundleDraft:
    return BundleDraft(
        name=about.name,
        version=about.version,
        dimension=dimension,
        image=None if image is None else _image_tower(image),
        text=None if text is None else _text_tower(text),
        scoring=about.scoring,
        lineage=about.lineage.model_copy(update={"packages": versions(_PACKAGES) | about.lineage.packages}),
        metrics=dict(about.metrics),
        licence=about.licence,
        languages=about.languages,
        description=about.description,
    )


def _image_tower(image: ImageExport) -> ImageTower:
    return ImageTower(
        files=TowerFiles(fp32=IMAGE_FILE),
        preprocess=image.preprocess,
        architecture=image.architecture,
        pooling=image.pooling,
        activation=image.activation,
    )


def _text_tower(text: TextExport) -> TextTower:
    return TextTower(
        files=TowerFiles(fp32=TEXT_FILE),
        text=text.spec.model_copy(update={"tokenizer": TOKENIZER_FILE}),
        architecture=text.architecture,
        pooling=text.pooling,
        activation=text.activation,
    )
