"""Operations on whole collections, by both clients, against a real server."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import solid
from twinlens.client import AsyncClient, Client, NewItem, TwinlensError

SPACE = FakeEncoder().manifest.space_id
_numbers = itertools.count()


def rows(count: int, seed: int = 1) -> Any:
    vectors = np.random.default_rng(seed).standard_normal((count, 32)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def empty(client: Any) -> Iterator[str]:
    name = f"operated-{next(_numbers)}"
    client.create_collection(name)
    yield name
    client.delete_collection(name)


@pytest.fixture
def filled(client: Any, empty: str) -> str:
    """Three hundred items that bring a picture's vector, every third one a caption's, too."""
    vectors, texts = rows(300), rows(300, seed=2)
    items = [
        NewItem(
            id=f"{i:03d}",
            uri=f"file:///{i}",
            metadata={"n": i, "deep": {"tags": ["a", None]}},
            image_vector=vectors[i],
            text_vector=texts[i] if i % 3 == 0 else None,
        )
        for i in range(300)
    ]
    assert client.upsert(empty, items, space_id=SPACE).stored == 300
    return empty


def test_items_bring_vectors_of_their_own(client: Any, filled: str) -> None:
    hits = client.search(filled, vector=rows(300)[17], top_k=2)
    assert hits[0].id == "017"
    assert hits[0].score == pytest.approx(1, abs=1e-6)
    described = client.get_collection(filled)
    assert (described.item_count, described.image_vector_count, described.text_vector_count) == (300, 300, 100)


def test_vectors_of_another_space_are_refused(client: Any, empty: str) -> None:
    with pytest.raises(TwinlensError, match="elsewhere") as refused:
        client.upsert(empty, [NewItem(id="x", image_vector=[1.0] * 32)], space_id="elsewhere")
    assert refused.value.code == "FAILED_PRECONDITION"
    with pytest.raises(TwinlensError, match="space_id"):
        client.upsert(empty, [NewItem(id="x", image_vector=[1.0] * 32)])


def test_a_vector_that_is_none_fails_its_item_alone(client: Any, empty: str) -> None:
    items = [NewItem(id="a", image_vector=np.ones((1, 32))), NewItem(id="b", image_vector=[1.0] * 32)]
    report = client.upsert(empty, items, space_id=SPACE)
    assert report.stored == 1
    assert [(failure.id, failure.position) for failure in report.failures] == [("a", 0)]


def test_export_brings_every_item_by_id_with_its_vectors(client: Any, filled: str) -> None:
    exported = list(client.export_items(filled))
    assert [each.item.id for each in exported] == [f"{i:03d}" for i in range(300)]
    assert {each.space_id for each in exported} == {SPACE}
    vectors, texts = rows(300), rows(300, seed=2)
    for i, each in enumerate(exported):
        if i % 100 == 0:
            assert each.item == client.get_item(filled, each.item.id)
        np.testing.assert_allclose(each.image_vector, vectors[i], atol=1e-6)
        if i % 3 == 0:
            np.testing.assert_allclose(each.text_vector, texts[i], atol=1e-6)
        else:
            assert each.text_vector is None


def test_export_brings_only_the_vectors_asked_for(client: Any, filled: str, empty: str) -> None:
    for each in client.export_items(filled, vectors=["text"]):
        assert each.image_vector is None
    client.upsert(empty, [NewItem(id="red", image=solid("red"))])
    assert all(each.image_vector is None for each in client.export_items(filled, vectors=[]))


def test_export_brings_only_items_that_match(client: Any, filled: str) -> None:
    exported = client.export_items(filled, filter="n >= 297 OR n < 2", vectors=[])
    assert [each.item.id for each in exported] == ["000", "001", "297", "298", "299"]


def test_groups_of_duplicates_are_whole_however_many_messages_they_take(
    client: Any, empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlens.server.services.collection_operations._IDS_A_MESSAGE", 2)
    twins = [("a", 0), ("b", 0), ("c", 0), ("d", 0), ("e", 0), ("x", 1), ("y", 1)]
    items = [NewItem(id=item_id, image_vector=rows(2)[row]) for item_id, row in twins]
    client.upsert(empty, items, space_id=SPACE)
    groups = [group.ids for group in client.find_duplicates(empty, threshold=0.99)]
    assert groups == [("a", "b", "c", "d", "e"), ("x", "y")]


def test_paths_into_metadata_are_indexed_and_no_longer(client: Any, filled: str) -> None:
    assert client.create_metadata_index(filled, "n").id == filled
    assert client.create_metadata_index(filled, "n").id == filled
    client.delete_metadata_index(filled, "n")
    with pytest.raises(TwinlensError, match="n"):
        client.delete_metadata_index(filled, "n")


def test_an_empty_collection_exports_nothing(client: Any, empty: str) -> None:
    assert list(client.export_items(empty)) == []


def test_an_export_that_is_left_ends_and_others_go_on(target: str, filled: str) -> None:
    with Client(target) as client:
        for _ in range(20):  # more than may run at a time
            assert next(client.export_items(filled)).item.id == "000"


def test_a_closed_client_streams_nothing(target: str) -> None:
    client = Client(target)
    client.close()
    with pytest.raises(TwinlensError, match="the client is closed"):
        next(client.export_items("photos"))


async def test_a_closed_asynchronous_client_streams_nothing(target: str) -> None:
    client = AsyncClient(target)
    await client.close()
    with pytest.raises(TwinlensError, match="the client is closed"):
        await anext(aiter(client.export_items("photos")))


def test_an_unknown_collection_is_told_by_the_first_step(client: Any) -> None:
    with pytest.raises(TwinlensError) as refused:
        list(client.export_items("nowhere"))
    assert refused.value.code == "NOT_FOUND"


def test_a_collection_is_created_with_a_kind_and_keeps_it(client: Any) -> None:
    name = f"kind-{next(_numbers)}"
    assert client.create_collection(name, kind="ivf_pq").index_kind == "ivf_pq"
    assert client.get_collection(name).index_kind == "ivf_pq"
    client.delete_collection(name)
    with pytest.raises(TwinlensError, match="one of auto, flat, hnsw, ivf_flat, ivf_pq"):
        client.create_collection(name, kind="tree")


def test_merging_keeps_what_is_found_and_can_change_the_kind(client: Any, filled: str) -> None:
    before = client.search(filled, vector=rows(1, seed=5)[0], top_k=20)
    merged = client.merge_collection(filled, kind="flat")
    assert merged.index_kind == "flat"
    assert merged.image_vector_count == 300
    assert client.search(filled, vector=rows(1, seed=5)[0], top_k=20) == before
    assert client.merge_collection(filled, wait=False).index_kind == "flat"


def test_the_active_generation_cannot_be_dropped(client: Any, filled: str) -> None:
    with pytest.raises(TwinlensError, match="active") as refused:
        client.drop_generation(filled, 1)
    assert refused.value.code == "FAILED_PRECONDITION"
    with pytest.raises(TwinlensError, match="no generation 77"):
        client.drop_generation(filled, 77)


def test_numbers_that_no_message_holds_are_refused_or_cut(client: Any, filled: str) -> None:
    for number in (-(2**70), -1, 0, 2**63, 2**70):
        with pytest.raises(TwinlensError, match=f"there is no generation {number}"):
            client.drop_generation(filled, number)
    ids = [item.id for item in client.list_items(filled)]
    assert [item.id for item in client.list_items(filled, page_size=2**70)] == ids
    with pytest.raises(TwinlensError, match="page_size"):
        next(iter(client.list_items(filled, page_size=-(2**70))))


def test_a_server_without_a_place_for_backups_says_what_to_set(client: Any, filled: str) -> None:
    for method, arguments in (
        ("backup_collection", [filled]),
        ("restore_collection", ["some-backup"]),
        ("list_backups", []),
        ("delete_backup", ["some-backup"]),
    ):
        with pytest.raises(TwinlensError, match="TWINLENS_BACKUPS") as refused:
            getattr(client, method)(*arguments)
        assert refused.value.code == "FAILED_PRECONDITION"
