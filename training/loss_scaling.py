"""Mixed precision in float16: the loss is scaled up, so that small gradients do not vanish."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.plugins.precision import MixedPrecision


class ScaledHalfPrecision(MixedPrecision):
    """Computes in float16, keeps weights in float32, scales the loss (Micikevicius et al. 2018, §3.2).

    Lightning's own leaves the scale on the gradients where the optimiser is a fused one, and computes in bfloat16 on
    the CPU. Here gradients have their true length before anything looks at them, and float16 is float16.
    """

    def __init__(self, device: str) -> None:
        """Takes `cuda` or `cpu`."""
        self._scale = torch.amp.GradScaler(device)
        super().__init__("16-mixed", device, self._scale)

    def optimizer_step(  # type: ignore[override]
        self, optimizer: Any, model: pl.LightningModule, closure: Callable[[], Any], **kwargs: Any
    ) -> Any:
        """Forward, backward, gradients to scale, what callbacks do with them, and the step, unless they overflowed."""
        closure()
        self._scale.unscale_(optimizer)
        self._after_closure(model, optimizer)
        step = self._scale.step(optimizer, **kwargs)
        self._scale.update()
        return step
