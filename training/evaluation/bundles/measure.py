"""Measures a model on every set of a configuration."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial

from twinlens.training.evaluation.bundles.choice_sets import (
    measure_compositional,
    measure_pairs,
    read_compositional,
    read_pairs,
)
from twinlens.training.evaluation.bundles.config import EvalConfig
from twinlens.training.evaluation.bundles.embedder import Embedder, EvaluatedModel
from twinlens.training.evaluation.bundles.results import Evaluation, SetResult
from twinlens.training.evaluation.bundles.retrieval_set import measure_retrieval, read_retrieval
from twinlens.training.evaluation.bundles.usable import need_towers
from twinlens.training.evaluation.bundles.vectors_once import VectorsOnce
from twinlens.training.evaluation.bundles.zero_shot_set import measure_zero_shot, read_zero_shot


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
    ready = list(_ready(embedder.model, config))
    vectors = VectorsOnce(embedder)
    return Evaluation(embedder.model, tuple(_told_apart([measure(vectors) for measure in ready])))


def _ready(model: EvaluatedModel, config: EvalConfig) -> Iterator[Callable[[VectorsOnce], SetResult]]:
    """What measures each set. Every list is read now: a wrong line in the last is no news for after minutes of work."""
    share = config.max_unreadable_share
    for labels in config.zero_shot:
        need_towers(model, labels.path, text=False)
    for section in (*config.retrieval, *config.compositional, *config.pairs):
        need_towers(model, section.path, text=True)
    for retrieval in config.retrieval:
        yield partial(measure_retrieval, section=retrieval, rows=read_retrieval(retrieval), max_share=share)
    for zero_shot in config.zero_shot:
        yield partial(measure_zero_shot, section=zero_shot, found=read_zero_shot(zero_shot), max_share=share)
    for words in config.compositional:
        yield partial(measure_compositional, section=words, choices=read_compositional(words), max_share=share)
    for pairs in config.pairs:
        yield partial(measure_pairs, section=pairs, pairs=read_pairs(pairs), max_share=share)


def _told_apart(found: Sequence[SetResult]) -> Iterator[SetResult]:
    """Sets of one kind and one name get numbers."""
    names = Counter((each.kind, each.name) for each in found)
    seen: Counter[tuple[str, str]] = Counter()
    for each in found:
        key = (each.kind, each.name)
        seen[key] += 1
        yield each if names[key] == 1 else replace(each, name=f"{each.name} ({seen[key]})")
