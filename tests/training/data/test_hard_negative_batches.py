from __future__ import annotations

import dataclasses
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.training.conftest import SIZE
from twinlens.training.checkpoint import DualEncoderSpec
from twinlens.training.data.batches import Batch, PairBatches
from twinlens.training.data.errors import DataError
from twinlens.training.data.hard_share import HardShare, hard_share_of
from twinlens.training.data.mined import MinedTable, tie
from twinlens.training.data.pairs import Pairs, from_scenes, tokenise
from twinlens.training.data.scenes import make_scene
from twinlens.training.mining.manifest import MinedNegatives
from twinlens.training.sections.hard_negatives import HardNegativesConfig


@pytest.fixture(scope="module")
def pairs(tiny_spec: DualEncoderSpec) -> Pairs:
    scenes = [make_scene(3, index, SIZE) for index in range(0, 80, 4)]  # no siblings: their captions share no words
    return tokenise(from_scenes(scenes), tiny_spec.tokenizer_json, tiny_spec.text)


def caption_rows(batch: Batch, pairs: Pairs) -> list[int]:
    """Which captions of the data a batch holds, true and wrong ones."""
    row_of = {ids.tobytes(): row for row, ids in reversed(list(enumerate(pairs.token_ids_ml)))}
    return [row_of[ids.numpy().tobytes()] for ids in batch.token_ids_nl]


def test_wrong_captions_of_each_pair_stand_in_the_batch(pairs: Pairs) -> None:
    for batch in islice(PairBatches(pairs, 4, seed=0, share=HardShare(wrong_texts_per_anchor=2)), 10):
        found = caption_rows(batch, pairs)
        own, extra = found[:4], set(found[4:])
        assert len(extra) == len(found) - 4 == 8
        assert all(len(extra & set(pairs.wrong_texts[row].tolist())) == 2 for row in own)
        assert batch.extra_text_weights is None  # each is a negative of all
        assert not batch.equal_texts[:, 4:].any()


def test_confined_ones_count_for_the_pair_they_were_drawn_for_only(pairs: Pairs) -> None:
    share = HardShare(wrong_texts_per_anchor=2, confined=True)
    for batch in islice(PairBatches(pairs, 4, seed=0, share=share), 10):
        found = caption_rows(batch, pairs)
        weights = [[float(column in pairs.wrong_texts[row]) for column in found[4:]] for row in found[:4]]
        assert batch.extra_text_weights is not None
        assert batch.extra_text_weights.tolist() == weights
        assert batch.extra_text_weights.sum() == 8
        assert batch.extra_image_weights is not None
        assert batch.extra_image_weights.shape == (4, 0)


def test_ranks_weigh_the_extras_of_all(pairs: Pairs) -> None:
    share = HardShare(wrong_texts_per_anchor=1, images_per_anchor=1, confined=True)
    table = MinedTable(np.empty((20, 0), dtype=np.int64), np.roll(np.arange(20), 7)[:, None], 0)
    whole, *parts = (
        PairBatches(pairs, 6, seed=0, mined=table, share=share, rank=rank, world_size=size)
        for rank, size in ((0, 1), (0, 2), (1, 2))
    )
    for one, *shared in islice(zip(whole, *parts, strict=True), 8):
        for of in ("extra_text_weights", "extra_image_weights"):
            assert torch.equal(torch.cat([getattr(part, of) for part in shared]), getattr(one, of))
            assert (getattr(one, of).sum(dim=1) == 1).all()


def graded(pairs: Pairs) -> MinedTable:
    """Every pair has the eight others that follow it; the first of them scores least."""
    rows = [(i, (i + k) % 20, 0.1 * k) for k in (3, 1, 2, 8, 7, 5, 4, 6) for i in range(20)]
    anchors, negatives, scores = zip(*rows, strict=True)
    count = len(rows)
    anchor_ids, negative_ids = ([pairs.ids[i] for i in side] for side in (anchors, negatives))
    ones, reasons = [1] * count, [""] * count
    return tie(MinedNegatives(anchor_ids, negative_ids, ["text"] * count, scores, ones, ones, reasons, "s"), pairs)


def test_mined_negatives_are_tied_with_the_hardest_first(pairs: Pairs) -> None:
    assert graded(pairs).texts[5].tolist() == [13, 12, 11, 10, 9, 8, 7, 6]


def test_a_curriculum_goes_from_few_and_easy_to_many_and_hard(pairs: Pairs) -> None:
    share = HardShare(
        texts_per_anchor=2, share_start=0.5, window=0.25, hardness_start=0.0, grown_after=100, confined=True
    )
    per_anchor, steps_away = [], []
    for batch in islice(PairBatches(pairs, 8, seed=0, mined=graded(pairs), share=share), 121):
        found = np.array(caption_rows(batch, pairs))
        assert batch.extra_text_weights is not None
        drawn = batch.extra_text_weights.numpy() > 0
        per_anchor.append(drawn.sum() / 8)
        steps_away.append(((found[None, 8:] - found[:8, None]) % 20)[drawn])
    assert per_anchor[0] == 1.0
    assert per_anchor[100:] == [2.0] * 21
    assert 1.2 < np.mean(per_anchor[40:60]) < 1.8
    assert set(steps_away[0]) <= {1, 2}
    assert set(np.concatenate(steps_away[48:53])) <= {4, 5}
    assert set(np.concatenate(steps_away[100:])) == {7, 8}


@pytest.mark.parametrize("per_anchor", ["texts_per_anchor", "pairs_per_anchor"])
def test_a_run_that_goes_on_draws_what_it_would_have_drawn(pairs: Pairs, per_anchor: str) -> None:
    share = HardShare(**{per_anchor: 2}, wrong_texts_per_anchor=1, share_start=0.3, window=0.5, grown_after=10)  # type: ignore[arg-type]
    table = graded(pairs)
    whole = list(islice(PairBatches(pairs, 6, seed=1, mined=table, share=share), 12))
    rest = list(islice(PairBatches(pairs, 6, seed=1, mined=table, share=share, start=5), 7))
    for one, other in zip(whole[5:], rest, strict=True):
        assert torch.equal(one.token_ids_nl, other.token_ids_nl)
        assert torch.equal(one.pixels_nhwc, other.pixels_nhwc)


def test_wrong_captions_that_are_not_there_are_refused(pairs: Pairs) -> None:
    bare = dataclasses.replace(pairs, wrong_texts=np.empty((20, 0), dtype=np.int64))
    with pytest.raises(DataError, match=r"no wrong captions: .*data\.wrong_caption_column"):
        PairBatches(bare, 4, seed=0, share=HardShare(wrong_texts_per_anchor=1))


def test_a_section_says_how_the_share_grows_over_the_run() -> None:
    section = HardNegativesConfig(
        manifest=Path("mined.parquet"),
        wrong_captions_per_anchor=3,
        confined=True,
        share_start=0.2,
        window=0.5,
        hardness_start=0.1,
        grown_at=0.25,
    )
    assert hard_share_of(section, 400) == HardShare(
        texts_per_anchor=2,
        wrong_texts_per_anchor=3,
        confined=True,
        share_start=0.2,
        window=0.5,
        hardness_start=0.1,
        hardness_end=1.0,
        grown_after=100,
    )
    assert hard_share_of(None, 400) == HardShare()
