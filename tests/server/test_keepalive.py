from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from tests.server.running import embed_request, run_server
from tests.server.watched import PATIENCE_S, WatchedEncoder
from tests.support.chaos.raw_http2 import ACK, END_STREAM, Frame, Kind, message, raw_caller
from twinlens.v1 import embedding_pb2

PINGS = 60  # a long call of a client that pings every second


async def test_a_client_that_pings_all_through_a_long_call_gets_its_answer(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served, raw_caller(served.server.address) as raw:
        encoder.hold()
        raw.greet()
        call = raw.begin("/twinlens.v1.EmbeddingService/Embed")
        raw.send(call, message(embed_request("a long one").SerializeToString()), end=True)
        await encoder.entered()
        frames: list[Frame] = []

        async def next_frame(kind: int) -> Frame:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    frame = await raw.read()
                    assert frame is not None
                    frames.append(frame)
                    if frame.kind == kind:
                        return frame

        for number in range(PINGS):  # far more often than every second
            payload = struct.pack(">Q", number)
            raw.ping(payload)
            answer = await next_frame(Kind.PING)
            while not answer.flags & ACK:  # the server's own
                answer = await next_frame(Kind.PING)
            assert answer.content == payload
        encoder.release()
        answer = await next_frame(Kind.DATA)
        reply = embedding_pb2.EmbedResponse.FromString(answer.content[5:])
        assert reply.results[0].WhichOneof("outcome") == "embedding"
        while not (await next_frame(Kind.HEADERS)).flags & END_STREAM:
            pass
        assert not {frame.kind for frame in frames} & {Kind.GOAWAY, Kind.RST_STREAM}


async def test_a_client_that_pings_without_a_call_is_kept(data: Path) -> None:
    async with run_server(data, WatchedEncoder()) as served, raw_caller(served.server.address) as raw:
        raw.greet()
        for number in range(PINGS):
            payload = struct.pack(">Q", number)
            raw.ping(payload)
            async with asyncio.timeout(PATIENCE_S):
                while (frame := await raw.read()) is not None and frame.content != payload:
                    assert frame.kind != Kind.GOAWAY
                assert frame is not None
