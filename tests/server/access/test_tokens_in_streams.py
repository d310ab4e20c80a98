"""What a token is worth in a stream that is open."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc

from tests.server.access.secured import Secured, bearer, token_in
from tests.server.running import embed_request, refusal
from tests.server.watched import until
from twinlens.server.access.token_file import remove_token
from twinlens.v1 import collection_pb2, collection_pb2_grpc, embedding_pb2, embedding_pb2_grpc

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED


async def test_a_stream_is_slowed_down_to_its_rate_instead_of_refused(
    server: Secured, channel: grpc.aio.Channel, tokens: Path, admin: str
) -> None:
    fast = token_in(tokens, "fast", "read", rate=50)
    slow = token_in(tokens, "slow", "read", rate=1e-3)
    server.server.reload()
    stream = embedding_pb2_grpc.EmbeddingServiceStub(channel).EmbedStream
    message = embedding_pb2.EmbedStreamRequest(inputs=embed_request("red").inputs)
    replies = [each async for each in stream(iter([message] * 60), metadata=bearer(fast))]
    assert len(replies) == 60
    call: Any = stream(iter([message] * 3), metadata=bearer(slow))
    assert (await call.read()).results
    waiting = asyncio.ensure_future(call.read())
    embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
    for _ in range(3):  # others are served meanwhile
        await embed(embed_request("red"), metadata=bearer(admin))
    assert not waiting.done()
    call.cancel()
    await asyncio.gather(waiting, return_exceptions=True)


async def test_a_stream_whose_token_is_revoked_ends_with_its_next_message(
    server: Secured, channel: grpc.aio.Channel, tokens: Path
) -> None:
    token = token_in(tokens, "new", "read")
    server.server.reload()
    call: Any = embedding_pb2_grpc.EmbeddingServiceStub(channel).EmbedStream(metadata=bearer(token))
    message = embedding_pb2.EmbedStreamRequest(inputs=embed_request("red").inputs)
    for _ in range(2):
        await call.write(message)
        assert (await call.read()).results
    remove_token(tokens, "new")
    server.server.reload()
    await call.write(message)
    assert (await refusal(call.read()))[0] is UNAUTHENTICATED


def replace_in(path: Path, before: str, after: str) -> None:
    path.write_text(path.read_text().replace(before, after))


async def test_a_stream_does_not_go_on_with_a_scope_that_was_taken_away(
    server: Secured, channel: grpc.aio.Channel, tokens: Path, admin: str
) -> None:
    token = token_in(tokens, "new", "write:a*")
    server.server.reload()
    collections = collection_pb2_grpc.CollectionServiceStub(channel)
    create = collection_pb2.CreateCollectionRequest(collection="abc")
    await collections.CreateCollection(create, metadata=bearer(admin))
    call: Any = collections.UpsertItems(metadata=bearer(token))
    message = collection_pb2.UpsertItemsRequest(collection="abc", items=[collection_pb2.NewItem(caption="red")])
    await call.write(message)
    await until(lambda: server.server.running_calls == 1)
    replace_in(tokens, "write:a*", "read:a*")
    server.server.reload()
    await call.write(message)
    assert (await refusal(call))[0] is UNAUTHENTICATED
