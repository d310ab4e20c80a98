from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import pytest_asyncio

from tests.server.running import Running, end_of, picture, refusal, run_server
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.active import StartError
from twinlens.v1 import collection_operations_pb2 as pb
from twinlens.v1 import collection_pb2, content_pb2

SPACE = FakeEncoder().manifest.space_id


@pytest_asyncio.fixture
async def kept(data: Path, tmp_path: Path) -> AsyncIterator[Running]:
    """A server that keeps backups, with a collection of coloured pictures."""
    async with run_server(data, FakeEncoder(), backups=str(tmp_path / "backups")) as running:
        await running.fill_with_colours()
        yield running


async def back_up(served: Running, backup: str = "") -> pb.Backup:
    request = pb.BackupCollectionRequest(collection="photos", backup=backup)
    *steps, last = [message async for message in served.operations.BackupCollection(request)]
    assert all(step.WhichOneof("event") == "progress" for step in steps)
    return last.backup


async def restore(served: Running, backup: str, **options: Any) -> collection_pb2.Collection:
    request = pb.RestoreCollectionRequest(backup=backup, **options)
    *steps, last = [message async for message in served.operations.RestoreCollection(request)]
    assert all(step.WhichOneof("event") == "progress" for step in steps)
    return last.collection


async def get(served: Running, collection: str = "photos") -> collection_pb2.Collection:
    request = collection_pb2.GetCollectionRequest(collection=collection)
    return (await served.collections.GetCollection(request)).collection


async def items(served: Running, collection: str) -> list[Any]:
    request = collection_pb2.ListItemsRequest(collection=collection)
    return list((await served.collections.ListItems(request)).items)


async def check(served: Running, collection: str = "photos") -> tuple[set[str], list[pb.Finding]]:
    request = pb.CheckCollectionRequest(collection=collection)
    messages = [message async for message in served.operations.CheckCollection(request)]
    steps = {message.progress.step for message in messages if message.WhichOneof("event") == "progress"}
    return steps, [message.finding for message in messages if message.WhichOneof("event") == "finding"]


async def test_a_sound_collection_has_no_findings_and_tells_how_far_the_check_is(kept: Running) -> None:
    steps, findings = await check(kept)
    assert findings == []
    assert steps


async def test_a_lost_picture_is_found_by_the_item_it_belongs_to(kept: Running, data: Path) -> None:
    victim = next(path for path in (data / "collections" / "photos" / "blobs").rglob("*") if path.is_file())
    victim.unlink()
    _, findings = await check(kept)
    assert [finding.part for finding in findings] == ["pictures"]
    assert str(data) not in findings[0].message
    assert (await back_up(kept)).missing_image_count == 1


async def test_a_backup_is_restored_under_another_name_with_all_that_was_in_it(kept: Running) -> None:
    made = await back_up(kept)
    count = (await get(kept)).item_count
    assert (made.collection, made.item_count, made.space_id) == ("photos", count, SPACE)
    assert made.id.startswith("photos-")
    assert made.total_bytes > 0
    restored = await restore(kept, made.id, collection="copy")
    assert (restored.id, restored.item_count, restored.space_id) == ("copy", count, SPACE)
    assert await items(kept, "copy") == await items(kept, "photos")
    request = collection_pb2.GetItemRequest(collection="copy", id="red", include_image=True)
    assert (await kept.collections.GetItem(request)).image == picture("red")


async def test_backups_are_listed_by_page_and_collection(kept: Running) -> None:
    assert [(await back_up(kept, f"b{i}")).id for i in range(3)] == ["b0", "b1", "b2"]
    first = await kept.operations.ListBackups(pb.ListBackupsRequest(page_size=2))
    assert [backup.id for backup in first.backups] == ["b0", "b1"]
    second = await kept.operations.ListBackups(pb.ListBackupsRequest(page_size=2, page_token=first.next_page_token))
    assert ([backup.id for backup in second.backups], second.next_page_token) == (["b2"], "")
    none = await kept.operations.ListBackups(pb.ListBackupsRequest(collection="other"))
    assert list(none.backups) == []


async def test_a_backup_is_deleted_and_what_is_none_is_not_found(kept: Running, tmp_path: Path) -> None:
    for name in ("one", "two"):
        await back_up(kept, name)
    (tmp_path / "backups" / "backups" / "mine").mkdir()
    await kept.operations.DeleteBackup(pb.DeleteBackupRequest(backup="one"))
    left = await kept.operations.ListBackups(pb.ListBackupsRequest())
    assert [backup.id for backup in left.backups] == ["two"]
    for backup in ("one", "mine"):
        call = kept.operations.DeleteBackup(pb.DeleteBackupRequest(backup=backup))
        assert await refusal(call) == (grpc.StatusCode.NOT_FOUND, f"there is no complete backup {backup}")
    for backup in ("", "..", "../photos"):
        call = kept.operations.DeleteBackup(pb.DeleteBackupRequest(backup=backup))
        assert (await refusal(call))[0] is grpc.StatusCode.INVALID_ARGUMENT
    (tmp_path / "backups" / "backups" / "two" / "mine").write_text("a letter")
    code, message = await refusal(kept.operations.DeleteBackup(pb.DeleteBackupRequest(backup="two")))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert str(tmp_path) not in message
    assert (await restore(kept, "two", collection="copy")).item_count > 0


async def test_what_is_there_is_neither_overwritten_nor_replaced_unasked(kept: Running) -> None:
    await back_up(kept, "one")
    again = kept.operations.BackupCollection(pb.BackupCollectionRequest(collection="photos", backup="one"))
    assert await refusal(again) == (grpc.StatusCode.ALREADY_EXISTS, "there is a backup one already")
    over = kept.operations.RestoreCollection(pb.RestoreCollectionRequest(backup="one"))
    assert (await refusal(over))[0] is grpc.StatusCode.ALREADY_EXISTS
    await kept.collections.DeleteItems(collection_pb2.DeleteItemsRequest(collection="photos", ids=["red"]))
    replaced = await restore(kept, "one", replace=True)
    assert replaced.item_count == (await get(kept)).item_count
    assert "red" in [item.id for item in await items(kept, "photos")]


async def test_backups_that_are_not_there_are_not_found_without_a_word_of_where(kept: Running, tmp_path: Path) -> None:
    code, message = await refusal(kept.operations.RestoreCollection(pb.RestoreCollectionRequest(backup="never")))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "never" in message
    assert str(tmp_path) not in message
    bad = kept.operations.RestoreCollection(pb.RestoreCollectionRequest(backup="../up"))
    assert (await refusal(bad))[0] is grpc.StatusCode.INVALID_ARGUMENT
    out = kept.operations.BackupCollection(pb.BackupCollectionRequest(collection="photos", backup="../up"))
    assert (await refusal(out))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_backup_of_another_space_is_refused_naming_both(kept: Running, data: Path, tmp_path: Path) -> None:
    await back_up(kept, "one")
    other = FakeEncoder(seed=9)
    async with run_server(tmp_path / "other", other, backups=str(tmp_path / "backups")) as served:
        request = pb.RestoreCollectionRequest(backup="one")
        code, message = await refusal(served.operations.RestoreCollection(request))
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert SPACE in message
    assert other.manifest.space_id in message


async def test_a_place_for_backups_that_cannot_be_is_told_at_the_start(data: Path) -> None:
    with pytest.raises(StartError, match="place for backups"):
        async with run_server(data, FakeEncoder(), backups="nowhere-at-all://bucket"):
            pass


@pytest.mark.parametrize("below", ["", "photos", "../collections/x", "photos/blobs"])
async def test_backups_are_not_kept_among_collections_with_which_they_would_be_deleted(data: Path, below: str) -> None:
    with pytest.raises(StartError, match="keeps nothing but collections"):
        async with run_server(data, FakeEncoder(), backups=f"{data}/collections/{below}"):
            pass
    async with run_server(data, FakeEncoder(), backups=str(data / "backups")) as served:
        await served.create()
        await end_of(served.operations.BackupCollection(pb.BackupCollectionRequest(collection="photos")))
        assert len((await served.operations.ListBackups(pb.ListBackupsRequest())).backups) == 1


async def test_a_place_for_backups_that_cannot_be_used_is_told_of_without_a_word_of_where(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "taken").write_text("a file")
    async with run_server(data, FakeEncoder(), backups=str(tmp_path / "taken")) as served:
        await served.create()
        for call in (
            lambda: served.operations.BackupCollection(pb.BackupCollectionRequest(collection="photos")),
            lambda: served.operations.ListBackups(pb.ListBackupsRequest()),
            lambda: served.operations.DeleteBackup(pb.DeleteBackupRequest(backup="one")),
        ):
            code, message = await refusal(call())
            assert code is grpc.StatusCode.INTERNAL
            assert message == "the place for backups cannot be used; the server's log says why"
            # A line is all there is to tell; with `--local` it is what the user sees.
            (record,) = caplog.records
            assert f"backups at {tmp_path / 'taken'} cannot be" in record.getMessage()
            assert record.exc_info is None
            caplog.clear()


async def test_a_damaged_collection_is_named_and_stops_nothing_and_is_restored_over(
    data: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    backups = str(tmp_path / "backups")
    async with run_server(data, FakeEncoder(), backups=backups) as served:
        await served.fill_with_colours()
        await back_up(served, "good")
        await served.create("other")
    shutil.rmtree(data / "collections" / "photos" / "indexes", ignore_errors=True)
    (data / "collections" / "photos" / "collection.db").write_bytes(b"garbage" * 5000)
    async with run_server(data, FakeEncoder(), backups=backups) as served:
        assert any("photos" in record.message and "damaged" in record.message for record in caplog.records)
        listed = (await served.collections.ListCollections(collection_pb2.ListCollectionsRequest())).collections
        assert [(each.id, bool(each.damage)) for each in listed] == [("other", False), ("photos", True)]
        assert "photos" in listed[1].damage
        assert (await get(served, "other")).item_count == 0
        request = collection_pb2.GetCollectionRequest(collection="photos")
        assert (await refusal(served.collections.GetCollection(request)))[0] is grpc.StatusCode.DATA_LOSS
        assert (await restore(served, "good", replace=True)).item_count > 0
        listed = (await served.collections.ListCollections(collection_pb2.ListCollectionsRequest())).collections
        assert [(each.id, each.damage) for each in listed] == [("other", ""), ("photos", "")]


async def test_a_collection_that_is_deleted_while_it_is_listed_stops_no_list(
    kept: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    await kept.create("gone")
    real = kept.app.catalog.entries

    def entries_then_deletion(**page: Any) -> Any:
        found = real(**page)
        kept.app.catalog.delete("gone")
        return found

    monkeypatch.setattr(kept.app.catalog, "entries", entries_then_deletion)
    listed = (await kept.collections.ListCollections(collection_pb2.ListCollectionsRequest())).collections
    assert [each.id for each in listed] == ["photos"]


async def test_messages_of_an_export_are_as_short_as_the_server_is_set_however_long_the_items(data: Path) -> None:
    async with run_server(data, FakeEncoder(), max_message_bytes=2**20) as served:
        await served.create()
        for i in range(40):
            await served.upsert(collection_pb2.NewItem(id=f"{i:02d}", caption=f"{i}".ljust(60_000)))
        many = [content_pb2.MODALITY_TEXT] * 2000
        request = pb.ExportItemsRequest(collection="photos", modalities=many)
        messages = [message async for message in served.operations.ExportItems(request)]
    assert [each.item.id for message in messages for each in message.items] == [f"{i:02d}" for i in range(40)]
    assert all(each.HasField("text_vector") for message in messages for each in message.items)
    assert {message.item_count for message in messages} == {40}
    assert max(message.ByteSize() for message in messages) < 2**20


async def test_duplicates_come_in_groups_of_any_size(served: Running) -> None:
    await served.create()
    rng = np.random.default_rng(4)
    twins = rng.standard_normal(32)
    vectors = [twins + rng.standard_normal(32) * 1e-3 for _ in range(2500)] + [
        rng.standard_normal(32) for _ in range(9)
    ]
    new = [
        collection_pb2.NewItem(id=f"{i:04d}", image_vector=content_pb2.Vector(values=vector))
        for i, vector in enumerate(vectors)
    ]
    request = collection_pb2.UpsertItemsRequest(collection="photos", items=new, space_id=SPACE)
    assert (await served.collections.UpsertItems(iter([request]))).stored_count == len(new)
    stream = served.operations.FindDuplicates(pb.FindDuplicatesRequest(collection="photos", threshold=0.99))
    parts = [message.group async for message in stream if message.WhichOneof("event") == "group"]
    assert [(part.number, len(part.item_ids), part.more) for part in parts] == [
        (0, 1000, True),
        (0, 1000, True),
        (0, 500, False),
    ]
    assert [id for part in parts for id in part.item_ids] == [f"{i:04d}" for i in range(2500)]  # noqa: A001
    assert parts[0].score > 0.99
    for threshold in (0.0, 1.5, float("nan")):
        bad = served.operations.FindDuplicates(pb.FindDuplicatesRequest(collection="photos", threshold=threshold))
        assert (await refusal(bad))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_operations_on_what_is_not_there_are_refused(served: Running) -> None:
    calls = [
        served.operations.MergeCollection(pb.MergeCollectionRequest(collection="nowhere")),
        served.operations.CheckCollection(pb.CheckCollectionRequest(collection="nowhere")),
        served.operations.FindDuplicates(pb.FindDuplicatesRequest(collection="nowhere")),
        served.operations.ExportItems(pb.ExportItemsRequest(collection="nowhere")),
        served.operations.DropGeneration(pb.DropGenerationRequest(collection="nowhere", generation=1)),
        served.operations.CreateMetadataIndex(pb.CreateMetadataIndexRequest(collection="nowhere", path="n")),
        served.operations.DeleteMetadataIndex(pb.DeleteMetadataIndexRequest(collection="nowhere", path="n")),
    ]
    for call in calls:
        assert (await refusal(call))[0] is grpc.StatusCode.NOT_FOUND
    await served.create()
    kind: Any = 99
    merge = pb.MergeCollectionRequest(collection="photos", index_kind=kind)
    assert (await refusal(served.operations.MergeCollection(merge)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    create = collection_pb2.CreateCollectionRequest(collection="x", index_kind=kind)
    assert (await refusal(served.collections.CreateCollection(create)))[0] is grpc.StatusCode.INVALID_ARGUMENT
    index = pb.CreateMetadataIndexRequest(collection="photos", path="no path")
    assert (await refusal(served.operations.CreateMetadataIndex(index)))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_the_states_of_indexes_and_generations_are_told(kept: Running) -> None:
    request = pb.MergeCollectionRequest(collection="photos", index_kind=collection_pb2.INDEX_KIND_FLAT)
    described = (await kept.operations.MergeCollection(request)).collection
    assert described.index_kind == collection_pb2.INDEX_KIND_FLAT
    assert [index.modality for index in described.indexes] == [content_pb2.MODALITY_IMAGE, content_pb2.MODALITY_TEXT]
    for index in described.indexes:
        assert index.kind == collection_pb2.INDEX_KIND_FLAT
        assert (index.merged_count, index.pending_count, index.hidden_count) == (described.item_count, 0, 0)
        assert index.merge_time.seconds > 0
        assert index.merge_error == ""
    (generation,) = described.generations
    assert (generation.number, generation.active, generation.item_count) == (1, True, described.item_count)
    for number, status in ((1, grpc.StatusCode.FAILED_PRECONDITION), (2, grpc.StatusCode.INVALID_ARGUMENT)):
        drop = pb.DropGenerationRequest(collection="photos", generation=number)
        assert (await refusal(kept.operations.DropGeneration(drop)))[0] is status
    assert described.bytes.database > 0
    assert described.bytes.images > 0
    assert described.bytes.indexes > 0
    indexed = pb.CreateMetadataIndexRequest(collection="photos", path="deep.n")
    assert list((await kept.operations.CreateMetadataIndex(indexed)).collection.metadata_indexes) == ["deep.n"]
