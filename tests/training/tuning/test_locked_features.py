from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.conftest import TINY_TOWERS
from twinlens.training.checkpoint import DualEncoderSpec, build_model, load_checkpoint
from twinlens.training.config import TrainConfig
from twinlens.training.data.pairs import Pairs, from_scenes, tokenise
from twinlens.training.data.scenes import Scene
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.sections.tuning import TuningConfig
from twinlens.training.towers.class_names import build_class_names
from twinlens.training.train import train
from twinlens.training.tuning import locked_features
from twinlens.training.tuning.locked_features import Known, known_features, with_features


@pytest.fixture
def towers(tiny_spec: DualEncoderSpec) -> DualEncoder:
    torch.manual_seed(0)
    return DualEncoder(build_model(tiny_spec), tiny_spec.preprocess.mean, tiny_spec.preprocess.std)


@pytest.fixture
def pairs(scenes: list[Scene], tiny_spec: DualEncoderSpec) -> Pairs:
    return tokenise(from_scenes(scenes[:20]), tiny_spec.tokenizer_json, tiny_spec.text)


def test_features_give_the_vectors_of_pixels_and_token_ids(towers: DualEncoder, pairs: Pairs) -> None:
    known = with_features(pairs, towers, Known(images=True, texts=True))
    towers.eval()
    with torch.no_grad():
        images = towers.images(torch.from_numpy(pairs.pixels_nhwc[pairs.slots]))
        torch.testing.assert_close(towers.images(torch.from_numpy(known.pixels_nhwc[known.slots])), images)
        texts = towers.texts(torch.from_numpy(pairs.token_ids_ml))
        torch.testing.assert_close(towers.texts(torch.from_numpy(known.token_ids_ml)), texts)


def test_only_pictures_of_the_pairs_are_computed(towers: DualEncoder, scenes: list[Scene], tiny_spec: Any) -> None:
    raw = from_scenes(scenes[:20])
    some = dataclasses.replace(
        raw, listed=raw.listed.of([3, 7]), slots=raw.slots[[3, 7]], image_digests=(raw.image_digests[3],) * 2
    )
    pairs = tokenise(some, tiny_spec.tokenizer_json, tiny_spec.text)
    known = with_features(pairs, towers, Known(images=True, texts=False))
    assert known.pixels_nhwc.shape[0] == 2
    assert known.slots.tolist() == [0, 1]
    assert known.token_ids_ml.dtype == np.int64


def test_the_towers_keep_their_mode_and_statistics(towers: DualEncoder, pairs: Pairs) -> None:
    towers.train()
    towers.model.visual.bn1.eval()  # type: ignore[union-attr]
    before = {name: value.clone() for name, value in towers.state_dict().items()}
    with_features(pairs, towers, Known(images=True, texts=True))
    assert towers.training
    assert not towers.model.visual.bn1.training  # type: ignore[union-attr]
    assert all(torch.equal(value, before[name]) for name, value in towers.state_dict().items())


@pytest.mark.parametrize("residual", [False, True])
def test_a_tower_with_class_names_is_its_two_parts(residual: bool) -> None:
    torch.manual_seed(0)
    tower = build_class_names({"timm": "test_efficientnet", "classes": 7, "temperature": 2.0}, 5).eval()
    tower.class_embeddings.copy_(torch.randn(7, 5))
    if residual:
        tower.add_residual()
        torch.nn.init.normal_(tower.residual.weight)  # type: ignore[union-attr]
    pixels = torch.randn(3, 3, 64, 64)
    with torch.no_grad():
        torch.testing.assert_close(tower.of_features(tower.features(pixels)), tower(pixels))


@pytest.mark.parametrize(
    ("tuning", "augmented", "images", "texts"),
    [
        ({}, False, False, False),
        ({"lock_image": True}, False, True, False),
        ({"lock_image": True}, True, False, False),
        ({"lock_text": True}, True, False, True),
        ({"lock_image": 0, "lock_text": 1}, False, False, False),
        ({"lock_image": True, "lock_text": True, "unlock_steps": 5}, False, False, False),
        ({"lock_image": True, "lock_text": True, "image_residual": True}, False, True, True),
    ],
)
def test_only_what_stays_locked_and_sees_the_same_is_known(
    tuning: dict[str, Any], augmented: bool, images: bool, texts: bool
) -> None:
    assert known_features(TuningConfig.model_validate(tuning), augmented=augmented) == Known(images, texts)


def _run(out: Path, tuning: dict[str, Any], **settings: Any) -> dict[str, torch.Tensor]:
    config = TrainConfig.model_validate(
        {
            "data": {"source": "scenes", "count": 48, "seed": 3},
            "model": {"config": TINY_TOWERS},
            "train": {"steps": 4, "batch_size": 16, "warmup_steps": 0, "log_every": 4, **settings},
            "tuning": tuning,
        }
    )
    return load_checkpoint(train(config, out, lambda *_: None).checkpoint)[1].state_dict()


@pytest.mark.parametrize(
    ("tuning", "settings"),
    [({"lock_image": True}, {"ema_decay": 0.5}), ({"lock_text": True}, {"chunk_size": 8})],
)
def test_a_run_on_features_trains_what_a_run_on_pixels_and_tokens_does(
    tuning: dict[str, Any], settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = _run(tmp_path / "features", tuning, **settings)
    with monkeypatch.context() as patch:
        patch.setattr(locked_features.Known, "__init__", _nothing_known)
        expected = _run(tmp_path / "pixels", tuning, **settings)
    for name, value in found.items():
        torch.testing.assert_close(value, expected[name], atol=2e-4, rtol=1e-3, msg=name)


def _nothing_known(self: Known, images: bool, texts: bool) -> None:
    object.__setattr__(self, "images", False)
    object.__setattr__(self, "texts", False)
