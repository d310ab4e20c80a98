"""A map of embeddings: pictures that are near each other lie near each other, drawn as thumbnails."""

from __future__ import annotations

import warnings
from typing import Literal

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from PIL import Image, ImageDraw, ImageFont
from torch import Tensor

from twinlens.training.evaluation.labelled import Labelled

MapKind = Literal["pca", "tsne"]

# Paul Tol's "muted" and "bright" schemes: told apart by colour-blind people as well; taken in turn.
COLOURS = (
    "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee", "#aa3377", "#882255", "#44aa99", "#999933", "#332288",
)  # fmt: skip
_LEGEND_HEIGHT = 22
# More names than this are no legend but a list.
_MOST_NAMES = 30


def project(embeddings_nd: Tensor, kind: MapKind, *, seed: int = 0) -> NDArray[np.float64]:
    """Places normalised embeddings in the plane.

    Args:
        embeddings_nd: Shape (n, d), n ≥ 3.
        kind: `pca`: the two directions of largest variance (distances are true but crowded); `tsne`: t-SNE (van der
            Maaten & Hinton 2008), which keeps neighbours together as UMAP does (distances between groups mean little).
        seed: Of t-SNE.

    Returns:
        Shape (n, 2), within [0, 1]; the larger extent fills it.

    Raises:
        ValueError: if there are fewer than three embeddings.
    """
    if embeddings_nd.ndim != 2 or len(embeddings_nd) < 3:
        raise ValueError(f"at least three embeddings (n, d) are needed, got {tuple(embeddings_nd.shape)}")
    unit = F.normalize(embeddings_nd.detach().cpu().double(), dim=1)
    centred = (unit - unit.mean(dim=0)).numpy()
    points = _principal(centred, 2) if kind == "pca" else _tsne(centred, seed)
    low = points.min(axis=0)
    extent = float((points.max(axis=0) - low).max())
    if extent < 1e-9:  # equal embeddings lie on one spot
        return np.full_like(points, 0.5)
    filling: NDArray[np.float64] = (points - low) / extent
    filling += (1 - filling.max(axis=0)) / 2
    return filling


def _principal(centred_nd: NDArray[np.float64], count: int) -> NDArray[np.float64]:
    left, singular, directions = np.linalg.svd(centred_nd, full_matrices=False)
    points = np.zeros((len(centred_nd), count))
    kept = min(count, len(singular))
    # The sign of a direction is open: the largest part counts as positive, so that two machines draw one map.
    signs = np.sign(directions[np.arange(kept), np.abs(directions[:kept]).argmax(axis=1)])
    points[:, :kept] = left[:, :kept] * singular[:kept] * np.where(signs == 0, 1, signs)
    return points


def _tsne(centred_nd: NDArray[np.float64], seed: int) -> NDArray[np.float64]:
    from sklearn.manifold import TSNE  # noqa: PLC0415 - seconds, and only for maps

    n, d = centred_nd.shape
    # 50 directions hold what neighbours depend on, as its authors advise.
    reduced = _principal(centred_nd, min(50, n, d))
    start = _principal(centred_nd, 2)
    scale = start[:, 0].std()
    if scale < 1e-12:
        return start
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tsne = TSNE(perplexity=min(30.0, (n - 1) / 3), init=start / scale * 1e-4, random_state=seed, n_jobs=1)
        found: NDArray[np.float64] = np.asarray(tsne.fit_transform(reduced), dtype=np.float64)
    return found


def draw_map(points_n2: NDArray[np.float64], pictures: Labelled, *, side: int = 1400) -> Image.Image:
    """Draws each picture at its place, framed in the colour of its class, with a legend.

    Thumbnails that would cover an earlier one move to the nearest free cell of a grid, if one is near; else they are
    drawn as a dot.

    Args:
        points_n2: Within [0, 1], as `project` gives them.
        pictures: One for each point.
        side: Of the square that the pictures fill, in pixels.

    Raises:
        ValueError: if there are not as many pictures as points.
    """
    if points_n2.shape != (len(pictures), 2):
        raise ValueError(f"{len(pictures)} points are needed, got shape {points_n2.shape}")
    # As many cells as would hold all pictures thrice over, so that the shape of the map stays.
    cells = max(4, round((3 * len(pictures)) ** 0.5))
    cell = max(12, min(96, side // cells))
    cells = side // cell
    names = _legend_names(pictures)
    legend = _LEGEND_HEIGHT * (-(-len(names) // 5)) + 12
    canvas = Image.new("RGB", (side, side + legend), "white")
    draw = ImageDraw.Draw(canvas)
    wanted = points_n2 * (cells - 1)
    free = np.ones((cells, cells), dtype=bool)
    for index, (x, y) in enumerate(wanted.tolist()):
        place = _free_cell(free, x, cells - 1 - y)
        colour = COLOURS[int(pictures.labels[index]) % len(COLOURS)]
        if place is None:
            left, top = round(x * cell + cell / 2), round((cells - 1 - y) * cell + cell / 2)
            draw.ellipse((left - 2, top - 2, left + 2, top + 2), fill=colour)
            continue
        column, row = place
        free[row, column] = False
        inside = cell - 4
        small = Image.fromarray(pictures.pixels_nhwc[index]).resize((inside, inside), Image.Resampling.BILINEAR)
        left, top = column * cell, row * cell
        draw.rectangle((left, top, left + cell - 1, top + cell - 1), fill=colour)
        canvas.paste(small, (left + 2, top + 2))
    _draw_legend(draw, names, side)
    return canvas


def _free_cell(free: NDArray[np.bool_], x: float, y: float, reach: int = 2) -> tuple[int, int] | None:
    column, row = round(x), round(y)
    near = [
        (i, j)
        for j in range(max(0, row - reach), min(len(free), row + reach + 1))
        for i in range(max(0, column - reach), min(len(free), column + reach + 1))
        if free[j, i]
    ]
    return min(near, key=lambda at: (at[0] - x) ** 2 + (at[1] - y) ** 2, default=None)


def _legend_names(pictures: Labelled) -> list[tuple[str, str]]:
    present = [(name, COLOURS[i % len(COLOURS)]) for i, name in enumerate(pictures.classes) if i in pictures.labels]
    return present if len(present) <= _MOST_NAMES else []


def _draw_legend(draw: ImageDraw.ImageDraw, names: list[tuple[str, str]], side: int) -> None:
    font = ImageFont.load_default(14)
    for index, (name, colour) in enumerate(names):
        left, top = index % 5 * side // 5 + 8, side + 8 + index // 5 * _LEGEND_HEIGHT
        draw.rectangle((left, top, left + 13, top + 13), fill=colour)
        draw.text((left + 20, top - 2), name[:24], fill="black", font=font)
