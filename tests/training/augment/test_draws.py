"""The distributions of the drawn parameters, held against torchvision's own transforms."""

from __future__ import annotations

import itertools
from collections import Counter

import numpy as np
import pytest
import torch
from torch import Tensor
from torchvision.transforms import v2

from twinlens.training.augment.draws import BRIGHTNESS, CONTRAST, HUE, SATURATION, Draws, draw
from twinlens.training.augment.recipe import AugmentRecipe, Blur, Jitter, Solarize, View, ViewGroup

COUNT = 4000
PHOTO = ViewGroup(
    crop_scale=(0.08, 1.0),
    crop_ratio=(3 / 4, 4 / 3),
    flip=0.5,
    jitter=Jitter(probability=0.8, brightness=0.8, contrast=0.6, saturation=1.2, hue=0.2),
    grayscale=0.2,
    blur=Blur(probability=0.5, sigma=(0.1, 2.0)),
    solarize=Solarize(probability=0.3),
)


def view_of(group: ViewGroup, size: int = 64) -> View:
    return AugmentRecipe(size=size, views=(group,)).resolved()[0]


def drawn(group: ViewGroup, source: int = 96, count: int = COUNT, seed: int = 0) -> Draws:
    return draw(view_of(group), count, source, torch.Generator().manual_seed(seed))


def distance(ours: Tensor, theirs: Tensor) -> float:
    """Kolmogorov and Smirnov's: the largest gap between the two empirical distribution functions."""
    samples = [np.sort(each.double().numpy()) for each in (ours, theirs)]
    at = np.concatenate(samples)
    below = [np.searchsorted(each, at, side="right") / len(each) for each in samples]
    return float(np.abs(below[0] - below[1]).max())


# Two samples of 4,000 from one distribution are this far apart in one of 10,000 tries.
SAME = 2.23 * (2 / COUNT) ** 0.5


@pytest.mark.parametrize(
    ("scale", "ratio"),
    [((0.08, 1.0), (3 / 4, 4 / 3)), ((0.05, 0.14), (3 / 4, 4 / 3)), ((0.9, 1.0), (0.5, 2.0)), ((0.5, 1.0), (1.5, 3.0))],
)
def test_crops_are_distributed_as_torchvisions(scale: tuple[float, float], ratio: tuple[float, float]) -> None:
    boxes = drawn(ViewGroup(crop_scale=scale, crop_ratio=ratio)).boxes
    transform = v2.RandomResizedCrop(64, scale=scale, ratio=ratio)
    picture = torch.zeros(3, 96, 96)
    with torch.random.fork_rng():
        torch.manual_seed(1)
        theirs = [transform.make_params([picture]) for _ in range(COUNT)]
    for column, name in enumerate(("top", "left", "height", "width")):
        assert distance(boxes[:, column], torch.tensor([float(each[name]) for each in theirs])) < SAME, name
    area = boxes[:, 2] * boxes[:, 3]
    assert distance(area, torch.tensor([float(each["height"] * each["width"]) for each in theirs])) < SAME


@pytest.mark.parametrize("source", [8, 33, 96])
@pytest.mark.parametrize("ratio", [(3 / 4, 4 / 3), (1.5, 3.0), (0.2, 0.5)])
def test_crops_lie_inside_the_picture(source: int, ratio: tuple[float, float]) -> None:
    boxes = drawn(ViewGroup(crop_scale=(0.01, 1.0), crop_ratio=ratio), source, count=500).boxes
    top, left, height, width = boxes.unbind(1)
    assert bool(((height >= 1) & (width >= 1) & (top >= 0) & (left >= 0)).all())
    assert bool(((top + height <= source) & (left + width <= source)).all())


@pytest.mark.parametrize(("ratio", "shape"), [((3.0, 3.0), (32, 96)), ((0.25, 0.25), (96, 24)), ((1.0, 1.0), (96, 96))])
def test_where_no_crop_fits_the_central_one_is_taken_as_in_torchvision(
    ratio: tuple[float, float], shape: tuple[int, int]
) -> None:
    boxes = drawn(ViewGroup(crop_scale=(1.0, 1.0), crop_ratio=ratio), count=3).boxes
    theirs = v2.RandomResizedCrop(64, scale=(1.0, 1.0), ratio=ratio).make_params([torch.zeros(3, 96, 96)])
    assert (theirs["height"], theirs["width"]) == shape
    assert boxes.tolist() == [[theirs["top"], theirs["left"], *shape]] * 3


def test_factors_are_distributed_as_torchvisions() -> None:
    factors = drawn(PHOTO).factors
    transform = v2.ColorJitter(brightness=0.8, contrast=0.6, saturation=1.2, hue=0.2)
    with torch.random.fork_rng():
        torch.manual_seed(2)
        theirs = [transform.make_params([]) for _ in range(COUNT)]
    for column, name in {BRIGHTNESS: "brightness", CONTRAST: "contrast", SATURATION: "saturation", HUE: "hue"}.items():
        wanted = torch.tensor([each[f"{name}_factor"] for each in theirs])
        assert distance(factors[:, column], wanted) < SAME, name
        assert abs(float(factors[:, column].min() - wanted.min())) < 0.01
        assert abs(float(factors[:, column].max() - wanted.max())) < 0.01


def test_every_order_of_the_four_operations_is_as_likely() -> None:
    found = Counter(tuple(order) for order in drawn(PHOTO, count=24 * 400).order.tolist())
    assert set(found) == set(itertools.permutations(range(4)))
    assert all(abs(count - 400) < 5 * 400**0.5 for count in found.values())


def test_things_happen_as_often_as_the_recipe_says_and_independently() -> None:
    draws = drawn(PHOTO)
    happened = {
        "flip": (draws.flipped, 0.5),
        "jitter": (draws.jittered, 0.8),
        "grayscale": (draws.gray, 0.2),
        "blur": (draws.sigmas > 0, 0.5),
        "solarize": (draws.solarized, 0.3),
    }
    for name, (each, probability) in happened.items():
        assert abs(float(each.double().mean()) - probability) < 4 * (0.25 / COUNT) ** 0.5, name
    for (one, (a, _)), (other, (b, _)) in itertools.combinations(happened.items(), 2):
        correlation = torch.corrcoef(torch.stack([a.double(), b.double()]))[0, 1]
        assert abs(float(correlation)) < 5 / COUNT**0.5, (one, other)


def test_sigmas_are_uniform_where_a_picture_is_blurred() -> None:
    sigmas = drawn(PHOTO).sigmas
    blurred = sigmas[sigmas > 0]
    assert distance(blurred, torch.linspace(0.1, 2.0, len(blurred))) < 2 * SAME


def test_a_view_without_anything_is_the_whole_picture() -> None:
    draws = drawn(ViewGroup(), count=5)
    assert draws.boxes.tolist() == [[0, 0, 96, 96]] * 5
    assert not (draws.flipped | draws.jittered | draws.gray | draws.solarized | (draws.sigmas > 0)).any()
