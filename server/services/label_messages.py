"""Between the wire's messages about labels and the core's values."""

from __future__ import annotations

from collections.abc import Sequence

from twinlens.server.core.errors import ItemFailure, Reason
from twinlens.server.core.label_scorer import Labelled
from twinlens.server.core.label_set_files import LabelSet
from twinlens.server.core.none_of_these import NoneOfThese
from twinlens.server.services import convert
from twinlens.v1 import classification_pb2 as pb


def none_of_these(wire: pb.NoneOfThese) -> NoneOfThese:
    """When no label fits; one that says nothing, where the wire does not."""
    return NoneOfThese(
        min_cosine=wire.min_cosine if wire.HasField("min_cosine") else None,
        min_probability=wire.min_probability if wire.HasField("min_probability") else None,
        background=tuple(wire.background_prompts),
    )


def label_set(wire: pb.LabelSet) -> LabelSet:
    """A label set; its times are the server's to set."""
    return LabelSet(
        id=wire.id,
        labels=tuple(wire.labels),
        templates=tuple(wire.templates),
        multi_label=wire.multi_label,
        none=none_of_these(wire.none_of_these),
    )


def label_set_message(kept: LabelSet) -> pb.LabelSet:
    """A label set as it is kept."""
    none = kept.none
    return pb.LabelSet(
        id=kept.id,
        labels=kept.labels,
        templates=kept.templates,
        multi_label=kept.multi_label,
        none_of_these=None
        if none == NoneOfThese()
        else pb.NoneOfThese(
            min_cosine=none.min_cosine, min_probability=none.min_probability, background_prompts=none.background
        ),
        create_time=convert.timestamp(kept.created_s),
        update_time=convert.timestamp(kept.updated_s),
    )


def result(labelled: Labelled, labels: Sequence[str]) -> pb.ClassifyResult:
    """What became of one picture."""
    columns = (labelled.labels, labelled.cosines, labelled.probabilities, labelled.truncated)
    if any(column is None for column in columns):
        failure = labelled.failure or ItemFailure(Reason.INTERNAL, "no scores")
        return pb.ClassifyResult(error=convert.item_error(failure))
    rows = zip(*(column.tolist() for column in columns if column is not None), strict=True)
    return pb.ClassifyResult(
        scores=[
            pb.LabelScore(label=labels[position], cosine=cosine, probability=probability, truncated=truncated)
            for position, cosine, probability, truncated in rows
        ],
        none_of_these=labelled.none_of_these,
        background_cosine=labelled.background_cosine,
        background_probability=labelled.background_probability,
    )
