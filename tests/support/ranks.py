"""Runs a function in several processes joined by gloo, as the ranks of a distributed run."""

from __future__ import annotations

import multiprocessing
import os
import time
import traceback
from collections.abc import Callable, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

TIMEOUT_S = 120


def on_ranks(work: Callable[..., Any], folder: Path, *arguments: Any, ranks: int = 2) -> list[Any]:
    """What `work(*arguments)` gives on each rank, in their order; tensors in it come back as they are.

    Args:
        work: At the top level of a module, so that another process finds it.
        folder: Empty; for what the processes tell each other.
        arguments: Of `work`, pickled.
        ranks: How many processes.
    """
    context = multiprocessing.get_context("forkserver")
    # Imported once, by the server that the ranks are forked from, and not by each of them: seconds.
    context.set_forkserver_preload(["torch.distributed", "twinlens.training.train_images"])
    processes = [context.Process(target=_rank, args=(work, folder, rank, ranks, arguments)) for rank in range(ranks)]
    for process in processes:
        process.start()
    try:
        _wait(processes)
        failures = [file.read_text() for file in sorted(folder.glob("failure*"))]
        assert not failures, "\n".join(failures)
        assert [process.exitcode for process in processes] == [0] * ranks
    finally:
        for process in processes:
            process.kill()
            process.join()

    import torch

    return [torch.load(folder / f"result{rank}", weights_only=False) for rank in range(ranks)]


def as_torchrun_starts_it() -> None:
    """Writes into the environment of this process, a rank, what `torchrun` would have."""
    import torch.distributed as dist

    rank, ranks = str(dist.get_rank()), str(dist.get_world_size())
    os.environ |= {"TORCHELASTIC_RUN_ID": "test", "RANK": rank, "LOCAL_RANK": rank}
    os.environ |= {"WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks}


def _wait(processes: Sequence[BaseProcess]) -> None:
    """Until all have ended, or one has failed: the others would wait for it."""
    running = list(processes)
    until = time.monotonic() + TIMEOUT_S
    while running and all(process.exitcode in {None, 0} for process in processes):
        ended = wait([process.sentinel for process in running], max(0.0, until - time.monotonic()))
        assert ended, f"not all ranks ended within {TIMEOUT_S} s"
        running = [process for process in running if process.sentinel not in ended]


def _rank(
    work: Callable[..., Any], folder: Path, rank: int, ranks: int, arguments: tuple[Any, ...]
) -> None:  # pragma: no cover - another process
    import torch
    import torch.distributed as dist

    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    try:
        dist.init_process_group("gloo", init_method=f"file://{folder / 'meeting'}", rank=rank, world_size=ranks)
        torch.save(work(*arguments), folder / f"result{rank}")
        dist.destroy_process_group()
    except BaseException:
        (folder / f"failure{rank}").write_text(traceback.format_exc())
        raise
