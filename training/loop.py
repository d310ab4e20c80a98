"""The loop: Lightning's Trainer over any method whose step returns named values."""

from __future__ import annotations

import logging
import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from torch.utils.data import DataLoader, IterableDataset

from twinlens.training.csv_rows import append_row
from twinlens.training.errors import TrainingError
from twinlens.training.freed_memory import freed_memory_kept
from twinlens.training.loss_scaling import ScaledHalfPrecision
from twinlens.training.modules.gather import mean_over_ranks
from twinlens.training.precision import Precision
from twinlens.training.progress import Report
from twinlens.training.ranks import ALONE, Ranks
from twinlens.training.step_guard import StepGuard
from twinlens.training.waited_batches import WaitedBatches

# Longest silence on a run whose reports are far apart.
_SILENT_S = 10.0


def fit(
    method: pl.LightningModule,
    batches: IterableDataset[Any],
    *,
    steps: int,
    precision: Precision,
    log_every: int,
    metrics_csv: Path,
    progress: Report,
    threads: int | None = None,
    callbacks: Sequence[pl.Callback] = (),
    guard: StepGuard | None = None,
    ranks: Ranks = ALONE,
    resume_from: Path | None = None,
) -> dict[str, float]:
    """Trains for `steps` steps on the GPU where there is one, else on the CPU.

    Args:
        method: Its `training_step` returns `{"loss": …, other names: …}`, all scalars.
        batches: Endless and ready: whole batches, in order.
        steps: Of the optimiser.
        precision: `bf16` and `fp16` compute in that and keep weights and losses in fp32; `fp16` scales the loss.
        log_every: Write and report every so many steps, and at the last one.
        metrics_csv: A row per report: step, seconds, samples_per_s, the share of the time that was spent on waiting for
            batches (data_wait), learning_rate (the largest of all groups), and every named value.
        progress: Called with each report; without values before the first step, and where a report is long in coming.
        threads: Of torch, on the CPU.
        callbacks: What else happens between steps.
        guard: Skips steps that are not finite, and has its count in the reports; None: the first reported loss that is
            not finite ends the run.
        ranks: The processes that share each batch; each is given its own part, gradients are averaged over them, and
            so are the values that are reported. The first one writes and reports.
        resume_from: A state that `Trainer.save_checkpoint` wrote; `batches` begin with the one after it.

    Returns:
        The last report.

    Raises:
        TrainingError: if the loss is no longer finite, a step does not fit into memory, or there are more processes
            than GPUs on a machine that has any.
    """
    gpus = torch.cuda.device_count()
    if 0 < gpus < ranks.local_world_size:
        raise TrainingError(f"{ranks.local_world_size} processes were started for {gpus} GPU(s): start one for each")
    if threads is not None:
        torch.set_num_threads(threads)
    waited = WaitedBatches(batches)
    log = _MetricsLog(steps, log_every, metrics_csv, progress, ranks, waited, guard)
    with _quiet(), _within_memory(), freed_memory_kept():
        trainer = pl.Trainer(
            accelerator="auto",
            devices=ranks.local_world_size,
            num_nodes=ranks.nodes,
            strategy="auto" if ranks == ALONE else "ddp",
            max_steps=steps,
            **_arithmetic(precision),
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            use_distributed_sampler=False,
            callbacks=[*([] if guard is None else [guard]), log, _OwnDraws(ranks), *callbacks],
        )
        # No worker processes: the batches are cut from one array in memory, and the cores belong to the towers.
        loader = DataLoader(waited, batch_size=None, num_workers=0)
        trainer.fit(method, loader, ckpt_path=resume_from, weights_only=True)
    return log.last


def _arithmetic(precision: Precision) -> dict[str, Any]:
    """What Lightning's trainer is to be given for it."""
    if precision == "fp16":
        return {"plugins": [ScaledHalfPrecision("cuda" if torch.cuda.is_available() else "cpu")]}
    return {"precision": "bf16-mixed" if precision == "bf16" else "32-true"}


class _MetricsLog(pl.Callback):
    def __init__(
        self,
        steps: int,
        every: int,
        path: Path,
        progress: Report,
        ranks: Ranks,
        waited: WaitedBatches,
        guard: StepGuard | None,
    ) -> None:
        self._steps = steps
        self._every = every
        self._path = path
        self._progress = progress
        self._ranks = ranks
        self._waited = waited
        self._guard = guard
        self._seen = 0
        self._since = 0
        self._since_waited_s = 0.0
        self._learning_rate = 0.0
        self._start_s = self._tick_s = time.perf_counter()
        self._before_s = 0.0
        self._told_s: float | None = None
        self.last: dict[str, float] = {}

    def state_dict(self) -> dict[str, Any]:
        """A run that is resumed counts on from the seconds it had."""
        return {"seconds": time.perf_counter() - self._start_s}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before_s = state_dict["seconds"]

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        self._tick_s = time.perf_counter()
        self._start_s = self._tick_s - self._before_s
        self._since_waited_s = self._waited.waited_s

    def on_train_batch_start(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,  # noqa: ARG002
        batch: Any,  # noqa: ARG002
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        # Only here: when the step has ended, the schedule has moved on.
        self._learning_rate = max(group["lr"] for group in trainer.optimizers[0].param_groups)
        if self._told_s is None:
            self._tell(trainer.global_step, {})

    def on_train_batch_end(
        self,
        trainer: pl.Trainer,
        pl_module: pl.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,  # noqa: ARG002
    ) -> None:
        self._seen += batch.samples * self._ranks.world_size
        step = trainer.global_step
        if step % self._every and step != self._steps:
            if self._told_s is not None and time.perf_counter() - self._told_s > _SILENT_S:
                self._tell(step, {})
            return
        # Reading a value waits for the device, so it happens here only.
        mean = mean_over_ranks(torch.stack([value.detach().float().to(pl_module.device) for value in outputs.values()]))
        values = dict(zip(outputs, mean.tolist(), strict=True))
        if self._guard is None and not math.isfinite(values["loss"]):
            raise TrainingError(f"the loss is {values['loss']} at step {step}: lower learning_rate or use fp32")
        now_s = time.perf_counter()
        lasted_s = max(1e-9, now_s - self._tick_s)
        row = {
            "step": float(step),
            "seconds": now_s - self._start_s,
            "samples_per_s": (self._seen - self._since) / lasted_s,
            "data_wait": min(1.0, (self._waited.waited_s - self._since_waited_s) / lasted_s),
            "learning_rate": self._learning_rate,
            **values,
        }
        if self._guard is not None:
            row["skipped"] = float(self._guard.skipped)
        self._tick_s, self._since, self._since_waited_s = now_s, self._seen, self._waited.waited_s
        self.last = row
        if self._ranks.is_first:
            append_row(self._path, row)
        self._tell(step, row)

    def _tell(self, step: int, values: dict[str, float]) -> None:
        self._told_s = time.perf_counter()
        if self._ranks.is_first:
            self._progress(step, values)


class _OwnDraws(pl.Callback):
    """Weights start alike on all ranks; dropout and masks must not repeat from rank to rank.

    Here, because Lightning seeds all ranks alike once more when it joins them.
    """

    def __init__(self, ranks: Ranks) -> None:
        self._ranks = ranks

    def on_train_start(self, trainer: pl.Trainer, pl_module: pl.LightningModule) -> None:  # noqa: ARG002
        if self._ranks.world_size > 1:
            torch.manual_seed(torch.initial_seed() + self._ranks.rank)


@contextmanager
def _within_memory() -> Iterator[None]:
    """One line where a GPU's memory or the machine's is not enough."""
    try:
        yield
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise TrainingError(
            "a step does not fit into memory: lower train.batch_size, or set train.chunk_size where the method takes it"
        ) from error


@contextmanager
def _quiet() -> Iterator[None]:
    """Lightning's advice (add workers, add a logger, here is a tip) is answered above."""
    loggers = [
        logging.getLogger(name)
        for name in ("pytorch_lightning", "lightning.pytorch", "lightning.fabric", "lightning_fabric")
    ]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", module=r"(pytorch_lightning|lightning_fabric|torch)(\.|$)")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
