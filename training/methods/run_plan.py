"""What a method knows of the run it is part of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

OptimiserName = Literal["adamw", "sgd", "lars"]


@dataclass(frozen=True)
class RunPlan:
    """One run.

    Attributes:
        steps: Of the optimiser, in all.
        batch_size: Pictures a step, of all ranks together.
        dataset_size: Pictures in the data.
        classes: How many classes the data names; 0 where it names none.
        global_views: Full crops of a picture.
        local_views: Small crops of a picture (multi-crop).
        size: Side of a full crop.
        local_sizes: Sides that small crops have.
        mean: By which the channels of views were normalised, on the scale 0 to 1.
        std: Likewise.
        learning_rate: After warm-up.
        weight_decay: Of matrices and filters only.
        warmup_steps: With a rising learning rate.
        optimiser: Which one.
        momentum: Of `sgd` and `lars`.
        log_every: Steps between two reports; the watch for collapse looks at those, and at others where they are rare.
        chunk_size: Pictures encoded at a time where a batch is larger than memory; None: all at once.
        world_size: Ranks that share a batch.
    """

    steps: int
    batch_size: int
    dataset_size: int
    classes: int = 0
    global_views: int = 2
    local_views: int = 0
    size: int = 32
    local_sizes: tuple[int, ...] = ()
    mean: tuple[float, float, float] = (0.485, 0.456, 0.406)
    std: tuple[float, float, float] = (0.229, 0.224, 0.225)
    learning_rate: float = 1e-3
    weight_decay: float = 1e-4
    warmup_steps: int = 0
    optimiser: OptimiserName = "adamw"
    momentum: float = 0.9
    log_every: int = 20
    chunk_size: int | None = None
    world_size: int = 1

    @property
    def steps_per_epoch(self) -> int:
        """Whole batches in one walk through the data; at least one."""
        return max(1, self.dataset_size // self.batch_size)
