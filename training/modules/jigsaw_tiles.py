"""Pictures cut into the tiles of a puzzle, so that it cannot be solved by looking at their edges."""

from __future__ import annotations

import torch
from torch import Tensor

# Noroozi & Favaro 2016, §3.3: tiles of 64 pixels from cells of 75.
_TILE_OF_CELL = 64 / 75


def tile_side(size: int, grid: int) -> int:
    """Side of a tile of a picture of `size` pixels cut into `grid` × `grid` cells, in pixels."""
    return int(size // grid * _TILE_OF_CELL)


def jigsaw_tiles(
    pixels_nchw: Tensor,
    grid: int,
    *,
    channel_shift: int = 0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Cuts tiles at random places of their cells and normalises each (Noroozi & Favaro 2016, §3.3 and 3.4).

    The gaps between tiles (11 pixels on average in the paper, of cells of 75) keep edges from telling neighbours;
    mean and deviation of each channel of each tile are taken away, since neighbours have similar ones; and colour
    channels are shifted against each other, since chromatic aberration tells how far a tile is from the middle.

    Args:
        pixels_nchw: Shape (n, c, s, s).
        grid: Cells in a row.
        channel_shift: Pixels by which each channel's tile is moved at most (2 in the paper), never out of its cell.
        generator: Of the pixels' device; None: torch's own.

    Returns:
        Shape (n, grid², c, t, t), row by row, each channel of each tile of mean 0 and deviation 1 (0 if it is flat).
    """
    n, channels, size, _ = pixels_nchw.shape
    cell, side = size // grid, tile_side(size, grid)
    device, margin, tiles = pixels_nchw.device, (size - grid * cell) // 2, grid * grid
    at = torch.arange(grid, device=device) * cell + margin
    corner = torch.stack([at.repeat_interleave(grid), at.repeat(grid)])[:, None, :, None]
    slack = cell - side
    place = torch.randint(0, slack + 1, (2, n, tiles, 1), device=device, generator=generator)
    shift = torch.randint(
        -channel_shift, channel_shift + 1, (2, n, tiles, channels), device=device, generator=generator
    )
    row, column = corner + (place + shift).clamp(0, slack)
    inside = torch.arange(side, device=device)
    cut = pixels_nchw[
        torch.arange(n, device=device)[:, None, None, None, None],
        torch.arange(channels, device=device)[:, None, None],
        (row[..., None] + inside)[..., :, None],
        (column[..., None] + inside)[..., None, :],
    ]
    centred = cut - cut.mean(dim=(-2, -1), keepdim=True)
    deviation = centred.square().mean(dim=(-2, -1), keepdim=True).sqrt()
    # The pixels of a flat tile differ by rounding only, which must not be blown up.
    return torch.where(deviation > 1e-4, centred / deviation.clamp_min(1e-4), torch.zeros_like(centred))
