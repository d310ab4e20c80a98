"""The starter's bundle as something that training goes on from."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.image_files import encode, scene
from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import TRAINING_FILE
from twinlens.encoders.tokenise import collate
from twinlens.training.errors import CheckpointError
from twinlens.training.export.agreement import row_cosines
from twinlens.training.export.checkpoint_bundle import export_checkpoint
from twinlens.training.sections.model import ModelConfig
from twinlens.training.start import Parent, start_of
from twinlens.training.towers.class_names import ClassNameTower
from twinlens.training.towers.two_towers import TwoTowers

TEXTS = ("a cat", "two dogs play in the snow")


def vectors(encoder: Encoder) -> tuple[np.ndarray, np.ndarray]:
    pixels = np.stack([encoder.prepare_image(encode(scene(200, 260, seed))) for seed in range(3)])
    return encoder.encode_images(pixels), encoder.encode_texts([encoder.prepare_text(text) for text in TEXTS])


def test_training_starts_from_the_starters_own_vectors(starter_bundle: Path) -> None:
    start = start_of(ModelConfig(from_checkpoint=starter_bundle))
    assert isinstance(start, Parent)
    encoder = Encoder.load(starter_bundle, provider="cpu", threads=1)
    assert start.space_id == encoder.manifest.space_id
    model = start.model
    assert isinstance(model, TwoTowers)
    assert isinstance(model.visual, ClassNameTower)
    assert model.logit_scale.detach().exp().item() == pytest.approx(encoder.manifest.scoring.scale)
    pixels = np.stack([encoder.prepare_image(encode(scene(200, 260, seed))) for seed in range(3)])
    tokens = [encoder.prepare_text(text) for text in TEXTS]
    ids, _ = collate(tokens, start.spec.text.model_copy(update={"pad_to_context": True}))
    with torch.no_grad():
        images, texts = model.encode_image(torch.from_numpy(pixels)), model.encode_text(torch.from_numpy(ids))
    assert row_cosines(images.numpy(), encoder.encode_images(pixels)).min() >= 0.99999
    assert row_cosines(texts.numpy(), encoder.encode_texts(tokens)).min() >= 0.99999


def test_a_server_never_reads_the_checkpoint(starter_bundle: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "starter"
    shutil.copytree(starter_bundle, bundle)
    (bundle / TRAINING_FILE).write_bytes(b"something else")
    Encoder.load(bundle, provider="cpu", threads=1)
    with pytest.raises(BundleError, match=r"checkpoint\.pt has 14 bytes"):
        verify_digests(bundle, read_manifest(bundle))
    with pytest.raises(CheckpointError, match="is not the checkpoint that the bundle lists"):
        start_of(ModelConfig(from_checkpoint=bundle))
    (bundle / TRAINING_FILE).unlink()
    Encoder.load(bundle, provider="cpu", threads=1)
    with pytest.raises(CheckpointError, match="a bundle without a checkpoint to train from"):
        start_of(ModelConfig(from_checkpoint=bundle))


def test_the_checkpoint_is_no_part_of_the_space(starter_bundle: Path) -> None:
    manifest = read_manifest(starter_bundle)
    assert TRAINING_FILE in {entry.path for entry in manifest.files}
    without = tuple(entry for entry in manifest.files if entry.path != TRAINING_FILE)
    assert manifest.model_validate({**manifest.model_dump(), "files": without}).space_id == manifest.space_id


@pytest.mark.slow
def test_the_starters_checkpoint_exports_to_the_same_vectors(starter_bundle: Path, tmp_path: Path) -> None:
    export_checkpoint(starter_bundle, tmp_path / "again")
    before, after = (
        vectors(Encoder.load(path, provider="cpu", threads=1)) for path in (starter_bundle, tmp_path / "again")
    )
    for one, other in zip(before, after, strict=True):
        assert np.abs(one - other).max() < 1e-6
    assert read_manifest(tmp_path / "again").scoring.scale == pytest.approx(read_manifest(starter_bundle).scoring.scale)
