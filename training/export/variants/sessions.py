"""ONNX Runtime sessions over models in memory, whose inner tensors may be outputs too."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from twinlens.encoders.cpus import allowed_cpus
from twinlens.encoders.errors import BundleError
from twinlens.encoders.onnx_session import open_graph
from twinlens.training.export.errors import ExportError
from twinlens.training.export.variants.tower_graph import save


def open_model(model: Any) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU over an `onnx.ModelProto` of any size.

    Raises:
        ExportError: if the runtime does not take the model.
    """
    with tempfile.TemporaryDirectory(prefix="twinlens-") as folder:
        path = Path(folder) / "tower.onnx"
        save(model, path)
        try:
            return open_graph(path, device="cpu", threads=allowed_cpus())
        except BundleError as error:
            raise ExportError(f"onnxruntime does not take the graph: {error}") from error
