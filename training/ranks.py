"""Which of the processes of a distributed run this one is, as `torchrun` tells it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ranks:
    """One process among those that share each batch.

    Attributes:
        rank: Of this process, from 0.
        world_size: How many processes there are.
        local_world_size: How many of them are on this machine.
    """

    rank: int = 0
    world_size: int = 1
    local_world_size: int = 1

    @property
    def is_first(self) -> bool:
        """Whether this process writes the files and speaks."""
        return self.rank == 0

    @property
    def nodes(self) -> int:
        """How many machines there are."""
        return self.world_size // self.local_world_size


ALONE = Ranks()


def launched_ranks(environment: Mapping[str, str] | None = None) -> Ranks:
    """What `torchrun` wrote into the environment; a process started otherwise is alone."""
    given = os.environ if environment is None else environment
    if "TORCHELASTIC_RUN_ID" not in given:
        return ALONE
    return Ranks(int(given["RANK"]), int(given["WORLD_SIZE"]), int(given["LOCAL_WORLD_SIZE"]))
