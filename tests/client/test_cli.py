"""The commands, run as a user runs them, on a real bundle without a server and against a real server."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from tests.client.test_sinks import read_back
from tests.support.command_runs import Ran
from tests.support.pictures import solid
from twinlens.client import Client


def test_a_folder_is_stored_found_and_shown(
    run: Callable[..., Ran], where: tuple[object, ...], pictures: Path, tmp_path: Path
) -> None:
    stored = run("ingest", pictures, "--collection", "photos", *where)
    assert (stored.code, stored.out) == (0, "photos (new): 4 stored, 1 failed\n")
    assert stored.err.splitlines() == [
        "not stored: sub/broken.png: this is not a picture in a format we know",
        "passed over 1 file that is not a picture",
    ]
    sheet = tmp_path / "sheet.png"
    found = run("search", "red", "-c", "photos", "-k", 2, "--json", "--save-sheet", sheet, *where)
    assert found.json["hits"][0]["id"] == "red.png"
    assert len(found.json["hits"]) == 2
    assert found.json["hits"][0]["uri"] == str(pictures / "red.png")
    with Image.open(sheet) as drawn:
        assert (255, 0, 0) in {colour for _, colour in drawn.getcolors(1 << 20) or []}

    table = run("search", "red", "--collection", "photos", *where)
    assert "red.png" in table.out
    assert (
        run("search", "--image", pictures / "blue.png", "-c", "photos", "--json", *where).json["hits"][0]["id"]
        == "blue.png"
    )
    away = run(
        "search", "--item", "red.png", "--negative", "red", "--negative-weight", 3, "-c", "photos", "--json", *where
    )
    assert away.json["hits"][-1]["id"] == "red.png"
    none = run("search", "red", "-c", "photos", "--min-score", 1.5, *where)
    assert (none.code, none.out) == (0, "no hits\n")


def test_running_it_again_changes_only_what_changed(
    run: Callable[..., Ran], where: tuple[object, ...], pictures: Path
) -> None:
    (pictures / "sub" / "broken.png").unlink()
    ingest = ("ingest", pictures, "-c", "photos", "--json", *where)
    assert run(*ingest).json == {
        "collection": "photos",
        "created": True,
        "stored": 4,
        "unchanged": 0,
        "failed": 0,
        "truncated": 0,
        "items": 4,
        "skipped_files": 1,
        "failures": [],
    }
    (pictures / "red.png").write_bytes(solid("yellow"))
    (pictures / "new.png").write_bytes(solid("green", size=(5, 5)))
    again = run(*ingest).json
    assert (again["created"], again["stored"], again["unchanged"]) == (False, 2, 3)
    assert run(*ingest, "--force").json["stored"] == 5
    assert run(*ingest).json["unchanged"] == 5


def test_a_file_of_captions_and_metadata_is_stored(
    run: Callable[..., Ran], where: tuple[object, ...], pictures: Path
) -> None:
    rows = [
        {"image": "red.png", "caption": "a red wall", "id": "r", "year": 2020},
        {"caption": "only words"},
        {"image": "missing.png"},
        {"caption": "half \ud800 a pair"},
        {"caption": "blue", "id": "twice"},
        {"caption": "green", "id": "twice"},
    ]
    source = pictures / "rows.jsonl"
    source.write_text("".join(f"{json.dumps(row)}\n" for row in rows) + "not json\n")
    first = run("ingest", source, "-c", "captions", "--json", *where)
    assert (first.code, first.json["stored"], first.json["failed"]) == (0, 4, 3)
    assert [failure["id"] for failure in first.json["failures"]] == [
        "missing.png",
        "caption 'half \\ud800 a pair'",
        "line 7",
    ]
    again = run("ingest", source, "-c", "captions", "--json", *where)
    assert (again.json["stored"], again.json["unchanged"], again.json["failed"]) == (2, 2, 3)
    hit = run("search", "a red wall", "-c", "captions", "--modality", "text", "-k", 1, "--json", *where).json["hits"][0]
    assert (hit["id"], hit["caption"], hit["metadata"]) == ("r", "a red wall", {"year": 2020})
    assert json.loads(run("collections", "get", "captions", "twice", *where).out)["caption"] == "green"


@pytest.mark.parametrize(("held", "asked", "said"), [("caption", "image", "pictures"), ("image", "text", "texts")])
def test_a_search_among_what_the_collection_does_not_hold_says_what_it_holds(
    run: Callable[..., Ran], local: tuple[object, ...], pictures: Path, held: str, asked: str, said: str
) -> None:
    (pictures / "rows.jsonl").write_text(json.dumps({held: "red.png"}))
    assert run("ingest", pictures / "rows.jsonl", "-c", "c", *local).code == 0
    search = ("search", "red", "-c", "c", *local, "--modality")
    other = "text" if held == "caption" else "image"
    missed = run(*search, asked)
    assert (missed.code, missed.out) == (0, "no hits\n")
    assert missed.err == f"the collection holds no {said}; try --modality {other}\n"
    assert run(*search, asked, "--json").err == missed.err
    assert run(*search, other).err == ""
    assert run(*search, other, "--min-score", 1.5).err == ""


def test_a_long_caption_is_shortened_in_tables_only(
    run: Callable[..., Ran], local: tuple[object, ...], tmp_path: Path
) -> None:
    caption = "a red wall " * 1000
    (tmp_path / "rows.jsonl").write_text(json.dumps({"caption": caption, "id": "a"}))
    assert run("ingest", tmp_path / "rows.jsonl", "-c", "c", *local).code == 0
    search = ("search", "red", "-c", "c", "--modality", "text", *local)
    for table in (run(*search).out, run("collections", "items", "c", *local).out):
        assert f"{caption[:199]}…" in table
        assert max(map(len, table.splitlines())) < 300
    assert run(*search, "--json").json["hits"][0]["caption"] == caption


def test_labels_need_no_data_folder(run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, tmp_path: Path) -> None:
    label = ("label", pictures, "--labels", "red,blue")
    alone = run(*label, "--bundle", tiny_bundle)
    assert "red.png\tred\t" in alone.out
    new = ("--local", tmp_path / "new" / "data")
    assert "; labelling needs none: give --bundle instead" in run(*label, *new).failed()
    assert run(*label, *new, "--bundle", tiny_bundle).out == alone.out
    assert run(*label, *new).out == alone.out


@pytest.mark.parametrize("form", [".jsonl", ".csv", ".parquet"])
def test_a_folder_is_labelled(
    run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, tmp_path: Path, form: str
) -> None:
    out = tmp_path / f"labels{form}"
    done = run(
        "label", pictures, "--labels", "red, green,blue,yellow,", "--bundle", tiny_bundle, "--out", out, "--top-k", 2
    )
    assert done.code == 0, done.err
    rows = read_back(out)
    assert {row["id"]: row["label"] for row in rows} == {
        "blue.png": "blue",
        "green.png": "green",
        "red.png": "red",
        "sub/broken.png": None,
        "sub/yellow.jpg": "yellow",
    }
    assert rows[0]["path"] == str(pictures / "blue.png")
    assert [len(row["labels"]) for row in rows] == [2, 2, 2, 0, 2]
    assert rows[3]["error"]
    assert "4 labelled, 1 failed" in done.out
    assert "not labelled: sub/broken.png" in done.err


def test_labels_go_to_stdout_where_no_file_is_named(
    run: Callable[..., Ran], where: tuple[object, ...], pictures: Path, tmp_path: Path
) -> None:
    (tmp_path / "labels.txt").write_text("red\n\ngreen, or so\nblue\n", encoding="utf-8-sig")
    label = ("label", pictures, "--labels-file", tmp_path / "labels.txt", *where)
    lines = run(*label).out.splitlines()
    assert lines[0].split("\t")[:2] == ["blue.png", "blue"]
    probability, cosine = map(float, lines[0].split("\t")[2:])
    assert 0 <= probability <= 1
    assert -1 <= cosine <= 1
    assert len(lines) == 4
    rows = [json.loads(line) for line in run(*label, "--json", "--multi-label", "--template", "{}").out.splitlines()]
    assert [row["label"] for row in rows][:3] == ["blue", "green, or so", "red"]


def test_a_name_that_breaks_lines_does_not_break_the_output(
    run: Callable[..., Ran], tiny_bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    name = "a\tb\n\x9b2Jc.png"
    (tmp_path / "in" / name).write_bytes(solid("red"))
    label = ("label", tmp_path / "in", "--labels", "red,blue", "--bundle", tiny_bundle)
    assert [line.split("\t")[:2] for line in run(*label).out.splitlines()] == [[r"a\tb\n\x9b2Jc.png", "red"]]
    as_json = run(*label, "--json")
    assert as_json.json["id"] == name
    assert "\x9b" not in as_json.out
    out = tmp_path / "half \udcff.jsonl"
    assert run(*label, "--json", "--out", out).json["out"] == str(out)


def test_a_summary_of_labels_is_json_on_demand(
    run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, tmp_path: Path
) -> None:
    out = tmp_path / "l.csv"
    done = run("label", pictures, "--labels", "red,blue", "--bundle", tiny_bundle, "--out", out, "--json")
    assert (done.json["labelled"], done.json["failed"], done.json["skipped_files"]) == (4, 1, 1)
    assert sum(done.json["labels"].values()) == 4
    assert done.json["truncated_labels"] == []


def test_nothing_is_asked_once_the_labels_are_there(
    run: Callable[..., Ran], tiny_bundle: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    for name in ("model", "classify_stream"):
        method = getattr(Client, name)

        def noted(*given: Any, name: str = name, method: Any = method, **options: Any) -> Any:
            asked.append(name)
            return method(*given, **options)

        monkeypatch.setattr(Client, name, noted)
    run("label", pictures, "--labels", "red,blue", "--bundle", tiny_bundle, "--out", tmp_path / "l.csv")
    assert asked == ["model", "classify_stream"]


def test_texts_that_were_cut_are_told(
    run: Callable[..., Ran], where: tuple[object, ...], tiny_bundle: Path, pictures: Path, tmp_path: Path
) -> None:
    run("ingest", pictures, "-c", "photos", *where)
    long = "red " * 60
    found = run("search", long, "-c", "photos", "--json", *where)
    assert found.json["truncated"]
    assert "longer than the model reads" in found.err
    short = run("search", "red", "-c", "photos", "--json", *where)
    assert not short.json["truncated"]
    assert short.err == ""
    label = ("label", pictures, "--labels", f"red,{long}", "--bundle", tiny_bundle, "--out", tmp_path / "l.csv")
    done = run(*label, "--top-k", 2, "--json")
    assert done.json["truncated_labels"] == [long.strip()]
    assert "labels longer than the model reads, which were cut: 1" in done.err


def test_collections_are_made_listed_shown_and_deleted(
    run: Callable[..., Ran], where: tuple[object, ...], pictures: Path, tmp_path: Path
) -> None:
    assert run("collections", "list", *where).out == "no collections\n"
    assert run("collections", "create", "empty", *where).out == "created empty\n"
    assert run("collections", "create", "empty", "--json", *where).failed()
    run("ingest", pictures, "-c", "photos", *where)
    assert [each["id"] for each in run("collections", "list", "--json", *where).json["collections"]] == [
        "empty",
        "photos",
    ]
    assert "photos" in run("collections", "list", *where).out
    assert run("collections", "show", "photos", "--json", *where).json["item_count"] == 4
    shown = run("collections", "show", "photos", *where).out
    assert shown.splitlines()[0].strip() == "Collection photos"
    assert "(tiny/1)" in shown
    items = [json.loads(line) for line in run("collections", "items", "photos", "--json", *where).out.splitlines()]
    assert [item["id"] for item in items] == ["blue.png", "green.png", "red.png", "sub/yellow.jpg"]
    limited = run("collections", "items", "photos", "--limit", 1, *where).out
    assert "blue.png" in limited
    assert "red.png" not in limited
    run("collections", "get", "photos", "red.png", "--save-image", tmp_path / "copy.png", *where)
    assert (tmp_path / "copy.png").read_bytes() == (pictures / "red.png").read_bytes()
    assert "--yes" in run("collections", "delete", "photos", *where).failed(2)
    assert run("collections", "delete", "photos", "--yes", *where).out == "deleted photos (4 items)\n"
    assert "no collection photos" in run("collections", "show", "photos", *where).failed()


def test_what_was_stored_is_there_for_the_next_command(
    run: Callable[..., Ran], local: tuple[object, ...], pictures: Path
) -> None:
    run("ingest", pictures, "-c", "photos", *local)
    found = run("search", "blue", "-c", "photos", "--json", *local[:2])
    assert found.json["hits"][0]["id"] == "blue.png"


def test_the_environment_names_the_server_where_no_option_does(
    run: Callable[..., Ran], target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TWINLENS_SERVER", target)
    with Client(target) as client:
        client.create_collection("by-environment")
    listed = run("collections", "list", "--json").json["collections"]
    assert "by-environment" in [each["id"] for each in listed]


def test_rows_that_share_an_id_are_told_from_items(
    run: Callable[..., Ran], where: tuple[object, ...], tmp_path: Path
) -> None:
    (tmp_path / "red.png").write_bytes(solid("red"))
    rows = [{"image": "red.png", "caption": text} for text in ("a red wall", "something red", "red")]
    source = tmp_path / "rows.jsonl"
    source.write_text("\n".join(json.dumps(row) for row in rows))
    done = run("ingest", source, "--collection", "walls", *where)
    assert done.code == 0
    assert done.out == (
        "walls (new): 3 rows stored, 1 item in all: rows that share an id replace each other, so give each an `id` to "
        "keep it\n"
    )
    source.write_text("\n".join(json.dumps({**row, "id": str(i)}) for i, row in enumerate(rows)))
    assert run("ingest", source, "--collection", "kept", *where).out == "kept (new): 3 stored\n"
    assert run("collections", "get", "walls", "red.png", *where).json["caption"] == "red"


def test_items_are_removed_by_id(run: Callable[..., Ran], where: tuple[object, ...], tmp_path: Path) -> None:
    folder = tmp_path / "pictures"
    folder.mkdir()
    for colour in ("red", "blue"):
        (folder / f"{colour}.png").write_bytes(solid(colour))
    assert run("ingest", folder, "--collection", "walls", *where).code == 0
    done = run("collections", "remove", "walls", "red.png", "not-there", *where)
    assert (done.code, done.out) == (0, "deleted 1 of 2 items\n")
    assert "red.png" not in run("collections", "items", "walls", *where).out
    assert "no collection" in run("collections", "remove", "nothing", "x", *where).failed()
