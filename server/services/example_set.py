"""Between the wire's examples and the core's."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from twinlens.index.contract import CollectionLike
from twinlens.index.item import Modality
from twinlens.server.core.engine import Picture
from twinlens.server.core.errors import invalid_argument
from twinlens.server.core.example_scoring import ExampleRule, ExampleScoring
from twinlens.server.core.examples import Example, ExampleSource, ExampleVectors
from twinlens.server.core.lookup import RawVector, StoredItem
from twinlens.server.services import convert
from twinlens.v1 import classification_pb2 as pb

MAX_EXAMPLES = 10_000
_RULES = {
    pb.EXAMPLE_RULE_UNSPECIFIED: ExampleRule.PROTOTYPE,
    pb.EXAMPLE_RULE_PROTOTYPE: ExampleRule.PROTOTYPE,
    pb.EXAMPLE_RULE_KNN: ExampleRule.KNN,
}


def check(given: pb.ExampleSet) -> None:
    """Refuses what cannot be meant.

    Raises:
        ServiceError: INVALID_ARGUMENT.
    """
    if len(given.examples) > MAX_EXAMPLES:
        raise invalid_argument(
            f"a request has at most {MAX_EXAMPLES} examples, not {len(given.examples)}; store more in a collection, "
            "with their labels as metadata, and name it with label_key"
        )
    if not given.examples and not given.label_key:
        raise invalid_argument("there are no examples: give some, or a collection and the label_key of its items")
    if given.label_key and not given.collection:
        raise invalid_argument("label_key needs the collection whose items are meant")
    if given.collection and not (given.label_key or any(each.HasField("item_id") for each in given.examples)):
        raise invalid_argument("the collection is of no use: give the label_key of its items, or examples by item_id")


def scoring(given: pb.ExampleSet) -> ExampleScoring:
    """How to score, with defaults in place of what is not set.

    Raises:
        ServiceError: INVALID_ARGUMENT for a rule this version does not know, and for a `k` that it has no use for.
    """
    if given.rule not in _RULES:
        raise invalid_argument(f"rule {given.rule} is not known")
    rule = _RULES[given.rule]
    if given.k and rule is not ExampleRule.KNN:
        raise invalid_argument("k is for rule KNN; prototypes have no neighbours")
    defaults = ExampleScoring()
    return ExampleScoring(
        rule=rule,
        k=given.k or defaults.k,
        temperature=given.temperature if given.HasField("temperature") else defaults.temperature,
        text_weight=given.text_weight,
    )


def source(given: pb.ExampleSet, collection: CollectionLike | None) -> ExampleSource:
    """Where the examples come from. Goes through all of their bytes: not for the event loop."""
    digest = hashlib.sha256()
    size_bytes = pictures = 0
    for each in given.examples:  # one by one: a copy of all of them, without rule and numbers, takes longer
        content = each.SerializeToString(deterministic=True)
        digest.update(len(content).to_bytes(8, "big") + content)
        size_bytes += len(content)
        pictures += each.WhichOneof("content") == "image"
    return ExampleSource(
        read=lambda: [_example(each) for each in given.examples],
        digest=digest.hexdigest(),
        size_bytes=size_bytes,
        pictures=pictures,
        collection=collection,
        label_key=given.label_key,
        space_id=given.space_id,
    )


def report(examples: ExampleVectors) -> pb.ExampleReport:
    """What became of the examples."""
    failures: Sequence[pb.ExampleFailure] = [
        pb.ExampleFailure(position=each.position, label=each.label, error=convert.item_error(each.failure))
        for each in examples.failures
    ]
    return pb.ExampleReport(
        label_count=len(examples.labels),
        used_count=examples.used,
        failures=failures,
        unlabelled_count=examples.unlabelled,
    )


def _example(wire: pb.Example) -> Example:
    match wire.WhichOneof("content"):
        case "image":
            return Example(wire.label, Picture(wire.image))
        case "item_id":
            return Example(wire.label, StoredItem(wire.item_id, Modality.IMAGE))
        case "vector":
            return Example(wire.label, RawVector(np.asarray(wire.vector.values, dtype=np.float32)))
        case _:
            return Example(wire.label, None)
