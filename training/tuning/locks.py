"""Keeps parts of a dual encoder as they are while the rest is trained, and opens them one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytorch_lightning as pl
from torch import nn

from twinlens.training.errors import ConfigError
from twinlens.training.ranks import ALONE, Ranks
from twinlens.training.sections.tuning import Lock, TuningConfig
from twinlens.training.tuning.blocks import locked_names, parts_of


class Locks(pl.Callback):
    """Locked parameters take no gradients, and locked modules compute as in evaluation.

    So batch norms keep their statistics and use them (LiT, Zhai et al. 2022), and below the lowest open part no graph
    is recorded. What is locked at a step depends on its number alone, so a run that is resumed goes on as it was.
    """

    def __init__(self, model: nn.Module, config: TuningConfig, *, steps: int, ranks: Ranks = ALONE) -> None:
        """Locks at once what stays locked for the whole run, so that no optimiser takes it.

        Args:
            model: See `build_towers`.
            config: What to lock.
            steps: Of the run.
            ranks: The processes that share each batch.

        Raises:
            ConfigError: if a tower has no blocks, or fewer than are to be left open.
        """
        self._config = config
        self._model = model
        self._parts = parts_of(model)
        for tower, lock in (("image", config.lock_image), ("text", config.lock_text)):
            _check_number(tower, lock, len(self._parts[tower].blocks))
        # Some models hold parameters that nobody trains, such as fixed positions.
        self._trained = {name: each for name, each in model.named_parameters() if each.requires_grad}
        self._alone = ranks.world_size == 1
        self._locked: set[str] = set()
        self._still: list[nn.Module] = []
        self._take_gradients(self.locked(steps - 1), take=False)

    def locked(self, step: int) -> set[str]:
        """Names of the parameters that rest at a step, counted from 0."""
        opened = step // self._config.unlock_steps if self._config.unlock_steps else 0
        locks = {"image": self._config.lock_image, "text": self._config.lock_text}
        return {
            name for tower, lock in locks.items() for name in locked_names(self._parts[tower], _after(lock, opened))
        }

    def on_train_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,  # noqa: ARG002 - Lightning's signature
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Opens what opens now; what rests is in evaluation mode, whatever others have done."""
        self.apply(trainer.global_step)

    def on_after_backward(
        self,
        trainer: pl.Trainer,  # noqa: ARG002
        pl_module: pl.LightningModule,  # noqa: ARG002
    ) -> None:
        """Drops gradients of what rests: between processes it takes part in all steps, or they would wait for it."""
        if not self._alone:
            for name in self._locked & self._trained.keys():
                self._trained[name].grad = None

    def apply(self, step: int) -> None:
        """Makes the model what it is at a step."""
        locked = self.locked(step)
        if locked != self._locked:
            if self._alone:
                self._take_gradients(self._locked - locked, take=True)
                self._take_gradients(locked, take=False)
            for module in self._still:
                module.train()
            self._locked = locked
            self._still = list(_all_locked(self._model, "", locked))
        for module in self._still:
            if module.training:
                module.eval()

    def _take_gradients(self, names: set[str], *, take: bool) -> None:
        for name in names & self._trained.keys():
            self._trained[name].requires_grad_(take)


def _check_number(tower: str, lock: Lock, blocks: int) -> None:
    if isinstance(lock, bool):
        return
    if not blocks:
        raise ConfigError(f"tuning.lock_{tower}: the tower has no blocks that we can tell apart; lock it whole, or not")
    if lock > blocks:
        raise ConfigError(
            f"tuning.lock_{tower}: {lock} blocks are more than the {blocks} there are: nothing would be locked"
        )


def _after(lock: Lock, opened: int) -> Lock:
    """A lock after so many parts were opened from the top, the head being the first."""
    if lock is False or opened == 0:
        return lock
    return opened - 1 if lock is True else lock + opened


def _all_locked(module: nn.Module, prefix: str, locked: set[str]) -> Iterator[nn.Module]:
    """The outermost modules all of whose parameters are locked, and which have any."""
    names = [prefix + name for name, _ in module.named_parameters()]
    if names and all(name in locked for name in names):
        yield module
        return
    for name, child in module.named_children():
        yield from _all_locked(child, f"{prefix}{name}.", locked)
