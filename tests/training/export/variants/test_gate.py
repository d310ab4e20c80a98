from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from twinlens.training.export.variants.gate import Vectors, judge, neighbours_kept, recall, top1


def unit(rng: np.random.Generator, rows: int, width: int = 16) -> NDArray[np.float32]:
    vectors = rng.standard_normal((rows, width))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), np.float32)


def test_recall_is_that_of_a_full_sort() -> None:
    rng = np.random.default_rng(0)
    images, texts = unit(rng, 300), unit(rng, 400)
    picture_of = rng.integers(0, 300, 400)
    hits = [picture in np.argsort(-(text @ images.T))[:10] for text, picture in zip(texts, picture_of, strict=True)]
    assert recall(texts, images, picture_of) == pytest.approx(100 * np.mean(hits))


def test_neighbours_kept_is_that_of_full_sorts() -> None:
    rng = np.random.default_rng(1)
    exact = unit(rng, 300)
    found = exact + 0.2 * unit(rng, 300)

    def lists(vectors: NDArray[np.float32]) -> NDArray[np.int64]:
        scores = vectors @ vectors.T
        np.fill_diagonal(scores, -2.0)
        return np.argsort(-scores, axis=1, kind="stable")[:, :10]

    before, after = lists(exact), lists(found)
    kept, overlap = neighbours_kept(exact, found)
    assert kept == pytest.approx(100 * np.mean([a[0] in b for a, b in zip(before, after, strict=True)]))
    assert overlap == pytest.approx(np.mean([len(set(a) & set(b)) / 10 for a, b in zip(before, after, strict=True)]))
    assert neighbours_kept(exact, exact) == (100.0, 1.0)


def test_each_limit_is_named_when_it_is_broken() -> None:
    rng = np.random.default_rng(2)
    images, texts, prompts = unit(rng, 100), unit(rng, 100), unit(rng, 4)
    labels = (images @ prompts.T).argmax(axis=1)
    exact = Vectors(images, images.copy(), ((images, prompts),))
    nothing = np.arange(100)
    fine = judge(exact, exact, np.ones(10), nothing, {"set": labels})
    assert fine.passed
    assert (fine.recall_drop, fine.top1_drop, fine.overlap) == (0.0, 0.0, 1.0)

    turned = Vectors(images, texts, ((images, prompts[::-1].copy()),))
    cosines = np.full(10, 0.99)
    cosines[0] = 0.97
    broken = judge(exact, turned, cosines, nothing, {"set": labels})
    text = "; ".join(broken.problems)
    for part in ("mean cosine 0.9880", "worst cosine 0.9700", "recall@10 falls by", "top-1 on set falls by"):
        assert part in text
    assert broken.top1_drop == pytest.approx(100.0 - top1(images, prompts[::-1], labels))


def test_a_cosine_that_is_not_a_number_does_not_pass() -> None:
    exact = Vectors(unit(np.random.default_rng(3), 20), np.zeros((0, 16), np.float32))
    assert not judge(exact, exact, np.array([1.0, np.nan]), np.zeros(0, np.int64), {}).passed


def test_without_captions_neighbours_stand_in_for_recall() -> None:
    rng = np.random.default_rng(4)
    exact = Vectors(unit(rng, 200), np.zeros((0, 16), np.float32))
    judged = judge(exact, Vectors(unit(rng, 200), exact.texts), np.ones(200), np.zeros(0, np.int64), {})
    assert not judged.by_captions
    assert judged.recall_queries == 200
    assert "recall@10 falls by" in judged.problems[0]


def test_without_captions_two_reduced_towers_are_judged_by_the_pictures_that_texts_find() -> None:
    """Turned both alike, pictures and texts keep their neighbours; turned apart, no text finds its picture."""
    rng = np.random.default_rng(5)
    exact = Vectors(unit(rng, 200), unit(rng, 150))
    first, second = (np.linalg.qr(rng.standard_normal((16, 16)))[0].astype(np.float32) for _ in range(2))
    nobody = np.zeros(0, np.int64)
    alike = judge(exact, Vectors(exact.images @ first, exact.texts @ first), np.ones(350), nobody, {})
    assert (alike.recall_drop, alike.recall_queries, alike.by_captions) == (0.0, 150, False)
    apart = judge(exact, Vectors(exact.images @ first, exact.texts @ second), np.ones(350), nobody, {})
    assert apart.overlap == 1.0
    assert "recall@10 falls by" in apart.problems[0]
