from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from tests.support.picture_sources import write_shard
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.data.stream_source import StreamSource
from twinlens.training.ranks import ALONE, Ranks
from twinlens.training.sections.data import ShardsData

SPEC = PreprocessSpec(size=16, resize_size=16, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))


def source_of(path: str, out: Path, ranks: Ranks = ALONE) -> StreamSource:
    return StreamSource(ShardsData(source="shards", path=path, streaming=True), SPEC, seed=0, out=out, ranks=ranks)


def test_the_digest_of_the_data_follows_names_and_sizes(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_shard(tmp_path / f"shards/{name}.tar", {f"{name}.txt": b"a"})
    path = str(tmp_path / "shards")
    one = source_of(path, tmp_path).digest()
    assert one == source_of(path, tmp_path).digest()
    (tmp_path / "shards/b.tar").write_bytes((tmp_path / "shards/b.tar").read_bytes() + bytes(512))
    assert one != source_of(path, tmp_path).digest()


def test_keys_in_addresses_are_not_recorded_and_may_be_renewed(tmp_path: Path) -> None:
    source = source_of("https://me:KEY@x/{0..1}.tar?s=KEY", tmp_path)
    assert source.shards == ["https://x/0.tar", "https://x/1.tar"]
    assert source_of("https://me:KEY@x/{0..1}.tar?s=NEW", tmp_path).digest() == source.digest()


def test_all_ranks_learn_a_vocabulary_from_the_same_captions(tmp_path: Path) -> None:
    for name in ("a", "b", "c"):
        members = {f"{k}.png": b"not read" for k in range(4)} | {f"{k}.txt": f"{name} {k}".encode() for k in range(4)}
        write_shard(tmp_path / f"shards/{name}.tar", members)
    captions = [source_of(str(tmp_path / "shards"), tmp_path, Ranks(rank, 2, 2)).captions for rank in range(2)]
    assert captions[0] == captions[1]
    assert sorted(captions[0]) == [f"{name} {k}" for name in "abc" for k in range(4)]


@pytest.mark.parametrize("setting", ["balance = 'class'", "limit = 3", "wrong_caption_field = 'w'"])
def test_what_needs_all_pairs_in_sight_cannot_be_streamed(setting: str) -> None:
    content = tomllib.loads(f"source = 'shards'\npath = 'x'\nstreaming = true\n{setting}")
    with pytest.raises(ValidationError, match=rf"{setting.split(maxsplit=1)[0]} needs all pairs in sight"):
        ShardsData.model_validate(content)
