"""Makes the views of a batch: the same for the same seed and batch number, whatever the device."""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from torch import Tensor

from twinlens.training.augment.batched import augment_batched
from twinlens.training.augment.draws import Draws, draw
from twinlens.training.augment.exact import augment_exact
from twinlens.training.augment.recipe import AugmentRecipe

Mode = Literal["batched", "exact"]
# Of stored pictures in float32; the work on them takes about three times as much.
_CHUNK_BYTES = 64 << 20
_CHUNK_BYTES_GPU = 1 << 30


class Augmenter:
    """A recipe at work.

    View v of batch i is drawn from (seed, i, v) alone: a run that is resumed at batch i, or that leaves out other
    views, sees the same.
    """

    def __init__(
        self,
        recipe: AugmentRecipe,
        mean: tuple[float, float, float],
        std: tuple[float, float, float],
        seed: int,
        mode: Mode = "batched",
        *,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Prepares.

        Args:
            recipe: What is done.
            mean: Of the channels, on the scale 0 to 1; subtracted.
            std: Likewise; divides.
            seed: Of the run.
            mode: `batched`: tensor code for the whole batch; `exact`: torchvision, picture by picture.
            rank: Whose part of a shared batch is augmented.
            world_size: How many ranks share a batch; together they draw what one rank would draw for all of it.
        """
        self.views = recipe.resolved()
        self._mean = torch.tensor(mean)
        self._std = torch.tensor(std)
        self._seed = seed
        self._mode = mode
        self._rank = rank
        self._world_size = world_size

    @torch.no_grad()
    def __call__(self, pixels_nhwc: Tensor, number: int) -> list[Tensor]:
        """All views of one batch.

        Args:
            pixels_nhwc: uint8, (n, side, side, 3).
            number: Of the batch in the run.

        Returns:
            One normalised float32 tensor in channels-last memory per view, (n, 3, s, s), on the device of the pictures:
            the global views, then the local ones.
        """
        mean, std = (each.to(pixels_nhwc.device, non_blocking=True) for each in (self._mean, self._std))
        make = self._batched if self._mode == "batched" else self._exact
        with torch.autocast(pixels_nhwc.device.type, enabled=False):
            views = make(pixels_nhwc, self._draws(pixels_nhwc, number))
            return [view.permute(0, 2, 3, 1).sub_(mean).div_(std).permute(0, 3, 1, 2) for view in views]

    def _draws(self, pixels_nhwc: Tensor, number: int) -> list[Draws]:
        count, side = pixels_nhwc.shape[:2]
        mine = slice(self._rank * count, (self._rank + 1) * count)
        return [
            draw(view, count * self._world_size, side, _generator(self._seed, number, index))[mine]
            for index, view in enumerate(self.views)
        ]

    def _batched(self, pixels_nhwc: Tensor, draws: list[Draws]) -> list[Tensor]:
        count, side = pixels_nhwc.shape[:2]
        device = pixels_nhwc.device
        views = [torch.empty(count, view.side, view.side, 3, device=device) for view in self.views]
        # As many pictures at a time as keep the intermediate ones small beside a network's activations.
        chunk = max(1, (_CHUNK_BYTES if device.type == "cpu" else _CHUNK_BYTES_GPU) // (side * side * 3 * 4))
        for start in range(0, count, chunk):
            part = slice(start, start + chunk)
            source = (
                pixels_nhwc[part].transpose(2, 3).to(torch.float32, memory_format=torch.contiguous_format).div_(255)
            )
            for view, out, drawn in zip(self.views, views, draws, strict=True):
                out[part] = augment_batched(source, view, drawn[part]).transpose(2, 3)
        return [view.permute(0, 3, 1, 2) for view in views]

    def _exact(self, pixels_nhwc: Tensor, draws: list[Draws]) -> list[Tensor]:
        source = pixels_nhwc.permute(0, 3, 1, 2)
        views = [augment_exact(source, *each) for each in zip(self.views, draws, strict=True)]
        return [view.to(torch.float32, memory_format=torch.channels_last).div_(255) for view in views]


def _generator(seed: int, number: int, view: int) -> torch.Generator:
    # SeedSequence mixes the three so that neighbouring batches and views share nothing.
    state = np.random.SeedSequence((seed, number, view)).generate_state(1, np.uint64)[0]
    return torch.Generator().manual_seed(int(state))
