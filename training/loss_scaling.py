"""Mixed precision in float16: the loss is scaled up, so that small gradients do not vanish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision


class ScaledHalfPrecision(MixedPrecision):  # type: ignore[misc] - Lightning's class is Any to mypy
    """Computes in float16, keeps weights in float32, scales the loss (Micikevicius et al. 2018, §3.2).

    Lightning's own leaves the scale on the gradients where the optimiser is a fused one, and computes in bfloat16 on
    the CPU. Here gradients have their true length before anything looks at them, and float16 is float16.
    """

    def __init__(self, device: str) -> None:
        """Takes `cuda` or `cpu`."""
        super().__init__("16-mixed", device, torch.amp.GradScaler(device))

    def optimizer_step(
        self, optimizer: torch.optim.Optimizer, model: pl.LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Forward, backward, gradients to scale, what callbacks do with them, and the step, unless they overflowed."""
        closure()
        self.scaler.unscale_(optimizer)
        self._after_closure(model, optimizer)
        step = self.scaler.step(optimizer, **kwargs)
        self.scaler.update()
        return step
