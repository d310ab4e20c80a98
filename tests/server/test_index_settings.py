"""Settings on how collections are searched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.server.running import Running, run_server
from tests.support.fake_encoder import FakeEncoder
from twinlens.index.catalog import Catalog
from twinlens.index.faiss_library import import_faiss
from twinlens.index.memory import available_bytes
from twinlens.server.core.active import StartError, open_catalog
from twinlens.server.settings import Settings, SettingsError, load_settings
from twinlens.v1 import collection_pb2 as pb
from twinlens.v1 import search_pb2


async def kind_of(served: Running, collection: str) -> str:
    request = pb.GetCollectionRequest(collection=collection)
    return pb.IndexKind.Name((await served.collections.GetCollection(request)).collection.index_kind)


async def test_collections_get_the_kind_the_server_is_set_to_unless_they_name_one(data: Path) -> None:
    async with run_server(data, FakeEncoder(), index_kind="ivf_pq") as served:
        await served.create("plain")
        request = pb.CreateCollectionRequest(collection="chosen", index_kind=pb.INDEX_KIND_FLAT)
        await served.collections.CreateCollection(request)
        assert await kind_of(served, "plain") == "INDEX_KIND_IVF_PQ"
        assert await kind_of(served, "chosen") == "INDEX_KIND_FLAT"
    async with run_server(data, FakeEncoder(), index_kind="hnsw") as served:
        assert await kind_of(served, "plain") == "INDEX_KIND_IVF_PQ"


def test_the_memory_of_an_index_is_what_the_setting_says_or_half_of_the_machine(data: Path) -> None:
    allowed = []
    for settings in (Settings(index_memory_mib=3), Settings()):
        catalog = open_catalog(data, settings, variant="")
        assert isinstance(catalog, Catalog)
        allowed.append(catalog._engines.options.memory_bytes)
        catalog.close()
    assert allowed == [3 * 2**20, available_bytes() // 2]


@pytest.mark.parametrize("index", ["annoy", "milvus:", "milvus:ftp://host", "milvus:file.txt"])
async def test_an_index_that_is_none_is_told_at_the_start(data: Path, index: str) -> None:
    with pytest.raises(StartError, match="milvus:"):
        async with run_server(data, FakeEncoder(), index=index):
            pass


async def test_a_milvus_server_needs_a_place_for_pictures(data: Path) -> None:
    with pytest.raises(StartError, match="setting pictures"):
        async with run_server(data, FakeEncoder(), index="milvus:http://127.0.0.1:1"):
            pass


async def test_a_device_that_is_not_there_is_told_at_the_start(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_faiss(), "get_num_gpus", lambda: 0, raising=False)
    with pytest.raises(StartError, match="no CUDA device"):
        async with run_server(data, FakeEncoder(), index_device="cuda"):
            pass
    async with run_server(data, FakeEncoder(), index_device="auto") as served:
        await served.create()


def test_a_token_is_never_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TWINLENS_MILVUS_TOKEN", "user:secret")
    settings = load_settings()
    assert settings.milvus_token.get_secret_value() == "user:secret"
    assert "secret" not in repr(settings)


@pytest.mark.parametrize(("name", "value"), [("index_kind", "tree"), ("index_memory_mib", -1), ("max_operations", 0)])
def test_a_setting_out_of_range_is_named(name: str, value: Any) -> None:
    with pytest.raises(SettingsError, match=name):
        load_settings(**{name: value})
    assert Settings().index == "faiss"


async def test_what_milvus_lite_searches_is_found(data: Path, tmp_path: Path) -> None:
    pytest.importorskip("milvus_lite")
    async with run_server(data, FakeEncoder(), index=f"milvus:{tmp_path / 'vectors.db'}") as served:
        await served.fill_with_colours()
        (result,) = (await served.find(search_pb2.QueryPart(text="red"))).results
        assert result.hits[0].item.id == "red"
