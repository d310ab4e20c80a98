"""Tokens, as callers meet them."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from tests.server.access.secured import Secured, bearer, secured, token_in
from tests.server.running import embed_request, picture, refusal
from twinlens.server.access.keyring import Keyring
from twinlens.server.access.scopes import HEALTH, NEEDS
from twinlens.server.access.token_file import remove_token
from twinlens.server.core.active import StartError
from twinlens.v1 import (
    classification_pb2,
    classification_pb2_grpc,
    collection_operations_pb2,
    collection_operations_pb2_grpc,
    collection_pb2,
    collection_pb2_grpc,
    embedding_pb2,
    embedding_pb2_grpc,
    model_pb2,
    model_pb2_grpc,
    search_pb2,
    search_pb2_grpc,
)

UNAUTHENTICATED = grpc.StatusCode.UNAUTHENTICATED
DENIED = grpc.StatusCode.PERMISSION_DENIED


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    path = tmp_path / "broken.toml"
    path.write_text("[[tokens")
    return path


def as_bytes(channel: grpc.aio.Channel, method: str) -> Any:
    """A method of any shape, called with bytes. On the wire a single message and a stream of one are the same, and
    Python's client makes an error of its own of a stream that is refused while it sends.
    """
    return channel.unary_unary(method)


ONE_OF_EACH_SHAPE = {
    "EmbeddingService/Embed": embed_request("red"),
    "CollectionOperationsService/CheckCollection": collection_operations_pb2.CheckCollectionRequest(collection="x"),
    "CollectionService/UpsertItems": collection_pb2.UpsertItemsRequest(collection="x"),
    "EmbeddingService/EmbedStream": embedding_pb2.EmbedStreamRequest(inputs=embed_request("red").inputs),
}


def every_call(channel: grpc.aio.Channel, metadata: Any) -> list[Any]:
    """A call of each shape."""
    return [
        as_bytes(channel, f"/twinlens.v1.{method}")(request.SerializeToString(), metadata=metadata)
        for method, request in ONE_OF_EACH_SHAPE.items()
    ]


WRONG = [
    (),
    (("authorization", ""),),
    (("authorization", "Bearer "),),
    (("authorization", "Basic dTpw"),),
    (("authorization", f"Bearer twl_admin_{'0' * 64}"),),
    (("authorization", f"Bearer twl_nobody_{'0' * 64}"),),
    (("authorization", f"Bearer {'x' * 4000}"),),
]


@pytest.mark.parametrize("metadata", WRONG)
async def test_no_call_of_any_shape_passes_without_a_good_token(
    server: Secured, channel: grpc.aio.Channel, metadata: Any
) -> None:
    for call in every_call(channel, metadata):
        code, message = await refusal(call)
        assert code is UNAUTHENTICATED
        assert "authorization: Bearer TOKEN" in message
    assert server.refused("token") == 4


async def test_two_tokens_are_none(server: Secured, channel: grpc.aio.Channel, admin: str) -> None:
    embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
    assert (await refusal(embed(embed_request("red"), metadata=(*bearer(admin), *bearer(admin)))))[0] is UNAUTHENTICATED
    assert len((await embed(embed_request("red"), metadata=bearer(admin))).results) == 1
    other_case = (("authorization", f"bearer  {admin} "),)
    assert len((await embed(embed_request("red"), metadata=other_case)).results) == 1


async def test_methods_that_do_not_exist_are_no_way_to_find_out(
    server: Secured, channel: grpc.aio.Channel, admin: str
) -> None:
    unknown: Any = channel.unary_unary("/twinlens.v1.EmbeddingService/Nothing")
    assert (await refusal(unknown(b"")))[0] is UNAUTHENTICATED
    code, _ = await refusal(unknown(b"", metadata=bearer(admin)))
    assert code in {DENIED, grpc.StatusCode.UNIMPLEMENTED}


async def test_what_a_stranger_sends_is_not_read(server: Secured, channel: grpc.aio.Channel) -> None:
    """Were it parsed, or only received, the answer would be another one."""
    embed: Any = channel.unary_unary("/twinlens.v1.EmbeddingService/Embed")
    assert (await refusal(embed(b"\xff no message")))[0] is UNAUTHENTICATED
    too_large = bytes(server.app.settings.max_message_bytes + 1)
    async with grpc.aio.insecure_channel(server.address, options=[("grpc.max_send_message_length", -1)]) as wide:
        call: Any = wide.unary_unary("/twinlens.v1.EmbeddingService/Embed")
        assert (await refusal(call(too_large)))[0] is UNAUTHENTICATED


async def test_a_request_id_comes_back_with_a_refusal_and_is_in_the_log(
    server: Secured, channel: grpc.aio.Channel, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await embed(embed_request("red"), metadata=(("x-request-id", "mine-1"), ("authorization", "Bearer guessed")))
    assert dict(caught.value.trailing_metadata())["x-request-id"] == "mine-1"
    assert "mine-1" in caplog.text
    assert "guessed" not in caplog.text


async def test_each_scope_opens_its_methods_and_no_others(
    server: Secured, channel: grpc.aio.Channel, tokens: Path, admin: str
) -> None:
    collections = collection_pb2_grpc.CollectionServiceStub(channel)
    operations = collection_operations_pb2_grpc.CollectionOperationsServiceStub(channel)
    reader, writer = token_in(tokens, "reader", "read"), token_in(tokens, "writer", "write")
    server.server.reload()
    create = collection_pb2.CreateCollectionRequest(collection="photos")
    merge = collection_operations_pb2.MergeCollectionRequest(collection="photos")
    code, message = await refusal(collections.CreateCollection(create, metadata=bearer(reader)))
    assert code is DENIED
    assert message == "the token reader lacks the scope write"
    await collections.CreateCollection(create, metadata=bearer(writer))
    upsert = [collection_pb2.UpsertItemsRequest(collection="photos", items=[collection_pb2.NewItem(caption="red")])]
    assert (await refusal(collections.UpsertItems(iter(upsert), metadata=bearer(reader))))[0] is DENIED
    assert (await collections.UpsertItems(iter(upsert), metadata=bearer(writer))).stored_count == 1
    count = collection_pb2.CountItemsRequest(collection="photos")
    for token in (reader, writer, admin):
        assert (await collections.CountItems(count, metadata=bearer(token))).count == 1
    assert (await refusal(operations.MergeCollection(merge, metadata=bearer(writer))))[0] is DENIED
    await operations.MergeCollection(merge, metadata=bearer(admin))
    assert server.refused("scope") == 3


async def test_a_scope_on_some_collections_reaches_no_others_by_any_way(
    server: Secured, channel: grpc.aio.Channel, tokens: Path, admin: str
) -> None:
    collections = collection_pb2_grpc.CollectionServiceStub(channel)
    for name in ("cats", "cats-2", "dogs"):
        create = collection_pb2.CreateCollectionRequest(collection=name)
        await collections.CreateCollection(create, metadata=bearer(admin))
    mine = token_in(tokens, "cats", "write:cats*")
    server.server.reload()

    listed = await collections.ListCollections(collection_pb2.ListCollectionsRequest(), metadata=bearer(mine))
    assert [each.id for each in listed.collections] == ["cats", "cats-2"]
    first = await collections.ListCollections(collection_pb2.ListCollectionsRequest(page_size=1), metadata=bearer(mine))
    rest = await collections.ListCollections(
        collection_pb2.ListCollectionsRequest(page_token=first.next_page_token), metadata=bearer(mine)
    )
    assert [each.id for page in (first, rest) for each in page.collections] == ["cats", "cats-2"]

    search = search_pb2_grpc.SearchServiceStub(channel).Search
    query = search_pb2.Query(parts=[search_pb2.QueryPart(text="red")])
    embed = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed
    stored = embedding_pb2.EmbedInput(item=embedding_pb2.StoredItem(collection="dogs", id="1"))
    classify = classification_pb2_grpc.ClassificationServiceStub(channel).Classify
    examples = classification_pb2.ExampleSet(collection="dogs", label_key="k")
    other_later = [
        collection_pb2.UpsertItemsRequest(collection="cats"),
        collection_pb2.UpsertItemsRequest(collection="dogs", items=[collection_pb2.NewItem(caption="x")]),
    ]
    refused = [
        search(search_pb2.SearchRequest(collection="dogs", queries=[query], top_k=1), metadata=bearer(mine)),
        embed(embedding_pb2.EmbedRequest(inputs=[embed_request("red").inputs[0], stored]), metadata=bearer(mine)),
        classify(classification_pb2.ClassifyRequest(images=[picture("red")], examples=examples), metadata=bearer(mine)),
        collections.UpsertItems(iter(other_later), metadata=bearer(mine)),
        collections.CreateCollection(collection_pb2.CreateCollectionRequest(collection="birds"), metadata=bearer(mine)),
        collections.GetCollection(collection_pb2.GetCollectionRequest(collection="dogs"), metadata=bearer(mine)),
        collections.GetCollection(collection_pb2.GetCollectionRequest(collection="nothing"), metadata=bearer(mine)),
    ]
    for call in refused:
        code, message = await refusal(call)
        assert code is DENIED, message
        assert message.startswith("the token cats lacks the scope ")
    count = collection_pb2.CountItemsRequest(collection="dogs")
    assert (await collections.CountItems(count, metadata=bearer(admin))).count == 0
    own = search_pb2.SearchRequest(collection="cats", queries=[query], top_k=1)
    assert len((await search(own, metadata=bearer(mine))).results) == 1
    assert len((await embed(embed_request("red"), metadata=bearer(mine))).results) == 1

    labels = classification_pb2_grpc.ClassificationServiceStub(channel)
    put = classification_pb2.PutLabelSetRequest(label_set=classification_pb2.LabelSet(id="l", labels=["a"]))
    code, message = await refusal(labels.PutLabelSet(put, metadata=bearer(mine)))
    assert (code, message) == (DENIED, "the token cats lacks the scope write on every collection")


async def test_calls_beyond_a_rate_are_refused_with_when_to_come_again(
    server: Secured, channel: grpc.aio.Channel, tokens: Path
) -> None:
    often = token_in(tokens, "often", "read", rate=0.01)
    server.server.reload()
    get = model_pb2_grpc.ModelServiceStub(channel).GetModel
    await get(model_pb2.GetModelRequest(), metadata=bearer(often))
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await get(model_pb2.GetModelRequest(), metadata=bearer(often))
    assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "0.01 calls a second" in (caught.value.details() or "")
    pushback = dict(caught.value.trailing_metadata())["grpc-retry-pushback-ms"]
    assert 0 < int(pushback) <= 100_000
    assert server.refused("rate") == 1


async def test_a_revoked_token_is_refused_and_a_new_one_taken_without_a_restart(
    server: Secured, channel: grpc.aio.Channel, tokens: Path
) -> None:
    get = model_pb2_grpc.ModelServiceStub(channel).GetModel
    token = token_in(tokens, "new", "read")
    server.server.reload()
    await get(model_pb2.GetModelRequest(), metadata=bearer(token))
    remove_token(tokens, "new")
    server.server.reload()
    assert (await refusal(get(model_pb2.GetModelRequest(), metadata=bearer(token))))[0] is UNAUTHENTICATED


async def test_health_and_reflection_are_open_as_they_are_set_to_be(data: Path, tokens: Path, admin: str) -> None:
    async def asked(**settings: Any) -> list[bool]:
        async with (
            secured(data, tokens=tokens, **settings) as server,
            grpc.aio.insecure_channel(server.address) as channel,
        ):
            health = health_pb2_grpc.HealthStub(channel)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            opened = [await passes(health.Check(health_pb2.HealthCheckRequest())), await passes(watch.read())]
            watch.cancel()
            reflect = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo
            ask = reflection_pb2.ServerReflectionRequest(list_services="")
            opened.append(await passes(anext(aiter(reflect(iter([ask]))))))
            assert (await health.Check(health_pb2.HealthCheckRequest(), metadata=bearer(admin))).status == 1
            assert await anext(aiter(reflect(iter([ask]), metadata=bearer(admin))))
            return opened

    assert await asked() == [True, True, False]
    assert await asked(open_health=False, open_reflection=True) == [False, False, True]


async def passes(call: Any) -> bool:
    try:
        await call
    except grpc.aio.AioRpcError as error:
        return error.code() is not UNAUTHENTICATED
    return True


@pytest.mark.parametrize("method", sorted(NEEDS))
async def test_no_method_is_open_to_strangers_and_none_tells_the_parsers_words(
    server: Secured, channel: grpc.aio.Channel, admin: str, method: str
) -> None:
    call = as_bytes(channel, method)
    if not method.startswith(HEALTH):
        assert (await refusal(call(b"")))[0] is UNAUTHENTICATED
        assert (await refusal(call(b"\xff\xff\xff")))[0] is UNAUTHENTICATED
    code, message = await refusal(call(b"\xff\xff\xff", metadata=bearer(admin)))
    assert (code, message) == (grpc.StatusCode.INVALID_ARGUMENT, "the bytes are not a message of this method")


async def test_a_fault_in_the_check_itself_admits_nobody_and_tells_nothing(
    server: Secured, channel: grpc.aio.Channel, admin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find(self: Keyring, token: str) -> None:
        raise RuntimeError(f"secret /path {token}")

    monkeypatch.setattr(Keyring, "find", find)
    for call in every_call(channel, bearer(admin)):
        code, message = await refusal(call)
        assert code is grpc.StatusCode.INTERNAL
        assert message.startswith("internal error; the server's log has the cause under request ")


async def test_a_file_that_cannot_be_read_is_one_line_at_the_start(data: Path, tokens: Path, broken: Path) -> None:
    with pytest.raises(StartError, match="the tokens cannot be read from"):
        async with secured(data, tokens=tokens):
            pass
    with pytest.raises(StartError, match="is not TOML") as caught:
        async with secured(data, tokens=broken):
            pass
    assert "\n" not in str(caught.value)
