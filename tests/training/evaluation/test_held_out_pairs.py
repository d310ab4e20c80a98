from __future__ import annotations

import numpy as np
import pytest

from twinlens.training.evaluate import retrieval
from twinlens.training.evaluation.held_out_pairs import pair_measures, spread_measures


def unit(rows: int, dimension: int, seed: int) -> np.ndarray:
    vectors = np.random.default_rng(seed).normal(size=(rows, dimension))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), dtype=np.float32)


def test_recalls_are_those_of_retrieval() -> None:
    images, texts, owners = unit(10, 8, 0), unit(30, 8, 1), np.repeat(np.arange(10), 3)
    found, wanted = pair_measures(images, texts, owners), retrieval(images, texts, owners)
    assert {k: found[f"text_to_image_r{k}"] for k in (1, 5, 10)} == wanted.text_to_image
    assert {k: found[f"image_to_text_r{k}"] for k in (1, 5, 10)} == wanted.image_to_text
    assert found["text_to_image_median_rank"] == wanted.text_to_image_median
    every = [*wanted.text_to_image.values(), *wanted.image_to_text.values()]
    assert found["mean_recall"] == pytest.approx(sum(every) / 6)


def test_alignment_and_the_gap_follow_their_equations() -> None:
    images, texts, owners = unit(6, 5, 2), unit(12, 5, 3), np.repeat(np.arange(6), 2)
    found = pair_measures(images, texts, owners, ks=(1,))
    squared = [float(((text - images[owner]) ** 2).sum()) for text, owner in zip(texts, owners, strict=True)]
    assert found["alignment"] == pytest.approx(sum(squared) / 12, rel=1e-5)
    assert found["modality_gap"] == pytest.approx(float(np.linalg.norm(images.mean(0) - texts.mean(0))), rel=1e-5)


def test_a_perfect_encoder_is_aligned_and_finds_all() -> None:
    found = pair_measures(np.eye(8), np.eye(8), np.arange(8))
    assert found["mean_recall"] == 1.0
    assert found["alignment"] == 0.0
    assert found["modality_gap"] == 0.0
    assert found["image_rank"] == pytest.approx(8.0)
    assert found["text_rank"] == pytest.approx(8.0)
    assert found["image_uniformity"] == pytest.approx(-4.0)


def test_a_collapsed_encoder_is_aligned_and_finds_nothing() -> None:
    same = np.ones((20, 4)) / 2
    found = pair_measures(same, same, np.arange(20))
    assert found["mean_recall"] == 0.0
    assert found["alignment"] == 0.0
    assert found["image_uniformity"] == pytest.approx(0.0)
    assert found["text_rank"] == pytest.approx(1.0)


def test_one_pair_has_what_can_be_said_of_one() -> None:
    found = pair_measures(unit(1, 4, 0), unit(1, 4, 1), np.zeros(1, dtype=np.int64))
    assert found["text_to_image_r1"] == 1.0
    assert "alignment" not in found
    assert "image_rank" not in found


def test_many_vectors_do_not_make_every_pair() -> None:
    many = spread_measures(unit(9000, 6, 5))
    assert many["uniformity"] == pytest.approx(spread_measures(unit(3000, 6, 6))["uniformity"], abs=0.02)
