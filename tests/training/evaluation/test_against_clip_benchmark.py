"""Our measures against the public clip-benchmark package (MIT), on the same vectors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from clip_benchmark.metrics import (  # type: ignore[import-untyped]
    image_caption_selection,
    zeroshot_classification,
    zeroshot_retrieval,
)
from numpy.typing import NDArray
from torch import Tensor

from twinlens.training.evaluate import nearer, retrieval
from twinlens.training.evaluation.image_text_pairs import pair_scores
from twinlens.training.evaluation.zero_shot import class_vectors, zero_shot


def unit(*shape: int, seed: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).normal(size=shape)
    return np.asarray(vectors / np.linalg.norm(vectors, axis=-1, keepdims=True), dtype=np.float32)


class GivenVectors:
    """A "model" for clip-benchmark: its pictures and tokens are rows of vectors already."""

    def __init__(self, text_nd: NDArray[np.float32], images: int = 0) -> None:
        self._texts = torch.from_numpy(text_nd)
        self._images = images

    def encode_image(self, images: Tensor) -> Tensor:
        return images.reshape(len(images), -1)

    def encode_text(self, rows: Tensor) -> Tensor:
        return self._texts[rows]


def rows_of(texts: list[str]) -> Tensor:
    return torch.tensor([int(text) for text in texts])


@pytest.mark.parametrize("seed", range(4))
def test_retrieval_equals_clip_benchmark(seed: int) -> None:
    rng = np.random.default_rng(seed)
    captions = [[] for _ in range(23)]  # type: list[list[str]]
    for row, owner in enumerate([*range(23), *rng.integers(0, 23, size=60)]):  # one to several a picture
        captions[owner].append(str(row))
    images, texts = unit(23, 12, seed=seed), unit(83, 12, seed=seed + 9)
    batches = [(torch.from_numpy(images[part]), captions[part]) for part in (slice(0, 12), slice(12, 23))]
    theirs = zeroshot_retrieval.evaluate(
        GivenVectors(texts), batches, rows_of, "cpu", amp=False, recall_k_list=[1, 5, 10]
    )
    order = [int(row) for rows in captions for row in rows]
    owners = np.array([owner for owner, rows in enumerate(captions) for _ in rows])
    ours = retrieval(images, texts[order], owners)
    for k in (1, 5, 10):
        assert ours.text_to_image[k] == pytest.approx(theirs[f"image_retrieval_recall@{k}"], abs=1e-6)
        assert ours.image_to_text[k] == pytest.approx(theirs[f"text_retrieval_recall@{k}"], abs=1e-6)


@pytest.mark.parametrize("seed", range(4))
def test_zero_shot_with_templates_equals_clip_benchmark(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    # Its last release calls float() on an array of one number, which NumPy refuses by now.
    monkeypatch.setattr(zeroshot_classification, "float", lambda one: np.asarray(one).item(), raising=False)
    classes, templates = 7, 5
    prompts = np.random.default_rng(seed).normal(size=(classes, templates, 12)).astype(np.float32)
    images = unit(90, 12, seed=seed + 20)
    labels = np.concatenate([np.arange(classes), np.random.default_rng(seed).integers(0, classes, size=83)])

    class Data:
        dataset = type("Named", (), {"classes": [str(c) for c in range(classes)]})

        def __iter__(self) -> Any:
            yield torch.from_numpy(images[:50]), torch.from_numpy(labels[:50])
            yield torch.from_numpy(images[50:]), torch.from_numpy(labels[50:])

    names = [str(c * templates) for c in range(classes)]
    theirs = zeroshot_classification.evaluate(
        GivenVectors(prompts.reshape(-1, 12)),
        Data(),
        lambda texts: torch.tensor([eval(text) for text in texts]),  # noqa: S307 - "14 + 3", the row of a prompt
        names,
        [f"{{c}} + {t}" for t in range(templates)],
        "cpu",
        amp=False,
    )
    ours = zero_shot(images, labels, class_vectors(prompts))
    assert ours.top_1 == pytest.approx(theirs["acc1"], abs=1e-6)
    assert ours.top_5 == pytest.approx(theirs["acc5"], abs=1e-6)
    assert ours.mean_per_class == pytest.approx(theirs["mean_per_class_recall"], abs=1e-6)


def test_winoground_scores_equal_clip_benchmark() -> None:
    images, texts = unit(50, 2, 12, seed=1), unit(50, 2, 12, seed=2)
    batches = [
        (torch.from_numpy(images).reshape(50, 2, 12, 1, 1), [[str(2 * row), str(2 * row + 1)] for row in range(50)])
    ]
    theirs = image_caption_selection.evaluate(GivenVectors(texts.reshape(100, 12)), batches, rows_of, "cpu", amp=False)
    ours = pair_scores(images, texts)
    assert (ours.text, ours.image, ours.group) == pytest.approx(
        (theirs["text_acc"], theirs["image_acc"], theirs["acc"]), abs=1e-6
    )


def test_the_choice_between_a_caption_and_a_wrong_one_equals_clip_benchmark() -> None:
    images, texts = unit(50, 12, seed=3), unit(50, 2, 12, seed=4)
    batches = [
        (torch.from_numpy(images).reshape(50, 12, 1, 1), [[str(2 * row), str(2 * row + 1)] for row in range(50)])
    ]
    theirs = image_caption_selection.evaluate(GivenVectors(texts.reshape(100, 12)), batches, rows_of, "cpu", amp=False)
    ours = nearer(images, texts[:, 0], texts[:, 1])
    assert float(ours.mean()) == pytest.approx(theirs["text_acc"], abs=1e-6)
