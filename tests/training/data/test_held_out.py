from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from twinlens.training.data.errors import DataError
from twinlens.training.data.held_out import hold_out
from twinlens.training.data.listed_pairs import CaptionedPicture, pair_each, pair_pictures
from twinlens.training.data.listed_pictures import ListedPicture
from twinlens.training.data.pairs import RawPairs


def raw_pairs(pictures: int, captions: int, *, grouped: bool = False) -> RawPairs:
    rows = [
        CaptionedPicture(f"{p}-{c}", ListedPicture(f"p{p}", None, Path()), f"caption {c} of {p}")
        for p in range(pictures)
        for c in range(captions)
    ]
    listed = pair_pictures(rows) if grouped else pair_each(rows)
    slots = np.array([int(identity.split("-")[0]) for identity in listed.ids])
    return RawPairs(
        listed=listed,
        slots=slots,
        image_digests=tuple(f"digest {slot}" for slot in slots),
        pixels_nhwc=np.zeros((pictures, 4, 4, 3), dtype=np.uint8),
        unreadable={"gone.jpg": "no such file"},
    )


@pytest.mark.parametrize("grouped", [False, True])
def test_a_picture_is_held_out_with_all_its_captions(grouped: bool) -> None:
    raw = raw_pairs(20, 5, grouped=grouped)
    train, held = hold_out(raw, 0.2, seed=0)
    assert len(set(held.image_digests)) == 4
    assert not set(train.image_digests) & set(held.image_digests)
    assert sorted(train.captions + held.captions) == sorted(raw.captions)
    assert [*train.ids] == [identity for identity in raw.ids if identity in set(train.ids)]
    assert all(digest == f"digest {slot}" for digest, slot in zip(held.image_digests, held.slots, strict=True))


def test_equal_pictures_stay_together() -> None:
    raw = raw_pairs(20, 1)
    twins = raw.image_digests[:10] * 2
    _, held = hold_out(RawPairs(raw.listed, raw.slots, twins, raw.pixels_nhwc, {}), 0.3, seed=1)
    assert sorted(held.image_digests) == sorted([*set(held.image_digests)] * 2)
    assert len(held.ids) == 6


def test_the_choice_is_the_seeds_and_not_that_of_the_order_of_the_data() -> None:
    raw = raw_pairs(20, 1)
    order = np.random.default_rng(0).permutation(20)
    shuffled = RawPairs(
        raw.listed.of(order.tolist()),
        raw.slots[order],
        tuple(raw.image_digests[row] for row in order),
        raw.pixels_nhwc,
        {},
    )
    first, again, other = (hold_out(each, 0.25, seed)[1] for each, seed in ((raw, 0), (shuffled, 0), (raw, 1)))
    assert set(first.image_digests) == set(again.image_digests) != set(other.image_digests)


def test_what_was_left_out_is_told_once() -> None:
    train, held = hold_out(raw_pairs(10, 1), 0.2, seed=0)
    assert (len(train.unreadable), len(held.unreadable)) == (1, 0)


@pytest.mark.parametrize(("pictures", "share"), [(10, 0.1), (3, 0.5), (3, 0.9), (2, 0.5)])
def test_too_few_pictures_are_refused_in_one_line(pictures: int, share: float) -> None:
    with pytest.raises(DataError, match=r"^of \d+ different pictures, validation\.share = ") as caught:
        hold_out(raw_pairs(pictures, 2), share, seed=0)
    assert "\n" not in str(caught.value)
