"""ONNX Runtime sessions over models in memory or on disk, for making and judging variants."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from twinlens.encoders.cpus import allowed_cpus
from twinlens.training.errors import first_line
from twinlens.training.export.errors import ExportError
from twinlens.training.export.variants.tower_graph import save


def open_model(model: Any) -> Any:
    """An `onnxruntime.InferenceSession` on the CPU over an `onnx.ModelProto` of any size.

    Raises:
        ExportError: if the runtime does not take the model.
    """
    import onnxruntime  # noqa: PLC0415 - an extra

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = allowed_cpus()
    options.log_severity_level = 3
    # Waiting threads would take the CPU from whatever else runs here.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    with tempfile.TemporaryDirectory(prefix="twinlens-") as folder:
        path = Path(folder) / "tower.onnx"
        save(model, path)
        try:
            return onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        except Exception as error:  # the runtime's own exception types are not public
            raise ExportError(f"onnxruntime does not take the graph: {first_line(error)}") from error
