from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from tests.support.file_host import file_host
from tests.support.picture_sources import write_shard
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.tokenise import TextTokenizer
from twinlens.training.checkpoint import DualEncoderSpec
from twinlens.training.data.batches import Batch
from twinlens.training.data.errors import DataError
from twinlens.training.data.pair_shards import ShardFields
from twinlens.training.data.shard_names import shard_names
from twinlens.training.data.shard_stream import ShardStream
from twinlens.training.data.streamed_pairs import StreamedPairs

SPEC = PreprocessSpec(size=16, resize_size=16, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))


def png(number: int) -> bytes:
    """A picture that tells its number by its colour."""
    file = io.BytesIO()
    Image.new("RGB", (16, 16), (number, 255 - number, 7)).save(file, "PNG")
    return file.getvalue()


def numbers(batch: Batch) -> list[int]:
    return [int(number) for number in batch.pixels_nhwc[:, 0, 0, 0]]


def flat(batches: list[list[int]]) -> list[int]:
    return list(chain.from_iterable(batches))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three shards of 10, 6 and 8 samples; picture k has the caption "number k"."""
    for shard, rows in enumerate([range(10), range(10, 16), range(16, 24)]):
        members: dict[str, bytes] = {}
        for k in rows:
            members |= {f"{k}.png": png(k), f"{k}.txt": f"number {k}".encode()}
        write_shard(tmp_path / f"shards/{shard}.tar", members)
    return tmp_path / "shards"


@pytest.fixture
def pairs_of(tmp_path: Path, tiny_spec: DualEncoderSpec) -> Any:
    def make(where: Path | str, size: int = 4, *, share: float = 0.5, **changes: Any) -> StreamedPairs:
        ranks = {key: changes[key] for key in ("rank", "world_size") if key in changes}
        buffer, seed = changes.pop("buffer", 5), changes.pop("seed", 0)
        names = shard_names(str(where))
        stream = ShardStream(names, ShardFields(), seed=seed, buffer=buffer, folder=tmp_path / "brought", **ranks)
        arguments = {"max_unreadable_share": share, **changes}
        return StreamedPairs(stream, SPEC, tiny_spec.tokenizer_json, tiny_spec.text, size, **arguments)

    return make


def drawn(batches: Iterator[Batch] | StreamedPairs, count: int) -> list[list[int]]:
    return [numbers(batch) for batch in islice(batches, count)]


def test_every_sample_comes_once_an_epoch_in_a_new_order(folder: Path, pairs_of: Any) -> None:
    epochs = [flat(drawn(pairs_of(folder, start=6 * e), 6)) for e in range(3)]
    assert all(sorted(epoch) == list(range(24)) for epoch in epochs)
    assert len({tuple(epoch) for epoch in epochs}) == 3
    assert flat(drawn(pairs_of(folder), 18)) == flat(epochs)


def test_captions_stay_with_their_pictures(folder: Path, pairs_of: Any, tiny_spec: DualEncoderSpec) -> None:
    tokenizer = TextTokenizer(tiny_spec.tokenizer_json.encode(), tiny_spec.text)
    for batch in islice(pairs_of(folder), 6):
        assert batch.pairs == 4
        assert batch.token_ids_nl.shape == (4, tiny_spec.text.context_length)
        for number, ids in zip(numbers(batch), batch.token_ids_nl.tolist(), strict=True):
            expected = tokenizer(f"number {number}").ids
            assert tuple(ids[: len(expected)]) == expected
        assert torch.equal(batch.equal_texts, torch.eye(4, dtype=torch.bool))


def test_the_order_is_a_function_of_the_seed(folder: Path, pairs_of: Any) -> None:
    assert drawn(pairs_of(folder, seed=1), 8) == drawn(pairs_of(folder, seed=1), 8)
    assert drawn(pairs_of(folder, seed=1), 8) != drawn(pairs_of(folder, seed=2), 8)


@pytest.mark.parametrize("size", [3, 5, 7])
def test_a_run_goes_on_at_any_batch(folder: Path, pairs_of: Any, size: int) -> None:
    whole = drawn(pairs_of(folder, size), 20)
    for start in (1, 4, 11, 17):
        batches = pairs_of(folder, size, start=start)
        assert drawn(batches, 3) == whole[start : start + 3]
        assert next(iter(batches)).number == start


def test_without_a_buffer_pictures_keep_the_order_of_the_shards(folder: Path, pairs_of: Any) -> None:
    order = flat(drawn(pairs_of(folder, buffer=0), 6))
    shards = [range(10), range(10, 16), range(16, 24)]
    assert any(order == [k for shard in (a, b, c) for k in shard] for a in shards for b in shards for c in shards)


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_ranks_share_the_samples_of_an_epoch_also_where_there_are_more_of_them_than_shards(
    folder: Path, tmp_path: Path, ranks: int
) -> None:
    for number in range(3):
        seen: Counter[str] = Counter()
        for rank in range(ranks):
            stream = ShardStream(
                shard_names(str(folder)),
                ShardFields(),
                seed=3,
                buffer=4,
                folder=tmp_path / "b",
                rank=rank,
                world_size=ranks,
            )
            samples = list(stream.epoch(number))
            assert samples
            assert len(samples) == stream.count(number)
            seen.update(sample.caption for sample in samples)
        assert seen == Counter({f"number {k}": 1 for k in range(24)})


def test_a_rank_whose_shard_is_short_goes_on_with_its_next_epoch(tmp_path: Path, pairs_of: Any) -> None:
    """As the last shard of most sets is."""
    for name, rows in {"0": range(1, 21), "1": range(21, 24)}.items():
        write_shard(
            tmp_path / f"shards/{name}.tar",
            {f"{k}{end}": data for k in rows for end, data in ((".png", png(k)), (".txt", b"%d" % k))},
        )
    seen: Counter[int] = Counter()
    for rank in range(2):
        options = {"rank": rank, "world_size": 2, "gather": lambda own: torch.cat([own, own])}
        batches = drawn(pairs_of(tmp_path / "shards", 16, **options), 200)
        assert drawn(pairs_of(tmp_path / "shards", 16, start=9, **options), 2) == batches[9:11]
        seen.update(flat(batches))
    assert seen.keys() == set(range(1, 24))


def test_equals_are_known_among_the_pairs_of_all_ranks(tmp_path: Path, pairs_of: Any) -> None:
    members: dict[str, bytes] = {}
    for k, (picture, caption) in enumerate(
        [(1, "A"), (1, "b"), (2, "b."), (3, "c"), (4, "d"), (5, "e"), (6, "f"), (7, "a")]
    ):
        members |= {f"{k}.png": png(picture), f"{k}.txt": caption.encode()}
    write_shard(tmp_path / "x.tar", members)
    told: dict[int, torch.Tensor] = {}
    for rank in range(2):
        next(
            iter(
                pairs_of(
                    tmp_path / "x.tar",
                    8,
                    rank=rank,
                    world_size=2,
                    gather=lambda own, r=rank: told.setdefault(r, own).repeat(2, 1),
                )
            )
        )
    everyone = torch.cat([told[0], told[1]])
    parts = [
        next(iter(pairs_of(tmp_path / "x.tar", 8, rank=rank, world_size=2, gather=lambda _: everyone)))
        for rank in range(2)
    ]
    assert [part.first for part in parts] == [0, 4]
    equal = torch.cat([part.equal_texts for part in parts])
    assert equal.shape == (8, 8)
    assert torch.equal(equal, equal.T)
    order = numbers(parts[0]) + numbers(parts[1])
    # 1 and 7 say A; 1 and 2 say b; and what is right for a picture's other caption is right for it.
    connected = {(1, 1), (1, 2), (2, 1), (1, 7), (7, 1)}
    for i, one in enumerate(order):
        for j, other in enumerate(order):
            if (one, other) not in connected:
                assert bool(equal[i, j]) == (i == j)
    assert equal[[i for i, k in enumerate(order) if k == 1]][:, [i for i, k in enumerate(order) if k == 1]].all()


def test_broken_samples_are_named_once_and_the_next_ones_take_their_places(folder: Path, pairs_of: Any) -> None:
    whole = drawn(pairs_of(folder), 12)
    members = {f"{k}.png": png(k) for k in range(10)} | {f"{k}.txt": f"number {k}".encode() for k in range(10)}
    write_shard(folder / "0.tar", members | {"3.png": b"no picture", "5.png": png(5)[:40]})
    batches = pairs_of(folder)
    found = drawn(batches, 12)
    assert batches.unreadable.keys() == {"0.tar/3.png", "0.tar/5.png"}
    good = [number for batch in whole for number in batch]
    for k, (before, after) in enumerate(zip(whole, found, strict=True)):
        usable = [number for number in before if number not in {3, 5}]
        following = [number for number in good[4 * k + 4 :] if number not in {3, 5}]
        if len(following) >= 4:
            assert after == usable + following[: 4 - len(usable)]
    assert drawn(pairs_of(folder, start=5), 4) == found[5:9]


def test_too_many_broken_samples_stop_the_run(folder: Path, pairs_of: Any) -> None:
    members = {f"{k}.png": b"no" for k in range(10)} | {f"{k}.txt": f"number {k}".encode() for k in range(10)}
    write_shard(folder / "0.tar", members)
    with pytest.raises(DataError, match=r"[4-9] of \d+ pictures cannot be used, 3 at most .*data.max_unreadable_share"):
        drawn(pairs_of(folder, 2, share=0.01), 30)
    with pytest.raises(DataError, match=r"cannot be used"):
        drawn(pairs_of(folder / "0.tar", 2, share=1.0), 30)


def test_broken_samples_that_come_first_are_a_share_of_all_that_the_shard_holds(tmp_path: Path, pairs_of: Any) -> None:
    members = {f"{k}{end}": data for k in range(200) for end, data in ((".png", png(k)), (".txt", b"%d" % k))}
    write_shard(tmp_path / "x.tar", members | {f"{k}.png": b"no" for k in range(5)})
    batches = pairs_of(tmp_path / "x.tar", 8, buffer=0, share=0.03)
    assert flat(drawn(batches, 2)) == [5, 6, 7, *range(8, 13), *range(8, 16)]
    assert len(batches.unreadable) == 5


def test_the_end_of_a_shard_that_is_cut_off_is_counted(folder: Path, pairs_of: Any) -> None:
    shard = folder / "1.tar"
    shard.write_bytes(shard.read_bytes()[:5000])
    batches = pairs_of(folder)
    drawn(batches, 6)
    assert "the rest of 1.tar" in batches.unreadable


def test_shards_from_a_host_are_on_the_disk_only_while_they_are_read(
    folder: Path, pairs_of: Any, tmp_path: Path
) -> None:
    with file_host(folder) as host:
        where = host.address + "/{0..2}.tar"
        batches = pairs_of(where)
        first = drawn(batches, 18)
        assert sorted(flat(first[:6])) == list(range(24))
        # Those being read, and four that are brought ahead.
        assert len(list((tmp_path / "brought").iterdir())) <= 7
        batches.close()
        later = pairs_of(where, start=5)
        assert drawn(later, 2) == first[5:7]
        later.close()
    assert not any(tmp_path.glob("brought/*"))


def test_broken_samples_of_shards_of_one_name_are_each_counted(folder: Path, pairs_of: Any, tmp_path: Path) -> None:
    members = {f"{k}.png": png(k) for k in range(4)} | {f"{k}.txt": f"number {k}".encode() for k in range(4)}
    for part in "ab":
        write_shard(tmp_path / part / "0.tar", members | {"9.txt": b"alone"})
    batches = pairs_of(f"{tmp_path}/{{a,b}}/0.tar", 2)
    drawn(batches, 4)
    assert batches.unreadable.keys() == {f"{tmp_path}/{part}/0.tar/9" for part in "ab"}


def test_several_captions_of_a_picture_take_turns(tmp_path: Path, pairs_of: Any) -> None:
    members = {"1.png": png(1), "1.json": b'{"caption": ["red", "blue", "green"]}', "2.png": png(2), "2.txt": b"x"}
    write_shard(tmp_path / "x.tar", members)
    stream = ShardStream([str(tmp_path / "x.tar")], ShardFields(), seed=0, buffer=5, folder=tmp_path / "b")
    shown = [sample.caption for epoch in range(6) for sample in stream.epoch(epoch) if sample.caption != "x"]
    assert sorted(shown[:3]) == sorted(shown[3:]) == ["blue", "green", "red"]


@pytest.mark.parametrize("gone", [True, False])
def test_a_shard_that_changes_while_it_is_trained_on_ends_the_run(tmp_path: Path, gone: bool) -> None:
    for name in ("a", "b"):
        write_shard(tmp_path / f"{name}.tar", {"1.png": png(1), "1.txt": b"x", "2.png": png(2), "2.txt": b"y"})
    stream = ShardStream(shard_names(str(tmp_path)), ShardFields(), seed=0, buffer=5, folder=tmp_path / "brought")
    assert len(list(stream.epoch(0))) == 4
    (tmp_path / "b.tar").unlink()
    if not gone:
        write_shard(tmp_path / "b.tar", {"1.png": png(1), "1.txt": b"x"})
    reason = "No such file" if gone else "it has other pairs than before"
    with pytest.raises(DataError, match=rf"^b\.tar changed while it is trained on: .*{reason}"):
        list(stream.epoch(1))


def test_data_that_cannot_fill_a_batch_is_refused(folder: Path, tmp_path: Path, pairs_of: Any) -> None:
    with pytest.raises(DataError, match=r"batch_size 25 is larger than the data: an epoch has 24 pairs"):
        next(iter(pairs_of(folder, 25)))
    with pytest.raises(DataError, match=r"batch_size 48 is larger than the data: an epoch has 24 pairs"):
        drawn(pairs_of(folder, 48, rank=1, world_size=2), 4)
    with pytest.raises(DataError, match="at least 2"):
        pairs_of(folder, 1)
    with pytest.raises(DataError, match="not a multiple of the 2 processes"):
        pairs_of(folder, 5, world_size=2)
    write_shard(tmp_path / "empty.tar", {"a.txt": b"a"})
    with pytest.raises(DataError, match=r"1 of 1 pictures cannot be used; the first is empty.tar/a: has no picture"):
        next(iter(pairs_of(tmp_path / "empty.tar", 2)))


def test_weights_travel_where_the_data_has_them(tmp_path: Path, tiny_spec: DualEncoderSpec) -> None:
    members = {
        "1.png": png(1),
        "1.json": b'{"caption": "a", "w": 0.5}',
        "2.png": png(2),
        "2.json": b'{"caption": "b", "w": 2}',
    }
    write_shard(tmp_path / "x.tar", members)
    fields = ShardFields(weight="w")
    stream = ShardStream([str(tmp_path / "x.tar")], fields, seed=0, buffer=5, folder=tmp_path / "b")
    batches = StreamedPairs(
        stream, SPEC, tiny_spec.tokenizer_json, tiny_spec.text, 2, max_unreadable_share=0.0, weighted=True
    )
    batch = next(iter(batches))
    assert batch.weights is not None
    assert dict(zip(numbers(batch), batch.weights.tolist(), strict=True)) == {1: 0.5, 2: 2.0}
