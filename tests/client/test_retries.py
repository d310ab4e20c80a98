"""What is tried again and what never is, on a server that fails as it is told to."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.descriptor_pool import Default

from twinlens.client import NewItem, TwinlensError
from twinlens.client.channel import channel_options
from twinlens.server.grpc_server import SERVICES
from twinlens.v1 import collection_pb2, collection_pb2_grpc, content_pb2, embedding_pb2, embedding_pb2_grpc


class Failing(embedding_pb2_grpc.EmbeddingServiceServicer, collection_pb2_grpc.CollectionServiceServicer):
    """Answers each call with the next status of a list, and well when the list is used up."""

    def __init__(self) -> None:
        self.statuses: list[grpc.StatusCode] = []
        self.calls = 0

    def _answer(self, context: Any) -> None:
        self.calls += 1
        if self.statuses:
            context.abort(self.statuses.pop(0), "told to")

    def Embed(self, request: embedding_pb2.EmbedRequest, context: Any) -> embedding_pb2.EmbedResponse:  # noqa: N802
        self._answer(context)
        vector = content_pb2.Vector(values=[1.0])
        results = [embedding_pb2.EmbedResult(embedding=vector) for _ in request.inputs]
        return embedding_pb2.EmbedResponse(model=content_pb2.ModelInfo(dimension=1), results=results)

    def UpsertItems(self, request_iterator: Any, context: Any) -> Any:  # noqa: N802
        stored = sum(len(message.items) for message in request_iterator)
        self._answer(context)
        return collection_pb2.UpsertItemsResponse(stored_count=stored)


@contextmanager
def serving(servicer: Failing, address: str) -> Iterator[int]:
    with ThreadPoolExecutor(max_workers=2) as pool:
        server = grpc.server(pool, options=[("grpc.max_receive_message_length", 64 * 2**20)])
        embedding_pb2_grpc.add_EmbeddingServiceServicer_to_server(servicer, server)
        collection_pb2_grpc.add_CollectionServiceServicer_to_server(servicer, server)
        port = server.add_insecure_port(address)
        server.start()
        yield port
        server.stop(None).wait()


def _failing() -> Failing:
    return Failing()  # type: ignore[abstract]  # the stubs' generator marks what is not written as abstract


@pytest.fixture
def failing() -> Iterator[tuple[Failing, str]]:
    servicer = _failing()
    with serving(servicer, "127.0.0.1:0") as port:
        yield servicer, f"127.0.0.1:{port}"


@pytest.mark.parametrize("status", [grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED])
def test_a_read_is_tried_again_where_the_server_is_away_or_full(
    open_client: Callable[..., Any], failing: tuple[Failing, str], status: grpc.StatusCode
) -> None:
    servicer, target = failing
    servicer.statuses = [status]
    with open_client(target) as client:
        assert client.embed_texts(["a"]).vectors.tolist() == [[1.0]]
    assert servicer.calls == 2


def test_a_request_bigger_than_the_usual_buffer_is_tried_again_too(
    open_client: Callable[..., Any], failing: tuple[Failing, str]
) -> None:
    servicer, target = failing
    servicer.statuses = [grpc.StatusCode.UNAVAILABLE]
    with open_client(target) as client:
        assert client.embed_images([b"x" * 3_000_000]).vectors.tolist() == [[1.0]]
    assert servicer.calls == 2


def test_trying_again_ends(open_client: Callable[..., Any], failing: tuple[Failing, str]) -> None:
    servicer, target = failing
    servicer.statuses = [grpc.StatusCode.RESOURCE_EXHAUSTED] * 10
    with open_client(target) as client, pytest.raises(TwinlensError) as caught:
        client.embed_texts(["a"])
    assert caught.value.code == "RESOURCE_EXHAUSTED"
    assert caught.value.message == "told to"
    assert servicer.calls == 4


@pytest.mark.parametrize("status", [grpc.StatusCode.INTERNAL, grpc.StatusCode.INVALID_ARGUMENT])
def test_what_would_fail_again_is_not_tried_again(
    open_client: Callable[..., Any], failing: tuple[Failing, str], status: grpc.StatusCode
) -> None:
    servicer, target = failing
    servicer.statuses = [status]
    with open_client(target) as client, pytest.raises(TwinlensError) as caught:
        client.embed_texts(["a"])
    assert caught.value.code == status.name
    assert servicer.calls == 1


def test_a_write_is_never_tried_again(open_client: Callable[..., Any], failing: tuple[Failing, str]) -> None:
    servicer, target = failing
    servicer.statuses = [grpc.StatusCode.UNAVAILABLE]
    with open_client(target) as client, pytest.raises(TwinlensError) as caught:
        client.upsert("photos", [NewItem(caption="a")])
    assert caught.value.code == "UNAVAILABLE"
    assert servicer.calls == 1


def test_every_method_is_either_one_that_changes_something_or_tried_again() -> None:
    changing = ("Create", "Delete", "Upsert", "Merge", "Backup", "Restore", "Drop")
    methods = {
        (service, method.name) for service in SERVICES for method in Default().FindServiceByName(service).methods
    }
    (config,) = json.loads(str(dict(channel_options("localhost:1"))["grpc.service_config"]))["methodConfig"]
    tried_again = {(each["service"], each["method"]) for each in config["name"]}
    assert tried_again == {(service, name) for service, name in methods if not name.startswith(changing)}


def test_a_method_the_server_does_not_have_is_named(
    open_client: Callable[..., Any], failing: tuple[Failing, str]
) -> None:
    _, target = failing
    with open_client(target) as client, pytest.raises(TwinlensError) as caught:
        client.models()
    assert caught.value.code == "UNIMPLEMENTED"
    assert target in caught.value.message


def test_a_client_that_is_told_to_waits_for_a_server_that_comes_later(
    open_client: Callable[..., Any], tmp_path: Path
) -> None:
    target = f"unix:{tmp_path}/socket"
    with open_client(target, wait_for_ready=True) as client, ThreadPoolExecutor(max_workers=1) as pool:
        answer = pool.submit(client.embed_texts, ["a"])
        with serving(_failing(), target):
            assert answer.result().vectors.tolist() == [[1.0]]
