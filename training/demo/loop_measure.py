"""What a model is worth, measured through the server it is served by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.client import Client, NewItem
from twinlens.training.data.scenes import KINDS, Scene
from twinlens.training.demo.failed import DemoFailed
from twinlens.training.evaluate import recall, retrieval, word_order


@dataclass(frozen=True)
class Measured:
    """Text → image recall, and word-order accuracy by kind of wrong caption with their mean."""

    recall_at_1: float
    recall_at_5: float
    word_order: dict[str, float]


def store(client: Client, collection: str, scenes: Sequence[Scene]) -> None:
    """Puts scenes with their captions into a new collection.

    Raises:
        DemoFailed: if one is not stored.
    """
    client.create_collection(collection)
    report = client.upsert(collection, (NewItem(scene.png(), scene.caption, scene.id) for scene in scenes))
    if report.failures:
        first = report.failures[0]
        raise DemoFailed(f"{len(report.failures)} scenes were not stored; the first, {first.id}: {first.message}")


def measure_served(client: Client, collection: str, scenes: Sequence[Scene]) -> Measured:
    """Searches `collection`, which holds exactly `scenes`, with each caption; embeds the wrong captions."""
    top_k = min(len(scenes), 20)
    results = client.search_batch(collection, [scene.caption for scene in scenes], top_k=top_k)
    ranks = np.empty(len(scenes), dtype=np.int64)
    for row, (scene, result) in enumerate(zip(scenes, results, strict=True)):
        if result.error is not None:
            raise DemoFailed(f"the search for {scene.caption!r} failed: {result.error}")
        own = next((hit.score for hit in result.hits if hit.id == scene.id), None)
        # A wrong picture that scores the same stands before the right one; out of sight is behind all in sight.
        ahead = sum(own is None or hit.score >= own for hit in result.hits if hit.id != scene.id)
        ranks[row] = 1 + ahead
    images = client.embed_images([scene.png() for scene in scenes]).vectors
    texts = client.embed_texts([scene.caption for scene in scenes]).vectors
    wrong = {kind: client.embed_texts([scene.negatives[kind] for scene in scenes]).vectors for kind in KINDS}
    at = recall(ranks, (1, 5))
    return Measured(at[1], at[5], word_order(images, texts, wrong))


def measure_vectors(
    images: NDArray[np.float32], texts: NDArray[np.float32], wrong: dict[str, NDArray[np.float32]]
) -> Measured:
    """The same measures from vectors alone; row i of everything belongs to scene i."""
    at = retrieval(images, texts, np.arange(len(images)), (1, 5)).text_to_image
    return Measured(at[1], at[5], word_order(images, texts, wrong))
