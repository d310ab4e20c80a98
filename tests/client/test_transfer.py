"""Collections to files and back, by the commands."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command_runs import Ran
from tests.support.fake_encoder import FakeEncoder
from tests.support.image_files import encode, scene
from twinlens.client import Client, Collection, ExportedItem, Item, NewItem, TwinlensError, parquet_export
from twinlens.client.import_source import parquet_source

SPACE = FakeEncoder().manifest.space_id
_numbers = itertools.count()


def rows(count: int, seed: int = 1) -> Any:
    vectors = np.random.default_rng(seed).standard_normal((count, 32)).astype(np.float32)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target) as made:
        yield made


@pytest.fixture
def name(client: Client) -> Iterator[str]:
    name = f"moved-{next(_numbers)}"
    yield name
    if name in {each.id for each in client.list_collections()}:
        client.delete_collection(name)


@pytest.fixture
def filled(client: Client) -> Iterator[str]:
    name = f"source-{next(_numbers)}"
    client.create_collection(name)
    pictures, captions = rows(100), rows(100, seed=2)
    items = [
        NewItem(
            id=f"{i:02d}/ü",
            caption=f"caption {i}" if i % 2 else "",
            uri=f"s3://bucket/{i}",
            metadata={"n": i, "deep": {"list": [1, None, "x"]}, "half": i / 2},
            image_vector=None if i % 10 == 9 else pictures[i],
            text_vector=captions[i] if i % 2 else None,
        )
        for i in range(100)
    ]
    assert client.upsert(name, items, space_id=SPACE).stored == 100
    yield name
    client.delete_collection(name)


def test_what_is_exported_and_imported_is_the_same(
    run: Callable[..., Ran], target: str, client: Client, filled: str, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "all.parquet"
    exported = run("collections", "export", filled, file, "--server", target)
    assert (exported.code, exported.out) == (0, f"wrote 100 items to {file}\n")
    assert list(tmp_path.iterdir()) == [file]
    imported = run("collections", "import", name, file, "--server", target)
    assert (imported.code, imported.out) == (0, f"{name} (new): 100 stored\n")
    before, after = list(client.export_items(filled)), list(client.export_items(name))
    assert len(after) == 100
    for old, new in zip(before, after, strict=True):
        assert (old.item.id, old.item.uri, old.item.caption) == (new.item.id, new.item.uri, new.item.caption)
        assert old.item.metadata == new.item.metadata
        for one, other in ((old.image_vector, new.image_vector), (old.text_vector, new.text_vector)):
            assert (one is None) == (other is None)
            if one is not None and other is not None:
                np.testing.assert_allclose(one, other, atol=1e-6)


def test_an_export_is_a_table_that_others_read(
    run: Callable[..., Ran], target: str, filled: str, tmp_path: Path
) -> None:
    file = tmp_path / "some.parquet"
    done = run(
        "collections", "export", filled, file, "--filter", "n < 12", "--vectors", "image", "--json", "--server", target
    )
    assert done.json == {"collection": filled, "file": str(file), "items": 12, "space_id": SPACE}
    table = pq.read_table(file)
    assert table.column_names == [
        "id", "uri", "caption", "metadata", "content_hash", "create_time", "update_time", "image_vector",
    ]  # fmt: skip
    assert table.schema.field("image_vector").type == pa.list_(pa.float32(), 32)
    assert table.schema.metadata[b"twinlens.space_id"] == SPACE.encode()
    assert json.loads(table["metadata"][3].as_py()) == {"n": 3, "deep": {"list": [1, None, "x"]}, "half": 1.5}
    assert table["image_vector"].null_count == 1
    np.testing.assert_allclose(table["image_vector"][3].as_py(), rows(100)[3], atol=1e-6)


def test_an_export_that_fails_leaves_what_was_there(
    run: Callable[..., Ran], target: str, filled: str, tmp_path: Path
) -> None:
    file = tmp_path / "all.parquet"
    file.write_bytes(b"before")
    for arguments, word in (
        (("nowhere", file), "nowhere"),
        ((filled, tmp_path / "all.csv"), ".parquet"),
        ((filled, tmp_path / "no" / "all.parquet"), "no such folder"),
        ((filled, file, "--vectors", "sound"), "--vectors"),
        ((filled, file, "--filter", "n <"), "filter"),
    ):
        refused = run("collections", "export", *arguments, "--server", target)
        assert refused.code == 1, arguments
        assert word in refused.err
    assert file.read_bytes() == b"before"
    assert list(tmp_path.iterdir()) == [file]


def test_an_import_drops_no_picture_unasked(
    run: Callable[..., Ran], target: str, client: Client, name: str, tmp_path: Path
) -> None:
    ids = ['a "quoted" one', "back\\slash", "50*", "50", "ü/\u00a0", *(f"{i:03d}{'x' * 200}" for i in range(300))]
    with_picture = {*ids[:3], *ids[4:100]}
    client.create_collection(name)
    picture = encode(scene())
    stored = client.upsert(
        name, [NewItem(id=i, image=picture) if i in with_picture else NewItem(id=i, caption=i) for i in ids]
    )
    assert stored.stored == len(ids)
    matrix, named = tmp_path / "vectors.npy", tmp_path / "ids.txt"
    np.save(matrix, rows(len(ids)))
    named.write_text("\n".join(ids) + "\n")
    call = ("collections", "import", name, matrix, "--ids", named, "--space", "same", "--server", target)
    imported = run(*call)
    assert (imported.code, imported.out) == (
        0,
        f"{name}: {len(ids) - len(with_picture)} stored, {len(with_picture)} failed\n",
    )
    assert imported.err.count("--replace") == 21  # 20 of them, and how many more
    assert f"not stored: {len(with_picture) - 20} more: it has a picture" in imported.err
    assert {item.id for item in client.list_items(name, filter="has_image = true")} == with_picture
    replaced = run(*call, "--replace")
    assert (replaced.code, replaced.out) == (0, f"{name}: {len(ids)} stored\n")
    assert client.count_items(name, "has_image = true") == 0


def test_columns_of_other_tables_are_named(
    run: Callable[..., Ran], target: str, client: Client, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "theirs.parquet"
    embedding = pa.array(rows(5).astype(np.float64).tolist(), type=pa.list_(pa.float64()))
    table = {"key": [1, 2, 3, 4, 5], "embedding": embedding, "year": [2020, 2021, None, 2023, 2024]}
    pq.write_table(pa.table({**table, "extra": [{"a": 1}] * 5}), file, row_group_size=2)
    arguments = ("collections", "import", name, file, "--server", target)
    columns = ("--column", "id=key", "--column", "image_vector=embedding", "--column", "metadata.year=year")
    for given, word in (
        ((), "it has key, embedding, year, extra"),
        ((*columns, "--space", "elsewhere"), "elsewhere"),
        (columns, "--space"),
        ((*columns, "--column", "caption=title"), "no column 'title'"),
        ((*columns, "--column", "colour=year"), "--column colour"),
        ((*columns, "--column", "id"), "NAME=COLUMN"),
    ):
        refused = run(*arguments, *given)
        assert refused.code == 1, given
        assert word in refused.err
    assert name not in {each.id for each in client.list_collections()}
    done = run(*arguments, *columns, "--column", "metadata=extra", "--space", "same", "--kind", "flat", "--json")
    assert done.json == {"collection": name, "created": True, "stored": 5, "failed": 0, "failures": []}
    assert client.get_collection(name).index_kind == "flat"
    assert client.get_item(name, "2").metadata == {"a": 1, "year": 2021}
    assert client.get_item(name, "3").metadata == {"a": 1}
    assert client.search(name, vector=rows(5)[3], top_k=1)[0].id == "4"


def test_rows_that_cannot_be_stored_fail_alone(
    run: Callable[..., Ran], target: str, client: Client, name: str, tmp_path: Path
) -> None:
    file = tmp_path / "mixed.parquet"
    good = rows(1)[0].tolist()
    table = pa.table(
        {
            "id": ["good", "short", "zero", "nothing", "words", "not json", None],
            "image_vector": pa.array([good, good[:3], [0.0] * 32, None, None, good, good], type=pa.list_(pa.float32())),
            "caption": ["", "", "", "", "red", "", ""],
            "metadata": ["{}", "{}", "{}", "{}", None, "[1", "{}"],
        }
    )
    pq.write_table(table, file)
    done = run("collections", "import", name, file, "--space", SPACE, "--server", target)
    assert (done.code, done.out) == (0, f"{name} (new): 2 stored, 5 failed\n")
    assert [line.split(":")[1].strip() for line in done.err.splitlines()] == [
        "not json", "short", "zero", "nothing", "row 6",
    ]  # fmt: skip
    assert [item.id for item in client.list_items(name)] == ["good", "words"]
    again = run("collections", "import", f"{name}-x", file, "--space", SPACE, "--column", "id=metadata", "--json",
                "--server", target)  # fmt: skip
    assert again.json["stored"] >= 1
    client.delete_collection(f"{name}-x")


def test_columns_of_any_type_become_metadata_or_say_why_not(tmp_path: Path) -> None:
    day = datetime(2024, 5, 1, 9, 30, tzinfo=UTC)
    columns: dict[str, Any] = {
        "id": pa.array(["a", "b", "c", "d"]).dictionary_encode(),
        "image_vector": pa.array([[1.0, 2.0]] * 4, pa.large_list(pa.float16())),
        "metadata": ["[1]", "[" * 3000 + "]" * 3000, "no", '{"k": [1, {"l": null}]}'],
        "taken": pa.array([day] * 4, pa.timestamp("us", tz="UTC")),
        "price": [Decimal("1.50")] * 4,
        "tags": pa.array([[("x", 1)]] * 4, pa.map_(pa.string(), pa.int64())),
    }
    pq.write_table(pa.table(columns), tmp_path / "any.parquet")
    taken = {"metadata.taken": "taken", "metadata.price": "price"}
    first, deep, broken, good = parquet_source(tmp_path / "any.parquet", taken).rows
    assert [row.error for row in (first, deep, broken)] == [
        "the metadata is not an object but list", "the metadata is not JSON", "the metadata is not JSON",
    ]  # fmt: skip
    assert good.item is not None
    assert good.item.metadata == {"k": [1, {"l": None}], "taken": "2024-05-01T09:30:00+00:00", "price": 1.5}
    mapped = next(parquet_source(tmp_path / "any.parquet", {"metadata": "tags"}).rows)
    assert mapped.item is not None
    assert mapped.item.metadata == {"x": 1}
    with pytest.raises(TwinlensError, match="not lists of floating-point numbers"):
        next(parquet_source(tmp_path / "any.parquet", {"image_vector": "id"}).rows)


def test_a_kind_is_for_new_collections_and_never_left_out_without_a_word(
    run: Callable[..., Ran], target: str, client: Client, name: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "good.npy", rows(3))
    arguments = ("collections", "import", name, tmp_path / "good.npy", "--space", "same", "--server", target)
    for _ in range(2):
        refused = run(*arguments, "--kind", "best")
        assert (refused.code, "not 'best'" in refused.err) == (1, True)
        assert run(*arguments, "--kind", "hnsw").code == 0
    refused = run(*arguments, "--kind", "flat")
    assert refused.code == 1
    assert f"{name} is of kind hnsw" in refused.err
    assert f"merge {name} --kind flat" in refused.err


def test_numbers_too_large_for_a_vector_fail_their_rows_without_a_warning(
    run: Callable[..., Ran], target: str, client: Client, name: str, tmp_path: Path
) -> None:
    matrix = rows(3).astype(np.float64)
    matrix[1] = 1e300
    np.save(tmp_path / "large.npy", matrix)
    done = run("collections", "import", name, tmp_path / "large.npy", "--space", "same", "--server", target)
    assert (done.code, done.out) == (0, f"{name} (new): 2 stored, 1 failed\n")
    assert done.err == "not stored: 1: the vector holds a value that is not finite\n"


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_a_matrix_is_imported_with_ids_and_metadata_beside_it(
    run: Callable[..., Ran], target: str, client: Client, name: str, tmp_path: Path, dtype: Any
) -> None:
    matrix, ids, metadata = tmp_path / "vectors.npy", tmp_path / "ids.txt", tmp_path / "metadata.jsonl"
    np.save(matrix, rows(1500).astype(dtype))
    ids.write_text("".join(f"item {i}\n" for i in range(1500)), encoding="utf-8")
    metadata.write_text("".join(json.dumps({"n": i}) + "\n" for i in range(1500)), encoding="utf-8")
    beside = ("--ids", ids, "--metadata", metadata, "--space", "same")
    done = run("collections", "import", name, matrix, *beside, "--server", target)
    assert (done.code, done.out) == (0, f"{name} (new): 1,500 stored\n")
    assert client.get_item(name, "item 1234").metadata == {"n": 1234}
    assert client.search(name, vector=rows(1500)[1499], top_k=1)[0].id == "item 1499"


def test_a_matrix_alone_is_numbered_and_may_be_of_captions(
    run: Callable[..., Ran], target: str, client: Client, name: str, tmp_path: Path
) -> None:
    matrix = tmp_path / "vectors.npy"
    np.save(matrix, rows(12))
    done = run("collections", "import", name, matrix, "--modality", "text", "--space", "same", "--server", target)
    assert done.code == 0
    assert client.search(name, vector=rows(12)[5], modality="text", top_k=1)[0].id == "05"
    described = client.get_collection(name)
    assert (described.image_vector_count, described.text_vector_count) == (0, 12)


def test_files_that_are_no_matrix_are_refused_by_what_they_are(
    run: Callable[..., Ran], target: str, client: Client, name: str, tmp_path: Path
) -> None:
    np.save(tmp_path / "flat.npy", np.zeros(7, np.float32))
    np.save(tmp_path / "whole.npy", np.zeros((2, 2), np.int64))
    np.save(tmp_path / "good.npy", rows(3))
    np.save(tmp_path / "wide.npy", np.ones((3, 33), np.float32))
    np.save(tmp_path / "objects.npy", np.array([{}], dtype=object), allow_pickle=True)
    (tmp_path / "cut.npy").write_bytes((tmp_path / "good.npy").read_bytes()[:40])
    (tmp_path / "cut.parquet").write_bytes(b"PAR1 and nothing else")
    (tmp_path / "ids.txt").write_text("a\nb\n")
    for file, options, word in (
        ("flat.npy", (), "shape (7,)"),
        ("whole.npy", (), "int64"),
        ("objects.npy", (), "cannot be read"),
        ("cut.npy", (), "cannot be read"),
        ("cut.parquet", (), "cannot be read as Parquet"),
        ("missing.npy", (), "no such file"),
        ("missing.parquet", (), "no such file"),
        ("good.npy", ("--ids", tmp_path / "ids.txt"), "2 lines of ids, but"),
        ("good.npy", ("--metadata", tmp_path / "none.jsonl"), "no such file"),
        ("good.npy", ("--modality", "sound"), "--modality"),
        ("wide.npy", (), "33 values"),
        ("ids.txt", (), "neither a .parquet nor a .npy"),
    ):
        refused = run("collections", "import", name, tmp_path / file, "--space", "same", *options, "--server", target)
        assert refused.code == 1, file
        assert word in refused.err, file
    assert name not in {each.id for each in client.list_collections()}


def test_a_file_passes_in_and_out_a_row_group_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_export, "_VALUES_A_GROUP", 64 * 512)
    now = datetime.now(UTC)
    collection = Collection("c", SPACE, 64, 0, 0, 0, now)
    everything = np.random.default_rng(7).standard_normal((16_384, 64)).astype(np.float32)
    before = most = pa.total_allocated_bytes()
    with parquet_export.parquet_export(tmp_path / "c.parquet", collection, ["image"]) as file:
        for i, vector in enumerate(everything):
            file.write(ExportedItem(Item(f"{i:05d}", "", "", {}, "", now, now), SPACE, vector))
            most = max(most, pa.total_allocated_bytes())
    found = parquet_source(tmp_path / "c.parquet", {})
    assert (found.count, found.space_id) == (16_384, SPACE)
    for row, vector in zip(found.rows, everything, strict=True):
        assert row.item is not None
        np.testing.assert_array_equal(row.item.image_vector, vector)
        most = max(most, pa.total_allocated_bytes())
    assert most - before < everything.nbytes / 4
