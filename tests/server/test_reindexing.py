from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import grpc
import pytest

from tests.server.running import picture, run_server
from tests.server.watched import WatchedEncoder
from tests.support.fake_encoder import FakeEncoder
from twinlens.encoders.bundle import read_manifest
from twinlens.index.blobs import content_hash
from twinlens.server.core.active import StartError, read_active
from twinlens.server.core.reindex import Progress, ReindexReport
from twinlens.server.local import local_server
from twinlens.server.reindexing import reindex_folder
from twinlens.server.settings import Settings
from twinlens.v1 import collection_pb2, collection_pb2_grpc, content_pb2, search_pb2

SETTINGS = Settings()
OLD = FakeEncoder(seed=0)


class InterruptedRunError(Exception):
    pass


async def fill(data: Path, captions: int) -> None:
    async with run_server(data, OLD) as served:
        await served.fill_with_colours()
        await served.create("words")
        items = [collection_pb2.NewItem(id=f"{i:03d}", caption=f"word {i}") for i in range(captions)]
        assert (await served.upsert(*items, collection="words")).stored_count == captions


async def test_every_collection_moves_to_the_new_space_and_searches_there(data: Path, tmp_path: Path) -> None:
    await fill(data, captions=3)
    new = FakeEncoder(dimension=48, seed=1)
    seen: list[Progress] = []
    report = await _reindex(data, tmp_path / "new", new, seen)
    assert (report.collections, report.items, list(report.unembeddable)) == (2, 11, [])
    assert seen[-1] == Progress("words", 3, 3)
    active = read_active(data)
    assert active is not None
    assert (active.bundle, active.space_id) == (tmp_path / "new", new.manifest.space_id)
    async with run_server(data, new) as served:
        described = await served.collections.GetCollection(collection_pb2.GetCollectionRequest(collection="photos"))
        assert described.collection.space_id == new.manifest.space_id
        assert described.collection.dimension == 48
        assert described.collection.image_vector_count == described.collection.text_vector_count == 8
        for colour in ("red", "cyan"):
            reply = await served.find(search_pb2.QueryPart(text=colour), top_k=1)
            assert reply.results[0].hits[0].item.id == colour
    with pytest.raises(StartError, match="space"):
        async with run_server(data, OLD):
            pass


async def test_an_interrupted_run_goes_on_where_it_was_and_leaves_the_old_pair_served(
    data: Path, tmp_path: Path
) -> None:
    await fill(data, captions=150)
    new = WatchedEncoder(seed=1)

    def interrupt(now: Progress) -> None:
        if now.collection == "words" and now.done:
            raise InterruptedRunError

    with pytest.raises(InterruptedRunError):
        await _run(data, tmp_path / "new", new, interrupt)
    assert read_active(data) is None
    async with run_server(data, OLD) as served:
        reply = await served.find(search_pb2.QueryPart(text="red"), top_k=1)
        assert reply.results[0].hits[0].item.id == "red"
        await served.upsert(collection_pb2.NewItem(id="late", image=picture("red")))
    done = sum(new.text_batches)
    assert done == 8 + 64
    report = await _reindex(data, tmp_path / "new", new, [])
    assert sum(new.text_batches) == 8 + 150
    assert report.items == 150 - 64 + 1
    again = await _reindex(data, tmp_path / "new", new, [])
    assert again.items == again.collections == 0
    async with run_server(data, new) as served:
        got = await served.collections.GetItem(collection_pb2.GetItemRequest(collection="photos", id="late"))
        assert got.item.id == "late"


async def test_a_failing_encoder_moves_nothing_and_says_which_item(data: Path, tmp_path: Path) -> None:
    await fill(data, captions=3)
    new = WatchedEncoder(seed=1)
    new.poison = {new.prepare_text("word 1").ids}
    with pytest.raises(StartError, match="'001' of collection words"):
        await _reindex(data, tmp_path / "new", new, [])
    async with run_server(data, OLD):
        pass


async def test_a_lost_original_stops_nothing_and_is_named(data: Path, tmp_path: Path) -> None:
    async with run_server(data, OLD) as served:
        await served.fill_with_colours()
        await served.upsert(collection_pb2.NewItem(id="both", image=picture("red", 24), caption="still there"))
    pictures = sorted((data / "collections/photos/blobs").rglob("*"))
    lost = {content_hash(picture("red")), content_hash(picture("red", 24))}
    for path in pictures:
        if path.name in lost:
            path.unlink()
        elif path.name == content_hash(picture("cyan")):
            path.write_bytes(b"flipped")
    report = await _reindex(data, tmp_path / "new", FakeEncoder(seed=1), [])
    assert {entry.id for entry in report.unembeddable} == {"red", "both", "cyan"}
    assert all("picture is lost or damaged" in entry.reason for entry in report.unembeddable)
    async with run_server(data, FakeEncoder(seed=1)) as served:
        described = await served.collections.GetCollection(collection_pb2.GetCollectionRequest(collection="photos"))
        assert (described.collection.item_count, described.collection.image_vector_count) == (9, 6)
        reply = await served.find(search_pb2.QueryPart(text="still there"), top_k=1, modality=content_pb2.MODALITY_TEXT)
        assert reply.results[0].hits[0].item.id == "both"


async def test_vectors_that_no_encoder_can_make_again_are_named(data: Path, tmp_path: Path) -> None:
    vector = content_pb2.Vector(values=[1.0] + [0.0] * (OLD.manifest.dimension - 1))
    new_item = collection_pb2.NewItem
    async with run_server(data, OLD) as served:
        await served.fill_with_colours()
        brought = [
            new_item(id="picture", image_vector=vector, caption="a caption of its own"),
            new_item(id="caption", text_vector=vector),
            new_item(id="both", image_vector=vector, text_vector=vector),
            new_item(id="embeddable", text_vector=vector, caption="words"),
        ]
        request = collection_pb2.UpsertItemsRequest(collection="photos", items=brought, space_id=OLD.manifest.space_id)
        assert (await served.collections.UpsertItems(iter([request]))).stored_count == 4
    report = await _reindex(data, tmp_path / "new", FakeEncoder(seed=1), [])
    reasons = {entry.id: entry.reason for entry in report.unembeddable}
    assert set(reasons) == {"picture", "caption", "both"}
    assert "the vector of its picture came without the picture" in reasons["picture"]
    assert "the vector of its caption came without the caption" in reasons["caption"]


async def test_a_damaged_collection_is_named_and_the_others_move(data: Path, tmp_path: Path) -> None:
    await fill(data, captions=3)
    (data / "collections/photos/collection.db").write_bytes(b"nothing of use" * 1000)
    report = await _reindex(data, tmp_path / "new", FakeEncoder(seed=1), [])
    assert (report.collections, report.items, list(report.damaged)) == (1, 3, ["photos"])


@pytest.mark.parametrize("drop", [False, True])
async def test_the_vectors_of_the_old_encoder_stay_unless_they_are_dropped(
    data: Path, tmp_path: Path, *, drop: bool
) -> None:
    await fill(data, captions=3)
    new = FakeEncoder(seed=1)
    report = await _run(data, tmp_path / "new", new, lambda _: None, drop_old=drop)
    assert report.dropped == (2 if drop else 0)
    async with run_server(data, new) as served:
        described = await served.collections.GetCollection(collection_pb2.GetCollectionRequest(collection="photos"))
        assert len(described.collection.generations) == (1 if drop else 2)
        reply = await served.find(search_pb2.QueryPart(text="red"), top_k=1)
        assert reply.results[0].hits[0].item.id == "red"
    again = await _run(data, tmp_path / "old", OLD, lambda _: None)
    assert again.items == (11 if drop else 0), "what was kept is not embedded again"


async def test_a_move_that_was_killed_goes_on_where_it_was(data: Path, tmp_path: Path) -> None:
    await fill(data, captions=150)
    done = await asyncio.to_thread(_move_until_killed, data)
    assert read_active(data) is None
    new = WatchedEncoder(seed=1)
    report = await _reindex(data, tmp_path / "new", new, [])
    assert report.items == sum(new.text_batches) == 150 - done
    async with run_server(data, new) as served:
        words = await served.collections.GetCollection(collection_pb2.GetCollectionRequest(collection="words"))
        assert words.collection.text_vector_count == 150


def test_a_missing_data_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(StartError, match="no data folder"):
        reindex_folder(tmp_path / "none", tmp_path, SETTINGS, lambda _: None, encoder=OLD)


def _move_until_killed(data: Path) -> int:
    """Kills a move while it embeds the second collection, and says how much of that was stored for certain."""
    command = [sys.executable, "-m", "tests.support.reindex_until_killed", str(data)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            collection, done = line.split()
            if collection == "words" and int(done):
                process.kill()
                return int(done)
    raise AssertionError("the move ended by itself")


async def _reindex(data: Path, bundle: Path, encoder: FakeEncoder, seen: list[Progress]) -> ReindexReport:
    return await _run(data, bundle, encoder, seen.append)


async def _run(
    data: Path,
    bundle: Path,
    encoder: FakeEncoder,
    progress: Callable[[Progress], None],
    *,
    drop_old: bool = False,
) -> ReindexReport:
    return await asyncio.to_thread(reindex_folder, data, bundle, SETTINGS, progress, encoder=encoder, drop_old=drop_old)


def test_the_reindex_command_moves_a_folder_and_prints_json(data: Path, tmp_path: Path, tiny_bundle: Path) -> None:
    with local_server(data, encoder=OLD) as target, grpc.insecure_channel(target) as channel:
        stub = collection_pb2_grpc.CollectionServiceStub(channel)
        stub.CreateCollection(collection_pb2.CreateCollectionRequest(collection="photos"))
        items = [collection_pb2.NewItem(id="red", image=picture("red")), collection_pb2.NewItem(id="w", caption="red")]
        request = collection_pb2.UpsertItemsRequest(collection="photos", items=items)
        assert stub.UpsertItems(iter([request])).stored_count == 2
    command = [
        sys.executable,
        "-m",
        "twinlens",
        "reindex",
        "--local",
        str(data),
        "--bundle",
        str(tiny_bundle),
        "--json",
    ]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert result.returncode == 0, result.stderr
    expected = {"collections": 1, "items": 2, "dropped": 0, "unembeddable": [], "damaged": {}}
    assert json.loads(result.stdout) == expected
    assert "photos: 2 of 2" in result.stderr
    with local_server(data) as target, grpc.insecure_channel(target) as channel:  # with the bundle it moved to
        got = collection_pb2_grpc.CollectionServiceStub(channel).GetCollection(
            collection_pb2.GetCollectionRequest(collection="photos")
        )
        assert got.collection.space_id == read_manifest(tiny_bundle).space_id
        assert got.collection.image_vector_count == got.collection.text_vector_count == 1
