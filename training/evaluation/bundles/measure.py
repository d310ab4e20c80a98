"""Measures a model on every set of a configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace

from twinlens.training.evaluation.bundles.choice_sets import measure_compositional, measure_pairs
from twinlens.training.evaluation.bundles.config import EvalConfig
from twinlens.training.evaluation.bundles.embedder import Embedder
from twinlens.training.evaluation.bundles.results import Evaluation, SetResult
from twinlens.training.evaluation.bundles.retrieval_set import measure_retrieval
from twinlens.training.evaluation.bundles.vectors_once import VectorsOnce
from twinlens.training.evaluation.bundles.zero_shot_set import measure_zero_shot


def evaluate_model(embedder: Embedder, config: EvalConfig) -> Evaluation:
    """Everything that the configuration asks for; a picture that is in several sets is embedded once.

    Args:
        embedder: A bundle, or a server.
        config: The sets.

    Raises:
        ConfigError: if the model lacks a tower that a set needs, or a set of prompts cannot be used.
        DataError: if a set cannot be used.
        BundleError: if a tower fails.
        TwinlensError: if the server does.
    """
    return Evaluation(embedder.model, tuple(_told_apart(_results(VectorsOnce(embedder), config))))


def _results(vectors: VectorsOnce, config: EvalConfig) -> Iterator[SetResult]:
    share = config.max_unreadable_share
    for retrieval in config.retrieval:
        yield measure_retrieval(vectors, retrieval, share)
    for zero_shot in config.zero_shot:
        yield measure_zero_shot(vectors, zero_shot, share)
    for compositional in config.compositional:
        yield measure_compositional(vectors, compositional, share)
    for pairs in config.pairs:
        yield measure_pairs(vectors, pairs, share)


def _told_apart(results: Iterator[SetResult]) -> Iterator[SetResult]:
    """Sets of one kind and one name get numbers."""
    found = list(results)
    names = Counter((each.kind, each.name) for each in found)
    seen: Counter[tuple[str, str]] = Counter()
    for each in found:
        key = (each.kind, each.name)
        seen[key] += 1
        yield each if names[key] == 1 else replace(each, name=f"{each.name} ({seen[key]})")
