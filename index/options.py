"""How collections are searched."""

from __future__ import annotations

from dataclasses import dataclass

from twinlens.index.kinds.device import Device
from twinlens.index.kinds.kind import Kind


@dataclass(frozen=True, slots=True)
class IndexOptions:
    """What all collections of a catalog share.

    Attributes:
        threads: How many threads all searches together may use; None: as many as the machine lets this process.
        kind: Of collections that are created without saying so.
        memory_bytes: What one collection's index may take before `auto` chooses a smaller kind; None: half of what this
            process may use.
        device: What searches merged vectors; fresh ones are compared on the CPU.
        least_merged: While a generation has fewer vectors of a modality, they stay unmerged and are all compared.
        reserve_bytes: Kept of the disk, so that items can be deleted once it is full; see `Reserve`.
    """

    threads: int | None = None
    kind: Kind = Kind.AUTO
    memory_bytes: int | None = None
    device: Device = Device.AUTO
    least_merged: int = 4096
    reserve_bytes: int = 4 * 2**20
