"""What a run says before its first step: on what it computes, what it trains on, and for how long."""

from __future__ import annotations

import torch

from twinlens.training.ranks import ALONE, Ranks


def opening_line(
    method: str,
    *,
    trained_on: str,
    samples: int | None,
    steps: int,
    batch_size: int,
    precision: str,
    start: int = 0,
    threads: int | None = None,
    ranks: Ranks = ALONE,
) -> str:
    """One line for a person.

    Args:
        method: Its name.
        trained_on: What and how much, such as `10,000 pictures`.
        samples: How many pictures or pairs there are in a walk through the data; None: nobody knows yet.
        steps: Of the optimiser, in all.
        batch_size: Of all processes together.
        precision: `fp32` or `bf16`.
        start: The step that a resumed run goes on from.
        threads: Of torch, where the run sets them.
        ranks: The processes that share each batch.
    """
    processes = "" if ranks == ALONE else f" in {ranks.world_size} processes"
    where = f"{method} on {_device_name(threads)}{processes}"
    if not steps:
        return f"{where}: {trained_on}; nothing is trained"
    walks = ""
    if samples is not None:
        epochs = _three_digits(steps * batch_size / max(1, samples))
        walks = f" = {epochs} {'epoch' if epochs == '1' else 'epochs'}"
    onward = f", on from step {start:,}" if start else ""
    many = "1 step" if steps == 1 else f"{steps:,} steps"
    return f"{where}, {precision}: {trained_on}, {many} of {batch_size:,}{walks}{onward}"


def _three_digits(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _device_name(threads: int | None = None) -> str:
    """What Lightning computes on here."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    if torch.backends.mps.is_available():
        return "the GPU of this Mac"
    count = torch.get_num_threads() if threads is None else threads
    return f"the CPU ({count} thread{'' if count == 1 else 's'})"
