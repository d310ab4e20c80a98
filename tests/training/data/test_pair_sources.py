from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.support.file_host import file_host
from tests.support.picture_sources import write_shard
from tests.support.pictures import solid
from twinlens.client import Client, NewItem
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.server.local import local_server
from twinlens.training.data.errors import DataError
from twinlens.training.data.pair_sources import load_pairs
from twinlens.training.data.pairs import RawPairs
from twinlens.training.errors import ConfigError
from twinlens.training.sections.data import CaptionsData, CollectionData, FolderData, ShardsData

SPEC = PreprocessSpec(size=16, resize_size=16, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
COLOURS = {"red": (255, 0, 0), "blue": (0, 0, 255), "cyan": (0, 255, 255), "white": (255, 255, 255)}


def shards(path: Path | str, **changes: object) -> RawPairs:
    return load_pairs(ShardsData(source="shards", path=str(path), **changes), SPEC)  # type: ignore[arg-type]


def told(raw: RawPairs) -> list[tuple[str, str]]:
    """Colour and caption of each pair, one line a caption."""
    colour_of = {colour: name for name, colour in COLOURS.items()}
    found = []
    for i, slot in enumerate(raw.slots):
        first = raw.listed.first_captions[i]
        colour = colour_of[tuple(raw.pixels_nhwc[slot, 0, 0].tolist())]
        found += [(colour, text) for text in raw.captions[first : first + raw.listed.caption_counts[i]]]
    return found


@pytest.fixture
def two_shards(tmp_path: Path) -> Path:
    folder = tmp_path / "shards"
    write_shard(
        folder / "0.tar", {"a.png": solid("red"), "a.txt": b"a red one\n", "b.txt": b"blue", "b.png": solid("blue")}
    )
    record = json.dumps({"caption": ["cyan", "teal"], "wrong": "red", "weight": 0.5}).encode()
    write_shard(folder / "1.tar", {"a.json": record, "a.png": solid("cyan"), "a.cls": b"3"})
    return folder


def test_shards_hold_pictures_and_captions_as_text_or_json(two_shards: Path) -> None:
    raw = shards(two_shards)
    assert told(raw) == [("red", "a red one"), ("blue", "blue"), ("cyan", "cyan"), ("cyan", "teal")]
    assert raw.ids == ("0.tar/a", "0.tar/b", "1.tar/a", "1.tar/a#1")
    assert raw.unreadable == {}
    one = shards(two_shards, captions_per_picture="one")
    assert one.ids == ("0.tar/a", "0.tar/b", "1.tar/a")
    assert told(one) == told(raw)


def test_fields_of_the_json_may_be_named(two_shards: Path) -> None:
    raw = shards(two_shards / "1.tar", caption_field="wrong", wrong_caption_field="caption", weight_field="weight")
    assert told(raw) == [("cyan", "red")]
    assert raw.listed.wrong == (("cyan", "teal"),)
    assert raw.listed.weights is not None
    assert raw.listed.weights.tolist() == [0.5]


def test_broken_samples_are_left_out_and_named_once(tmp_path: Path) -> None:
    members = {
        "a.png": solid("red"),
        "a.txt": b"a",
        "b.png": solid("blue"),
        "c.txt": b"c",
        "d.png": b"no",
        "d.txt": b"d",
    }
    members |= {
        "e.png": solid("cyan"),
        "e.json": b"[]",
        "f.png": solid("cyan"),
        "f.txt": b"\xff",
        "g.png": solid("white"),
    }
    write_shard(tmp_path / "x.tar", members | {"g.json": b'{"text": "g"}', "h.png": solid("white"), "h.txt": b"h"})
    raw = shards(tmp_path / "x.tar", max_unreadable_share=0.9)
    assert told(raw) == [("red", "a"), ("white", "h")]
    assert raw.unreadable == {
        "x.tar/f": "its .txt is not UTF-8 text",
        "x.tar/b": "has no caption",
        "x.tar/c": "has no picture",
        "x.tar/e": "its .json is no JSON object",
        "x.tar/g": "has no caption",
        "x.tar/d.png": raw.unreadable["x.tar/d.png"],
    }
    with pytest.raises(DataError, match=r"6 of 8 pictures cannot be used, 3 at most .* first is x.tar/f: its .txt is"):
        shards(tmp_path / "x.tar", max_unreadable_share=0.1)


def test_encoded_pictures_that_came_with_a_list_go_once_they_are_decoded(tmp_path: Path) -> None:
    rows = [{"image": {"bytes": solid(c), "path": "x.png"}, "caption": c} for c in COLOURS]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "x.parquet")
    raw = load_pairs(CaptionsData(source="captions", path=tmp_path / "x.parquet"), SPEC)
    assert told(raw) == [(colour, colour) for colour in COLOURS]
    assert [picture.name for picture in raw.listed.pictures] == [f"row {k} (x.png)" for k in range(1, 5)]
    assert all(getattr(picture, "data", None) is None for picture in raw.listed.pictures)


def test_what_stands_before_the_end_of_a_shard_that_is_cut_off_is_used(tmp_path: Path) -> None:
    whole = write_shard(
        tmp_path / "x.tar",
        {
            f"{k}{end}": data
            for k, (name, _) in enumerate(COLOURS.items())
            for end, data in ((".png", solid(name)), (".txt", name.encode()))
        },
    )
    whole.write_bytes(whole.read_bytes()[:4400])
    raw = shards(whole, max_unreadable_share=0.5)
    assert told(raw) == [("red", "red"), ("blue", "blue")]
    assert any("not a whole" in reason or "cut off" in reason for reason in raw.unreadable.values())
    with pytest.raises(DataError, match=r"cannot be used"):
        shards(whole, max_unreadable_share=0)


def test_shards_without_a_single_pair_are_refused_in_a_line(tmp_path: Path) -> None:
    write_shard(tmp_path / "empty.tar", {})
    with pytest.raises(DataError, match=r"no sample in .*empty.tar has a picture and a caption"):
        shards(tmp_path / "empty.tar")
    write_shard(tmp_path / "mute.tar", {"a.png": solid("red")})
    with pytest.raises(DataError, match=r"1 of 1 pictures cannot be used; the first is mute.tar/a: has no caption"):
        shards(tmp_path / "mute.tar")
    (tmp_path / "no.tar").write_bytes(b"this is no tar file" * 100)
    with pytest.raises(DataError, match=r"the rest of no.tar: no.tar is not a whole, uncompressed tar file"):
        shards(tmp_path / "no.tar")


def test_shards_come_from_a_host_and_nothing_of_them_stays(
    two_shards: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlens.training.data.fetched_shards.time.sleep", lambda _: None)
    spill = tmp_path / "run"
    spill.mkdir()
    with file_host(two_shards) as host:
        host.answers["/1.tar"] = 2  # twice unavailable
        data = ShardsData(source="shards", path=host.address + "/{0..1}.tar")
        raw = load_pairs(data, SPEC, spill=spill)
        assert host.asked == Counter({"/0.tar": 1, "/1.tar": 3})
        with pytest.raises(DataError, match=r"/2.tar cannot be fetched: the host answered 404"):
            shards(host.address + "/2.tar")
        assert host.asked["/2.tar"] == 1
    assert told(raw) == told(shards(two_shards))
    assert list(spill.iterdir()) == []


def test_shards_come_from_any_file_system_of_fsspec(two_shards: Path) -> None:
    assert told(shards(f"file://{two_shards}/*.tar")) == told(shards(two_shards))
    with pytest.raises(DataError, match=r"gone.tar cannot be fetched: no such file"):
        shards(f"file://{two_shards}/gone.tar")


def test_a_host_that_is_gone_is_told_in_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlens.training.data.fetched_shards.time.sleep", lambda _: None)
    with pytest.raises(DataError, match=r"http://127.0.0.1:9/x.tar cannot be fetched: .*refused"):
        shards("http://127.0.0.1:9/x.tar")


def test_a_limit_counts_pairs(tmp_path: Path) -> None:
    for colour in COLOURS:
        (tmp_path / f"{colour}.png").write_bytes(solid(colour))
    rows = [{"image": f"{colour}.png", "caption": [colour, "paint"], "kind": colour[0]} for colour in COLOURS]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    data = CaptionsData(source="captions", path=tmp_path / "captions.jsonl", limit=3, label_column="kind")
    assert [caption for _, caption in told(load_pairs(data, SPEC))] == ["red", "paint", "blue"]
    by_picture = load_pairs(data.model_copy(update={"captions_per_picture": "one"}), SPEC)
    assert by_picture.ids == ("red.png", "blue.png", "cyan.png")
    assert by_picture.listed.classes is not None
    assert len(set(by_picture.listed.classes.tolist())) == 3


def folder_of_classes(folder: Path) -> Path:
    for label, colours in {"warm_colour": ("red",), "cold": ("blue", "cyan", "white")}.items():
        (folder / label).mkdir(parents=True)
        for colour in colours:
            (folder / label / f"{colour}.png").write_bytes(solid(colour))
    return folder


def test_labelled_pictures_get_captions_from_templates(tmp_path: Path) -> None:
    folder = folder_of_classes(tmp_path)
    raw = load_pairs(FolderData(source="folder", path=folder, templates=("a {} thing", "{}")), SPEC)
    warm = [("red", "a warm colour thing"), ("red", "warm colour")]
    assert told(raw) == [(c, t) for c in ("blue", "cyan", "white") for t in ("a cold thing", "cold")] + warm
    assert raw.listed.classes is not None
    assert raw.listed.classes.tolist() == [0, 0, 0, 1]
    some = load_pairs(FolderData(source="folder", path=folder, limit=2), SPEC)
    assert told(some) == [("blue", "a photo of a cold."), ("white", "a photo of a cold.")]
    assert len(load_pairs(FolderData(source="folder", path=folder, templates="openai"), SPEC).captions) == 160


def test_labels_of_a_list_make_captions_too(tmp_path: Path) -> None:
    folder_of_classes(tmp_path)
    rows = [{"image": "cold/blue.png", "label": "sea"}, {"image": "warm_colour/red.png", "label": "fire"}]
    (tmp_path / "list.jsonl").write_text("\n".join(json.dumps(row) for row in [*rows, {"image": "cold/cyan.png"}]))
    raw = load_pairs(FolderData(source="folder", path=tmp_path / "list.jsonl", templates="plain"), SPEC)
    assert told(raw) == [("blue", "sea"), ("red", "fire")]
    assert raw.unreadable == {"cold/cyan.png": "has no class"}


def test_pictures_without_classes_make_no_captions(tmp_path: Path) -> None:
    (tmp_path / "red.png").write_bytes(solid("red"))
    with pytest.raises(DataError, match="have no classes to make captions of: put them in one folder per class"):
        load_pairs(FolderData(source="folder", path=tmp_path), SPEC)
    with pytest.raises(DataError, match="no pictures at"):
        load_pairs(FolderData(source="folder", path=tmp_path / "gone"), SPEC)
    with pytest.raises(ConfigError, match=r"'a photo' has no \{\} for the name of the class"):
        load_pairs(FolderData(source="folder", path=folder_of_classes(tmp_path), templates=("a photo",)), SPEC)
    with pytest.raises(ConfigError, match="no set is called 'opneai': photo, plain, simple, openai, or a list"):
        load_pairs(FolderData(source="folder", path=tmp_path, templates="opneai"), SPEC)


def test_a_live_collection_is_trained_on_by_its_ids(tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with local_server(bundle=tiny_bundle) as target, Client(target) as client:
        client.create_collection("c")
        items = [
            NewItem(solid(colour), f"all {colour}", colour, metadata={"warm": colour == "red"}) for colour in COLOURS
        ]
        items += [NewItem(None, "a caption alone", "text"), NewItem(solid("black"), "", "mute")]
        assert client.upsert("c", items).stored == 6
        raw = load_pairs(CollectionData(source="collection", name="c", server=target, label_key="warm"), SPEC)
        assert told(raw) == [(colour, f"all {colour}") for colour in sorted(COLOURS)]
        assert raw.ids == tuple(sorted(COLOURS))
        assert raw.listed.classes is not None
        assert raw.listed.classes.tolist() == [0, 0, 1, 0]
        monkeypatch.setenv("TWINLENS_SERVER", target)
        assert len(load_pairs(CollectionData(source="collection", name="c", limit=2), SPEC).ids) == 2
        with pytest.raises(DataError, match=r"the collection 'd' at .* cannot be read: "):
            load_pairs(CollectionData(source="collection", name="d"), SPEC)
        client.create_collection("e")
        with pytest.raises(DataError, match="no item of the collection 'e' has a caption and a picture"):
            load_pairs(CollectionData(source="collection", name="e"), SPEC)


def test_a_collection_needs_a_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TWINLENS_SERVER", raising=False)
    with pytest.raises(ConfigError, match=r"data.server names no server: give HOST:PORT, or set TWINLENS_SERVER"):
        load_pairs(CollectionData(source="collection", name="c"), SPEC)
    with pytest.raises(DataError, match=r"the collection 'c' at 127.0.0.1:9 cannot be read"):
        load_pairs(CollectionData(source="collection", name="c", server="127.0.0.1:9"), SPEC)
    with pytest.raises(ConfigError, match=r"data.server: "):
        load_pairs(CollectionData(source="collection", name="c", server="nowhere"), SPEC)


@pytest.mark.shared
def test_real_shards_of_classes_make_captions(shared_data: Path) -> None:
    path = shared_data / "cifar10_shards"
    data = FolderData(source="folder", path=next(path.rglob("*.tar")).parent, limit=50, templates="simple")
    raw = load_pairs(data, SPEC)
    assert len(raw.ids) == 50
    assert len(set(np.asarray(raw.listed.classes).tolist())) > 5
    assert all("{}" not in caption for caption in raw.captions)


@pytest.mark.shared
def test_real_captions_come_with_minimally_wrong_ones(shared_data: Path) -> None:
    folder = shared_data / "flickr8k_a"
    data = CaptionsData(
        source="captions",
        path=folder / "negatives.jsonl",
        wrong_caption_column="negative_caption",
        label_column="type",
        captions_per_picture="one",
        limit=20,
    )
    raw = load_pairs(data, SPEC)
    assert len(raw) == 20
    assert len(raw.captions) > 20
    for wrong, first, count in zip(raw.listed.wrong, raw.listed.first_captions, raw.listed.caption_counts, strict=True):
        assert wrong
        assert not set(wrong) & set(raw.captions[first : first + count])
