"""What a request chooses its labels from: words, a label set, or examples."""

from __future__ import annotations

from twinlens.server.core.app import Application
from twinlens.server.core.call import Call
from twinlens.server.core.classify import Words
from twinlens.server.core.classify_by_examples import Shown
from twinlens.server.core.errors import invalid_argument
from twinlens.server.services import example_set, label_messages
from twinlens.v1 import classification_pb2 as pb


async def label_choice(app: Application, request: pb.ClassifyRequest, call: Call) -> Words | Shown:
    """What to choose from.

    Raises:
        ServiceError: INVALID_ARGUMENT where the request contradicts itself, NOT_FOUND where it names a label set or a
            collection that is not there.
    """
    if request.top_k < 0:
        raise invalid_argument(f"top_k must not be negative; it is {request.top_k}")
    if request.label_set:
        return await _by_label_set(app, request, call)
    if request.HasField("examples"):
        return await _by_examples(app, request, call)
    return Words(
        labels=tuple(request.labels),
        templates=tuple(request.templates),
        multi_label=request.multi_label,
        none=label_messages.none_of_these(request.none_of_these),
    )


async def _by_label_set(app: Application, request: pb.ClassifyRequest, call: Call) -> Words:
    if request.HasField("examples"):
        raise invalid_argument("give a label_set or examples, not both")
    if request.labels or request.templates or request.multi_label or request.HasField("none_of_these"):
        raise invalid_argument(
            "a label_set brings its labels, templates, multi_label and none_of_these: give none of them beside it"
        )
    return await app.label_sets.words(request.label_set, call)


async def _by_examples(app: Application, request: pb.ClassifyRequest, call: Call) -> Shown:
    given = request.examples
    if request.labels:
        raise invalid_argument("give labels or examples, not both: examples bring their labels")
    if request.multi_label:
        raise invalid_argument("multi_label is for labels in words; by examples, judge each label by its cosine")
    example_set.check(given)
    scoring = example_set.scoring(given)
    collection = await app.collection(given.collection, call) if given.collection else None
    source = await app.io.submit(call.priority, example_set.source, given, collection)
    return Shown(
        source=source,
        scoring=scoring,
        templates=tuple(request.templates),
        none=label_messages.none_of_these(request.none_of_these),
    )
