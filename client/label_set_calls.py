"""What each method on label sets asks of a server and makes of the answers, for both clients."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC

from twinlens.client.calls import Call, Plan, several
from twinlens.client.errors import invalid
from twinlens.client.label_types import LabelSet, NoneOfThese
from twinlens.client.metadata import check_text
from twinlens.v1 import classification_pb2 as pb


def put(
    label_set: str,
    labels: Iterable[str],
    *,
    templates: Iterable[str] | None,
    multi_label: bool,
    none_of_these: NoneOfThese | None,
) -> Plan[LabelSet]:
    """Keeps a label set."""
    request = pb.PutLabelSetRequest(
        label_set=pb.LabelSet(
            id=_id(label_set),
            labels=[check_text(label, "a label") for label in several(labels, "labels")],
            templates=checked_templates(templates),
            multi_label=multi_label,
            none_of_these=none_message(none_of_these),
        )
    )
    response: pb.PutLabelSetResponse = yield Call(
        "classification", "PutLabelSet", request, writes=True, long=True
    )  # it embeds all prompts, which may be tens of thousands
    return from_message(response.label_set)


def get(label_set: str) -> Plan[LabelSet]:
    """Returns a label set."""
    request = pb.GetLabelSetRequest(label_set=_id(label_set))
    response: pb.GetLabelSetResponse = yield Call("classification", "GetLabelSet", request)
    return from_message(response.label_set)


def page(page_token: str) -> Plan[tuple[list[LabelSet], str]]:
    """One page of label sets and the token of the next."""
    response: pb.ListLabelSetsResponse = yield Call(
        "classification", "ListLabelSets", pb.ListLabelSetsRequest(page_token=page_token)
    )
    return [from_message(each) for each in response.label_sets], response.next_page_token


def delete(label_set: str) -> Plan[None]:
    """Deletes a label set."""
    yield Call("classification", "DeleteLabelSet", pb.DeleteLabelSetRequest(label_set=_id(label_set)), writes=True)


def checked_templates(templates: Iterable[str] | None) -> list[str]:
    """Templates that can travel.

    Raises:
        TwinlensError: INVALID_ARGUMENT where one cannot.
    """
    return [check_text(template, "a template") for template in several(templates or (), "templates")]


def none_message(none: NoneOfThese | None) -> pb.NoneOfThese | None:
    """The wire form of when no label fits; None where that is never said.

    Raises:
        TwinlensError: INVALID_ARGUMENT where it cannot travel.
    """
    if none is None or none == NoneOfThese():
        return None
    try:
        return pb.NoneOfThese(
            min_cosine=none.min_cosine,
            min_probability=none.min_probability,
            background_prompts=[
                check_text(each, "a background prompt") for each in several(none.background, "background")
            ],
        )
    except (TypeError, ValueError) as error:
        raise invalid(f"min_cosine and min_probability are numbers: {error}") from None


def from_message(wire: pb.LabelSet) -> LabelSet:
    """A label set as the server keeps it."""
    none = wire.none_of_these
    return LabelSet(
        id=wire.id,
        labels=tuple(wire.labels),
        templates=tuple(wire.templates),
        multi_label=wire.multi_label,
        none_of_these=NoneOfThese(
            min_cosine=none.min_cosine if none.HasField("min_cosine") else None,
            min_probability=none.min_probability if none.HasField("min_probability") else None,
            background=tuple(none.background_prompts),
        ),
        create_time=wire.create_time.ToDatetime(tzinfo=UTC),
        update_time=wire.update_time.ToDatetime(tzinfo=UTC),
    )


def _id(label_set: str) -> str:
    return check_text(label_set, "the label set's id")
