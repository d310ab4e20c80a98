from __future__ import annotations

import dataclasses
from itertools import islice

import numpy as np
import pytest
import torch

from twinlens.encoders.tokenise import TextTokenizer
from twinlens.training.checkpoint import DualEncoderSpec
from twinlens.training.data.batches import Batch, PairBatches
from twinlens.training.data.errors import DataError
from twinlens.training.data.hard_share import HardShare
from twinlens.training.data.mined import MinedTable, tie
from twinlens.training.data.pairs import Pairs, from_scenes, tokenise
from twinlens.training.data.scenes import Scene
from twinlens.training.mining.manifest import Kind, MinedNegatives


@pytest.fixture
def pairs(scenes: list[Scene], tiny_spec: DualEncoderSpec) -> Pairs:
    return tokenise(from_scenes(scenes[:20]), tiny_spec.tokenizer_json, tiny_spec.text)


def rows(batch: Batch, pairs: Pairs) -> list[int]:
    """Which pairs a batch holds, found by their unique pictures; behind its pairs, the extra pictures."""
    row_of = {pairs.pixels_nhwc[slot].tobytes(): row for row, slot in enumerate(pairs.slots)}
    assert len(row_of) == len(pairs)
    return [row_of[picture.numpy().tobytes()] for picture in batch.pixels_nhwc]


def text_rows(batch: Batch, pairs: Pairs) -> list[int]:
    """The same by their unique captions."""
    row_of = {ids.tobytes(): row for row, ids in enumerate(pairs.token_ids_ml[: len(pairs)])}
    assert len(row_of) == len(pairs)
    return [row_of[ids.numpy().tobytes()] for ids in batch.token_ids_nl]


def mined(*triples: tuple[str, str, Kind]) -> MinedNegatives:
    anchors, negatives, kinds = zip(*triples, strict=True)
    count = len(triples)
    return MinedNegatives(anchors, negatives, kinds, [0.5] * count, [0.9] * count, [1] * count, [""] * count, "s")


def test_batches_have_their_size_and_pictures_meet_their_captions(pairs: Pairs, scenes: list[Scene]) -> None:
    for batch in islice(PairBatches(pairs, 8, seed=0), 6):
        assert batch.pairs == len(batch.pixels_nhwc) == len(batch.token_ids_nl) == 8
        for k, row in enumerate(rows(batch, pairs)):
            assert np.array_equal(batch.pixels_nhwc[k].numpy(), np.asarray(scenes[row].image))
            assert np.array_equal(batch.token_ids_nl[k].numpy(), pairs.token_ids_ml[row])


def test_every_pair_is_seen_equally_often_and_never_twice_in_a_batch(pairs: Pairs) -> None:
    seen = np.zeros(20, dtype=int)
    for number, batch in enumerate(islice(PairBatches(pairs, 6, seed=0), 50), 1):
        chosen = rows(batch, pairs)
        assert len(set(chosen)) == 6
        seen[chosen] += 1
        if number % 10 == 0:  # 60 pairs: three whole epochs
            assert seen.max() - seen.min() <= 1
    assert (seen == 15).all()


def test_the_order_is_a_function_of_the_seed(pairs: Pairs) -> None:
    def order(seed: int) -> list[list[int]]:
        return [rows(batch, pairs) for batch in islice(PairBatches(pairs, 6, seed=seed), 5)]

    assert order(1) == order(1)
    assert order(1) != order(2)


def test_mined_negatives_follow_the_pairs_they_were_mined_for(pairs: Pairs) -> None:
    ids = pairs.ids
    table = tie(mined((ids[0], ids[5], "text"), (ids[0], ids[6], "text"), (ids[1], ids[7], "image")), pairs)
    for batch in islice(PairBatches(pairs, 4, seed=0, mined=table, share=HardShare(2, 1)), 20):
        chosen = rows(batch, pairs)[:4]
        assert text_rows(batch, pairs) == chosen + ([5, 6] if 0 in chosen else [])
        assert rows(batch, pairs) == chosen + ([7] if 1 in chosen else [])


def test_the_share_limits_how_many_negatives_are_drawn(pairs: Pairs) -> None:
    texts = np.tile(np.arange(10), (20, 1))
    table = MinedTable(texts, np.full((20, 0), -1), 0)
    drawn = set()
    for batch in islice(PairBatches(pairs, 2, seed=0, mined=table, share=HardShare(1, 3)), 40):
        extra = text_rows(batch, pairs)[2:]
        assert 1 <= len(extra) <= 2
        assert len(batch.pixels_nhwc) == 2
        drawn.update(extra)
    assert len(drawn) > 5


def test_mined_pairs_take_the_place_of_others(pairs: Pairs) -> None:
    ids = pairs.ids
    families = [(ids[i], ids[j], "text") for i in range(20) for j in range(20) if i != j and i // 4 == j // 4]
    table = tie(mined(*families), pairs)  # type: ignore[arg-type]
    seen = np.zeros(20, dtype=int)
    for batch in islice(PairBatches(pairs, 8, seed=0, mined=table, share=HardShare(pairs_per_anchor=3)), 40):
        chosen = rows(batch, pairs)
        assert len(set(chosen)) == batch.pairs == len(batch.pixels_nhwc) == len(batch.token_ids_nl) == 8
        assert len({row // 4 for row in chosen}) == 2  # two whole families
        seen[chosen] += 1
    assert seen.min() > 5


def test_rows_of_other_data_are_counted(pairs: Pairs) -> None:
    table = tie(mined((pairs.ids[0], pairs.ids[1], "text"), ("elsewhere", pairs.ids[1], "text")), pairs)
    assert table.unknown_rows == 1
    assert table.texts.tolist()[0] == [1]


def test_a_manifest_of_other_data_is_refused(pairs: Pairs) -> None:
    with pytest.raises(DataError, match="names ids of the training data"):
        tie(mined(("a", "b", "text")), pairs)
    with pytest.raises(DataError, match="holds no rows"):
        tie(MinedNegatives([], [], [], [], [], [], [], "s"), pairs)


def test_each_epoch_shows_another_caption_of_a_picture(scenes: list[Scene], tiny_spec: DualEncoderSpec) -> None:
    raw = from_scenes(scenes[:6])
    # Pictures 0 and 1 have three captions each, of which one is the same.
    starts, counts = np.array([0, 2, 5, 6, 7, 8]), np.array([3, 3, 1, 1, 1, 1])
    listed = dataclasses.replace(
        raw.listed,
        captions=tuple("abcdefghi"),
        caption_ids=tuple("abcdefghi"),
        first_captions=starts,
        caption_counts=counts,
    )
    pairs = tokenise(dataclasses.replace(raw, listed=listed), tiny_spec.tokenizer_json, tiny_spec.text)
    shown: list[list[int]] = [[] for _ in range(6)]
    row_of = {ids.tobytes(): row for row, ids in enumerate(pairs.token_ids_ml)}
    for batch in islice(PairBatches(pairs, 6, seed=0), 6):
        order = rows(batch, pairs)
        for row, ids in zip(order, batch.token_ids_nl, strict=True):
            shown[row].append(row_of[ids.numpy().tobytes()])
        zero, one = order.index(0), order.index(1)
        # They are equals only where one is shown with what the other is known to have.
        assert bool(batch.equal_texts[zero, one]) == (shown[0][-1] == 2 or shown[1][-1] == 2)
    assert all(
        sorted(shown[row][:3]) == sorted(shown[row][3:]) == [starts[row] + k for k in range(3)] for row in (0, 1)
    )
    assert {len(set(shown[row])) for row in range(2, 6)} == {1}


def test_captions_shared_by_several_pairs_are_right_for_all_of_them(
    scenes: list[Scene], tiny_spec: DualEncoderSpec
) -> None:
    raw = from_scenes(scenes[:5])
    listed = dataclasses.replace(
        raw.listed,
        captions=("a dog", "one dog", "a cat", "one cat"),
        caption_ids=(),
        first_captions=np.array([0, 0, 2, 2, 2]),
        caption_counts=np.full(5, 2),
    )
    pairs = tokenise(dataclasses.replace(raw, listed=listed), tiny_spec.tokenizer_json, tiny_spec.text)
    assert pairs.text_keys[:4].tolist() == [0, 0, 1, 1]
    assert pairs.classes.tolist() == [0, 0, 1, 1, 1]
    for batch in islice(PairBatches(pairs, 5, seed=0), 4):
        dog = torch.tensor([row < 2 for row in rows(batch, pairs)])
        assert torch.equal(batch.equal_texts, dog[:, None] == dog[None, :])


def test_wrong_captions_of_a_pair_are_there_to_be_drawn(scenes: list[Scene], tiny_spec: DualEncoderSpec) -> None:
    pairs = tokenise(from_scenes(scenes[:20]), tiny_spec.tokenizer_json, tiny_spec.text)
    tokens = TextTokenizer(tiny_spec.tokenizer_json.encode(), tiny_spec.text)
    for row, scene in enumerate(scenes[:20]):
        expected = [tokens(text).ids for text in scene.negatives.values()]
        found = [pairs.token_ids_ml[k] for k in pairs.wrong_texts[row] if k >= 0]
        assert [tuple(ids[ids != tiny_spec.text.pad_id]) for ids in found] == expected
    table = MinedTable(pairs.wrong_texts, np.full((20, 0), -1), 0)
    batch = next(iter(PairBatches(pairs, 4, seed=0, mined=table, share=HardShare(3))))
    assert len(batch.token_ids_nl) > 8
    assert not batch.equal_texts[:, 4:].all(dim=0).any()


def test_rare_captions_come_as_often_as_frequent_ones_where_classes_are_balanced(pairs: Pairs) -> None:
    unequal = dataclasses.replace(pairs, classes=np.array([0] * 16 + [1] * 4))
    for balance, expected in ((0.0, 0.2), (1.0, 0.5)):
        seen = [row for b in islice(PairBatches(unequal, 4, seed=0, balance=balance), 50) for row in rows(b, pairs)]
        assert np.mean(np.array(seen) >= 16) == pytest.approx(expected, abs=0.02)


def test_weights_of_pairs_travel_with_their_batch(pairs: Pairs) -> None:
    weighted = dataclasses.replace(pairs, weights=np.arange(20, dtype=np.float32))
    batch = next(iter(PairBatches(weighted, 6, seed=0, rank=1, world_size=2)))
    assert batch.weights is not None
    assert batch.weights.tolist() == rows(batch, pairs)
    assert next(iter(PairBatches(pairs, 6, seed=0))).weights is None


def test_batches_are_numbered_from_where_they_start(pairs: Pairs) -> None:
    whole, rest = PairBatches(pairs, 6, seed=0), PairBatches(pairs, 6, seed=0, start=3)
    for one, other in zip(islice(whole, 3, 6), islice(rest, 3), strict=True):
        assert one.number == other.number
        assert rows(one, pairs) == rows(other, pairs)


def test_ranks_cut_parts_of_one_batch(pairs: Pairs) -> None:
    ids = pairs.ids
    table = tie(mined(*((ids[i], ids[(i + 7) % 20], kind) for i in range(20) for kind in ("text", "image"))), pairs)
    whole = PairBatches(pairs, 6, seed=0, mined=table, share=HardShare(1, 1))
    shares = [PairBatches(pairs, 6, seed=0, mined=table, share=HardShare(1, 1), rank=r, world_size=2) for r in (0, 1)]
    for one, *parts in islice(zip(whole, *shares, strict=True), 8):
        assert [part.first for part in parts] == [0, 3]
        for field in ("token_ids_nl", "pixels_nhwc"):
            own = torch.cat([getattr(part, field)[:3] for part in parts])
            extra = torch.cat([getattr(part, field)[3:] for part in parts])
            assert torch.equal(own, getattr(one, field)[:6])
            assert torch.equal(extra, getattr(one, field)[6:])  # six different ones: both have equally many
        assert torch.equal(torch.cat([part.equal_texts for part in parts]), one.equal_texts)
        assert torch.equal(torch.cat([part.equal_images for part in parts]), one.equal_images)


def test_all_ranks_have_equally_many_extra_captions(pairs: Pairs) -> None:
    ids = pairs.ids
    table = tie(mined(*((ids[i], ids[i % 3], "text") for i in range(3, 20))), pairs)
    shares = [PairBatches(pairs, 6, seed=0, mined=table, share=HardShare(1), rank=r, world_size=2) for r in (0, 1)]
    left_out = set(range(3))
    for parts in islice(zip(*shares, strict=True), 10):
        counts = {len(part.token_ids_nl) for part in parts}
        assert len(counts) == 1
        extra = [row for part in parts for row in text_rows(part, pairs)[3:]]
        assert len(set(extra)) == len(extra) == parts[0].equal_texts.shape[1] - 6
        left_out &= set(extra) ^ {0, 1, 2}
    assert not left_out  # not the same one in every batch


def test_a_batch_that_the_ranks_cannot_share_is_refused(pairs: Pairs) -> None:
    with pytest.raises(DataError, match="batch_size 7 is not a multiple of the 2 processes"):
        PairBatches(pairs, 7, seed=0, world_size=2)


@pytest.mark.parametrize(("size", "message"), [(1, "at least 2"), (0, "at least 2"), (21, "larger than the data")])
def test_batches_that_teach_nothing_or_cannot_be_filled_are_refused(pairs: Pairs, size: int, message: str) -> None:
    with pytest.raises(DataError, match=message):
        PairBatches(pairs, size, seed=0)


@pytest.mark.parametrize(("key", "what"), [("image_keys", "picture"), ("text_keys", "caption")])
def test_pairs_that_are_all_equals_are_refused(pairs: Pairs, key: str, what: str) -> None:
    same = dataclasses.replace(pairs, **{key: np.zeros_like(getattr(pairs, key))})
    with pytest.raises(DataError, match=f"all 20 pairs have the same {what}, .* teaches nothing"):
        PairBatches(same, 4, seed=0)
    table = tie(mined((pairs.ids[0], pairs.ids[1], "text")), pairs)
    PairBatches(same, 4, seed=0, mined=table)


def test_a_single_sample_is_refused(scenes: list[Scene], tiny_spec: DualEncoderSpec) -> None:
    one = tokenise(from_scenes(scenes[:1]), tiny_spec.tokenizer_json, tiny_spec.text)
    with pytest.raises(DataError, match="at least 2 are needed"):
        PairBatches(one, 2, seed=0)


def test_a_batch_moves_between_devices(pairs: Pairs) -> None:
    batch = next(iter(PairBatches(pairs, 4, seed=0))).to(torch.device("meta"))
    assert batch.pixels_nhwc.device.type == "meta"
    assert batch.pairs == 4
