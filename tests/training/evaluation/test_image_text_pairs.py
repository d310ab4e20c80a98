from __future__ import annotations

import numpy as np
import pytest

from twinlens.training.evaluation.image_text_pairs import GROUP_CHANCE, IMAGE_CHANCE, TEXT_CHANCE, pair_scores


def random_pairs(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    images, texts = rng.normal(size=(2, rows, 2, 16))
    return (
        images / np.linalg.norm(images, axis=-1, keepdims=True),
        texts / np.linalg.norm(texts, axis=-1, keepdims=True),
    )


def test_scores_follow_the_equations_of_winoground() -> None:
    images, texts = random_pairs(40, 0)
    text, image, group = 0, 0, 0
    for (i0, i1), (c0, c1) in zip(images, texts, strict=True):
        f = float(c0 @ i0) > float(c1 @ i0) and float(c1 @ i1) > float(c0 @ i1)
        g = float(c0 @ i0) > float(c0 @ i1) and float(c1 @ i1) > float(c1 @ i0)
        text, image, group = text + f, image + g, group + (f and g)
    found = pair_scores(images, texts)
    assert (found.text, found.image, found.group) == pytest.approx((text / 40, image / 40, group / 40))


def test_exchanging_pictures_and_captions_exchanges_the_scores() -> None:
    images, texts = random_pairs(40, 1)
    one, other = pair_scores(images, texts), pair_scores(texts, images)
    assert (one.text, one.image, one.group) == (other.image, other.text, other.group)


def test_random_vectors_score_chance() -> None:
    found = pair_scores(*random_pairs(20_000, 2))
    assert found.text == pytest.approx(TEXT_CHANCE, abs=0.015)
    assert found.image == pytest.approx(IMAGE_CHANCE, abs=0.015)
    assert found.group == pytest.approx(GROUP_CHANCE, abs=0.015)


def test_an_encoder_blind_to_word_order_scores_nothing() -> None:
    images, texts = random_pairs(10, 3)
    texts[:, 1] = texts[:, 0]
    found = pair_scores(images, texts)
    assert (found.text, found.group) == (0.0, 0.0)


def test_input_that_means_nothing_is_refused() -> None:
    images, texts = random_pairs(3, 4)
    with pytest.raises(ValueError, match="shape"):
        pair_scores(images, texts[:2])
    with pytest.raises(ValueError, match="shape"):
        pair_scores(images[:0], texts[:0])
    images[0, 0, 0] = np.nan
    with pytest.raises(ValueError, match="not finite"):
        pair_scores(images, texts)
