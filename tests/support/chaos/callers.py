"""Callers of every kind who go on whatever happens, check every answer, and note what they were told."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine
from contextlib import asynccontextmanager
from functools import cache
from typing import TypeAlias

import grpc
import numpy as np

from tests.server.running import embed_request, picture
from tests.support.chaos.channels import own_channel
from tests.support.chaos.faulty_encoder import SECRET
from tests.support.chaos.put_label_sets import LabelSetPutter
from tests.support.chaos.waiting import eventually
from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import COLOURS
from twinlens.v1 import (
    collection_pb2,
    collection_pb2_grpc,
    content_pb2,
    embedding_pb2_grpc,
    search_pb2,
    search_pb2_grpc,
)

COLLECTION = "photos"
OK = "OK"
# An item of a batch that failed alone, by our fault.
ITEM_FAILED = "INTERNAL for an item"
_AGAIN_S = 0.02
_ITEMS_A_CALL = 5
# By the caller's number and the turn.
_Calls: TypeAlias = Callable[[int, int], Coroutine[None, None, None]]
Told: TypeAlias = "Counter[str]"


class Callers:
    """Two who embed, two who search, two who store, and one who puts a label set, each a call at a time.

    Args:
        address: Of a server with the fake encoder.
        dimension: Of its vectors.
        tolerated: Statuses that a call may end with under the fault to come; any other is a fault of the server, and so
            is a call that is not answered within `timeout_s`, unless DEADLINE_EXCEEDED is tolerated.
        timeout_s: Deadline of each call.
        name: Goes into ids and texts, so that no two sets of callers send the same.

    Attributes:
        told: How many calls ended with which status.
        acknowledged: Ids of items that are on disk, by the server's word.
        sent: Ids of all items that were sent.
    """

    def __init__(
        self,
        address: str,
        *,
        dimension: int = 32,
        tolerated: Collection[grpc.StatusCode] = (),
        timeout_s: float = 10.0,
        name: str = "a",
    ) -> None:
        self.told: Told = Counter()
        self.stored = 0
        self.acknowledged: set[str] = set()
        self.sent: set[str] = set()
        self._name = name
        self._encoder = FakeEncoder(dimension)
        self._tolerated = {code.name for code in tolerated}
        self._timeout_s = timeout_s
        self._faults: list[str] = []
        self._ending = False
        self._channel = own_channel(address)
        self._tasks: list[asyncio.Task[None]] = []
        self.label_sets = LabelSetPutter(self._channel, name)
        self._embedding = embedding_pb2_grpc.EmbeddingServiceStub(self._channel)
        self._search = search_pb2_grpc.SearchServiceStub(self._channel)
        self._collections = collection_pb2_grpc.CollectionServiceStub(self._channel)

    async def begin(self) -> None:
        """Makes the collection if it is missing, and starts to call."""
        await make_collection(self._channel)
        calls: list[_Calls] = [self._embed, self._find, self._store]
        for number, call in enumerate([*calls * 2, self._put]):
            self._tasks.append(asyncio.create_task(self._go_on(number, call)))

    async def end(self) -> None:
        """Lets what is called come to its end.

        Raises:
            AssertionError: if a call was answered as it must not be.
        """
        self._ending = True
        await asyncio.gather(*self._tasks)
        await self._channel.close()
        assert not self._faults, self._faults[:5]

    async def are_answered(self, calls: int = 12) -> float:
        """Waits for so many right answers more.

        Returns:
            Seconds until the first of them.
        """
        before = self.told[OK]
        seconds = await eventually("an answer", lambda: self.told[OK] > before or bool(self._faults))
        await eventually(f"{calls} answers", lambda: self.told[OK] >= before + calls or bool(self._faults))
        assert not self._faults, self._faults[:5]
        return seconds

    async def store(self, calls: int = 3) -> None:
        """Waits until the server has stored what so many calls more brought."""
        before = self.stored
        await eventually(f"{calls} calls stored", lambda: self.stored >= before + calls or bool(self._faults))
        assert not self._faults, self._faults[:5]

    async def are_told(self, what: str, calls: int = 1) -> None:
        """Waits until so many calls more ended with a status."""
        before = self.told[what]
        await eventually(f"{calls} {what}", lambda: self.told[what] >= before + calls or bool(self._faults))
        assert not self._faults, self._faults[:5]

    async def _go_on(self, number: int, call: _Calls) -> None:
        for turn in itertools.count():
            if self._ending or self._faults:
                return
            try:
                await call(number, turn)
            except grpc.aio.AioRpcError as error:
                self._note_refusal(error, call.__name__)
                await asyncio.sleep(_AGAIN_S)
            except AssertionError as error:
                self._faults.append(f"a wrong answer: {error}")

    def _note_refusal(self, error: grpc.aio.AioRpcError, by: str) -> None:
        status = error.code().name
        self.told[status] += 1
        self._look_at(error.details() or "")
        if status not in self._tolerated:
            self._faults.append(f"{by}: {status}: {error.details()}")

    def _look_at(self, message: str) -> None:
        if SECRET in message or "Traceback" in message or "\n" in message:
            self._faults.append(f"a message tells too much: {message}")

    async def _embed(self, number: int, turn: int) -> None:
        colour = list(COLOURS)[(number + turn) % len(COLOURS)]
        text = f"{self._name}{number} asks for the {turn}th time"
        reply = await self._embedding.Embed(embed_request(text, cached_picture(colour)), timeout=self._timeout_s)
        expected = (
            self._encoder.encode_texts([self._encoder.prepare_text(text)])[0],
            self._encoder.encode_images(self._encoder.prepare_image(cached_picture(colour))[np.newaxis])[0],
        )
        assert len(reply.results) == 2
        outcomes = []
        for result, vector in zip(reply.results, expected, strict=True):
            if result.WhichOneof("outcome") == "embedding":
                np.testing.assert_allclose(result.embedding.values, vector, atol=1e-6)
            outcomes.append(self._item(result.error) if result.HasField("error") else OK)
        self.told[next((told for told in outcomes if told != OK), OK)] += 1

    async def _find(self, number: int, turn: int) -> None:
        del turn
        part = search_pb2.QueryPart(text=f"{self._name}{number} looks for red", weight=1.0)
        request = search_pb2.SearchRequest(collection=COLLECTION, queries=[search_pb2.Query(parts=[part])], top_k=3)
        reply = await self._search.Search(request, timeout=self._timeout_s)
        (result,) = reply.results
        if result.HasField("error"):
            self.told[self._item(result.error)] += 1
            return
        scores = [hit.score for hit in result.hits]
        assert scores == sorted(scores, reverse=True), scores
        assert all(hit.item.id for hit in result.hits)
        self.told[OK] += 1

    async def _put(self, number: int, turn: int) -> None:
        del number
        await self.label_sets.put(turn, self._timeout_s)
        self.told[OK] += 1

    async def _store(self, number: int, turn: int) -> None:
        ids = [f"{self._name}-{number}-{turn}-{position}" for position in range(_ITEMS_A_CALL)]
        items = [
            collection_pb2.NewItem(id=each, caption=f"caption {each}", image=cached_picture("green")) for each in ids
        ]
        self.sent.update(ids)
        request = collection_pb2.UpsertItemsRequest(collection=COLLECTION, items=items)
        reply = await self._collections.UpsertItems(iter([request]), timeout=self._timeout_s)
        failed = {failure.id: failure.error for failure in reply.failures}
        assert reply.stored_count + len(failed) == len(ids), reply
        self.acknowledged.update(set(ids) - failed.keys())
        if failed:
            self.told[self._item(next(iter(failed.values())))] += 1
        else:
            self.stored += 1
            self.told[OK] += 1

    def _item(self, error: content_pb2.ItemError) -> str:
        reason = content_pb2.ErrorReason.Name(error.reason)
        self._look_at(error.message)
        if reason != "ERROR_REASON_INTERNAL" or grpc.StatusCode.INTERNAL.name not in self._tolerated:
            self._faults.append(f"an item failed: {reason}: {error.message}")
        return ITEM_FAILED


@cache
def cached_picture(colour: str) -> bytes:
    """A small picture of one colour."""
    return picture(colour)


@asynccontextmanager
async def calling(
    address: str,
    *,
    dimension: int = 32,
    tolerated: Collection[grpc.StatusCode] = (),
    timeout_s: float = 10.0,
    name: str = "a",
) -> AsyncIterator[Callers]:
    """Callers (see `Callers`) around a block; at its end their last calls are answered and everything is looked at."""
    callers = Callers(address, dimension=dimension, tolerated=tolerated, timeout_s=timeout_s, name=name)
    try:
        await callers.begin()
        await callers.are_answered()
        yield callers
    finally:
        await callers.end()


async def make_collection(channel: grpc.aio.Channel) -> None:
    """Makes the callers' collection if it is missing."""
    stub = collection_pb2_grpc.CollectionServiceStub(channel)
    try:
        await stub.CreateCollection(collection_pb2.CreateCollectionRequest(collection=COLLECTION))
    except grpc.aio.AioRpcError as error:
        if error.code() is not grpc.StatusCode.ALREADY_EXISTS:
            raise


async def stored_ids(address: str) -> set[str]:
    """Ids of all items, each of which is whole.

    Raises:
        AssertionError: if one is there twice, or lacks a vector.
    """
    async with own_channel(address) as channel:
        stub = collection_pb2_grpc.CollectionServiceStub(channel)
        ids: list[str] = []
        token = ""
        while True:
            page = await stub.ListItems(
                collection_pb2.ListItemsRequest(collection=COLLECTION, page_size=1000, page_token=token)
            )
            ids += [item.id for item in page.items]
            token = page.next_page_token
            if not token:
                break
        described = await stub.GetCollection(collection_pb2.GetCollectionRequest(collection=COLLECTION))
    assert len(ids) == len(set(ids))
    counted = described.collection
    assert counted.item_count == counted.text_vector_count == counted.image_vector_count == len(ids), counted
    return set(ids)


async def assert_kept(address: str, callers: Callers) -> int:
    """Compares what is stored with what was acknowledged.

    Returns:
        How many acknowledged items there are.

    Raises:
        AssertionError: if one of them is gone, or one is there that nobody sent; the same of the label set.
    """
    stored = await stored_ids(address)
    lost = callers.acknowledged - stored
    assert not lost, f"{len(lost)} acknowledged items are gone, such as {sorted(lost)[:3]}"
    assert stored <= callers.sent, sorted(stored - callers.sent)[:3]
    async with own_channel(address) as channel:
        await callers.label_sets.assert_kept(channel)
    return len(callers.acknowledged)
