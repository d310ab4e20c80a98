from __future__ import annotations

import importlib
import socket
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support.items import SPACE, axis, new_item
from twinlens.index.catalog import Catalog
from twinlens.index.errors import CollectionError, EngineUnavailable, EngineUnreachable
from twinlens.index.item import Modality
from twinlens.index.kinds.kind import Kind
from twinlens.index.milvus import vector_index
from twinlens.index.milvus import vectors as vectors_module
from twinlens.index.milvus.engine import MilvusEngine
from twinlens.index.milvus.vectors import expressions

pytest.importorskip("milvus_lite")


@pytest.fixture
def address(tmp_path: Path) -> str:
    return f"milvus:{tmp_path / 'vectors.db'}"


def collections_of(engine: MilvusEngine) -> list[str]:
    client = engine._connection.open()
    try:
        return list(client.list_collections())
    finally:
        engine._connection.release()


def test_closing_an_engine_removes_what_it_held(address: str) -> None:
    engine = MilvusEngine(address)
    index, other = engine(4), engine(4)
    assert len(collections_of(engine)) == 2
    index.close()
    index.close()
    assert len(collections_of(engine)) == 1
    other.close()
    engine.close()


def test_what_a_crash_left_is_removed_on_the_next_start(address: str) -> None:
    crashed = MilvusEngine(address)
    crashed(4).upsert(np.arange(4, dtype=np.int64), np.eye(4, dtype=np.float32))
    crashed.close()
    engine = MilvusEngine(address)
    index = engine(4)
    assert len(collections_of(engine)) == 1
    assert len(index) == 0
    index.close()


def test_a_collection_is_filled_again_from_its_database(tmp_path: Path, address: str) -> None:
    for attempt in range(2):
        engine = MilvusEngine(address)
        catalog = Catalog(tmp_path / "data", engine=engine)
        if attempt == 0:
            collection = catalog.create("photos", space_id=SPACE, dimension=8)
            collection.upsert([new_item(f"{i}", image_vector=axis(i)) for i in range(8)], space_id=SPACE)
        hits = catalog.get("photos").search(axis(5)[np.newaxis], modality=Modality.IMAGE, top_k=8, space_id=SPACE)[0]
        assert [hit.item.id for hit in hits][:2] == ["5", "0"]
        assert len(hits) == 8
        catalog.close()


@pytest.mark.parametrize("kind", [Kind.FLAT, Kind.HNSW, Kind.IVF_FLAT, Kind.IVF_PQ])
def test_every_kind_of_milvus_finds_what_brute_force_does(address: str, kind: Kind, rng: np.random.Generator) -> None:
    vectors = rng.standard_normal((600, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    engine = MilvusEngine(address, kind=kind)
    index = engine(16)
    index.upsert(np.arange(600, dtype=np.int64), vectors)
    scores, found = index.search(vectors[:20], 10)
    best = np.argsort(-(vectors[:20] @ vectors.T), axis=1, kind="stable")[:, :10]
    recall = np.mean([len(set(a) & set(b)) / 10 for a, b in zip(found.tolist(), best.tolist(), strict=True)])
    assert recall >= 0.99
    _, exact = index.search(vectors[:20], 10, exact=True)
    np.testing.assert_array_equal(exact, best)
    assert scores[:, 0].tolist() == pytest.approx([1.0] * 20)
    index.close()


def test_more_hits_than_milvus_returns_at_once_are_found_by_comparing(
    address: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index, "MAX_K", 200)
    monkeypatch.setattr(vector_index, "_FEW", 50)
    monkeypatch.setattr(vectors_module, "_KEYS", 70)
    count = 900
    vectors = rng.standard_normal((count, 4)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    engine = MilvusEngine(address)
    index = engine(4)
    index.upsert(np.arange(count, dtype=np.int64), vectors)
    _, found = index.search(vectors[:1], count)
    assert sorted(found[0].tolist()) == list(range(count))
    among = np.arange(0, count, 4, dtype=np.int64)  # too many to be read one by one
    scores, found = index.search(vectors[:3], 20, among=among)
    expected = np.sort(vectors[:3] @ vectors[among].T, axis=1)[:, ::-1][:, :20]
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    assert set(found.ravel().tolist()) <= set(among.tolist())
    index.close()


def test_what_was_just_written_is_found_before_and_after_milvus_lite_writes_it_out(
    address: str, rng: np.random.Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vector_index, "_FRESH", 20)
    vectors = rng.standard_normal((200, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    index = MilvusEngine(address)(8)
    for start in range(0, 200, 15):
        keys = np.arange(start, min(start + 15, 200), dtype=np.int64)
        index.upsert(keys, vectors[keys])
        index.delete(keys[:1])
        _, found = index.search(vectors[keys[1:]], 1)
        assert found[:, 0].tolist() == keys[1:].tolist()
        assert index._vectors.fresh <= 20 + 15
    assert len(index) == 186
    index.close()


def test_long_lists_of_keys_are_cut_into_expressions() -> None:
    assert list(expressions([1, 2, 3], 2)) == ["key in [1, 2]", "key in [3]"]
    assert list(expressions(['a"\\b'], field="id")) == ['id in ["a\\"\\\\b"]']
    assert list(expressions([])) == []


def test_without_pymilvus_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch, address: str) -> None:
    monkeypatch.setitem(sys.modules, "pymilvus", None)
    with pytest.raises(EngineUnavailable, match=r"twinlens\[milvus\]"):
        MilvusEngine(address)(4)


def test_a_server_that_is_not_there_is_named_without_its_password() -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        with pytest.raises(EngineUnavailable, match=f"http://127.0.0.1:{port} cannot be reached") as caught:
            MilvusEngine(f"milvus:http://someone:secret@127.0.0.1:{port}")(4)
    assert "secret" not in str(caught.value)


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")
    with pytest.raises(CollectionError, match="file"):
        MilvusEngine(f"milvus:{tmp_path / 'file' / 'vectors.db'}")(4)
    (tmp_path / "taken.db").write_text("no folder either")
    with pytest.raises(EngineUnavailable, match=r"cannot open .*taken\.db"):
        MilvusEngine(f"milvus:{tmp_path / 'taken.db'}")(4)


def test_a_milvus_that_goes_away_is_an_error_that_names_no_address(address: str) -> None:
    index = MilvusEngine(address)(4)
    server_manager = importlib.import_module("milvus_lite.server_manager").server_manager_instance
    server_manager.release_server(address.removeprefix("milvus:"))
    with pytest.raises(EngineUnreachable, match="Milvus does not answer") as caught:
        index.search(np.eye(4, dtype=np.float32), 1)
    assert "vectors.db" not in str(caught.value)
