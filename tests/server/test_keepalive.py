from __future__ import annotations

import asyncio
import struct
from pathlib import Path

from tests.server.running import embed_request, run_server
from tests.server.watched import PATIENCE_S, WatchedEncoder
from tests.support.http2_peer import ACK, DATA, END_STREAM, GOAWAY, HEADERS, PING, RST_STREAM, Frame, http2_peer
from twinlens.v1 import embedding_pb2

PINGS = 60  # a long call of a client that pings every second


async def test_a_client_that_pings_all_through_a_long_call_gets_its_answer(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served, http2_peer(served.server.address) as peer:
        encoder.hold()
        await peer.begin_call("/twinlens.v1.EmbeddingService/Embed")
        await peer.send_message(embed_request("a long one").SerializeToString())
        await encoder.entered()
        frames: list[Frame] = []

        async def next_frame(kind: int) -> Frame:
            async with asyncio.timeout(PATIENCE_S):
                while True:
                    frame = await peer.read()
                    frames.append(frame)
                    if frame.kind == kind:
                        return frame

        for number in range(PINGS):  # far more often than every second
            payload = struct.pack(">Q", number)
            await peer.send(PING, payload)
            answer = await next_frame(PING)
            while not answer.flags & ACK:  # the server's own
                answer = await next_frame(PING)
            assert answer.payload == payload
        encoder.release()
        answer = await next_frame(DATA)
        reply = embedding_pb2.EmbedResponse.FromString(answer.payload[5:])
        assert reply.results[0].WhichOneof("outcome") == "embedding"
        while not (await next_frame(HEADERS)).flags & END_STREAM:
            pass
        assert not {frame.kind for frame in frames} & {GOAWAY, RST_STREAM}


async def test_a_client_that_pings_without_a_call_is_kept(data: Path) -> None:
    async with run_server(data, WatchedEncoder()) as served, http2_peer(served.server.address) as peer:
        for number in range(PINGS):
            payload = struct.pack(">Q", number)
            await peer.send(PING, payload)
            async with asyncio.timeout(PATIENCE_S):
                while (frame := await peer.read()).payload != payload:
                    assert frame.kind != GOAWAY
