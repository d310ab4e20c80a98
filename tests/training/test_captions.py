from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.preprocess import load_pixels
from twinlens.training.checkpoint import DualEncoderSpec
from twinlens.training.data import picture_cache
from twinlens.training.data.captions import CaptionColumns, read_captions
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pairs import CaptionedPicture
from twinlens.training.data.listed_pictures import ListedPicture
from twinlens.training.data.pairs import from_captions, tokenise

SPEC = PreprocessSpec(size=16, resize_size=16, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))


def jsonl(folder: Path, rows: list[object]) -> Path:
    path = folder / "captions.jsonl"
    path.write_text("\n".join(json.dumps(row) for row in rows) + "\n")
    return path


def captioned(identity: str, file: Path, caption: str) -> CaptionedPicture:
    return CaptionedPicture(identity, ListedPicture(file.name, None, file), caption)


def picture(folder: Path, name: str, colour: tuple[int, int, int], size: tuple[int, int] = (40, 24)) -> Path:
    Image.new("RGB", size, colour).save(folder / name)
    return folder / name


def test_jsonl_rows_keep_their_order_and_ids(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path, [{"image": "a.png", "caption": "one", "id": "x"}, {"image": "b.png", "caption": "two", "id": 7}]
    )
    assert read_captions(path) == [
        captioned("x", tmp_path / "a.png", "one"),
        captioned("7", tmp_path / "b.png", "two"),
    ]


def test_ids_are_made_from_the_picture_and_stay_unique(tmp_path: Path) -> None:
    path = jsonl(
        tmp_path,
        [
            {"image": "a.png", "caption": ["one", "two"]},
            {"image": "b.png", "caption": "three"},
            {"image": "a.png", "caption": "four"},
        ],
    )
    assert [row.id for row in read_captions(path)] == ["a.png", "a.png#1", "b.png", "a.png#2"]


@pytest.mark.parametrize(("name", "delimiter"), [("rows.csv", ","), ("rows.tsv", "\t")])
def test_tables_are_read_by_column_name(tmp_path: Path, name: str, delimiter: str) -> None:
    path = tmp_path / name
    path.write_text(delimiter.join(["title", "filepath"]) + "\n" + delimiter.join(["a cat", "cats/1.jpg"]) + "\n")
    (row,) = read_captions(path, CaptionColumns(image="filepath", caption="title"), images=tmp_path / "photos")
    picture = ListedPicture("cats/1.jpg", None, tmp_path / "photos/cats/1.jpg")
    assert row == CaptionedPicture("cats/1.jpg", picture, "a cat")


def test_a_byte_order_mark_does_not_hide_the_first_column(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("\ufeffimage,caption\na.png,one\n", encoding="utf-8")
    assert read_captions(path)[0].caption == "one"


def test_a_limit_reads_no_further(tmp_path: Path) -> None:
    path = jsonl(tmp_path, [{"image": f"{i}.png", "caption": "c"} for i in range(5)])
    assert len(read_captions(path, limit=3)) == 3


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "holds no rows"),
        ("\n\n", "holds no rows"),
        ("{", "line 1 is not JSON"),
        ("[1]", "line 1 is not a JSON object"),
        ('{"image": "a.png", "text": "one"}', "has no column 'caption'; its columns are: image, text"),
        ('{"image": "a.png", "caption": ""}', "caption must be a text"),
        ('{"image": 3, "caption": "c"}', "image must be a text"),
        ('{"image": "a.png", "caption": null}', "line 1: caption is empty"),
        ('{"image": "a.png", "caption": []}', "caption must be a text"),
        ('{"image": "a.png", "caption": "c", "id": [1]}', "line 1: id must be a text or a whole number"),
        ("[" * 100_000, "line 1 is nested too deeply"),
        (f'{{"image": "a.png", "caption": "c", "id": {"9" * 5000}}}', "line 1 holds a number that is too long"),
        (
            '{"image": "a", "caption": "c", "id": 1}\n{"image": "b", "caption": "c", "id": 1}',
            "the id '1' more than once",
        ),
    ],
)
def test_broken_files_are_refused_with_line_and_reason(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "captions.jsonl"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_captions(path)


def test_a_named_id_column_must_exist(tmp_path: Path) -> None:
    path = jsonl(tmp_path, [{"image": "a.png", "caption": "c"}])
    with pytest.raises(DataError, match="no column 'key'"):
        read_captions(path, CaptionColumns(id="key"))


@pytest.mark.parametrize(
    ("name", "message"),
    [("no.jsonl", "no captions file"), ("rows.parquet", "not a Parquet file"), ("rows.xml", "not a captions file")],
)
def test_missing_and_unknown_files_are_refused(tmp_path: Path, name: str, message: str) -> None:
    if not name.startswith("no"):
        (tmp_path / name).write_bytes(b"PAR1")
    with pytest.raises(DataError, match=message):
        read_captions(tmp_path / name)


def test_parquet_may_hold_pictures_as_paths_bytes_or_both(tmp_path: Path) -> None:
    file = picture(tmp_path, "red.png", (255, 0, 0))
    ids = []
    for k, image in enumerate(["red.png", file.read_bytes(), {"bytes": file.read_bytes(), "path": "x.png"}]):
        path = tmp_path / f"{k}.parquet"
        rows = [{"photo": image, "text": ["one", "two"]}, {"photo": image, "text": ["three"]}]
        pq.write_table(pa.Table.from_pylist(rows), path)
        found = read_captions(path, CaptionColumns(image="photo", caption="text"))
        assert [row.caption for row in found] == ["one", "two", "three"]
        raw = from_captions(found, SPEC, max_unreadable_share=0)
        assert (raw.pixels_nhwc[raw.slots][..., 0] == 255).all()
        ids.append([row.id for row in found])
    assert ids[0] == ["red.png", "red.png#1", "red.png#2"]
    assert ids[1] == ["row 1", "row 1#1", "row 2"]
    assert ids[2] == ["row 1 (x.png)", "row 1 (x.png)#1", "row 2 (x.png)"]


def test_a_parquet_file_without_the_column_is_refused(tmp_path: Path) -> None:
    pq.write_table(pa.table({"image": ["a.png"], "text": ["a"]}), tmp_path / "rows.parquet")
    with pytest.raises(DataError, match="no column 'caption'; its columns are: image, text"):
        read_captions(tmp_path / "rows.parquet")


def test_wrong_captions_are_a_text_a_list_or_the_values_of_an_object(tmp_path: Path) -> None:
    given = ["a", ["a", "b", "a"], {"swap": "c", "colour": "d"}, None, ""]
    path = jsonl(tmp_path, [{"image": "a.png", "caption": "one", "wrong": value} for value in given])
    found = read_captions(path, CaptionColumns(wrong="wrong"))
    assert [row.wrong for row in found] == [("a",), ("a", "b"), ("c", "d"), (), ()]
    assert [row.wrong for row in read_captions(path)] == [()] * 5
    with pytest.raises(DataError, match="line 1 has no column 'negatives'"):
        read_captions(path, CaptionColumns(wrong="negatives"))


def test_rows_may_have_a_class(tmp_path: Path) -> None:
    path = jsonl(tmp_path, [{"image": "a.png", "caption": "one", "label": label} for label in ("cat", 3, None, -1)])
    assert [row.label for row in read_captions(path, CaptionColumns(label="label"))] == ["cat", "3", None, None]
    with pytest.raises(DataError, match="line 1 has no column 'class'"):
        read_captions(path, CaptionColumns(label="class"))


def test_rows_may_weigh_more_or_less(tmp_path: Path) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("image,caption,weight\na.png,one,0.5\nb.png,two,2\n")
    assert [row.weight for row in read_captions(path, CaptionColumns(weight="weight"))] == [0.5, 2.0]
    for value, message in [
        ("-1", "must be a number from 0, found '-1'"),
        ("x", "number"),
        ("1e39", "must be a number from 0, found '1e39'"),
        ("9" * 4000, "must be a number from 0, found a longer one"),
        ("", "weight is empty"),
    ]:
        path.write_text(f"image,caption,weight\na.png,one,{value}\n")
        with pytest.raises(DataError, match=message):
            read_captions(path, CaptionColumns(weight="weight"))
    path.write_text("image,caption,weight\na.png,one,0\n")
    with pytest.raises(DataError, match="every weight is 0"):
        read_captions(path, CaptionColumns(weight="weight"))


def test_bytes_that_are_not_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_bytes(b"image,caption\na,\xff\xfe\n")
    with pytest.raises(DataError, match="not UTF-8"):
        read_captions(tmp_path / "rows.csv")


def test_pictures_are_those_that_serving_sees(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    file = tmp_path / "noise.png"
    Image.fromarray(rng.integers(0, 256, (37, 53, 3), dtype=np.uint8)).save(file)
    raw = from_captions([captioned("n", file, "noise")], SPEC, max_unreadable_share=0)
    ours = (raw.pixels_nhwc[0].astype(np.float32) / 255 - np.array(SPEC.mean, np.float32)) / np.array(
        SPEC.std, np.float32
    )
    np.testing.assert_allclose(ours.transpose(2, 0, 1), load_pixels(file.read_bytes(), SPEC), atol=1e-6)


def test_captions_of_one_picture_share_its_pixels(tmp_path: Path) -> None:
    red, twin = picture(tmp_path, "red.png", (255, 0, 0)), picture(tmp_path, "twin.png", (255, 0, 0))
    rows = [captioned("a", red, "one"), captioned("b", red, "two"), captioned("c", twin, "three")]
    raw = from_captions(rows, SPEC, max_unreadable_share=0)
    assert raw.slots.tolist() == [0, 0, 1]
    assert len(raw.pixels_nhwc) == 2
    assert len(set(raw.image_digests)) == 1


def test_unreadable_pictures_are_left_out_named_once_and_pairing_stays(tmp_path: Path) -> None:
    colours = {f"{i}.png": (i * 40, 0, 255 - i * 40) for i in range(6)}
    files = {name: picture(tmp_path, name, colour) for name, colour in colours.items()}
    files["2.png"].write_bytes(b"not a picture")
    rows = [captioned(f"{name}/{k}", file, name) for name, file in files.items() for k in range(2)]
    rows.append(captioned("gone", tmp_path / "gone.png", "gone"))
    raw = from_captions(rows, SPEC, max_unreadable_share=0.5)
    assert list(raw.unreadable) == ["2.png", "gone.png"]
    assert len(raw.ids) == 10
    for caption, slot in zip(raw.captions, raw.slots, strict=True):
        assert tuple(raw.pixels_nhwc[slot, 0, 0]) == colours[caption]


def test_too_many_unreadable_pictures_stop_the_run(tmp_path: Path) -> None:
    rows = [captioned(str(i), tmp_path / f"{i}.png", "c") for i in range(6)]
    for row in rows[:2]:
        picture(tmp_path, row.picture.name, (1, 2, 3))
    message = r"4 of 6 .*, 3 at most .*data.max_unreadable_share; the first is .*2\.png: No such file"
    with pytest.raises(DataError, match=message):
        from_captions(rows, SPEC, max_unreadable_share=0.25)


def test_names_that_no_file_can_have_are_unreadable(tmp_path: Path) -> None:
    rows = [captioned(name, tmp_path / name, "c") for name in ("a\0b.png", "a\ud800b.png")]
    rows.append(captioned("red", picture(tmp_path, "red.png", (255, 0, 0)), "c"))
    raw = from_captions(rows, SPEC, max_unreadable_share=1)
    assert raw.ids == ("red",)
    assert list(raw.unreadable.values()) == ["no file can have this name"] * 2


def test_a_pipe_is_unreadable(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.png")
    rows = [captioned("pipe", tmp_path / "pipe.png", "c")]
    rows.append(captioned("red", picture(tmp_path, "red.png", (255, 0, 0)), "c"))
    raw = from_captions(rows, SPEC, max_unreadable_share=1)
    assert raw.unreadable == {"pipe.png": "is a pipe or a device, not a file"}


def test_nothing_but_unreadable_pictures_is_refused_whatever_the_share(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"1 of 1 pictures cannot be used; the first is .*gone\.png"):
        from_captions([captioned("a", tmp_path / "gone.png", "c")], SPEC, max_unreadable_share=1)


def test_no_pictures_at_all_is_refused() -> None:
    with pytest.raises(DataError, match="no pictures"):
        from_captions([], SPEC, max_unreadable_share=1)


def test_large_sets_live_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(picture_cache, "IN_MEMORY_BYTES", 100)
    file = picture(tmp_path, "red.png", (255, 0, 0))
    raw = from_captions([captioned("a", file, "c")], SPEC, max_unreadable_share=0, spill=tmp_path)
    assert isinstance(raw.pixels_nhwc, np.memmap)
    assert (raw.pixels_nhwc[0, :, :, 0] == 255).all()
    assert [found.name for found in tmp_path.iterdir()] == ["red.png"]  # the file has no name to leave behind


def test_a_disk_without_room_for_a_large_set_is_told_before_decoding(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(picture_cache, "IN_MEMORY_BYTES", 100)
    monkeypatch.setattr("os.posix_fallocate", full)
    file = picture(tmp_path, "red.png", (255, 0, 0))
    with pytest.raises(DataError, match=r"has no room for the decoded pictures .*: No space left"):
        from_captions([captioned("a", file, "c")], SPEC, max_unreadable_share=0, spill=tmp_path)


def test_the_digest_of_the_data_follows_its_content(tmp_path: Path) -> None:
    file = picture(tmp_path, "red.png", (255, 0, 0))
    one = from_captions([captioned("a", file, "c")], SPEC, max_unreadable_share=0).digest()
    assert one == from_captions([captioned("a", file, "c")], SPEC, max_unreadable_share=0).digest()
    assert one != from_captions([captioned("a", file, "d")], SPEC, max_unreadable_share=0).digest()
    picture(tmp_path, "red.png", (254, 0, 0))
    assert one != from_captions([captioned("a", file, "c")], SPEC, max_unreadable_share=0).digest()


def test_pictures_that_decode_to_the_same_have_equal_keys(tmp_path: Path, tiny_spec: DualEncoderSpec) -> None:
    png, other = picture(tmp_path, "red.png", (255, 0, 0)), picture(tmp_path, "blue.png", (0, 0, 255))
    Image.open(png).save(tmp_path / "red.bmp")
    rows = [captioned(file.name, file, "a red circle") for file in (png, tmp_path / "red.bmp", other)]
    pairs = tokenise(from_captions(rows, SPEC, max_unreadable_share=0), tiny_spec.tokenizer_json, tiny_spec.text)
    assert pairs.image_keys.tolist() == [0, 0, 1]


def test_captions_that_say_the_same_have_equal_keys(tmp_path: Path, tiny_spec: DualEncoderSpec) -> None:
    file = picture(tmp_path, "red.png", (255, 0, 0))
    captions = ["a red circle", "A red  circle.", "a blue ring", "word " * 50 + "one", "word " * 50 + "two"]
    rows = [captioned(str(i), file, caption) for i, caption in enumerate(captions)]
    pairs = tokenise(from_captions(rows, SPEC, max_unreadable_share=0), tiny_spec.tokenizer_json, tiny_spec.text)
    assert pairs.text_keys.tolist() == [0, 0, 1, 2, 2]  # the last two are cut to the same


def test_equal_captions_have_equal_keys_and_empty_ones_are_refused(tmp_path: Path, tiny_spec: DualEncoderSpec) -> None:
    file = picture(tmp_path, "red.png", (255, 0, 0))
    rows = [captioned(str(i), file, c) for i, c in enumerate(["a red circle", "a blue ring", "A red circle"])]
    pairs = tokenise(from_captions(rows, SPEC, max_unreadable_share=0), tiny_spec.tokenizer_json, tiny_spec.text)
    assert pairs.text_keys.tolist() == [0, 1, 0]
    assert pairs.image_keys.tolist() == [0, 0, 0]
    assert pairs.token_ids_ml.shape == (3, 24)
    blank = from_captions([captioned("x", file, "  ")], SPEC, max_unreadable_share=0)
    with pytest.raises(DataError, match="caption of 'x' cannot be used"):
        tokenise(blank, tiny_spec.tokenizer_json, tiny_spec.text)
