"""What `twinlens train clip` makes of data, good and bad, as a person types it."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.command_runs import Ran
from tests.support.file_host import file_host
from tests.support.picture_sources import write_shard
from tests.support.pictures import COLOURS, solid
from twinlens.__main__ import main
from twinlens.client import Client, NewItem
from twinlens.server.local import local_server

MODEL = """
[model.config]
embed_dim = 8
vision_cfg = { image_size = 16, layers = 1, width = 16, head_width = 8, patch_size = 16 }
text_cfg = { context_length = 16, width = 16, heads = 2, layers = 1 }
[train]
steps = 2
batch_size = 4
threads = 1
"""
Train = Callable[..., Ran]


@pytest.fixture
def train(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Train:
    def run(data: str, *settings: str, more: str = "") -> Ran:
        (tmp_path / "clip.toml").write_text(f"[data]\n{data}\n{MODEL}{more}")
        given = [part for setting in settings for part in ("--set", setting)]
        capsys.readouterr()
        code = main(["train", "clip", str(tmp_path / "clip.toml"), "--out", str(tmp_path / "run"), "--json", *given])
        told = capsys.readouterr()
        return Ran(code, told.out, told.err)

    return run


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """A picture of each colour, and captions of all of them."""
    folder = tmp_path / "photos"
    folder.mkdir()
    for colour in COLOURS:
        (folder / f"{colour}.png").write_bytes(solid(colour))
    rows = [{"image": f"photos/{colour}.png", "caption": [f"all {colour}", f"{colour} paint"]} for colour in COLOURS]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return folder


def shard(path: Path) -> Path:
    members: dict[str, bytes] = {}
    for colour in COLOURS:
        members |= {f"{colour}.png": solid(colour), f"{colour}.txt": f"all {colour}".encode()}
    return write_shard(path, members)


def test_every_caption_of_a_file_is_a_pair_or_every_picture_is(photos: Path, train: Train, tmp_path: Path) -> None:
    done = train('source = "captions"\npath = "captions.jsonl"')
    assert done.code == 0, done.err
    assert done.json["pairs"] == 16
    assert json.loads((tmp_path / "run/data.json").read_text())["pictures"] == 8


def test_pictures_may_lie_inside_of_a_parquet_file_and_be_seen_with_one_caption_at_a_time(
    photos: Path, train: Train, tmp_path: Path
) -> None:
    rows = [{"image": {"bytes": solid(c), "path": "x.png"}, "caption": [f"all {c}", f"{c} paint"]} for c in COLOURS]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "captions.parquet")
    done = train('source = "captions"\npath = "captions.parquet"\ncaptions_per_picture = "one"\nbalance = "class"')
    assert done.code == 0, done.err
    assert done.json["pairs"] == 8


def test_labelled_folders_train_with_templates(train: Train, tmp_path: Path) -> None:
    for label, colours in {"warm": ("red", "yellow"), "cold": ("blue", "cyan", "green")}.items():
        (tmp_path / "classes" / label).mkdir(parents=True)
        for colour in colours:
            (tmp_path / "classes" / label / f"{colour}.png").write_bytes(solid(colour))
    done = train('source = "folder"\npath = "classes"\ntemplates = "simple"\nbalance = 0.5')
    assert done.code == 0, done.err
    assert done.json["pairs"] == 5


@pytest.mark.parametrize("streaming", ["false", "true"])
def test_shards_train_from_a_host(train: Train, tmp_path: Path, streaming: str) -> None:
    shard(tmp_path / "shards/0.tar")
    with file_host(tmp_path / "shards") as host:
        done = train(f'source = "shards"\npath = "{host.address}/{{0..0}}.tar"\nstreaming = {streaming}')
    assert done.code == 0, done.err
    assert done.json["pairs"] == 8
    assert not list((tmp_path / "run").glob("shards*"))
    assert ("1 shard, read while training, 2 steps of 4\n" in done.err) == (streaming == "true")


def test_a_live_collection_trains(train: Train, tiny_bundle: Path) -> None:
    with local_server(bundle=tiny_bundle) as target, Client(target) as client:
        client.create_collection("paint")
        client.upsert("paint", [NewItem(solid(colour), f"all {colour}", colour) for colour in COLOURS])
        done = train(f'source = "collection"\nname = "paint"\nserver = "{target}"')
    assert done.code == 0, done.err
    assert done.json["pairs"] == 8


CAPTIONS = 'source = "captions"\npath = "captions.jsonl"'
SHARDS = 'source = "shards"\npath = "x.tar"'


@pytest.mark.parametrize(
    ("files", "data", "message"),
    [
        ({}, CAPTIONS, "no captions file at "),
        ({"captions.jsonl": ""}, CAPTIONS, "captions.jsonl holds no rows"),
        ({"captions.jsonl": '{"image": "gone.png", "caption": "a"}'}, CAPTIONS, "1 of 1 pictures cannot be used"),
        (
            {"captions.jsonl": '{"photo": "a.png", "caption": "a"}'},
            CAPTIONS,
            "has no column 'image'; its columns are: ",
        ),
        ({"captions.jsonl": '{"image": "a.png", "text": "a"}'}, CAPTIONS, "has no column 'caption'; its columns are: "),
        ({"captions.jsonl": '{"image": "a.png", "caption": ""}'}, CAPTIONS, "caption must be a text that is not empty"),
        (
            {"captions.jsonl": '{"image": "red.png", "caption": "a"}\n{"image": "red.png", "caption": " ", "id": 7}'},
            CAPTIONS,
            "the caption of '7' cannot be used",
        ),
        ({"captions.jsonl": '{"image": "red.png", "caption": " "}'}, CAPTIONS, "the captions hold no words to learn"),
        (
            {"captions.jsonl": '{"image": "red.png", "caption": "a"}'},
            CAPTIONS + '\nweight_column = "w"',
            "has no column 'w'; its columns are: image, caption",
        ),
        (
            {"captions.jsonl": '{"image": "red.png", "caption": "a"}'},
            CAPTIONS,
            "1 usable pair(s) in the data: at least 2",
        ),
        (
            {"captions.jsonl": "\n".join(f'{{"image": "red.png", "caption": "{k}"}}' for k in range(3))},
            CAPTIONS,
            "batch_size 4 is larger than the data (3 pairs to train on)",
        ),
        ({"captions.parquet": "no"}, CAPTIONS.replace("jsonl", "parquet"), "captions.parquet is not a Parquet file"),
        ({"captions.xlsx": "no"}, CAPTIONS.replace("jsonl", "xlsx"), "is not a captions file we read (.jsonl, .csv"),
        ({}, SHARDS, "no shards at "),
        ({"x.tar": ""}, SHARDS, "x.tar is not a whole, uncompressed tar file: empty file"),
        ({"x.tar": "no tar " * 100}, SHARDS + "\nstreaming = true", "x.tar is not a whole, uncompressed tar file"),
        ({}, 'source = "folder"\npath = "nowhere"', "no pictures at "),
        ({"sub/a.txt": "a"}, 'source = "folder"\npath = "sub"', "there are no pictures in "),
        ({}, 'source = "folder"\npath = "."', "have no classes to make captions of: put them in one folder per class"),
        (
            {},
            'source = "collection"\nname = "c"\nserver = "127.0.0.1:9"',
            "the collection 'c' at 127.0.0.1:9 cannot be",
        ),
        ({}, 'source = "folders"\npath = "x"', "data.source must be 'scenes', 'captions', 'folder', 'shards' or"),
        ({}, CAPTIONS + "\nimages_column = 1", "unknown key data.images_column; perhaps data.image_column"),
    ],
)
def test_bad_data_is_told_in_a_line_before_the_first_step(
    train: Train, tmp_path: Path, files: Mapping[str, str], data: str, message: str
) -> None:
    (tmp_path / "red.png").write_bytes(solid("red"))
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(content)
    assert message in train(data).failed()
    assert not (tmp_path / "run/metrics.csv").exists()


def test_a_batch_of_one_is_refused(photos: Path, train: Train, tmp_path: Path) -> None:
    line = train(CAPTIONS, "train.batch_size=1").failed()
    assert "batch_size must be at least 2: one pair has no negatives, its loss is 0 and teaches nothing" in line
    shard(tmp_path / "x.tar")
    assert "batch_size must be at least 2" in train(SHARDS, "train.batch_size=1", "data.streaming=true").failed()


def test_missing_pictures_are_counted_and_named_once(photos: Path, train: Train) -> None:
    (photos / "red.png").unlink()
    done = train(CAPTIONS)
    assert done.code == 0
    assert done.json["unreadable"] == {"photos/red.png": "No such file or directory"}
    (photos.parent / "run").rename(photos.parent / "first")
    refused = train(CAPTIONS, "data.max_unreadable_share=0").failed()
    assert "1 of 8 pictures cannot be used, 0 at most may be so: remove them, or allow more with data.max_" in refused
