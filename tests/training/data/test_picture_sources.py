from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.picture_sources import load, told, write_shard
from tests.support.pictures import COLOURS, solid
from twinlens.training.data import picture_cache
from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_set import classes_found
from twinlens.training.data.picture_tables import PictureColumns


@pytest.fixture
def class_folders(tmp_path: Path) -> Path:
    for kind, colours in {"warm": ("red", "yellow"), "cold": ("blue", "cyan")}.items():
        (tmp_path / "photos" / kind).mkdir(parents=True)
        for colour in colours:
            (tmp_path / "photos" / kind / f"{colour}.png").write_bytes(solid(colour))
    return tmp_path / "photos"


def test_a_folder_per_class_gives_the_classes(class_folders: Path) -> None:
    pictures = load(class_folders)
    assert pictures.classes == ("cold", "warm")
    assert told(pictures) == [
        ("cold/blue.png", "cold"),
        ("cold/cyan.png", "cold"),
        ("warm/red.png", "warm"),
        ("warm/yellow.png", "warm"),
    ]
    assert pictures.labelled
    assert pictures.pixels_nhwc.shape == (4, 16, 16, 3)
    assert pictures.pixels_nhwc[2].reshape(-1, 3).tolist() == [list(COLOURS["red"])] * 256


def test_a_flat_folder_and_one_with_a_single_folder_have_no_classes(class_folders: Path) -> None:
    assert not load(class_folders / "warm").labelled
    (class_folders / "cold").rename(class_folders.parent / "elsewhere")
    assert told(load(class_folders)) == [("warm/red.png", None), ("warm/yellow.png", None)]


def test_pictures_beside_class_folders_are_unlabelled(class_folders: Path) -> None:
    (class_folders / "green.png").write_bytes(solid("green"))
    pictures = load(class_folders)
    assert not pictures.labelled
    assert sorted(pictures.labels.tolist()) == [-1, 0, 0, 1, 1]


def test_classes_are_left_aside_where_they_are_not_wanted(class_folders: Path) -> None:
    pictures = load(class_folders, labels=False)
    assert pictures.classes == ()
    assert pictures.unlabelled == len(pictures) == 4
    assert classes_found(pictures) is None
    (class_folders / "list.csv").write_text("image,label\nwarm/red.png,7\n")
    (class_folders / "classes.json").write_text('["a", "b"]')
    assert told(load(class_folders / "list.csv", labels=False)) == [("warm/red.png", None)]


def test_the_classes_are_told_with_what_they_were_taken_from(class_folders: Path, tmp_path: Path) -> None:
    assert classes_found(load(class_folders)) == "classes: cold, warm (the names of its folders)"
    (class_folders / "green.png").write_bytes(solid("green"))
    assert classes_found(load(class_folders)) == (
        "classes: cold, warm (the names of its folders); 1 of 5 pictures have none"
    )
    assert classes_found(load(class_folders / "warm")) is None
    (class_folders / "list.csv").write_text("image,kind\ngreen.png,0\n")
    listed = load(class_folders / "list.csv", columns=PictureColumns(label="kind"))
    assert classes_found(listed) == "classes: 0 (the column 'kind' of list.csv)"
    members = {f"{i}.{kind}": data for i in range(7) for kind, data in (("png", solid("red")), ("cls", b"%d" % i))}
    shard = write_shard(tmp_path / "a.tar", members)
    assert classes_found(load(shard)) == "classes: 0, 1, 2, 3, 4 and 2 more (the .cls files)"


def test_the_order_is_the_same_wherever_the_folder_lies(class_folders: Path, tmp_path: Path) -> None:
    before = load(class_folders)
    after = load(class_folders.rename(tmp_path / "moved"))
    assert before.names == after.names
    assert before.digest() == after.digest()


def test_the_digest_tells_pictures_classes_and_order(class_folders: Path) -> None:
    before = load(class_folders).digest()
    (class_folders / "warm/red.png").rename(class_folders / "cold/red.png")
    assert load(class_folders).digest() != before


@pytest.mark.parametrize("other", ["test", "val"])
def test_parts_of_a_data_set_are_not_taken_for_classes(class_folders: Path, tmp_path: Path, other: str) -> None:
    class_folders.rename(tmp_path / "train")
    (tmp_path / other).mkdir()
    with pytest.raises(DataError, match=r"holds the parts (test, )?train(, val)?: name one of them, such as .*/train$"):
        load(tmp_path)


@pytest.mark.parametrize("kind", ["jsonl", "csv", "tsv", "parquet"])
def test_lists_name_pictures_and_classes(class_folders: Path, kind: str) -> None:
    rows = [("warm/red.png", "hot"), ("cold/blue.png", "icy"), ("cold/cyan.png", "icy")]
    path = class_folders / f"list.{kind}"
    match kind:
        case "jsonl":
            path.write_text("".join(json.dumps({"image": i, "label": c}) + "\n" for i, c in rows))
        case "parquet":
            pq.write_table(pa.table({"image": [i for i, _ in rows], "label": [c for _, c in rows]}), path)
        case _:
            separator = "," if kind == "csv" else "\t"
            path.write_text("\n".join(separator.join(row) for row in [("image", "label"), *rows]) + "\n")
    pictures = load(path)
    assert pictures.classes == ("hot", "icy")
    assert told(pictures) == rows


def test_a_labels_file_in_a_folder_gives_the_classes(class_folders: Path) -> None:
    (class_folders / "labels.jsonl").write_text('{"image": "warm/red.png", "label": "fire"}\n')
    assert told(load(class_folders)) == [("warm/red.png", "fire")]


def test_columns_and_the_folder_of_pictures_may_be_named(class_folders: Path, tmp_path: Path) -> None:
    path = tmp_path / "list.csv"
    path.write_text("file,kind\nred.png,a\nyellow.png,b\n")
    pictures = load(path, columns=PictureColumns("file", "kind"), images=class_folders / "warm")
    assert told(pictures) == [("red.png", "a"), ("yellow.png", "b")]


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_a_label_column_that_was_asked_for_has_to_be_there(class_folders: Path, kind: str) -> None:
    path = class_folders / f"list.{kind}"
    if kind == "csv":
        path.write_text("image,label\nwarm/red.png,a\n")
    else:
        pq.write_table(pa.table({"image": ["warm/red.png"], "label": ["a"]}), path)
    with pytest.raises(DataError, match=rf"list.{kind} has no column 'klass' for the classes"):
        load(path, columns=PictureColumns(label="klass"))


def test_rows_without_a_class_are_unlabelled(class_folders: Path) -> None:
    path = class_folders / "list.jsonl"
    rows = [{"image": "warm/red.png", "label": -1}, {"image": "cold/blue.png"}, {"image": "cold/cyan.png", "label": 7}]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert told(load(path)) == [("warm/red.png", None), ("cold/blue.png", None), ("cold/cyan.png", "7")]


def test_encoded_pictures_in_parquet_are_read(tmp_path: Path) -> None:
    # Data sets of Hugging Face keep the last part of a path only: 1.png of one class, 1.png of another.
    named = (("red", "1.png"), ("blue", "1.png"), ("cyan", None))
    images = [{"bytes": solid(colour), "path": path} for colour, path in named]
    pq.write_table(pa.table({"image": images, "label": [1, 0, -1]}), tmp_path / "list.parquet")
    pictures = load(tmp_path / "list.parquet")
    assert told(pictures) == [("row 1 (1.png)", "1"), ("row 2 (1.png)", "0"), ("row 3", None)]
    assert [int(row[0, 0, 2]) for row in pictures.pixels_nhwc] == [0, 255, 255]
    pq.write_table(pa.table({"image": [solid("red")]}), tmp_path / "bytes.parquet")
    assert told(load(tmp_path / "bytes.parquet")) == [("row 1", None)]


def test_numbers_are_classes_in_their_own_order(class_folders: Path) -> None:
    path = class_folders / "list.csv"
    path.write_text("image,label\nwarm/red.png,10\ncold/blue.png,9\n")
    assert load(path).classes == ("9", "10")


def test_a_pipe_is_no_file_to_wait_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.tar")
    for path in (tmp_path / "pipe.tar", tmp_path / "*.tar", tmp_path):
        with pytest.raises(DataError, match=r"pipe.tar cannot be read: is a pipe or a device, not a file"):
            load(path)
    os.mkfifo(tmp_path / "pipe.png")
    (tmp_path / "list.csv").write_text("image\npipe.png\n")
    with pytest.raises(DataError, match=r"1 of 1 .* is pipe.png: is a pipe or a device, not a file"):
        load(tmp_path / "list.csv")


def test_unreadable_and_too_small_pictures_are_left_out_and_named(class_folders: Path) -> None:
    (class_folders / "warm/broken.png").write_bytes(b"no picture")
    (class_folders / "warm/tiny.png").write_bytes(solid("red", size=(15, 40)))
    pictures = load(class_folders, max_unreadable_share=0.5)
    assert len(pictures) == len(pictures.labels) == len(pictures.digests) == len(pictures.pixels_nhwc) == 4
    assert list(pictures.unreadable) == ["warm/broken.png", "warm/tiny.png"]
    assert pictures.unreadable["warm/tiny.png"].startswith("is 15x40, smaller than the crop of 16")
    assert [int(row[0, 0, 0]) for row in pictures.pixels_nhwc] == [0, 0, 255, 255]


def test_too_many_unusable_pictures_stop_the_run(class_folders: Path) -> None:
    broken = [class_folders / f"warm/broken{i}.png" for i in range(4)]
    for file in broken:
        file.write_bytes(b"no picture")
    with pytest.raises(
        DataError, match=r"4 of 8 pictures cannot be used, 3 at most may be so: remove them; the .* warm/b"
    ):
        load(class_folders)
    for file in broken:
        file.unlink()
    with pytest.raises(DataError, match=r"4 of 4 pictures cannot be used; .*with augment.size"):
        load(class_folders, smallest=64, side=64, max_unreadable_share=1.0)


def test_a_limit_keeps_the_classes_mixed(class_folders: Path) -> None:
    assert told(load(class_folders, limit=2)) == [("cold/blue.png", "cold"), ("warm/red.png", "warm")]
    assert len(load(class_folders, limit=9)) == 4


def test_many_pictures_go_to_the_disk(class_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_cache, "IN_MEMORY_BYTES", 100)
    spilled, held = load(class_folders, spill=tmp_path), load(class_folders)
    assert isinstance(spilled.pixels_nhwc, np.memmap)
    assert np.array_equal(spilled.pixels_nhwc, held.pixels_nhwc)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("none", None, "no pictures at .*none: name a folder, a list .* or .tar shards"),
        ("empty", "", "there are no pictures in"),
        ("list.txt", "red.png", "name a folder, a list"),
        ("list.jsonl", '{"picture": "a.png"}', "line 1 has no column 'image'; its columns are: picture"),
        ("list.jsonl", '{"image": "a.png", "label": 1.5}', "label must be a text or a whole number, found 1.5"),
        ("list.jsonl", '{"image": "a.png", "label": ["x"]}', "label must be a text or a whole number, found \\['x'\\]"),
        ("list.jsonl", '{"image": 3}', "image must be the path of a picture"),
        ("list.jsonl", f'{{"image": "a.png", "label": {"9" * 5000}}}', "line 1 holds a number that is too long"),
        ("list.jsonl", '{"image": "a.png", "label": "\\ud800"}', "line 1: label holds half of a surrogate pair"),
        ("list.csv", f"image,label\na.png,{'9' * 5000}\n", "line 2: label has 5,000 characters, more than 1,000"),
        ("list.csv", "image,label\na.png,x\na.png,y\n", "line 3: a.png is 'x' above and 'y' here"),
        ("list.parquet", "no parquet", "not a Parquet file we can read"),
        ("list.jsonl", '{"image": "a\\u0000.png"}', "1 of 1 .* no file can have this name"),
        ("list.jsonl", '{"image": "missing.png"}', "1 of 1 .* No such file"),
    ],
)
def test_sources_that_cannot_be_read_say_why(tmp_path: Path, name: str, content: str | None, message: str) -> None:
    path = tmp_path / name
    if content == "":
        path.mkdir()
    elif content is not None:
        path.write_text(content)
    with pytest.raises(DataError, match=message):
        load(path)
