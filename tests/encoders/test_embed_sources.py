from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tests.support.image_files import encode, scene
from twinlens.encoders.embed_sources import FolderSource, JsonlSource, SourceItem

PICTURE = encode(scene(4, 5))


def write(root: Path, *names: str, data: bytes = PICTURE) -> None:
    for name in names:
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)


class TestFolder:
    def ids(self, root: Path) -> list[str]:
        return [item.id for item in FolderSource(root)]

    def test_is_read_recursively_in_order(self, tmp_path: Path) -> None:
        write(tmp_path, "b.png", "a/z.jpg", "a/b/c.webp", "c", "B.PNG")
        assert self.ids(tmp_path) == ["B.PNG", "a/b/c.webp", "a/z.jpg", "b.png", "c"]
        assert [item.image for item in FolderSource(tmp_path)][1] == tmp_path / "a/b/c.webp"

    def test_can_be_read_twice(self, tmp_path: Path) -> None:
        write(tmp_path, "a.png", "b.png")
        write(tmp_path, "notes.txt", data=b"words")
        source = FolderSource(tmp_path)
        assert list(source) == list(source)
        assert source.skipped == 1

    def test_hidden_files_and_folders_are_left_out(self, tmp_path: Path) -> None:
        write(tmp_path, ".hidden.png", ".git/a.png", "seen.png")
        source = FolderSource(tmp_path)
        assert [item.id for item in source] == ["seen.png"]
        assert source.skipped == 0

    def test_what_is_no_picture_by_name_and_content_is_skipped_and_counted(self, tmp_path: Path) -> None:
        write(tmp_path, "notes.txt", "data.json", "README.md", "noname", data=b"words")
        write(tmp_path, "picture.txt")
        write(tmp_path, "broken.jpg", data=b"words")
        source = FolderSource(tmp_path)
        assert [item.id for item in source] == ["broken.jpg", "picture.txt"]
        assert source.skipped == 4

    def test_links_are_followed_but_loops_end(self, tmp_path: Path) -> None:
        write(tmp_path, "real/a.png", "elsewhere/b.png")
        (tmp_path / "real" / "up").symlink_to(tmp_path)
        (tmp_path / "real" / "more").symlink_to(tmp_path / "elsewhere")
        found = self.ids(tmp_path / "real")
        assert sorted(name.rsplit("/", 1)[-1] for name in found) == ["a.png", "b.png"]

    def test_a_broken_link_named_like_a_picture_is_an_item(self, tmp_path: Path) -> None:
        (tmp_path / "gone.png").symlink_to(tmp_path / "nowhere.png")
        assert self.ids(tmp_path) == ["gone.png"]

    def test_a_pipe_is_never_opened(self, tmp_path: Path) -> None:
        os.mkfifo(tmp_path / "pipe.png")
        source = FolderSource(tmp_path)
        assert list(source) == []
        assert source.skipped == 1

    def test_a_deep_tree(self, tmp_path: Path) -> None:
        write(tmp_path, "d/" * 300 + "a.png")
        assert self.ids(tmp_path) == ["d/" * 300 + "a.png"]

    def test_a_name_that_is_no_utf8_gets_an_id_that_is(self, tmp_path: Path) -> None:
        name = os.fsencode(str(tmp_path)) + b"/caf\xe9.png"
        with open(name, "wb") as stream:  # noqa: PTH123 - bytes for a path
            stream.write(PICTURE)
        (item,) = FolderSource(tmp_path)
        assert item.id == r"caf\udce9.png"  # as for `ingest` and `label`
        assert item.image is not None
        assert item.image.read_bytes() == PICTURE

    def test_odd_names_are_kept(self, tmp_path: Path) -> None:
        names = ["with space & ü 狗 (1).jpg", "-dash.jpg", "#1 100%.png", "line\nbreak.png"]
        write(tmp_path, *names)
        assert sorted(self.ids(tmp_path)) == sorted(names)


class TestJsonl:
    def rows(self, tmp_path: Path, *rows: Any) -> list[SourceItem]:
        file = tmp_path / "rows.jsonl"
        file.write_text("\n".join(row if isinstance(row, str) else json.dumps(row) for row in rows))
        return list(JsonlSource(file))

    def test_images_and_texts_with_and_without_ids(self, tmp_path: Path) -> None:
        found = self.rows(
            tmp_path,
            {"image": "sub/a.png"},
            {"image": "/abs/b.png", "id": "b"},
            {"text": "a dog"},
            {"text": "a cat", "id": 7, "other": []},
        )
        assert found == [
            SourceItem("sub/a.png", image=tmp_path / "sub/a.png"),
            SourceItem("b", image=Path("/abs/b.png")),
            SourceItem("line-3", text="a dog"),
            SourceItem("7", text="a cat"),
        ]

    def test_blank_lines_are_passed_over_but_counted_as_lines(self, tmp_path: Path) -> None:
        assert [item.id for item in self.rows(tmp_path, "", {"text": "x"}, "   ", {"text": "y"})] == [
            "line-2",
            "line-4",
        ]

    def test_a_mark_of_byte_order_is_no_part_of_the_row(self, tmp_path: Path) -> None:
        (tmp_path / "rows.jsonl").write_bytes(b'\xef\xbb\xbf{"text": "x"}\n')
        assert list(JsonlSource(tmp_path / "rows.jsonl")) == [SourceItem("line-1", text="x")]

    @pytest.mark.parametrize(
        ("row", "said"),
        [
            ("{", "not JSON"),
            ("[" * 100_000, "not JSON"),
            ("[1]", "not an object"),
            ({}, "neither 'image' nor 'text'"),
            ({"id": "a"}, "neither 'image' nor 'text'"),
            ({"image": ""}, "neither 'image' nor 'text'"),
            ({"text": ""}, "the text is empty"),
            ({"caption": ""}, "the caption is empty"),
            ({"caption": "a", "text": "b"}, "they differ"),
            ({"image": 3}, "'image' is not text"),
            ({"text": ["a"]}, "'text' is not text"),
            ({"image": "a", "caption": ["a"]}, "'caption' is not text"),
            ({"text": "a", "id": ""}, "id must be"),
            ({"text": "a", "id": [1]}, "id must be"),
            ({"text": "a", "id": True}, "id must be"),
        ],
    )
    def test_a_bad_row_is_a_problem_of_its_own(self, tmp_path: Path, row: Any, said: str) -> None:
        good, bad, also_good = self.rows(tmp_path, {"text": "x"}, row, {"text": "y"})
        assert said in bad.problem
        assert "line 2" in bad.problem
        assert (good.text, also_good.text) == ("x", "y")

    def test_bytes_that_are_no_utf8_are_a_problem_of_their_row(self, tmp_path: Path) -> None:
        (tmp_path / "rows.jsonl").write_bytes(b'{"text": "\xff"}\n{"text": "x"}\n')
        bad, good = JsonlSource(tmp_path / "rows.jsonl")
        assert bad.problem
        assert good.text == "x"

    def test_a_repeated_row_is_taken_once(self, tmp_path: Path) -> None:
        file = tmp_path / "rows.jsonl"
        file.write_text("\n".join(json.dumps({"image": "a.png", "caption": str(i)}) for i in range(5)))
        source = JsonlSource(file)
        assert [item.id for item in source] == ["a.png"]
        assert source.skipped == 4

    def test_a_caption_is_a_text(self, tmp_path: Path) -> None:
        assert self.rows(tmp_path, {"caption": "a dog"}, {"caption": "a cat", "text": "a cat"}) == [
            SourceItem("line-1", text="a dog"),
            SourceItem("line-2", text="a cat"),
        ]

    def test_a_caption_beside_a_picture_is_left_out_and_counted(self, tmp_path: Path) -> None:
        file = tmp_path / "rows.jsonl"
        rows = [{"image": "a.png", "caption": "a"}, {"image": "b.png", "text": "b"}, {"image": "c.png", "caption": ""}]
        file.write_text("\n".join(json.dumps(row) for row in rows))
        source = JsonlSource(file)
        for _ in range(2):
            assert [(item.id, item.text) for item in source] == [("a.png", None), ("b.png", None), ("c.png", None)]
            assert source.captions_left_out == 2

    def test_an_id_used_for_something_else_is_a_problem(self, tmp_path: Path) -> None:
        first, second = self.rows(tmp_path, {"text": "x", "id": "a"}, {"text": "y", "id": "a"})
        assert not first.problem
        assert second.id == "line-2"
        assert "'a' was used before" in second.problem

    def test_an_id_that_is_no_utf8_is_made_so(self, tmp_path: Path) -> None:
        (item,) = self.rows(tmp_path, '{"text": "x", "id": "half \\ud83d"}')
        item.id.encode()
