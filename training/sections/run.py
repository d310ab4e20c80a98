"""`[train]`: how long and how fast."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from twinlens.training.sections.frozen import Frozen


class RunConfig(Frozen):
    """How long and how fast.

    Attributes:
        steps: Of the optimiser.
        batch_size: Pairs a step, of all processes together.
        chunk_size: Encode so many pictures, and captions, at a time and keep only their embeddings, for batches larger
            than memory; all pairs are still compared with each other.
        learning_rate: After the warm-up; from there it falls to 0 by half a cosine.
        warmup_steps: With a rising learning rate.
        weight_decay: Of matrices; gains, biases and temperature are not decayed.
        max_gradient_norm: A gradient that is longer is shortened to this; None: as long as it is.
        max_skipped: How many steps may be skipped because their loss or gradient is not finite; one more ends the run.
        ema_decay: Keep a moving average of the weights, of which this share stays at each step (fewer in the first
            ones): it is what is validated and what the checkpoint holds; the weights themselves are left beside it.
            None: no average.
        precision: bf16 and fp16 keep the weights in fp32 and compute in bfloat16, or in float16 with a scaled loss;
            auto takes bf16 where the processor has it, else fp32.
        compile: Have torch compile the towers; the first step then takes a minute, and a C++ compiler.
        seed: Of the weights, the order of the pairs and every draw.
        log_every: Steps between two rows of metrics.csv, and between two lines.
        state_every: Write the state from which a run goes on (`--resume`) every so many steps, besides when it is
            interrupted; 0: only then.
        tensorboard: Write the reports as event files too (needs the package tensorboard).
        threads: Of torch; None leaves it alone.
    """

    steps: int = Field(default=1000, ge=1)
    batch_size: int = Field(default=128, ge=1)
    chunk_size: int | None = Field(default=None, ge=1)
    learning_rate: float = Field(default=1e-3, gt=0)
    weight_decay: float = Field(default=0.1, ge=0)
    warmup_steps: int = Field(default=50, ge=0)
    max_gradient_norm: float | None = Field(default=None, gt=0)
    max_skipped: int = Field(default=10, ge=0)
    ema_decay: float | None = Field(default=None, gt=0, lt=1)
    precision: Literal["auto", "fp32", "bf16", "fp16"] = "fp32"
    compile: bool = False
    seed: int = Field(default=0, ge=0, lt=2**32)
    log_every: int = Field(default=20, ge=1)
    state_every: int = Field(default=500, ge=0)
    tensorboard: bool = False
    threads: int | None = Field(default=None, ge=1, le=1024)
