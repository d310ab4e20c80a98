from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.picture_sources import write_shard
from tests.support.pictures import solid
from twinlens.training.data.pair_shards import ShardFields, list_pair_shard


@pytest.mark.parametrize("weight", [b"1" + b"0" * 400, b"1e39", b"-1", b"true", b'"x"', b"null", b"NaN"])
def test_a_weight_that_is_none_makes_a_sample_unusable(tmp_path: Path, weight: bytes) -> None:
    members = {"a.png": solid("red"), "a.json": b'{"caption": "a", "w": %s}' % weight}
    members |= {"b.png": solid("blue"), "b.json": b'{"caption": "b", "w": 3.4e38}'}
    found = list_pair_shard(write_shard(tmp_path / "x.tar", members), ShardFields(weight="w"))
    assert [(row.caption, row.weight) for row in found.rows] == [("b", 3.4e38)]
    assert found.problems == {"x.tar/a": "its 'w' is no number from 0"}


def test_a_caption_that_no_tokenizer_takes_makes_its_sample_unusable_and_not_the_shard(tmp_path: Path) -> None:
    members = {"a.png": solid("red"), "a.json": b'{"caption": ["red", "half \\ud800"]}'}
    members |= {"b.png": solid("blue"), "b.txt": b"bl\0ue", "c.png": solid("cyan"), "c.txt": b"cyan"}
    found = list_pair_shard(write_shard(tmp_path / "x.tar", members), ShardFields())
    assert [row.caption for row in found.rows] == ["cyan"]
    told = "a caption of it cannot be used: the text contains a "
    assert found.problems == {
        "x.tar/a": f"{told}lone surrogate (half a character) at position 5",
        "x.tar/b": f"{told}NUL character",
    }


def test_what_comes_twice_in_a_shard_is_used_once_and_told(tmp_path: Path) -> None:
    one = write_shard(tmp_path / "1.tar", {"a.png": solid("red"), "a.txt": b"red"}).read_bytes()
    members = {"a.png": solid("blue"), "a.txt": b"blue", "b.png": solid("cyan"), "b.txt": b"cyan"}
    other = write_shard(tmp_path / "2.tar", members).read_bytes()
    end = one.rindex(b"red") // 512 * 512 + 512
    (tmp_path / "both.tar").write_bytes(one[:end] + other)
    found = list_pair_shard(tmp_path / "both.tar", ShardFields())
    assert [(row.id, row.caption, row.picture.read()) for row in found.rows] == [
        ("both.tar/a", "red", solid("red")),
        ("both.tar/b", "cyan", solid("cyan")),
    ]
    assert found.problems == {"both.tar/a (again)": "a.txt is there twice; the first one is used"}
