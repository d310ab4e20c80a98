from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from twinlens.training.evaluate import nearer, retrieval, word_order


def unit(rows: int, dimension: int, seed: int) -> NDArray[np.float64]:
    vectors = np.random.default_rng(seed).normal(size=(rows, dimension))
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def slow_recall(queries: NDArray[np.float64], items: NDArray[np.float64], right: list[set[int]], k: int) -> float:
    """Sorts by score, wrong before right on ties, and looks whether a right one is among the first k."""
    found = 0
    for query, correct in zip(queries, right, strict=True):
        order = sorted(range(len(items)), key=lambda j: (-float(query @ items[j]), j in correct))
        found += any(j in correct for j in order[:k])
    return found / len(queries)


@pytest.mark.parametrize("seed", range(5))
def test_recall_equals_the_slow_oracle_with_several_captions_a_picture(seed: int) -> None:
    owners = np.random.default_rng(seed).integers(0, 9, size=40)
    images, texts = unit(9, 4, seed), unit(40, 4, seed + 100)
    ours = retrieval(images, texts, owners, ks=(1, 3))
    captioned = [i for i in range(9) if (owners == i).any()]
    for k in (1, 3):
        assert ours.text_to_image[k] == pytest.approx(slow_recall(texts, images, [{int(o)} for o in owners], k))
        rights = [{int(j) for j in np.flatnonzero(owners == i)} for i in captioned]
        assert ours.image_to_text[k] == pytest.approx(slow_recall(images[captioned], texts, rights, k))


def test_ranks_of_several_right_captions_do_not_push_each_other_back() -> None:
    images = np.eye(2)
    texts = np.array([[1.0, 0.0], [0.9, 0.1], [0.8, 0.2], [0.0, 1.0]])
    assert retrieval(images, texts, np.array([0, 0, 0, 1]), ks=(1,)).image_to_text == {1: 1.0}


@pytest.mark.parametrize("seed", range(3))
def test_median_ranks_equal_the_slow_count(seed: int) -> None:
    owners = np.concatenate([np.arange(9), np.random.default_rng(seed).integers(0, 9, size=12)])
    images, texts = unit(9, 4, seed), unit(21, 4, seed + 100)
    found = retrieval(images, texts, owners)
    places = []
    for text, owner in zip(texts, owners, strict=True):
        places.append(1 + sum(float(text @ image) > float(text @ images[owner]) for image in images))
    assert found.text_to_image_median == sorted(places)[10]
    places = []
    for picture, image in enumerate(images):
        best = max(float(image @ text) for text in texts[owners == picture])
        places.append(1 + sum(float(image @ text) > best for text in texts[owners != picture]))
    assert found.image_to_text_median == sorted(places)[4]


def test_pieces_of_the_score_matrix_give_what_the_whole_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    images, texts, owners = unit(9, 4, 0), unit(40, 4, 1), np.random.default_rng(2).integers(0, 9, size=40)
    whole = retrieval(images, texts, owners)
    monkeypatch.setattr("twinlens.training.evaluate.SCORES_AT_A_TIME", 30)
    assert retrieval(images, texts, owners) == whole


def test_constant_vectors_find_nothing() -> None:
    same = np.ones((10, 3)) / np.sqrt(3)
    result = retrieval(same, same, np.arange(10), ks=(1, 5, 10))
    assert result.text_to_image == {1: 0.0, 5: 0.0, 10: 1.0}
    assert result.image_to_text == {1: 0.0, 5: 0.0, 10: 1.0}


def test_equal_vectors_tie_where_a_matrix_product_rounds_them_differently() -> None:
    same, texts = np.tile(unit(1, 384, 0).astype(np.float32), (61, 1)), unit(305, 384, 1).astype(np.float32)
    result = retrieval(same, texts, np.arange(305) % 61, ks=(1, 60, 61))
    assert result.text_to_image == {1: 0.0, 60: 0.0, 61: 1.0}


def test_perfect_vectors_find_everything() -> None:
    assert retrieval(np.eye(6), np.eye(6), np.arange(6), ks=(1,)).text_to_image == {1: 1.0}


def test_word_order_is_the_share_of_pictures_nearer_to_their_caption() -> None:
    images, texts = unit(50, 6, 0), unit(50, 6, 1)
    wrong = {"a": unit(50, 6, 2), "b": texts}
    result = word_order(images, texts, wrong)
    expected = sum(float(i @ t) > float(i @ w) for i, t, w in zip(images, texts, wrong["a"], strict=True)) / 50
    assert result == {"a": pytest.approx(expected), "b": 0.0, "mean": pytest.approx(expected / 2)}


@pytest.mark.parametrize(
    ("images", "texts", "owners", "ks", "message"),
    [
        (np.zeros((0, 3)), np.eye(3), np.arange(3), (1,), "shape"),
        (np.eye(3), np.full((3, 3), np.nan), np.arange(3), (1,), "not finite"),
        (np.eye(3), np.eye(3), np.array([0, 1, 3]), (1,), "image_of_text"),
        (np.eye(3), np.eye(3), np.arange(2), (1,), "image_of_text"),
        (np.eye(3), np.eye(3), np.arange(3), (0,), "at least 1"),
    ],
)
def test_input_that_means_nothing_is_refused(
    images: NDArray[np.float64],
    texts: NDArray[np.float64],
    owners: NDArray[np.int64],
    ks: tuple[int, ...],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        retrieval(images, texts, owners, ks)


def test_word_order_refuses_other_shapes() -> None:
    with pytest.raises(ValueError, match="instead of"):
        word_order(np.eye(3), np.eye(3), {"a": np.eye(4)})
    with pytest.raises(ValueError, match="at least one kind"):
        word_order(np.eye(3), np.eye(3), {})


def test_a_tie_is_not_nearer() -> None:
    same = np.eye(3)
    assert nearer(same, same, same).tolist() == [False] * 3
    assert nearer(same, same, np.roll(same, 1, axis=0)).tolist() == [True] * 3
    with pytest.raises(ValueError, match="one shape"):
        nearer(same, same, np.eye(4))
