"""Pictures as sequences of square patches, and back."""

from __future__ import annotations

from torch import Tensor


def patches_of(pixels_nchw: Tensor, side: int) -> Tensor:
    """Cuts pictures into patches, row by row, each flattened as (row, column, channel).

    Args:
        pixels_nchw: Shape (n, c, h, w).
        side: Of a patch, in pixels.

    Returns:
        Shape (n, h/side · w/side, side² · c).

    Raises:
        ValueError: if `side` does not divide both sides of the picture.
    """
    n, c, h, w = pixels_nchw.shape
    if h % side or w % side:
        raise ValueError(f"patches of {side} pixels do not tile a picture of {h}x{w}")
    grid = pixels_nchw.reshape(n, c, h // side, side, w // side, side)
    return grid.permute(0, 2, 4, 3, 5, 1).reshape(n, (h // side) * (w // side), side * side * c)


def pixels_of(patches_nlp: Tensor, side: int, rows: int) -> Tensor:
    """Puts patches back into pictures: the inverse of `patches_of`.

    Args:
        patches_nlp: Shape (n, l, side² · c).
        side: Of a patch, in pixels.
        rows: Of patches in a picture; must divide l.

    Returns:
        Shape (n, c, rows · side, l/rows · side).
    """
    n, count, values = patches_nlp.shape
    columns, channels = count // rows, values // (side * side)
    grid = patches_nlp.reshape(n, rows, columns, side, side, channels)
    return grid.permute(0, 5, 1, 3, 2, 4).reshape(n, channels, rows * side, columns * side)
