"""Labelling by examples: their pictures are embedded once, and their vectors go with every call that labels."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sized
from typing import TypeAlias, get_args

from twinlens.client import calls, types
from twinlens.client.convert import error_of_call, error_of_examples, vector
from twinlens.client.errors import TwinlensError, invalid
from twinlens.client.metadata import check_text
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.v1 import classification_pb2 as pb

MAX_EXAMPLES = 10_000
MAX_LABELS = 10_000
MAX_LABEL_BYTES = 1024

_RULES = {"prototype": pb.EXAMPLE_RULE_PROTOTYPE, "knn": pb.EXAMPLE_RULE_KNN}
# The bounds of the wire contract, so that nothing out of range is found only after all examples are embedded.
_BOUNDS = {"k": (0, 10_000), "temperature": (0.001, 100.0), "text_weight": (0.0, 1.0)}

ExampleInput: TypeAlias = "types.Examples | PreparedExamples | Mapping[str, Iterable[types.ImageInput]]"


def prepare(given: types.Examples | Mapping[str, Iterable[types.ImageInput]]) -> calls.Plan[PreparedExamples]:
    """Embeds the examples' pictures, those that can be read; what cannot be meant is refused before."""
    examples = given if isinstance(given, types.Examples) else types.Examples(images=given)
    wire = _options(examples)
    _check_labels([*examples.images, *examples.items])
    items = _items(examples.items)
    known = sum(len(pictures) for pictures in examples.images.values() if isinstance(pictures, Sized))
    if known + len(items) > MAX_EXAMPLES:
        raise _too_many()
    owners: list[tuple[str, int]] = []
    batch = yield from calls.embed_images(_pictures(examples.images, owners))
    wire.space_id = batch.model.space_id if batch.model is not None else ""
    errors: list[types.ExampleError] = []
    for row, (label, position) in enumerate(owners):
        if (why := batch.errors.get(row)) is None:
            wire.examples.append(pb.Example(label=label, vector=vector(batch.vectors[row])))
        elif why.reason == "INTERNAL":  # the server's fault, not the picture's: nobody shall label without it
            raise error_of_call(why)
        else:
            errors.append(types.ExampleError(label, position, why.reason, why.message))
    wire.examples.extend(items)
    usable = {example.label for example in wire.examples}
    for label in [*examples.images, *examples.items]:
        if label not in usable:
            reason = next((error.message for error in errors if error.label == label), "there is none")
            raise invalid(f"label {label!r} has no example that can be used: {reason}")
    if len(wire.examples) > MAX_EXAMPLES:
        raise _too_many()
    labels = MAX_LABELS if examples.label_key else len(usable)
    return PreparedExamples(tuple(errors), len(wire.examples), labels, wire.ByteSize(), wire)


def usable(examples: ExampleInput) -> calls.Plan[PreparedExamples]:
    """Examples that are prepared; of those that were not yet, all must be usable."""
    if isinstance(examples, PreparedExamples):
        return examples
    prepared = yield from prepare(examples)
    if prepared.errors:
        first = prepared.errors[0]
        which = f"example {first.position} of label {first.label!r}"
        raise error_of_examples(which, types.ItemError(first.reason, first.message), len(prepared.errors))
    return prepared


def _options(examples: types.Examples) -> pb.ExampleSet:
    if examples.rule not in _RULES:
        raise invalid(f"rule is one of {', '.join(get_args(types.ExampleRule))}, not {examples.rule!r}")
    if not (examples.images or examples.items or examples.label_key):
        raise invalid("there are no examples: give pictures of each label, or a collection and its label_key")
    if (examples.items or examples.label_key) and not examples.collection:
        raise invalid("items and label_key need the collection that is meant")
    if examples.collection and not (examples.items or examples.label_key):
        raise invalid("the collection is of no use: give the label_key of its items, or items by their ids")
    if examples.k and examples.rule != "knn":
        raise invalid("k is for rule knn; prototypes have no neighbours")
    if examples.text_weight and examples.rule != "prototype":
        raise invalid("text_weight is for rule prototype; neighbours have no texts")
    try:
        for name, (lowest, highest) in _BOUNDS.items():
            value = getattr(examples, name)
            if value is not None and not lowest <= value <= highest:
                raise invalid(f"{name} is from {lowest:g} to {highest:g}, not {value:g}")
        return pb.ExampleSet(
            collection=check_text(examples.collection, "the collection's id"),
            label_key=check_text(examples.label_key, "the label's key"),
            rule=_RULES[examples.rule],
            k=examples.k,
            temperature=examples.temperature,
            text_weight=examples.text_weight,
        )
    except (TypeError, ValueError) as error:
        raise invalid(f"k, temperature and text_weight are numbers: {error}") from None


def _check_labels(labels: Iterable[str]) -> None:
    for label in labels:
        if not check_text(label, "a label").strip():
            raise invalid("a label is empty")
        if (size := len(label.encode())) > MAX_LABEL_BYTES:
            raise invalid(f"label {label[:60]!r}… has {size:,} bytes, at most {MAX_LABEL_BYTES:,} are allowed")


def _items(items: Mapping[str, Iterable[str]]) -> list[pb.Example]:
    return [
        pb.Example(label=label, item_id=check_text(each, "an item's id"))
        for label, ids in items.items()
        for each in calls.several(ids, "the items of a label")
    ]


def _pictures(
    images: Mapping[str, Iterable[types.ImageInput]], owners: list[tuple[str, int]]
) -> Iterator[types.ImageInput]:
    """The pictures of all labels; notes whose each is, and which of that label's, from 0."""
    for label, pictures in images.items():
        for position, picture in enumerate(calls.several(pictures, "the examples of a label")):
            if len(owners) == MAX_EXAMPLES:
                raise _too_many()
            owners.append((label, position))
            yield picture


def _too_many() -> TwinlensError:
    return invalid(
        f"more than {MAX_EXAMPLES:,} examples are too many to send: store them in a collection, with their labels as "
        "metadata, and name it with label_key"
    )
