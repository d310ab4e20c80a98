"""A contact sheet: what a method will see of some pictures."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image, ImageDraw

from twinlens.training.augment.augmenter import Augmenter, Mode
from twinlens.training.augment.recipe import AugmentRecipe

_CELL = 96  # small views are enlarged by whole numbers to about this side, so that their pixels stay visible
_GAP = 4
_HEADER = 16
_PAPER = (250, 250, 250)
_INK = (40, 40, 40)


def contact_sheet(
    recipe: AugmentRecipe,
    pixels_nhwc: NDArray[np.uint8],
    *,
    draws: int = 2,
    seed: int = 0,
    mode: Mode = "batched",
) -> Image.Image:
    """Draws one row per picture: the picture as stored, then its views, as the first batches of a run would have them.

    Args:
        recipe: What is done.
        pixels_nhwc: uint8, (n, side, side, 3).
        draws: How many batches, each with all views of every picture.
        seed: Of the run.
        mode: As in training.
    """
    # Mean 0 and standard deviation 1 leave the pixels as they look.
    augmenter = Augmenter(recipe, (0.0, 0.0, 0.0), (1.0, 1.0, 1.0), seed, mode)
    source = torch.from_numpy(pixels_nhwc)
    columns = [pixels_nhwc]
    titles = ["stored"]
    for number in range(draws):
        for index, view in enumerate(augmenter(source, number)):
            columns.append(_bytes(view))
            local = augmenter.views[index].local
            titles.append(f"{'local' if local else 'view'} {index + 1}" + (f" ({number + 1})" if draws > 1 else ""))
    times = max(1, round(_CELL / recipe.size))
    cell = times * recipe.size
    width = _GAP + len(columns) * (cell + _GAP)
    sheet = Image.new("RGB", (width, _HEADER + _GAP + len(pixels_nhwc) * (cell + _GAP)), _PAPER)
    pen = ImageDraw.Draw(sheet)
    for column, (title, pictures) in enumerate(zip(titles, columns, strict=True)):
        left = _GAP + column * (cell + _GAP)
        pen.text((left, 2), title, fill=_INK)
        for row, picture in enumerate(pictures):
            tile = Image.fromarray(picture)
            side = cell if column == 0 else times * len(picture)
            how = Image.Resampling.BICUBIC if column == 0 else Image.Resampling.NEAREST
            inset = (cell - side) // 2
            sheet.paste(tile.resize((side, side), how), (left + inset, _HEADER + _GAP + row * (cell + _GAP) + inset))
    return sheet


def _bytes(view: torch.Tensor) -> NDArray[np.uint8]:
    pixels: NDArray[np.uint8] = view.permute(0, 2, 3, 1).mul(255).round_().clamp_(0, 255).to(torch.uint8).numpy()
    return pixels
