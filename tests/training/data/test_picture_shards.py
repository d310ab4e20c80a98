from __future__ import annotations

import tarfile
from pathlib import Path

import numpy as np
import pytest

from tests.support.picture_sources import load, told, write_shard
from tests.support.pictures import solid
from twinlens.training.data.errors import DataError


def test_shards_hold_pictures_and_numbers_of_classes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_shard(tmp_path / "train/b.tar", {"1.jpg": solid("blue", "JPEG"), "1.cls": b"0\n"})
    a = {"x/1.cls": b"1", "x/1.png": solid("red"), "x/1.json": b"{}", "2.png": solid("cyan"), "2.cls": b"-1"}
    write_shard(tmp_path / "train/a.tar", a)
    (tmp_path / "classes.json").write_text('["cold", "warm"]')
    pictures = load(tmp_path / "train")
    assert pictures.classes == ("cold", "warm")
    assert told(pictures) == [("a.tar/x/1.png", "warm"), ("a.tar/2.png", None), ("b.tar/1.jpg", "cold")]
    assert told(load(tmp_path / "train/b.tar")) == [("b.tar/1.jpg", "cold")]
    assert len(load(tmp_path / "train/[ab].tar")) == 3
    monkeypatch.chdir(tmp_path / "train")
    assert load(Path("a.tar")).classes == load(Path()).classes == ("cold", "warm")


def test_a_shard_that_is_cut_off_or_compressed_is_named(tmp_path: Path) -> None:
    whole = write_shard(tmp_path / "whole.tar", {"1.png": solid("red"), "2.png": solid("blue")})
    (tmp_path / "cut.tar").write_bytes(whole.read_bytes()[:700])
    with pytest.raises(DataError, match=r"cut.tar is not a whole, uncompressed tar file"):
        load(tmp_path / "cut.tar")
    # Half of its members, each of them whole.
    with tarfile.open(whole) as tar:
        (tmp_path / "ends.tar").write_bytes(whole.read_bytes()[: tar.getmembers()[1].offset])
    with pytest.raises(DataError, match=r"ends.tar is cut off: the mark that ends a tar file is missing"):
        load(tmp_path / "ends.tar")
    with tarfile.open(tmp_path / "packed.tar", "w:gz") as tar:
        tar.add(whole, "1.png")
    with pytest.raises(DataError, match=r"packed.tar is not a whole, uncompressed tar file"):
        load(tmp_path / "packed.tar")


def test_a_shard_with_a_damaged_header_is_named(tmp_path: Path) -> None:
    whole = write_shard(tmp_path / "whole.tar", {"1.png": solid("red"), "2.png": solid("blue"), "3.png": solid("red")})
    with tarfile.open(whole) as tar:
        second = tar.getmembers()[1].offset
    content = bytearray(whole.read_bytes())
    content[second + 148 : second + 156] = b"no sum!!"
    whole.write_bytes(content)
    with pytest.raises(DataError, match=rf"whole.tar is damaged at byte {second:,}"):
        load(whole)


def test_one_empty_block_ends_a_shard_and_a_shard_may_be_empty(tmp_path: Path) -> None:
    whole = write_shard(tmp_path / "a.tar", {"1.png": solid("red")})
    with tarfile.open(whole) as tar:
        tar.getmembers()
        whole.write_bytes(whole.read_bytes()[: tar.offset + 512])
    write_shard(tmp_path / "b.tar", {})
    assert load(tmp_path).names == ("a.tar/1.png",)


@pytest.mark.parametrize(
    ("names", "label", "message"),
    [
        ('{"a": 1}', "0", "must be a JSON list of class names"),
        ('["a", "a"]', "0", "names a class twice"),
        ("[", "0", "cannot be read as JSON"),
        ("[" * 100_000, "0", "cannot be read as JSON"),
        ('["a", "\\ud800"]', "0", "classes.json: a class holds half of a surrogate pair"),
        ('["a", "b"]', "2", "the label '2' is not among the 2 classes a, b"),
    ],
)
def test_classes_that_do_not_fit_their_names_are_refused(tmp_path: Path, names: str, label: str, message: str) -> None:
    write_shard(tmp_path / "a.tar", {"1.png": solid("red"), "1.cls": label.encode()})
    (tmp_path / "classes.json").write_text(names)
    with pytest.raises(DataError, match=message):
        load(tmp_path)


@pytest.mark.shared
def test_the_shared_shards_are_read(shared_data: Path) -> None:
    pictures = load(shared_data / "cifar10_shards/test", side=32, smallest=32, limit=200)
    assert len(pictures) == 200
    assert pictures.classes[:2] == ("airplane", "automobile")
    assert np.bincount(pictures.labels).min() > 5
    with pytest.raises(DataError, match="holds the parts test, train"):
        load(shared_data / "cifar10_shards")
