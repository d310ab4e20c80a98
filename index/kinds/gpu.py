"""Merged vectors searched on a GPU. What is saved is always what a CPU reads."""

from __future__ import annotations

import logging

import numpy as np

from twinlens.index.errors import EngineUnavailable
from twinlens.index.kinds.device import Device, check_device
from twinlens.index.kinds.effort import DEPTHS, Effort, Level, measure_effort
from twinlens.index.kinds.exact import ROUNDING, SPARE, Rows
from twinlens.index.kinds.faiss_structure import FaissStructure
from twinlens.index.kinds.gpu_indexes import GpuForm, gpu_form
from twinlens.index.kinds.gpu_thread import GpuThread
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.structure import Structure
from twinlens.index.protocol import Vectors

log = logging.getLogger(__name__)

# In the time that a question takes to the GPU and back, a CPU core compares about so many vectors.
_ROUND_TRIP_ROWS = 2048
_EXACT = Level(candidates=tuple(depth + SPARE for depth in DEPTHS), efforts=(1,) * len(DEPTHS))


class GpuStructure:
    """A `Structure` on a GPU. It names no candidates once it failed: the CPU then compares instead."""

    def __init__(self, kind: Kind, form: GpuForm, dimension: int, *, required: bool) -> None:
        """Builds it.

        Args:
            kind: Of the segment.
            form: What to build.
            dimension: Of the vectors.
            required: A GPU that fails is an error, not a reason to compare on the CPU.

        Raises:
            RuntimeError: the GPU failed, mostly for want of memory.
        """
        self.kind = kind
        self.steps = form.steps
        self.most = form.most
        self.parameters: dict[str, int] = {}
        self._exact = form.exact  # and not the form, which holds on to the index in memory
        self._dimension = dimension
        self._required = required
        self._failed = False
        self._thread = GpuThread(form.build)

    def propose(self, queries: Vectors, wanted: int, effort: int) -> Rows:
        """See `Structure`.

        Raises:
            EngineUnavailable: the GPU failed, and it is required.
        """
        if self._failed:
            return np.full((len(queries), wanted), -1, dtype=np.int64)
        try:
            scores, rows = self._thread.search(queries, wanted, effort)
        except RuntimeError as error:
            if self._required:
                raise EngineUnavailable("the GPU failed in a search; restart the server when it works again") from error
            log.warning("the GPU failed in a search, comparing on the CPU from now on: %s", error)
            self._failed = True
            return np.full((len(queries), wanted), -1, dtype=np.int64)
        if self._exact and wanted > SPARE:
            # Where the spare candidates do not reach below the last that counts, ties may have been cut off.
            tied = scores[:, -1] >= scores[:, wanted - SPARE - 1] - ROUNDING
            rows = np.where(tied[:, None], -1, rows)
        return rows

    def cost(self, effort: int) -> int:  # noqa: ARG002
        """See `Structure`."""
        return _ROUND_TRIP_ROWS


def on_device(
    device: Device, kind: Kind, matrix: Vectors, on_cpu: tuple[FaissStructure, Effort] | None
) -> tuple[Structure, Effort] | None:
    """Brings what lies over merged vectors to the device asked for.

    Args:
        device: `auto` goes on with the CPU where there is no GPU, or not enough memory on it.
        kind: Of the segment.
        matrix: Unit vectors, shape (n, d), C order.
        on_cpu: As it was read; None for `flat`.

    Raises:
        EngineUnavailable: `cuda` is asked for, and there is none or it failed.
    """
    if len(matrix) == 0 or check_device(device) is Device.CPU:
        return on_cpu
    required = device is Device.CUDA
    structure, effort = on_cpu or (None, Effort(_EXACT, _EXACT))
    form = gpu_form(kind, structure and structure.index, matrix, structure.steps if structure else (1,))
    try:
        there = GpuStructure(kind, form, matrix.shape[1], required=required)
        if form.exact:
            effort = Effort(_EXACT, _EXACT)
        elif not form.measured:
            effort = measure_effort(there, matrix, lambda: False)
    except RuntimeError as error:
        if required:
            raise EngineUnavailable(
                f"{len(matrix):,} vectors of dimension {matrix.shape[1]} did not fit the GPU, or it failed; "
                "set the index device to auto or cpu"
            ) from error
        log.warning("%s vectors stay on the CPU, for the GPU refused them: %s", f"{len(matrix):,}", error)
        return on_cpu
    return there, effort
