"""A recipe: what it accepts, what it means at a size, and that each paper's is written down right."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from twinlens.training.augment.ablation import Ablation, ablated
from twinlens.training.augment.description import describe
from twinlens.training.augment.recipe import AugmentRecipe, Blur, Jitter, SmallPictures, ViewGroup
from twinlens.training.methods.registry import IMAGE_METHODS

RECIPES = Path(__file__).parents[3] / "training" / "recipes"


def shipped(method: str, size: int) -> AugmentRecipe:
    content = tomllib.loads((RECIPES / f"{method}.toml").read_text(encoding="utf-8"))
    return AugmentRecipe.model_validate({**content["augment"], "size": size})


@pytest.mark.parametrize("method", IMAGE_METHODS)
@pytest.mark.parametrize("size", [32, 64, 224])
def test_every_method_has_a_recipe_that_works_at_every_size(method: str, size: int) -> None:
    views = shipped(method, size).resolved()
    assert len(views) == shipped(method, size).global_views + shipped(method, size).local_views
    assert all(view.side == size for view in views if not view.local)
    assert all(4 <= view.side < size for view in views if view.local)


@pytest.mark.parametrize(
    ("method", "sides"),
    [("swav", [224] * 2 + [96] * 6), ("dino", [224] * 2 + [96] * 8), ("byol", [224] * 2), ("mae", [224])],
)
def test_views_at_full_size_are_those_of_the_papers(method: str, sides: list[int]) -> None:
    assert [view.side for view in shipped(method, 224).resolved()] == sides


@pytest.mark.parametrize(("size", "local"), [(32, 16), (64, 32), (96, 48), (128, 48), (224, 96)])
def test_local_views_keep_their_share_in_multiples_that_patches_divide(size: int, local: int) -> None:
    assert shipped("swav", size).resolved()[-1].side == local


@pytest.mark.parametrize("size", [8, 12, 20])
def test_local_views_of_tiny_runs_stay_smaller_than_the_global_ones(size: int) -> None:
    assert shipped("swav", size).resolved()[-1].side < size


def test_byol_and_barlow_twins_draw_their_two_views_differently() -> None:
    for method in ("byol", "barlow_twins"):
        first, second = shipped(method, 224).resolved()
        assert first.blur is not None
        assert second.blur is not None
        assert second.solarize is not None
        assert (first.blur.probability, first.solarize) == (1.0, None)
        assert (second.blur.probability, second.solarize.probability) == (0.1, 0.2)


def test_simclr_blurs_with_a_tenth_of_the_side() -> None:
    assert shipped("simclr", 224).resolved()[0].taps == 23  # the published kernel
    assert shipped("simclr", 64).resolved()[0].taps == 7


def test_small_pictures_are_not_blurred_and_simclr_halves_the_jitter() -> None:
    small, large = shipped("simclr", 32).resolved()[0], shipped("simclr", 64).resolved()[0]
    assert small.blur is None
    assert large.blur is not None
    assert small.jitter is not None
    assert large.jitter is not None
    assert (small.jitter.brightness, small.jitter.hue) == (0.4, 0.1)
    assert (large.jitter.brightness, large.jitter.hue) == (0.8, 0.2)


def test_the_rules_for_small_pictures_can_be_switched_off() -> None:
    recipe = shipped("simclr", 32)
    kept = recipe.model_copy(update={"small": recipe.small.model_copy(update={"below": 0})})
    assert kept.resolved()[0].blur is not None


def test_the_description_says_what_a_small_size_changes() -> None:
    assert describe(shipped("simclr", 32))[-1] == "at 32 px, below 48: no blur, jitter times 0.5"
    assert "blur 0.5 of 0.1-2 px" in describe(shipped("simclr", 64))[-1]
    swav = describe(shipped("swav", 32))
    assert swav[1].startswith("views 3-8: 16 px")
    assert "local crop 0.1-0.35" in swav[-1]


def test_the_description_leaves_out_what_would_change_nothing() -> None:
    assert describe(ablated(shipped("simclr", 32), Ablation.CROP)) == [
        "views 1-2: 32 px bicubic, crop 0.08-1 of the area, flip 0.5"
    ]
    assert describe(ablated(shipped("swav", 32), Ablation.JITTER))[-1] == "at 32 px, below 48: jitter times 0.5"
    assert describe(shipped("mae", 32)) == ["view 1: 32 px bicubic, crop 0.2-1 of the area, flip 0.5"]


def test_a_jitter_that_is_scaled_to_nothing_is_left_out() -> None:
    group = ViewGroup(jitter=Jitter(brightness=0.4))
    assert AugmentRecipe(size=32, small=SmallPictures(below=48, jitter=0), views=(group,)).resolved()[0].jitter is None


def test_a_kernel_is_odd_and_never_wider_than_can_be_reflected() -> None:
    assert Blur(sigma=(0.1, 2.0)).taps(224) == 13  # three of the largest sigma on either side
    assert Blur(kernel=0.1).taps(16) == 3
    assert Blur(sigma=(0.1, 20.0)).taps(16) == 31
    assert all(Blur(kernel=share / 10).taps(side) % 2 for share in range(1, 11) for side in range(8, 40))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ({"views": [{"crop_scale": [0.5, 0.2]}]}, "crop_scale must be a rising pair"),
        ({"views": [{"crop_scale": [0.0, 1.0]}]}, "crop_scale must be a rising pair"),
        ({"views": [{"crop_ratio": [2.0, 1.0]}]}, "crop_ratio must be a rising pair"),
        ({"views": [{"crop_ratio": [1.0, float("inf")]}]}, "finite number"),
        ({"views": [{"jitter": {"brightness": float("nan")}}]}, "finite number"),
        ({"views": [{"flip": 1.5}]}, "less than or equal to 1"),
        ({"views": [{"jitter": {"hue": 0.6}}]}, "less than or equal to 0.5"),
        ({"views": [{"blur": {"sigma": [0.0, 1.0]}}]}, "sigma must be a rising pair"),
        ({"views": [{"sharpen": 1}]}, "Extra inputs are not permitted"),
        ({"views": []}, "must begin with a group of size 1.0"),
        ({"views": [{"size": 0.5}]}, "must begin with a group of size 1.0"),
        ({"views": [{}, {"size": 0.5}, {}]}, "must come before smaller ones"),
        ({"size": 4}, "greater than or equal to 8"),
        ({"small": {"local_crop_scale": [0.5, 2.0]}}, "local_crop_scale must be a rising pair"),
        ({"interpolation": "nearest"}, "'bilinear' or 'bicubic'"),
    ],
)
def test_a_recipe_that_makes_no_sense_is_refused_by_name(content: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words.replace("(", r"\(")):
        AugmentRecipe.model_validate(content)
