"""The state of a run that is under way: all it takes to go on as if it had never stopped."""

from __future__ import annotations

import os
import random
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch

from twinlens.index.durable import sync
from twinlens.training.errors import CheckpointError, first_line
from twinlens.training.finite import first_not_finite
from twinlens.training.interruption import Interruption
from twinlens.training.modules.gather import mean_over_ranks, world_size
from twinlens.training.torch_file import NotATorchFile, read_torch_file

STATE_FORMAT = 1
_KEY = "twinlens"


@dataclass(frozen=True)
class RunIdentity:
    """Which run a state belongs to; it is no use to another.

    Attributes:
        method: Its name.
        config_sha256: Digest of the configuration.
        data_sha256: Digest of the data, and of whatever else the configuration names and the run reads.
    """

    method: str
    config_sha256: str
    data_sha256: str


class RunState(pl.Callback):
    """Writes the state every so many steps, and gives the generators theirs when a run goes on.

    A run that a signal asks to end does so here, after the step, with its state written. To be the last callback: what
    the others draw belongs to the step.
    """

    def __init__(
        self, path: Path, identity: RunIdentity, *, every: int, steps: int, interruption: Interruption
    ) -> None:
        """Takes where and how often.

        Args:
            path: The file; it holds the old state or the whole new one, also after a crash.
            identity: Of this run.
            every: Steps between two states; 0: one is written only where the run is interrupted.
            steps: Of the run; after the last one there is nothing to go on with.
            interruption: What notes signals.
        """
        self._path = path
        self._identity = identity
        self._every = every
        self._steps = steps
        self._interruption = interruption
        self._generators: list[dict[str, Any]] | None = None

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,  # noqa: ARG002 - Lightning's signature
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Writes where it is due, and ends the run where a signal asks for it.

        Raises:
            CheckpointError: if the file cannot be written, or the weights are not finite. The old state stays.
        """
        step = trainer.global_step
        ends = self._asked_to_end(pl_module.device)
        if step >= self._steps:
            return
        if ends or (self._every and step % self._every == 0):
            self._write(trainer, pl_module)
        if ends:
            self._interruption.stopped_at = step
            trainer.should_stop = True

    def _asked_to_end(self, device: torch.device) -> bool:
        """Whether any rank was: they get the signal at different steps, and end together."""
        asked = self._interruption.signal is not None
        if world_size() == 1:
            return asked
        return bool(mean_over_ranks(torch.tensor(float(asked), device=device)) > 0)

    def _write(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:
        broken = first_not_finite(pl_module.state_dict())
        if broken is not None:
            raise CheckpointError(
                f"{broken} is not finite at step {trainer.global_step}: lower learning_rate or use fp32"
            )
        temporary = _half_written(self._path)
        try:
            trainer.save_checkpoint(temporary)  # by all ranks together; the first one writes
            if trainer.is_global_zero:
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
                temporary.replace(self._path)
                sync(self._path.parent)
        except (OSError, RuntimeError) as error:
            temporary.unlink(missing_ok=True)
            raise CheckpointError(f"cannot write the run's state {self._path}: {first_line(error)}") from error

    def on_save_checkpoint(
        self,
        trainer: pl.Trainer,  # noqa: ARG002
        pl_module: pl.LightningModule,  # noqa: ARG002
        checkpoint: dict[str, Any],
    ) -> None:
        """Adds whose state it is, and the generators of every rank."""
        checkpoint[_KEY] = {
            "format": STATE_FORMAT,
            "method": self._identity.method,
            "config_sha256": self._identity.config_sha256,
            "data_sha256": self._identity.data_sha256,
            "generators": _of_all_ranks(_generators()),
        }

    def on_load_checkpoint(
        self,
        trainer: pl.Trainer,  # noqa: ARG002
        pl_module: pl.LightningModule,  # noqa: ARG002
        checkpoint: dict[str, Any],
    ) -> None:
        """Keeps the generators' state until the first step."""
        self._generators = checkpoint[_KEY]["generators"]

    def on_train_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,  # noqa: ARG002
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        """Only here: starting up, the loader draws a number too, and Lightning takes the signals."""
        self._interruption.catch()
        if self._generators is not None:
            _restore(self._generators[trainer.global_rank])
            self._generators = None


def read_state(path: Path, identity: RunIdentity, *, ranks: int = 1) -> int:
    """Checks that a state is of this run.

    Args:
        path: The file.
        identity: Of the run that is to go on.
        ranks: How many processes it has.

    Returns:
        The step that it goes on from.

    Raises:
        CheckpointError: if there is none, it cannot be read, or it is of another method, configuration, data or number
            of processes; it names both.
    """
    state = _load(path)
    try:
        found = state[_KEY]
        step, version, generators = int(state["global_step"]), found["format"], len(found["generators"])
        theirs = RunIdentity(found["method"], found["config_sha256"], found["data_sha256"])
    except (KeyError, TypeError, ValueError) as error:
        raise CheckpointError(f"{path} is not the state of a run") from error
    if version != STATE_FORMAT:
        raise CheckpointError(f"{path} has state format {version}; this version reads {STATE_FORMAT}")
    if theirs.method != identity.method:
        raise CheckpointError(f"{path} is of a run of {theirs.method}; it cannot go on as {identity.method}")
    if theirs.config_sha256 != identity.config_sha256:
        both = f"{theirs.config_sha256[:12]}; it cannot go on with {identity.config_sha256[:12]}"
        raise CheckpointError(f"{path} is of configuration {both}")
    if theirs.data_sha256 != identity.data_sha256:
        raise CheckpointError(
            f"what the run reads has changed since {path} was written: pictures, captions or checkpoints "
            f"(digest {theirs.data_sha256[:12]}, now {identity.data_sha256[:12]}); start a new run"
        )
    if generators != ranks:
        how = "without torchrun" if generators == 1 else f"by torchrun with {generators} processes in all"
        raise CheckpointError(
            f"{path} is of a run of {generators} process(es); it cannot go on with {ranks}: start it {how}"
        )
    return step


def discard_state(path: Path) -> None:
    """Removes the state of a run that is over, and what a kill left of one that was being written."""
    for each in (path, _half_written(path)):
        each.unlink(missing_ok=True)


def _half_written(path: Path) -> Path:
    return path.with_name(f"{path.name}.tmp")


def _load(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise CheckpointError(f"no state to go on from at {path}")
    try:
        state = read_torch_file(path, mapped=True)
    except NotATorchFile as error:
        raise CheckpointError(f"{path} is not the state of a run: {error}") from error
    return state if isinstance(state, dict) else {}


def _generators() -> dict[str, Any]:
    """The process's generators, of which methods and modules draw (hidden patches, dropped paths)."""
    state: Any = np.random.get_state()  # noqa: NPY002 - what others draw from
    kind, keys, position, has_gauss, gauss = state
    return {
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        "numpy": (str(kind), torch.from_numpy(keys.astype(np.int64)), int(position), int(has_gauss), float(gauss)),
        "python": random.getstate(),
    }


def _restore(generators: dict[str, Any]) -> None:
    torch.set_rng_state(generators["torch"])
    if generators["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(generators["cuda"])
    kind, keys, position, has_gauss, gauss = generators["numpy"]
    np.random.set_state((kind, keys.numpy().astype(np.uint32), position, has_gauss, gauss))  # noqa: NPY002
    random.setstate(generators["python"])


def _of_all_ranks(mine: dict[str, Any]) -> list[dict[str, Any]]:
    if not torch.distributed.is_available() or not torch.distributed.is_initialized():
        return [mine]
    gathered: list[Any] = [None] * torch.distributed.get_world_size()
    torch.distributed.all_gather_object(gathered, mine)
    return gathered
