"""The published ablations as changes of a recipe."""

from __future__ import annotations

import pytest

from tests.training.augment.test_recipe import shipped
from twinlens.training.augment.ablation import Ablation, ablated


@pytest.mark.parametrize("method", ["simclr", "byol", "swav", "dino"])
@pytest.mark.parametrize("size", [32, 64])
@pytest.mark.parametrize("kept", Ablation)
def test_only_what_is_named_is_kept_and_the_views_stay(method: str, size: int, kept: Ablation) -> None:
    recipe = shipped(method, size)
    before, after = recipe.resolved(), ablated(recipe, kept).resolved()
    assert [view.side for view in after] == [view.side for view in before]
    for old, new in zip(before, after, strict=True):
        crop = kept in {Ablation.CROP, Ablation.BOTH}
        jitter = kept in {Ablation.JITTER, Ablation.BOTH}
        assert new.crop_scale == (old.crop_scale if crop else (1.0, 1.0))
        assert new.crop_ratio == (old.crop_ratio if crop else (1.0, 1.0))
        assert new.flip == (old.flip if crop else 0.0)
        assert new.jitter == (old.jitter if jitter else None)
        assert new.grayscale == (old.grayscale if jitter else 0.0)
        assert new.blur is None
        assert new.solarize is None
