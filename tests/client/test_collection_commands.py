"""The commands on whole collections."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.command_runs import Ran
from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import COLOURS, solid
from twinlens.client import Client, NewItem

SPACE = FakeEncoder().manifest.space_id
_numbers = itertools.count()


@pytest.fixture
def client(target: str) -> Iterator[Client]:
    with Client(target) as made:
        yield made


@pytest.fixture
def filled(client: Client) -> Iterator[str]:
    """Thirty items: three groups of near-duplicates of 3, 4 and 5, the others far from each other."""
    name = f"commanded-{next(_numbers)}"
    client.create_collection(name)
    vectors = np.linalg.qr(np.random.default_rng(6).standard_normal((32, 32)))[0][:30]
    for start, count in ((0, 3), (3, 4), (7, 5)):
        vectors[start : start + count] = vectors[start] + 1e-3 * vectors[start : start + count]
    items = [NewItem(id=f"{i:02d}", image_vector=vector, metadata={"n": i}) for i, vector in enumerate(vectors)]
    assert client.upsert(name, items, space_id=SPACE).stored == 30
    yield name
    client.delete_collection(name)


def test_merging_shows_the_indexes_and_changes_the_kind(run: Callable[..., Ran], target: str, filled: str) -> None:
    merged = run("collections", "merge", filled, "--kind", "flat", "--server", target)
    assert merged.code == 0
    assert f"Indexes of {filled} (flat)" in merged.out
    (pictures,) = [line.split() for line in merged.out.splitlines() if "pictures" in line]
    assert pictures[:5] == ["pictures", "flat", "30", "0", "0"]
    again = run("collections", "merge", filled, "--background", "--json", "--server", target)
    assert again.json["index_kind"] == "flat"
    assert again.json["indexes"][0]["merged_count"] == 30
    refused = run("collections", "merge", filled, "--kind", "tree", "--server", target)
    assert (refused.code, "one of auto, flat, hnsw, ivf_flat, ivf_pq" in refused.err) == (1, True)
    shown = run("collections", "show", filled, "--server", target)
    assert "Indexes of" in shown.out


def test_a_check_that_finds_nothing_ends_well(run: Callable[..., Ran], target: str, filled: str) -> None:
    checked = run("collections", "check", filled, "--server", target)
    assert (checked.code, checked.out) == (0, f"{filled}: all is well\n")
    assert run("collections", "check", filled, "--json", "--server", target).json["findings"] == []


def test_groups_of_duplicates_are_listed_largest_first(run: Callable[..., Ran], target: str, filled: str) -> None:
    found = run("collections", "duplicates", filled, "-t", 0.999, "--server", target)
    assert found.code == 0
    groups = [line.split(": ")[1] for line in found.out.splitlines()[:-1]]
    assert groups == ["07, 08, 09, 10, 11", "03, 04, 05, 06", "00, 01, 02"]
    assert found.out.splitlines()[-1] == "3 groups, with 12 items"
    assert run("collections", "duplicates", filled, "--modality", "text", "--server", target).out == "no duplicates\n"
    first = run("collections", "duplicates", filled, "-t", 0.999, "-n", 1, "--json", "--server", target)
    (line,) = first.out.splitlines()
    assert json.loads(line)["ids"] == ["07", "08", "09", "10", "11"]
    for options in (("-t", 2), ("--modality", "sound")):
        assert run("collections", "duplicates", filled, *options, "--server", target).code == 1


def test_groups_are_drawn_on_a_sheet_least_alike_first(
    run: Callable[..., Ran], target: str, client: Client, filled: str, tmp_path: Path
) -> None:
    same = [NewItem(id=f"red {form}", image=solid("red", form)) for form in ("PNG", "BMP")]
    assert client.upsert(filled, same).stored == 2
    sheet = tmp_path / "sheet.png"
    drawn = run("collections", "duplicates", filled, "-t", 0.9, "--save-sheet", sheet, "--server", target)
    assert (drawn.code, f"contact sheet: {sheet}" in drawn.err) == (0, True)
    assert drawn.out.splitlines()[-1] == "4 groups, with 14 items"
    with Image.open(sheet) as image:
        height = image.height // 4
        rows = [image.crop((0, height * row, image.width, height * (row + 1))).getcolors(1 << 20) for row in range(4)]
    assert [any(colour == COLOURS["red"] for _, colour in row or []) for row in rows] == [False, False, False, True]
    assert run("collections", "duplicates", filled, "--save-sheet", "sheet.txt", "--server", target).code == 2


def test_generations_are_listed_and_the_active_one_stays(run: Callable[..., Ran], target: str, filled: str) -> None:
    listed = run("collections", "generations", filled, "--server", target)
    assert "30 of 30" in listed.out
    assert "active" in listed.out
    refused = run("collections", "generations", filled, "--drop", 1, "--server", target)
    assert (refused.code, "active" in refused.err) == (1, True)
    assert len(run("collections", "generations", filled, "--json", "--server", target).json["generations"]) == 1


def test_paths_are_indexed_listed_and_removed(run: Callable[..., Ran], target: str, filled: str) -> None:
    arguments = ("collections", "index", filled)
    assert run(*arguments, "--server", target).out == "no indexes on metadata\n"
    assert run(*arguments, "camera.model", "--server", target).out == "camera.model\n"
    assert run(*arguments, "n", "--json", "--server", target).json == {"metadata_indexes": ["camera.model", "n"]}
    assert run(*arguments, "n", "--remove", "--server", target).out == "camera.model\n"
    assert run(*arguments, "--remove", "--server", target).code == 2
    assert "indexed metadata: camera.model" in run("collections", "show", filled, "--server", target).out


def test_a_server_that_keeps_no_backups_says_so(run: Callable[..., Ran], target: str, filled: str) -> None:
    for arguments in (("backup", filled), ("restore", "one"), ("backups",)):
        refused = run("collections", *arguments, "--server", target)
        assert (refused.code, "TWINLENS_BACKUPS" in refused.err) == (1, True)
    assert run("collections", "backup", filled, "--to", "somewhere", "--server", target).code == 2


def test_without_a_server_a_place_for_backups_must_be_named(
    run: Callable[..., Ran], local: tuple[object, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TWINLENS_BACKUPS", raising=False)
    for arguments, option in ((("backup", "photos"), "--to"), (("restore", "one"), "--from"), (("backups",), "--from")):
        refused = run("collections", *arguments, *local)
        assert (refused.code, f"{option} PLACE" in refused.err) == (2, True)
    monkeypatch.setenv("TWINLENS_BACKUPS", str(tmp_path / "backups"))
    (tmp_path / "data").mkdir()
    assert run("collections", "backups", *local).out == "no backups\n"


def test_a_folder_is_backed_up_damaged_checked_and_restored(
    run: Callable[..., Ran], local: tuple[object, ...], pictures: Path, tmp_path: Path
) -> None:
    place = tmp_path / "backups"
    assert run("ingest", pictures, "-c", "photos", *local).code == 0
    local = local[:2]  # the folder knows its bundle now
    made = run("collections", "backup", "photos", "first", "--to", place, *local)
    assert made.code == 0
    assert made.out.startswith("backed up photos as first (4 items, ")
    named = run("collections", "backup", "photos", "--to", place, "--json", *local)
    assert named.json["id"].startswith("photos-")
    listed = run("collections", "backups", "--from", place, "--json", *local).json["backups"]
    assert {each["id"] for each in listed} == {"first", named.json["id"]}
    assert "first" in run("collections", "backups", "photos", "--from", place, *local).out

    blob = next(path for path in (tmp_path / "data" / "collections" / "photos" / "blobs").rglob("*") if path.is_file())
    blob.write_bytes(b"not what it was")
    checked = run("collections", "check", "photos", *local)
    assert checked.code == 1
    assert checked.out.startswith("pictures: ")
    assert checked.out.splitlines()[-1] == "photos: 1 finding"
    assert len(run("collections", "check", "photos", "--json", *local).json["findings"]) == 1

    database = tmp_path / "data" / "collections" / "photos" / "collection.db"
    database.write_bytes(b"garbage" * 3000)
    table = run("collections", "list", *local)
    assert (table.code, "damaged" in table.out) == (0, True)
    shown = run("collections", "show", "photos", *local)
    assert (shown.code, "damaged" in shown.err) == (1, True)
    kept = run("collections", "restore", "first", "--from", place, *local)
    assert (kept.code, "photos" in kept.err) == (1, True)
    restored = run("collections", "restore", "first", "--from", place, "--replace", *local)
    assert (restored.code, restored.out) == (0, "restored photos from first (4 items)\n")
    assert run("collections", "check", "photos", *local).code == 0
    copy = run("collections", "restore", "first", "copy", "--from", place, "--json", *local)
    assert (copy.json["id"], copy.json["item_count"]) == ("copy", 4)

    unasked = run("collections", "backups", "--delete", "first", "--from", place, *local)
    assert (unasked.code, "say --yes to delete 1 backup" in unasked.err) == (2, True)
    left = run("collections", "backups", "--delete", "first", "--yes", "--json", "--from", place, *local)
    assert (left.code, [each["id"] for each in left.json["backups"]]) == (0, [named.json["id"]])
    again = run("collections", "backups", "--delete", "first", "-y", "--from", place, *local)
    assert (again.code, "no complete backup first" in again.err) == (1, True)


def test_a_damaged_collection_can_be_deleted(
    run: Callable[..., Ran], local: tuple[object, ...], tmp_path: Path
) -> None:
    assert run("collections", "create", "photos", "--kind", "hnsw", "--json", *local).json["index_kind"] == "hnsw"
    (tmp_path / "data" / "collections" / "photos" / "collection.db").write_bytes(b"garbage" * 3000)
    deleted = run("collections", "delete", "photos", "--yes", *local[:2])
    assert (deleted.code, deleted.out) == (0, "deleted photos (a damaged database)\n")
    assert run("collections", "list", *local[:2]).out == "no collections\n"


def test_pictures_and_brought_vectors_live_side_by_side(client: Client, filled: str) -> None:
    assert client.upsert(filled, [NewItem(id="red", image=solid("red"))]).stored == 1
    assert client.search(filled, text="red", top_k=1)[0].id == "red"


def test_an_export_across_a_move_to_another_model_is_refused(
    run: Callable[..., Ran], target: str, filled: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = Client.get_collection
    monkeypatch.setattr(Client, "get_collection", lambda *args: replace(before(*args), space_id="the one before"))
    refused = run("collections", "export", filled, tmp_path / "all.parquet", "--server", target)
    assert (refused.code, "export it again" in refused.err) == (1, True)
    assert list(tmp_path.iterdir()) == []
