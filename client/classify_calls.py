"""Labelling: what to choose from, and batches of pictures whose answers fit a message."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from twinlens.client import convert, example_calls, label_set_calls, types
from twinlens.client.calls import MAX_BYTES, MAX_INPUTS, Call, Picture, Plan, pictures, sendable, wire_size
from twinlens.client.errors import invalid
from twinlens.client.images import MAX_IMAGE_BYTES
from twinlens.client.label_types import NoneOfThese
from twinlens.client.limits import Kind, fitting
from twinlens.client.metadata import check_text
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.split import split
from twinlens.v1 import classification_pb2 as pb

# Below the limits of the wire contract, so that answers fit a message too and other callers get their turn between.
MAX_SCORES = 500_000  # of all pictures of one call together
MAX_ANSWERED_LABEL_BYTES = 32 * 1024 * 1024  # of all labels of one answer together
_SCORE_BYTES = 32  # of a score beside its label


@dataclass(frozen=True, slots=True)
class LabelSetup:
    """What a request says beside its pictures.

    Attributes:
        wire: It.
        answer_bytes: What one picture's answer takes at most.
        max_count: Pictures of one message whose answers are not too many.
        examples_bytes: How much of it are examples.
    """

    wire: pb.ClassifyRequest
    answer_bytes: int
    max_count: int
    examples_bytes: int


def setup(
    labels: Sequence[str],
    examples: example_calls.ExampleInput | None,
    *,
    label_set: str,
    templates: Sequence[str] | None,
    top_k: int,
    multi_label: bool,
    none_of_these: NoneOfThese | None,
) -> Plan[LabelSetup]:
    """What to choose from. Embeds examples that are not prepared yet; all of them must be usable."""
    if isinstance(labels, str):
        raise invalid("labels is a list of at least one text")
    if sum((bool(labels), bool(label_set), examples is not None)) != 1:
        raise invalid(
            "give labels or examples, not both: examples bring their labels"
            if labels and examples is not None
            else "say what to choose from in one way: labels (a list of at least one text), a label_set, or examples"
        )
    none = label_set_calls.none_message(none_of_these)
    prepared: PreparedExamples | None = None
    if label_set:
        if templates or multi_label or none is not None:
            raise invalid("a label_set brings its templates, multi_label and none_of_these: leave them out beside it")
        # How long its labels are matters only where all of them come back.
        known = () if top_k > 0 else (yield from label_set_calls.get(label_set)).labels
        count = len(known) or top_k
    elif examples is not None:
        prepared = yield from example_calls.usable(examples)
        known = tuple({example.label for example in prepared.wire.examples})
        count = prepared.labels
    else:
        known = tuple(check_text(label, "a label") for label in labels)
        count = len(known)
    scores_each = min(top_k, count) if top_k > 0 else count
    longest = sorted((len(label.encode()) for label in known), reverse=True)[:scores_each]
    # The labels of a label set that was not looked at may be as long as labels are.
    label_bytes = scores_each * example_calls.MAX_LABEL_BYTES if label_set and not known else sum(longest)
    return LabelSetup(
        wire=pb.ClassifyRequest(
            labels=labels,
            label_set=check_text(label_set, "the label set's id"),
            templates=label_set_calls.checked_templates(templates),
            top_k=scores_each if top_k > 0 else top_k,
            multi_label=multi_label,
            none_of_these=none,
            examples=None if prepared is None else prepared.wire,
        ),
        answer_bytes=label_bytes + _SCORE_BYTES * scores_each,
        max_count=max(1, min(MAX_INPUTS, MAX_SCORES // scores_each, MAX_ANSWERED_LABEL_BYTES // max(1, label_bytes))),
        examples_bytes=0 if prepared is None else prepared.size_bytes,
    )


def classify(images: Iterable[types.ImageInput], chosen: Plan[LabelSetup]) -> Plan[list[types.Classification]]:
    """Labels pictures, those that can be read."""
    found = pictures(images)
    chosen_from = yield from chosen
    room = MAX_IMAGE_BYTES - chosen_from.examples_bytes
    if room < MAX_BYTES:
        raise invalid("the examples are too many to be sent with pictures: store them in a collection, and name it")
    kind = Kind(
        lambda limits: limits.max_inputs,
        "INVALID_IMAGE",
        lambda _: chosen_from.answer_bytes,
        chosen_from.wire.ByteSize(),
    )
    results: list[types.Classification] = []
    inputs = (_fitting(each, room) for each in found)
    for cut in split(inputs, wire_size, max_count=chosen_from.max_count, max_bytes=MAX_BYTES):
        for batch in (yield from fitting(cut, wire_size, kind)):
            errors: dict[int, types.ItemError] = {}
            start = len(results)
            sent = sendable(batch, errors, start)
            results += [types.Classification(scores=(), error=errors.get(start + i)) for i in range(len(batch))]
            if not sent:
                continue
            encoded = [(position, each) for position, each in sent if isinstance(each, bytes)]
            named = [(position, each.url) for position, each in sent if isinstance(each, types.ImageUrl)]
            request = pb.ClassifyRequest(images=[data for _, data in encoded], image_urls=[url for _, url in named])
            request.MergeFrom(chosen_from.wire)
            response: pb.ClassifyResponse = yield Call("classification", "Classify", request)
            check_examples(response.examples)
            # The results of pictures that were fetched come after the others.
            for (position, _), result in zip([*encoded, *named], response.results, strict=True):
                results[position] = convert.classification(result)
    return results


def check_examples(report: pb.ExampleReport) -> None:
    """Refuses answers by fewer examples than were given.

    Raises:
        TwinlensError: naming the first that could not be used.
    """
    if report.failures:
        which = f"an example of label {report.failures[0].label!r}"
        raise convert.error_of_examples(which, convert.error(report.failures[0].error), len(report.failures))


def _fitting(data: Picture, room: int) -> Picture:
    if not isinstance(data, bytes) or len(data) <= room:
        return data
    return types.ItemError("INVALID_IMAGE", f"{len(data) / 2**20:.0f} MiB do not fit a message beside the examples")
