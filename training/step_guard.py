"""What stands between a gradient and the optimiser: steps that are not finite are skipped, long gradients shortened."""

from __future__ import annotations

import math
from typing import Any

import pytorch_lightning as pl
import torch
from torch import Tensor, nn

from twinlens.training.errors import TrainingError
from twinlens.training.modules.gather import mean_over_ranks


class StepGuard(pl.Callback):
    """Skips a step whose loss or gradient is not finite, on all ranks alike, and ends the run after too many of them.

    A skipped step leaves no gradients and changes nothing: not the weights, not the optimiser's moments, not the
    running statistics of batch norm, which the forward pass has moved already. It counts as a step all the same: its
    batch is behind, and the learning rate goes on along its curve. In fp16 a gradient that is too large for the present
    scale is no fault: the scale is halved, the step left out and not counted, as always with a scaled loss
    (Micikevicius et al. 2018, §3.2).

    Attributes:
        skipped: Steps that were skipped in this run so far, those before it was interrupted included.
    """

    def __init__(self, *, max_skipped: int, max_gradient_norm: float | None = None) -> None:
        """Takes the limits.

        Args:
            max_skipped: How many steps may be skipped in a run.
            max_gradient_norm: A gradient that is longer, over all parameters together, is shortened to this (Pascanu et
                al. 2013); None: as long as it is.
        """
        self._max_skipped = max_skipped
        self._max_norm = max_gradient_norm
        self._loss: Tensor | None = None
        self._buffers: list[tuple[Tensor, Tensor]] = []
        self.skipped = 0

    def state_dict(self) -> dict[str, Any]:
        """How many were skipped, so that a run that goes on has the same limit."""
        return {"skipped": self.skipped}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Takes it up again."""
        self.skipped = int(state_dict["skipped"])

    def on_train_batch_start(
        self,
        trainer: pl.Trainer,  # noqa: ARG002 - Lightning's signature
        pl_module: pl.LightningModule,
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Keeps what a forward pass may move."""
        self._buffers = [(buffer, buffer.clone()) for buffer in _moving_buffers(pl_module)]

    def on_before_backward(
        self,
        trainer: pl.Trainer,  # noqa: ARG002
        pl_module: pl.LightningModule,  # noqa: ARG002
        loss: Tensor,
    ) -> None:
        """Keeps the loss, in fp16 the scaled one."""
        self._loss = loss.detach()

    def on_before_optimizer_step(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,  # noqa: ARG002
        optimizer: torch.optim.Optimizer,
    ) -> None:
        """Looks at loss and gradient, which is that of all ranks by now.

        Raises:
            TrainingError: if this is one skipped step too many.
        """
        parameters = [p for group in optimizer.param_groups for p in group["params"] if p.grad is not None]
        norm = torch.nn.utils.get_total_norm([p.grad for p in parameters])
        assert self._loss is not None  # noqa: S101 - Lightning calls in this order
        # Of all ranks: one whose share is broken must not be the only one to skip.
        loss = mean_over_ranks(self._loss.reshape(1).float())
        loss_is_finite, norm_is_finite = torch.stack([loss.isfinite().squeeze(), norm.isfinite()]).tolist()
        if loss_is_finite and norm_is_finite:
            if self._max_norm is not None:
                torch.nn.utils.clip_grads_with_norm_(parameters, self._max_norm, norm)
            return
        # Without gradients an optimiser leaves parameters and moments alone.
        optimizer.zero_grad(set_to_none=True)
        scaler = getattr(trainer.precision_plugin, "scaler", None)
        if loss_is_finite and scaler is not None and scaler.get_scale() > 1:
            return
        with torch.no_grad():
            for buffer, before in self._buffers:
                buffer.copy_(before)
        self.skipped += 1
        if self.skipped > self._max_skipped:
            self._give_up(trainer.global_step + 1, float(loss), loss_is_finite)

    def _give_up(self, step: int, loss: float, loss_is_finite: bool) -> None:
        what = "the gradient is not finite" if loss_is_finite else f"the loss is {_spelled(loss)}"
        allowed = f"train.max_skipped allows {self._max_skipped}"
        raise TrainingError(
            f"{what} at step {step}: lower learning_rate or use fp32 ({self.skipped} such step(s) so far; {allowed})"
        )


def _spelled(loss: float) -> str:
    return "nan" if math.isnan(loss) else f"{loss:g}"


def _moving_buffers(module: nn.Module) -> list[Tensor]:
    """Those that a forward pass in training mode may write."""
    return [buffer for each in module.modules() if each.training for buffer in each.buffers(recurse=False)]
