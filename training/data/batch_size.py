"""Whether a batch of pairs can teach something, and be shared."""

from __future__ import annotations

from twinlens.training.data.errors import DataError


def check_batch_size(batch_size: int, world_size: int) -> None:
    """Refuses a batch without negatives, and one that does not come out even.

    Args:
        batch_size: In pairs, of all ranks together.
        world_size: How many ranks share it.

    Raises:
        DataError: saying which of both.
    """
    if batch_size < 2:
        raise DataError("batch_size must be at least 2: one pair has no negatives, its loss is 0 and teaches nothing")
    if batch_size % world_size:
        raise DataError(f"batch_size {batch_size} is not a multiple of the {world_size} processes that share it")
