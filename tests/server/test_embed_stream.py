"""EmbedStream: as Embed, for any number of inputs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest

from tests.server.running import Running, picture, run_server
from tests.server.watched import WatchedEncoder, until
from tests.support.fake_encoder import FakeEncoder
from twinlens.v1 import content_pb2
from twinlens.v1 import embedding_pb2 as pb


def message(*entries: bytes | str | pb.StoredItem) -> pb.EmbedStreamRequest:
    inputs = []
    for entry in entries:
        if isinstance(entry, str):
            inputs.append(pb.EmbedInput(text=entry))
        elif isinstance(entry, bytes):
            inputs.append(pb.EmbedInput(image=entry))
        else:
            inputs.append(pb.EmbedInput(item=entry))
    return pb.EmbedStreamRequest(inputs=inputs)


async def answers(served: Running, *messages: pb.EmbedStreamRequest) -> list[pb.EmbedStreamResponse]:
    return [reply async for reply in served.embedding.EmbedStream(iter(messages))]


def vector(result: pb.EmbedResult) -> np.ndarray:
    assert result.WhichOneof("outcome") == "embedding", result.error
    return np.asarray(result.embedding.values, dtype=np.float32)


async def test_each_message_is_answered_by_one_in_order_with_its_place_in_the_stream(served: Running) -> None:
    await served.fill_with_colours()
    sent: list[list[bytes | str]] = [["red", picture("blue")], [picture("green")], ["a", "b", "c"]]
    replies = await answers(
        served, *(message(*entries) for entries in sent), message(pb.StoredItem(collection="photos", id="red"))
    )
    assert [reply.first_position for reply in replies] == [0, 2, 3, 6]
    for reply, entries in zip(replies, sent, strict=False):
        alone = await served.embed(*entries)
        assert reply.model == alone.model
        for one, other in zip(reply.results, alone.results, strict=True):
            np.testing.assert_allclose(vector(one), vector(other), atol=1e-6)
    (stored,) = replies[3].results
    np.testing.assert_allclose(vector(stored), vector((await served.embed(picture("red"))).results[0]), atol=1e-6)


async def test_one_bad_input_fails_alone(served: Running) -> None:
    first, second = await answers(served, message(b"no picture", "red", "word " * 50), message("", "blue"))
    assert first.results[0].error.reason == content_pb2.ERROR_REASON_INVALID_IMAGE
    vector(first.results[1])
    assert first.results[2].truncated
    assert second.results[0].error.reason == content_pb2.ERROR_REASON_INVALID_TEXT
    vector(second.results[1])


async def test_a_stream_may_be_empty(served: Running) -> None:
    assert await answers(served) == []


async def ended(stream: Any) -> tuple[list[Any], grpc.aio.AioRpcError]:
    """What a stream answered before it failed, and how it failed."""
    replies = []
    with pytest.raises(grpc.aio.AioRpcError) as failed:  # noqa: PT012 - what was answered before is of interest
        async for reply in stream:
            replies.append(reply)  # noqa: PERF401 - kept when it fails
    return replies, failed.value


@pytest.mark.parametrize("count", [0, 1025])
async def test_a_message_of_too_few_or_too_many_ends_the_stream_behind_the_answers_before(
    served: Running, count: int
) -> None:
    messages = [message("red"), message(*["x"] * count), message("blue")]
    replies, failed = await ended(served.embedding.EmbedStream(iter(messages)))
    assert [reply.first_position for reply in replies] == [0]
    assert failed.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert f"not {count}" in (failed.details() or "")


async def test_bytes_that_are_no_message_end_the_stream_and_say_so(served: Running) -> None:
    method: Any = served.channel.stream_stream("/twinlens.v1.EmbeddingService/EmbedStream")
    good = message("red").SerializeToString()
    replies, failed = await ended(method(iter([good, b"\xff\xff\xff", good]), metadata=(("x-request-id", "mine"),)))
    assert len(replies) == 1
    assert failed.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "not a message" in (failed.details() or "")
    assert dict(failed.trailing_metadata())["x-request-id"] == "mine"


async def test_a_caller_may_wait_for_each_answer_before_the_next_message(served: Running) -> None:
    stream = served.embedding.EmbedStream()
    for position in range(5):
        await stream.write(message(f"text {position}"))
        reply: Any = await stream.read()
        assert reply.first_position == position
    await stream.done_writing()
    assert await stream.read() is grpc.aio.EOF


async def test_a_caller_who_hangs_up_takes_the_work_that_waits_along(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, max_batch=2) as served:
        encoder.hold()
        stream = served.embedding.EmbedStream()
        for start in range(0, 16, 4):
            await stream.write(message(*(f"text {start + i}" for i in range(4))))
        await encoder.entered()
        stream.cancel()
        await until(lambda: not served.app.streams.at_work)
        encoder.release()
        assert (await served.embed("red")).results[0].embedding.values
        # What was inside a tower ended; of the other messages nothing more ran.
        assert sum(encoder.text_batches) <= 2 + 2 + 1


async def test_interactive_calls_overtake_a_stream(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, max_batch=16) as served:
        encoder.hold()
        done: list[str] = []

        async def stream() -> None:
            async for reply in served.embedding.EmbedStream(
                iter([message(*(f"text {i} {j}" for j in range(16))) for i in range(8)])
            ):
                done.append(f"message {reply.first_position // 16}")  # noqa: PERF401 - in the order of events

        async def one() -> None:
            await served.embed("interactive")
            done.append("interactive")

        streaming = asyncio.create_task(stream())
        await encoder.entered()
        waiting = served.app.engine.texts
        await until(lambda: len(waiting) == 4 * 16 - 16)  # all that the server reads ahead, but the batch that runs
        asking = asyncio.create_task(one())
        await until(lambda: len(waiting) == 4 * 16 - 16 + 1)
        encoder.release()
        await asyncio.gather(streaming, asking)
        assert done.index("interactive") <= 2  # not behind all four
        assert sorted(done)[1:] == [f"message {i}" for i in range(8)]


class CountingEncoder(FakeEncoder):
    """Costs next to nothing, and counts what it is given."""

    def __init__(self, dimension: int = 32) -> None:
        super().__init__(dimension)
        self.prepared = 0
        self._pixels = np.zeros((3, 8, 8), dtype=np.float32)
        self._vector = np.eye(1, dimension, dtype=np.float32)

    def prepare_image(self, data: bytes) -> np.ndarray:
        del data
        self.prepared += 1
        return self._pixels

    def encode_images(self, pixels_nchw: np.ndarray) -> np.ndarray:
        return np.repeat(self._vector, len(pixels_nchw), axis=0)


def _pictures(count: int, size: int) -> Iterator[pb.EmbedStreamRequest]:
    for number in range(count):
        yield message(*[number.to_bytes(size, "big")] * 32)


async def test_a_caller_who_does_not_read_is_not_read_from(data: Path) -> None:
    """Whatever the transport holds by itself, most of what is offered stays with the caller."""
    encoder = CountingEncoder(4096)  # answers of 512 KiB
    async with run_server(data, encoder) as served:
        offered = encoder.prepared = 0

        async def offers() -> AsyncIterator[pb.EmbedStreamRequest]:
            nonlocal offered
            for each in _pictures(100, 16 * 1024):
                offered += 1
                yield each

        stream = served.embedding.EmbedStream(offers())
        first: Any = await stream.read()
        assert first.first_position == 0
        seen = -1
        while seen != encoder.prepared:  # until nothing moves any more
            seen = encoder.prepared
            await settle(served)
        stuck_at = encoder.prepared // 32
        assert stuck_at < 50
        assert offered < 70
        count = 1
        while await stream.read() is not grpc.aio.EOF:
            count += 1
        assert count == offered == 100
        assert encoder.prepared == 100 * 32


async def settle(served: Running) -> None:
    """Long enough for anything that can move to move: calls go through all of the server meanwhile."""
    for _ in range(20):
        await served.embed("x")


def resident_bytes() -> int:
    pages = Path("/proc/self/statm").read_text(encoding="ascii").split()[1]
    return int(pages) * 4096


async def _stream_all(served: Running, messages: int) -> Sequence[int]:
    """The memory of the process along a stream, which must come back whole and in order."""
    memory, position = [], 0
    async for reply in served.embedding.EmbedStream(_pictures(messages, 2048)):
        assert reply.first_position == position
        position += len(reply.results)
        if position % 10_240 == 0:
            memory.append(resident_bytes())
    assert position == messages * 32
    return memory


@pytest.mark.slow
async def test_the_memory_of_a_hundred_thousand_pictures_is_that_of_a_few(data: Path) -> None:
    encoder = CountingEncoder()
    async with run_server(data, encoder) as served:
        encoder.prepared = 0
        memory = await _stream_all(served, 3_520)
        assert encoder.prepared == 3_520 * 32 >= 100_000
    # 230 MB of pictures and as much of vectors went through; what the allocator keeps settles in the first tenth.
    assert max(memory) - memory[0] < 24 * 2**20
