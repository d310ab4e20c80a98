"""Plans, carried out by hand: what is sent, in which pieces, and what is made of the answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.client import (
    ImageUrl,
    NewItem,
    Part,
    TwinlensError,
    calls,
    classify_calls,
    collection_calls,
    convert,
    operation_calls,
)
from twinlens.client.collection_types import OperationProgress
from twinlens.client.limits import NOT_TOLD, AskLimits
from twinlens.client.split import split
from twinlens.v1 import classification_pb2, collection_pb2, content_pb2, embedding_pb2, search_pb2


def carry_out(plan: Any, answer: Callable[[calls.Call], Any]) -> tuple[Any, list[calls.Call]]:
    """A plan's result and the calls it made, with a server that does not tell its limits."""
    made: list[calls.Call] = []
    response: Any = None
    while True:
        try:
            step = plan.send(response)
        except StopIteration as stop:
            return stop.value, made
        response = None
        if isinstance(step, AskLimits):
            response = NOT_TOLD
        elif not isinstance(step, OperationProgress):
            made.append(step)
            response = answer(step)


def embedded(call: calls.Call) -> embedding_pb2.EmbedResponse:
    """Answers with a vector that tells the length of the text."""
    assert isinstance(call.request, embedding_pb2.EmbedRequest)
    results = [
        embedding_pb2.EmbedResult(embedding=content_pb2.Vector(values=[len(each.text)])) for each in call.request.inputs
    ]
    return embedding_pb2.EmbedResponse(model=content_pb2.ModelInfo(dimension=1), results=results)


@given(sizes=st.lists(st.integers(0, 20), max_size=40), max_count=st.integers(1, 5), max_bytes=st.integers(1, 30))
def test_splitting_keeps_order_and_both_limits(sizes: list[int], max_count: int, max_bytes: int) -> None:
    batches = list(split(sizes, lambda size: size, max_count=max_count, max_bytes=max_bytes))
    assert [size for batch in batches for size in batch] == sizes
    assert all(1 <= len(batch) <= max_count for batch in batches)
    assert all(sum(batch) <= max_bytes or len(batch) == 1 for batch in batches)


def test_splitting_reads_no_further_than_it_must() -> None:
    read: list[int] = []

    def numbers() -> Any:
        for number in range(100):
            read.append(number)
            yield number

    next(split(numbers(), lambda _: 1, max_count=3, max_bytes=100))
    assert len(read) <= 4


def test_a_big_batch_goes_out_in_pieces_and_comes_back_in_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_INPUTS", 3)
    batch, made = carry_out(calls.embed_texts(["x" * n for n in range(1, 9)]), embedded)
    assert [len(call.request.inputs) for call in made] == [3, 3, 2]  # type: ignore[union-attr]
    assert batch.vectors[:, 0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_a_batch_of_many_bytes_goes_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_BYTES", 25)
    _, made = carry_out(calls.embed_texts(["x" * 8] * 6), embedded)
    assert [len(call.request.inputs) for call in made] == [2, 2, 2]  # type: ignore[union-attr]


def test_many_hits_a_query_mean_fewer_queries_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calls, "MAX_HITS", 20)

    def answer(call: calls.Call) -> search_pb2.SearchResponse:
        assert isinstance(call.request, search_pb2.SearchRequest)
        return search_pb2.SearchResponse(results=[search_pb2.QueryResult() for _ in call.request.queries])

    plan = calls.search_batch("c", ["a", Part(item="b"), "c"], modality="image", top_k=10, min_score=None, exact=False)
    results, made = carry_out(plan, answer)
    assert len(results) == 3
    assert [len(call.request.queries) for call in made] == [2, 1]  # type: ignore[union-attr]


def test_many_labels_mean_fewer_pictures_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(classify_calls, "MAX_SCORES", 4)

    def answer(call: calls.Call) -> classification_pb2.ClassifyResponse:
        assert isinstance(call.request, classification_pb2.ClassifyRequest)
        score = classification_pb2.LabelScore(label="a", probability=1)
        return classification_pb2.ClassifyResponse(
            results=[classification_pb2.ClassifyResult(scores=[score]) for _ in call.request.images]
        )

    def sizes(top_k: int) -> list[int]:
        chosen = classify_calls.setup(
            ["a", "b"], None, label_set="", templates=None, top_k=top_k, multi_label=False, none_of_these=None
        )
        results, made = carry_out(classify_calls.classify([b"1", b"2", b"3"], chosen), answer)
        assert [result.scores[0].label for result in results] == ["a", "a", "a"]
        return [len(call.request.images) for call in made]  # type: ignore[union-attr]

    assert sizes(top_k=0) == [2, 1]
    assert sizes(top_k=1) == [3]


def test_items_go_out_in_acknowledged_streams_and_keep_their_positions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection_calls, "MAX_STREAM_ITEMS", 4)
    monkeypatch.setattr(collection_calls, "MAX_MESSAGE_ITEMS", 2)

    def answer(call: calls.Call) -> collection_pb2.UpsertItemsResponse:
        """Stores all but the last item of each stream."""
        assert isinstance(call.request, tuple)
        items = [item for message in call.request for item in message.items]  # type: ignore[attr-defined]
        error = content_pb2.ItemError(reason=content_pb2.ERROR_REASON_INVALID_TEXT, message="two\nlines")
        failure = collection_pb2.UpsertFailure(position=len(items) - 1, id="cut...", error=error)
        return collection_pb2.UpsertItemsResponse(stored_count=len(items) - 1, failures=[failure], truncated_count=1)

    items = [NewItem(id=str(n), caption="c", metadata={"bad": object()} if n == 1 else {}) for n in range(6)]
    report, made = carry_out(collection_calls.upsert("photos", items, ""), answer)
    assert [[len(message.items) for message in call.request] for call in made] == [[2, 1], [2]]  # type: ignore[union-attr]
    assert (report.stored, report.truncated) == (3, 2)
    assert [(failure.position, failure.id) for failure in report.failures] == [(1, "1"), (3, "3"), (5, "5")]
    assert report.failures[1].message == "two lines"


def test_deletions_of_many_ids_go_out_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection_calls, "MAX_DELETED", 2)

    def answer(call: calls.Call) -> collection_pb2.DeleteItemsResponse:
        assert isinstance(call.request, collection_pb2.DeleteItemsRequest)
        return collection_pb2.DeleteItemsResponse(deleted_count=len(call.request.ids))

    deleted, made = carry_out(collection_calls.delete_items("photos", (str(n) for n in range(5))), answer)
    assert (deleted, len(made)) == (5, 3)


@pytest.mark.parametrize("values", [[], ["one", "two"]])
def test_a_stream_that_ends_without_what_it_was_there_for_is_an_error(values: list[object]) -> None:
    with pytest.raises(TwinlensError, match="without the backup") as caught:
        operation_calls.only(values, "backup")
    assert caught.value.code == "INTERNAL"


def test_whoever_stores_is_told_how_far_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collection_calls, "MAX_STREAM_ITEMS", 2)
    items = [NewItem(id=str(n), caption="c") for n in range(5)]
    for source, total in ((items, 5), (iter(items), 0)):
        told = []
        plan = collection_calls.upsert("photos", source, "")
        response: Any = None
        while (step := _next(plan, response)) is not None:
            if isinstance(step, OperationProgress):
                told.append(step)
            response = collection_pb2.UpsertItemsResponse(stored_count=2)
        assert told == [OperationProgress("stored", done, total) for done in (2, 4, 5)]


def _next(plan: Any, response: Any) -> Any:
    try:
        return plan.send(response)
    except StopIteration:
        return None


def test_pictures_by_address_are_sent_apart_and_come_back_in_the_order_given() -> None:
    def answer(call: calls.Call) -> classification_pb2.ClassifyResponse:
        """Labels each picture with what it is called."""
        request = call.request
        assert isinstance(request, classification_pb2.ClassifyRequest)
        names = [*(image.decode() for image in request.images), *request.image_urls]
        scores = [[classification_pb2.LabelScore(label=name)] for name in names]
        return classification_pb2.ClassifyResponse(
            results=[classification_pb2.ClassifyResult(scores=each) for each in scores]
        )

    given: list[Any] = [ImageUrl("https://a"), b"b", ImageUrl(""), b"c", ImageUrl("https://d"), b""]
    chosen = classify_calls.setup(
        ["a"], None, label_set="", templates=None, top_k=0, multi_label=False, none_of_these=None
    )
    results, (made,) = carry_out(classify_calls.classify(given, chosen), answer)
    assert list(made.request.image_urls) == ["https://a", "https://d"]  # type: ignore[union-attr]
    found = [result.scores[0].label if result.scores else result.error.reason for result in results]
    assert found == ["https://a", "b", "INVALID_INPUT", "c", "https://d", "INVALID_IMAGE"]


def test_an_item_and_a_query_by_address_travel_as_addresses() -> None:
    assert convert.query(Part(image=ImageUrl("https://a"))).parts[0].image_url == "https://a"
    wire = convert.new_item(NewItem(image=ImageUrl("https://a")))
    assert isinstance(wire, collection_pb2.NewItem)
    assert (wire.image_url, wire.image) == ("https://a", b"")


def test_rows_of_an_array_are_queries() -> None:
    def answer(call: calls.Call) -> search_pb2.SearchResponse:
        assert isinstance(call.request, search_pb2.SearchRequest)
        return search_pb2.SearchResponse(results=[search_pb2.QueryResult() for _ in call.request.queries])

    vectors: Any = np.arange(6, dtype=np.float32).reshape(3, 2)
    plan = calls.search_batch("c", vectors, modality="image", top_k=1, min_score=None, exact=False)
    results, (made,) = carry_out(plan, answer)
    assert [list(query.parts[0].vector.values) for query in made.request.queries] == vectors.tolist()  # type: ignore[union-attr]
    assert len(results) == 3
