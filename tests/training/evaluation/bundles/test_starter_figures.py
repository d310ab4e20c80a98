"""The starter's figures on real photos are those that docs/starter.md tells, which were measured through the server."""

from __future__ import annotations

from pathlib import Path

import pytest

from twinlens.encoders.encoder import Encoder
from twinlens.training.evaluation.bundles.bundle_embedder import BundleEmbedder
from twinlens.training.evaluation.bundles.config import eval_config
from twinlens.training.evaluation.bundles.measure import evaluate_model

pytestmark = [pytest.mark.slow, pytest.mark.shared]


def test_the_starter_scores_what_its_page_says(starter_bundle: Path, shared_data: Path) -> None:
    sets = {
        "retrieval": [{"path": shared_data / "tuxpaint_stamps" / "captions.jsonl"}],
        "zero_shot": [{"path": shared_data / "cifar10_tiny", "templates": ["photo", "openai"]}],
        "pairs": [{"path": shared_data / "nlvr_a" / "pairs.jsonl"}],
    }
    embedder = BundleEmbedder(Encoder.load(starter_bundle), decoders=2)
    stamps, cifar, drawings = evaluate_model(embedder, eval_config(sets, "the test")).sets
    assert [stamps.value(f"text_to_image_r{k}") for k in (1, 5, 10)] == pytest.approx([0.173, 0.304, 0.372], abs=0.004)
    assert cifar.value("photo/top_1") == pytest.approx(0.360, abs=0.007)
    assert cifar.value("photo/top_5") == pytest.approx(0.843, abs=0.007)
    assert cifar.value("knn") > cifar.value("photo/top_1")
    # A bag of class names cannot count boxes.
    assert drawings.value("accuracy") == pytest.approx(0.5, abs=0.1)
