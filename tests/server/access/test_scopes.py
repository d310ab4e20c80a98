"""What each method asks of its caller, and on which collections."""

from __future__ import annotations

import pytest
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import Default
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health, health_pb2
from grpc_reflection.v1alpha import reflection, reflection_pb2

from twinlens.server.access.named_collections import collections_named, paths_to_collections
from twinlens.server.access.scopes import NEEDS
from twinlens.server.core.caller import Caller, Grant, Scope
from twinlens.server.grpc_server import SERVICES
from twinlens.v1 import classification_pb2, collection_pb2, embedding_pb2, search_pb2

EVERY_SERVICE = (*SERVICES, health.SERVICE_NAME, reflection.SERVICE_NAME)


def methods(service: str) -> list[str]:
    assert health_pb2.DESCRIPTOR
    assert reflection_pb2.DESCRIPTOR
    return [method.name for method in Default().FindServiceByName(service).methods]


def test_every_method_of_every_service_asks_for_a_scope_and_no_other_is_listed() -> None:
    offered = {f"/{service}/{method}" for service in EVERY_SERVICE for method in methods(service)}
    assert set(NEEDS) - {"/grpc.health.v1.Health/List"} == offered - {"/grpc.health.v1.Health/List"}


@pytest.mark.parametrize(
    ("method", "scope"),
    [
        ("SearchService/Search", Scope.READ),
        ("CollectionService/UpsertItems", Scope.WRITE),
        ("CollectionService/DeleteItems", Scope.WRITE),
        ("CollectionService/DeleteCollection", Scope.ADMIN),
        ("CollectionOperationsService/RestoreCollection", Scope.ADMIN),
    ],
)
def test_who_may_read_may_not_write_and_who_may_write_may_not_administer(method: str, scope: Scope) -> None:
    assert NEEDS[f"/twinlens.v1.{method}"].scope is scope


def test_whatever_changes_something_asks_for_more_than_reading() -> None:
    changing = ("Create", "Delete", "Upsert", "Put", "Drop", "Restore", "Merge", "Backup", "Record", "Promote")
    for method, need in NEEDS.items():
        if method.rpartition("/")[2].startswith(changing):
            assert need.scope > Scope.READ, method


def test_a_scope_includes_those_before_it_and_reaches_as_far_as_its_pattern() -> None:
    caller = Caller("ingest", (Grant(Scope.READ), Grant(Scope.WRITE, "photos-*")))
    assert caller.may(Scope.READ, "anything")
    assert caller.may(Scope.WRITE, "photos-2024")
    assert not caller.may(Scope.WRITE, "photos")
    assert not caller.may(Scope.ADMIN, "photos-2024")
    assert caller.may_somewhere(Scope.WRITE)
    assert not caller.may_everywhere(Scope.WRITE)
    assert caller.may_everywhere(Scope.READ)
    assert Caller("boss", (Grant(Scope.ADMIN),)).may(Scope.READ, "anything")


def dotted(message: type[Message]) -> set[str]:
    return {".".join(field.name for field in path) for path in paths_to_collections(message)}


def test_collections_are_found_wherever_a_request_names_them() -> None:
    assert dotted(search_pb2.SearchRequest) == {"collection"}
    assert dotted(embedding_pb2.EmbedRequest) == {"inputs.item.collection"}
    assert dotted(classification_pb2.ClassifyRequest) == {"examples.collection"}
    assert dotted(classification_pb2.ClassifyStreamRequest) == {"setup.examples.collection"}
    assert dotted(collection_pb2.UpsertItemsRequest) == {"collection"}


def test_every_field_of_a_request_that_names_a_collection_has_a_path() -> None:
    for service in SERVICES:
        for method in Default().FindServiceByName(service).methods:
            paths = paths_to_collections(GetMessageClass(method.input_type))
            assert len(paths) == _named(method.input_type, frozenset()), method.full_name


def _named(message: Descriptor, above: frozenset[str]) -> int:
    if message.full_name in above:
        return 0
    below = above | {message.full_name}
    return sum(
        _named(field.message_type, below)
        if field.message_type is not None
        else int(field.name == "collection" and field.type == FieldDescriptor.TYPE_STRING)
        for field in message.fields
    )


def test_those_that_are_set_are_named_and_none_is_made_by_looking() -> None:
    request = embedding_pb2.EmbedRequest(
        inputs=[
            embedding_pb2.EmbedInput(text="a"),
            embedding_pb2.EmbedInput(item=embedding_pb2.StoredItem(collection="x", id="1")),
            embedding_pb2.EmbedInput(item=embedding_pb2.StoredItem(collection="y", id="2")),
        ]
    )
    before = request.SerializeToString(deterministic=True)
    paths = paths_to_collections(embedding_pb2.EmbedRequest)
    assert list(collections_named(request, paths)) == ["x", "y"]
    assert request.SerializeToString(deterministic=True) == before
    empty = classification_pb2.ClassifyStreamRequest()
    paths = paths_to_collections(classification_pb2.ClassifyStreamRequest)
    assert list(collections_named(empty, paths)) == []
    assert not empty.HasField("setup")
