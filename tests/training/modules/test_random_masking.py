from __future__ import annotations

import pytest
import torch

from twinlens.training.modules.random_masking import random_masking, visible_count


def test_every_picture_hides_the_same_number_and_what_is_visible_is_not_hidden() -> None:
    masking = random_masking(5, 16, 0.75, generator=torch.Generator().manual_seed(0))
    assert masking.visible_nk.shape == (5, 4)
    assert masking.masked_nl.sum(dim=1).tolist() == [12] * 5
    assert not masking.masked_nl.gather(1, masking.visible_nk).any()
    assert all(len(set(row)) == 4 for row in masking.visible_nk.tolist())


def test_pictures_hide_different_patches_and_every_patch_as_often() -> None:
    masking = random_masking(4000, 16, 0.75, generator=torch.Generator().manual_seed(1))
    shares = masking.masked_nl.double().mean(dim=0)
    assert float((shares - 0.75).abs().max()) < 0.03  # four standard errors
    assert len({tuple(row) for row in masking.masked_nl[:50].tolist()}) > 45


def test_the_same_seed_hides_the_same() -> None:
    one, other = (random_masking(3, 9, 0.5, generator=torch.Generator().manual_seed(7)) for _ in range(2))
    assert torch.equal(one.visible_nk, other.visible_nk)


@pytest.mark.parametrize(
    ("patches", "share", "visible"), [(64, 0.75, 16), (196, 0.75, 49), (100, 0.9, 10), (9, 0.5, 5)]
)
def test_the_count_is_the_nearest_whole_one(patches: int, share: float, visible: int) -> None:
    assert visible_count(patches, share) == visible


@pytest.mark.parametrize(("patches", "share"), [(4, 0.95), (4, 0.05), (1, 0.75)])
def test_hiding_all_or_nothing_is_refused(patches: int, share: float) -> None:
    with pytest.raises(ValueError, match="visible"):
        random_masking(2, patches, share)
