"""Maps keep neighbours together, are the same each time, and show every picture."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch import Tensor

from twinlens.training.evaluation.embedding_map import COLOURS, MapKind, draw_map, project
from twinlens.training.evaluation.labelled import Labelled


def groups(count: int = 60) -> tuple[Tensor, Labelled]:
    rng = np.random.default_rng(0)
    labels = np.arange(count) % 3
    embeddings = torch.from_numpy(np.eye(3, 16)[labels] + 0.05 * rng.standard_normal((count, 16)))
    pixels = np.zeros((count, 8, 8, 3), dtype=np.uint8)
    pixels[np.arange(count), :, :, labels] = 255
    names = tuple(str(i) for i in range(count))
    return embeddings, Labelled(pixels, labels.astype(np.int64), ("red", "green", "blue"), names)


@pytest.mark.parametrize("kind", ["pca", "tsne"])
def test_groups_stay_together_and_apart_from_others(kind: MapKind) -> None:
    embeddings, pictures = groups()
    points = project(embeddings, kind)
    centres = np.stack([points[pictures.labels == i].mean(axis=0) for i in range(3)])
    within = max(np.linalg.norm(points[pictures.labels == i] - centres[i], axis=1).max() for i in range(3))
    between = min(np.linalg.norm(a - b) for a, b in pairwise([*centres, centres[0]]))
    assert between > 2 * within


@pytest.mark.parametrize("kind", ["pca", "tsne"])
def test_points_fill_the_unit_square_and_repeat(kind: MapKind) -> None:
    embeddings, _ = groups()
    points = project(embeddings, kind, seed=3)
    assert points.shape == (60, 2)
    assert points.min() == pytest.approx(0.0)
    assert points.max() == pytest.approx(1.0)
    np.testing.assert_allclose(project(embeddings, kind, seed=3), points)


def test_pca_is_that_of_scikit_learn_but_for_signs_and_scale() -> None:
    embeddings = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    unit = torch.nn.functional.normalize(embeddings.double(), dim=1).numpy()
    expected, found = PCA(2).fit_transform(unit), project(embeddings, "pca")
    for axis in range(2):
        assert abs(np.corrcoef(expected[:, axis], found[:, axis])[0, 1]) == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["pca", "tsne"])
@pytest.mark.parametrize("shape", [(3, 1), (4, 2), (5, 64)])
def test_few_and_narrow_embeddings_have_a_map(kind: MapKind, shape: tuple[int, int]) -> None:
    points = project(torch.randn(shape, generator=torch.Generator().manual_seed(1)), kind)
    assert np.isfinite(points).all()


@pytest.mark.parametrize("kind", ["pca", "tsne"])
def test_equal_embeddings_lie_on_one_spot(kind: MapKind) -> None:
    np.testing.assert_array_equal(project(torch.ones(5, 4), kind), np.full((5, 2), 0.5))


def test_two_pictures_are_no_map() -> None:
    with pytest.raises(ValueError, match="three"):
        project(torch.ones(2, 4), "pca")


def test_every_class_is_on_the_picture_in_its_colour() -> None:
    embeddings, pictures = groups()
    canvas = draw_map(project(embeddings, "pca"), pictures, side=300)
    colours = {colour for _, colour in canvas.getcolors(1 << 20) or []}
    for index in range(3):
        assert tuple(int(COLOURS[index][i : i + 2], 16) for i in (1, 3, 5)) in colours
    assert {(255, 0, 0), (0, 255, 0), (0, 0, 255)} <= colours
    assert canvas.width == 300 < canvas.height


def test_pictures_on_one_spot_move_aside_or_become_dots() -> None:
    _, pictures = groups()
    canvas = np.asarray(draw_map(np.full((60, 2), 0.5), pictures, side=300))
    cell = 300 // round(180**0.5)
    thumbnails = ((canvas[:300] == (255, 0, 0)).all(axis=2)).sum() / (cell - 4) ** 2
    assert 5 <= thumbnails <= 25


def test_as_many_pictures_as_points_are_needed() -> None:
    _, pictures = groups()
    with pytest.raises(ValueError, match="60 points"):
        draw_map(np.zeros((3, 2)), pictures)
