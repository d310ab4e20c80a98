"""What a folder or a .jsonl file yields."""

from __future__ import annotations

import itertools
import json
import os
from pathlib import Path

import pytest

from tests.support.pictures import solid, write_folder
from twinlens.client import TwinlensError
from twinlens.client.sniff import IMAGE_SUFFIXES, begins_like_image
from twinlens.client.sources import Row, Skipped, read_source, walk_images
from twinlens.encoders import sniff as encoders_sniff
from twinlens.encoders.embed_sources import JsonlSource


def ids(folder: Path, skipped: Skipped | None = None) -> list[str]:
    return [found.id for found in walk_images(folder, skipped)]


def test_a_folder_yields_its_pictures_sorted_by_path_and_counts_the_rest(pictures: Path) -> None:
    skipped = Skipped()
    assert ids(pictures, skipped) == ["blue.png", "green.png", "red.png", "sub/broken.png", "sub/yellow.jpg"]
    assert (skipped.files, skipped.folders) == (1, 0)


def test_the_order_is_that_of_sorted_paths(tmp_path: Path) -> None:
    for name in ("b/1.png", "a.png", "a/2.png", "a/10.png", "B.png", "a-b/1.png", "é.png"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    expected = sorted(path.relative_to(tmp_path).parts for path in tmp_path.rglob("*.png"))
    assert [tuple(found.split("/")) for found in ids(tmp_path)] == expected


def test_a_file_is_a_picture_by_its_content_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "no_ending").write_bytes(solid("red", "JPEG"))
    (tmp_path / "report.txt").write_bytes(solid("red", "WEBP"))
    (tmp_path / "BMW.txt").write_bytes(b"BM is how this text begins, and it is none.")
    (tmp_path / "CAPS.JPG").write_bytes(b"")
    assert ids(tmp_path) == ["CAPS.JPG", "no_ending", "report.txt"]


def test_the_rule_is_that_of_the_encoders_room() -> None:
    assert IMAGE_SUFFIXES == encoders_sniff.IMAGE_SUFFIXES
    heads = [solid("red", form) for form in ("PNG", "JPEG", "WEBP", "GIF", "BMP", "TIFF", "AVIF")]
    heads += [b"", b"BM", b"%PDF-1.7", b"<svg/>", b"RIFF1234WAVE", b"\0\0\0\x18ftypisom", b"II+\0", b"MM\0*", b"PK\3\4"]
    heads += [b"\0\0\0\x18ftypmif1\0\0\0\0", b"\0\0\0\x1cftypmp42\0\0\0\0heic", b"\0\0\0\x14ftypheix\0\0\0\0mif1"]
    for head in heads:
        expected = encoders_sniff.sniff(head[: encoders_sniff.SNIFF_BYTES]) in encoders_sniff.READABLE
        assert begins_like_image(head[:64]) == expected, head[:64]


def test_hidden_files_and_folders_are_passed_over(tmp_path: Path) -> None:
    write_folder(tmp_path / ".git")
    (tmp_path / ".hidden.png").write_bytes(solid("red"))
    assert ids(tmp_path) == []


def test_a_loop_of_links_ends_and_no_picture_comes_twice(pictures: Path) -> None:
    (pictures / "sub" / "up").symlink_to(pictures, target_is_directory=True)
    (pictures / "self").symlink_to(pictures / "self")
    (pictures / "again").symlink_to(pictures / "sub", target_is_directory=True)
    found = ids(pictures)
    assert len(found) == len({name.rsplit("/", 1)[-1] for name in found}) == 5


def test_a_broken_link_named_like_a_picture_is_reported_not_hidden(tmp_path: Path) -> None:
    (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere")
    assert ids(tmp_path) == ["gone.png"]


def test_what_is_no_file_is_never_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "pipe.png")
    skipped = Skipped()
    assert ids(tmp_path, skipped) == []
    assert skipped.files == 2


def test_a_name_that_is_no_text_gets_an_id_that_is(tmp_path: Path) -> None:
    path = os.fsencode(tmp_path) + b"/caf\xe9.png"
    Path(os.fsdecode(path)).write_bytes(solid("red"))
    (found,) = walk_images(tmp_path)
    assert found.id.encode("utf-8") == b"caf\\udce9.png"
    assert found.path.read_bytes() == solid("red")


def test_a_deep_tree_is_walked(tmp_path: Path) -> None:
    here = os.open(tmp_path, os.O_RDONLY)
    try:
        for _ in range(200):
            os.mkdir("d", dir_fd=here)
            deeper = os.open("d", os.O_RDONLY, dir_fd=here)
            os.close(here)
            here = deeper
        os.close(os.open("deep.png", os.O_CREAT | os.O_WRONLY, dir_fd=here))
    finally:
        os.close(here)
    assert [found.id.count("/") for found in walk_images(tmp_path)] == [200]


def test_a_single_picture_is_a_source_too(pictures: Path) -> None:
    assert ids(pictures / "red.png") == ["red.png"]


def test_a_source_that_is_missing_or_of_no_known_kind_is_refused_before_the_first_item(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("words")
    for source, code in (("missing", "NOT_FOUND"), ("missing.jsonl", "NOT_FOUND"), ("notes.txt", "INVALID_ARGUMENT")):
        with pytest.raises(TwinlensError) as caught:
            read_source(tmp_path / source)
        assert caught.value.code == code
        assert source in caught.value.message


def test_a_walk_reads_no_further_than_it_is_asked_to(tmp_path: Path) -> None:
    for folder in ("a", "b"):
        write_folder(tmp_path / folder)
    walk = walk_images(tmp_path)
    assert next(walk).id == "a/blue.png"
    for path in sorted((tmp_path / "b").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    assert all(found.id.startswith("a/") for found in walk)


def jsonl(tmp_path: Path, *lines: object) -> list[Row]:
    path = tmp_path / "rows.jsonl"
    path.write_text("\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines), encoding="utf-8")
    return list(read_source(path))


def test_rows_of_a_file_have_their_pictures_beside_it(tmp_path: Path) -> None:
    (row,) = jsonl(tmp_path, {"image": "in/a.png", "caption": "a cat", "year": 2020, "metadata": {"tag": "x"}})
    assert row == Row(
        id="in/a.png",
        image=tmp_path / "in/a.png",
        caption="a cat",
        metadata={"year": 2020, "tag": "x"},
        uri=str(tmp_path / "in/a.png"),
    )


def test_ids_and_uris_given_are_kept_and_text_is_another_word_for_caption(tmp_path: Path) -> None:
    rows = jsonl(tmp_path, {"id": 7, "text": "words", "uri": "s3://b/k"}, {"text": "more"})
    assert rows == [Row(id="7", caption="words", uri="s3://b/k"), Row(id="", caption="more")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{not json", "JSON"),
        ("[1]", "object"),
        ({}, "neither"),
        ({"image": ""}, "neither"),
        ({"text": ""}, "the text is empty"),
        ({"caption": ""}, "the caption is empty"),
        ({"image": 3}, "'image'"),
        ({"text": ["a"]}, "'text'"),
        ({"text": "a", "caption": "b"}, "differ"),
        ({"text": "a", "id": [1]}, "'id'"),
        ({"text": "a", "id": True}, "'id'"),
        ({"text": "a", "metadata": [1]}, "'metadata'"),
        ("[" * 100_000, "JSON"),
    ],
)
def test_a_bad_line_is_an_error_of_its_own_and_says_where(tmp_path: Path, line: object, reason: str) -> None:
    before, bad, after = jsonl(tmp_path, {"text": "x"}, line, {"text": "y"})
    assert (before.caption, after.caption) == ("x", "y")
    assert bad.id == "line 2"
    assert reason in bad.error


@pytest.mark.parametrize(
    "row",
    [
        *({}, {"text": ""}, {"caption": ""}, {"image": "", "text": ""}, {"image": 3}, {"text": [1]}, {"caption": "a"}),
        *({"text": "a", "caption": "a"}, {"text": "a", "caption": "b"}, {"image": "a", "caption": "b"}, {"image": "a"}),
    ],
)
def test_the_encoders_room_takes_the_same_rows_and_refuses_others_in_the_same_words(
    tmp_path: Path, row: dict[str, object]
) -> None:
    (ours,) = jsonl(tmp_path, row)
    (theirs,) = JsonlSource(tmp_path / "rows.jsonl")
    assert theirs.problem.removeprefix("line 1: ") == ours.error
    assert theirs.image == ours.image
    assert (theirs.text or "") == ("" if ours.image else ours.caption)


def test_blank_lines_are_no_rows(tmp_path: Path) -> None:
    assert len(jsonl(tmp_path, {"text": "x"}, "", "  ", {"text": "y"})) == 2


def test_a_file_that_is_not_utf8_fails_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_bytes(b'{"text": "caf\xe9"}\n{"text": "y"}\n')
    bad, good = itertools.islice(read_source(tmp_path / "rows.jsonl"), 2)
    assert bad.error
    assert good.caption == "y"
