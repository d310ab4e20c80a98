"""Whether an exported graph computes what the torch module computes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from twinlens.encoders.onnx_session import OnnxSession
from twinlens.training.export.errors import ExportError

MIN_COSINE = 0.9999
# One, a few, and more than any example batch: a batch baked into the graph, or a reshape that mixes rows, shows.
BATCHES = (1, 3, 33)


def run_torch(module: nn.Module, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
    """The module's raw output for named inputs taken by position, shape (n, d)."""
    with torch.no_grad():
        output: Tensor = module(*(torch.from_numpy(value) for value in inputs.values()))
    return output.float().numpy()


class ExportedGraph:
    """An ONNX file open in ONNX Runtime, to be held against the torch module it came from."""

    def __init__(self, path: Path, tower: str) -> None:
        """Opens `path`; `tower` is named in errors.

        Raises:
            BundleError: if the file is not a graph that loads.
        """
        self._session = OnnxSession(path, device="cpu", threads=torch.get_num_threads())
        self._tower = tower

    def agreement(self, inputs: Mapping[str, NDArray[Any]], expected: NDArray[np.float32]) -> float:
        """Runs one batch and compares it with what torch gave.

        Args:
            inputs: The graph's inputs by name; names it does not take are left out.
            expected: Torch's rows, shape (n, d).

        Returns:
            The worst cosine between a torch row and its ONNX row.

        Raises:
            ExportError: if it is below 0.9999, if shapes differ, or if a value is not finite.
        """
        actual = self._session.run(inputs)
        batch = len(expected)
        if actual.shape != expected.shape:
            raise ExportError(f"{self._tower} tower: torch gives shape {expected.shape}, the graph {actual.shape}")
        if not np.isfinite(expected).all() or not np.isfinite(actual).all():
            raise ExportError(f"{self._tower} tower: an output is not finite for a batch of {batch}")
        worst = float(row_cosines(expected, actual).min())
        if worst < MIN_COSINE:
            raise ExportError(
                f"{self._tower} tower: the exported graph does not agree with torch: cosine {worst:.6f} for a batch "
                f"of {batch}, at least {MIN_COSINE} is needed"
            )
        return worst


def row_cosines(a: NDArray[np.float32], b: NDArray[np.float32]) -> NDArray[np.float64]:
    """Cosine of each row of `a`, shape (n, d), with the same row of `b`."""
    a64, b64 = a.astype(np.float64), b.astype(np.float64)
    norms = np.linalg.norm(a64, axis=1) * np.linalg.norm(b64, axis=1)
    cosines: NDArray[np.float64] = (a64 * b64).sum(axis=1) / np.maximum(norms, 1e-30)
    return cosines
