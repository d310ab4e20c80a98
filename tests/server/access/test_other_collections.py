"""A token for some collections reaches no others, wherever a request may name one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from tests.server.access.secured import Secured, bearer, token_in
from tests.server.running import refusal
from twinlens.server.access.named_collections import paths_to_collections
from twinlens.server.grpc_server import SERVICES
from twinlens.v1 import collection_pb2, collection_pb2_grpc

MINE, OTHER = "cats", "dogs"


def ways() -> Iterator[Any]:
    for service in SERVICES:
        for method in Default().FindServiceByName(service).methods:
            for path in paths_to_collections(GetMessageClass(method.input_type)):
                name = f"{method.name}-{'.'.join(field.name for field in path)}"
                # Of a stream that is set up, the later messages name none.
                later = bool(method.client_streaming) and path[0].name != "setup"
                yield pytest.param(f"/{service}/{method.name}", path, later, id=name)


def naming(path: Sequence[FieldDescriptor], collection: str) -> Message:
    first, *_ = path
    assert first.containing_type is not None
    request = GetMessageClass(first.containing_type)()
    within: Any = request
    for field in path[:-1]:
        within = getattr(within, field.name)
        within = within.add() if field.is_repeated else within
        within.SetInParent()
    setattr(within, path[-1].name, collection)
    return request


@pytest.mark.parametrize(("method", "path", "later"), list(ways()))
async def test_a_collection_of_others_is_refused_wherever_it_is_named(
    method: str,
    path: Sequence[FieldDescriptor],
    later: bool,
    server: Secured,
    channel: grpc.aio.Channel,
    tokens: Path,
    admin: str,
) -> None:
    create = collection_pb2.CreateCollectionRequest(collection=MINE)
    await collection_pb2_grpc.CollectionServiceStub(channel).CreateCollection(create, metadata=bearer(admin))
    mine = token_in(tokens, "mine", f"admin:{MINE}")
    server.server.reload()
    theirs = naming(path, OTHER).SerializeToString()
    # On the wire a single message and a stream of one are the same.
    alone: Any = channel.unary_unary(method)
    calls = [alone(theirs, metadata=bearer(mine))]
    if later:
        stream: Any = channel.stream_stream(method)(metadata=bearer(mine))
        for message in (naming(path, MINE).SerializeToString(), theirs):
            await stream.write(message)
        calls.append(stream)
    for call in calls:
        code, told = await refusal(call)
        assert code is grpc.StatusCode.PERMISSION_DENIED, told
        assert told.startswith("the token mine lacks the scope ")


def test_there_are_ways_to_try() -> None:
    found = {f"{way.values[0].rpartition('/')[2]} {way.values[1][-2].name}" for way in ways() if len(way.values[1]) > 1}
    assert found >= {"Embed item", "EmbedStream item", "Classify examples", "ClassifyStream examples"}
    assert {way.values[0].rpartition("/")[2] for way in ways() if way.values[2]} == {"UpsertItems", "EmbedStream"}


async def test_small_pages_for_a_token_of_few_collections_do_not_look_at_all_others_one_by_one(
    server: Secured, channel: grpc.aio.Channel, tokens: Path, admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    collections = collection_pb2_grpc.CollectionServiceStub(channel)
    for number in range(20):
        create = collection_pb2.CreateCollectionRequest(collection=f"dogs-{number}")
        await collections.CreateCollection(create, metadata=bearer(admin))
    mine = token_in(tokens, "cats", "read:zebras")
    server.server.reload()
    catalog, looks = server.app.catalog, 0
    entries = catalog.entries

    def counted(**options: Any) -> Any:
        nonlocal looks
        looks += 1
        return entries(**options)

    monkeypatch.setattr(catalog, "entries", counted)
    listed = await collections.ListCollections(
        collection_pb2.ListCollectionsRequest(page_size=1), metadata=bearer(mine)
    )
    assert not listed.collections
    assert looks == 1
