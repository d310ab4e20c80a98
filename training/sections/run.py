"""`[train]`: how long and how fast."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from twinlens.training.sections.frozen import Frozen


class RunConfig(Frozen):
    """How long and how fast.

    Attributes:
        steps: Of the optimiser.
        batch_size: Pairs a step.
        learning_rate: After the warm-up; from there it falls to 0 by half a cosine.
        warmup_steps: With a rising learning rate.
        weight_decay: Of matrices; gains, biases and temperature are not decayed.
        precision: bf16 keeps the weights in fp32 and computes in bfloat16.
        seed: Of the weights, the order of the pairs and every draw.
        log_every: Steps between two rows of metrics.csv, and between two lines.
        state_every: Write the state from which a run goes on (`--resume`) every so many steps, besides when it is
            interrupted; 0: only then.
        threads: Of torch; None leaves it alone.
    """

    steps: int = Field(default=1000, ge=1)
    batch_size: int = Field(default=128, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    warmup_steps: int = Field(default=50, ge=0)
    precision: Literal["fp32", "bf16"] = "fp32"
    seed: int = Field(default=0, ge=0, lt=2**32)
    log_every: int = Field(default=20, ge=1)
    state_every: int = Field(default=500, ge=0)
    threads: int | None = Field(default=None, ge=1, le=1024)
