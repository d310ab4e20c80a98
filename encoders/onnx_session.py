"""A tower in ONNX Runtime, on the CPU or a CUDA device."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.errors import BundleError, RuntimeUnavailable, first_line
from twinlens.encoders.tower_inputs import select_inputs

CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"


def import_onnxruntime() -> Any:
    """The module, with its telemetry off.

    Its newer Linux packages write an identifier and a database to the user's cache and start a thread that uploads
    usage as soon as they are imported; only this variable, set before, prevents all three.

    Raises:
        RuntimeUnavailable: if it is not installed, or does not load.
    """
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
    try:
        import onnxruntime  # noqa: PLC0415 - heavy, and absent from the base install
    except ImportError:
        raise RuntimeUnavailable(
            "onnxruntime is not installed; install twinlens[cpu], or twinlens[gpu] on a machine with a CUDA device"
        ) from None
    except OSError as error:  # one of its libraries is missing or damaged
        raise RuntimeUnavailable(f"onnxruntime is installed but does not load: {first_line(error)}") from error
    return onnxruntime


def open_graph(path: str | Path, *, device: Literal["cpu", "cuda"], threads: int) -> Any:
    """An `onnxruntime.InferenceSession`.

    Args:
        path: The `.onnx` file; external data is found beside it.
        device: With `cuda` the runtime may still fall back to the CPU.
        threads: Intra-op threads.

    Raises:
        RuntimeUnavailable: if onnxruntime is not installed.
        BundleError: if the file is not a graph that loads.
    """
    onnxruntime = import_onnxruntime()
    if device == "cuda" and hasattr(onnxruntime, "preload_dlls"):
        onnxruntime.preload_dlls()  # finds the CUDA libraries that came as wheels
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 4  # errors are raised as well, and told once
    # It would keep a plan for every shape it meets, and is no faster.
    options.enable_mem_pattern = False
    # Waiting threads would burn the CPUs that decoding needs.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # onnxruntime 1.32 ends with a segmentation fault in it on many an fp16 graph, such as CLIP's text tower.
    options.add_session_config_entry(
        "optimization.disable_specified_optimizers", "FuseFp16InitializerToFp32NodeTransformer"
    )
    # TF32 keeps 10 bits of the mantissa: parity with the exporter would be left to luck. The exhaustive search for
    # convolutions, cuDNN's default here, would start again with every batch size.
    cuda = {"use_tf32": "0", "cudnn_conv_algo_search": "HEURISTIC"}
    providers: list[Any] = [(CUDA, cuda), _CPU] if device == "cuda" else [_CPU]
    try:
        return onnxruntime.InferenceSession(str(path), sess_options=options, providers=providers)
    except Exception as error:  # the runtime's own exception types are not public
        msg = f"{Path(path).name} cannot be loaded: {first_line(error)}"
        raise BundleError(msg) from error


class OnnxSession:
    """One ONNX graph, loaded and ready; `run` is thread-safe."""

    compiles_shapes = False

    def __init__(self, path: str | Path, *, device: Literal["cpu", "cuda"], threads: int) -> None:
        """Loads the graph; arguments and errors are those of `open_graph`, `provider` says where it runs."""
        self._name = Path(path).name
        self._session: Any = open_graph(path, device=device, threads=threads)
        self.provider: Literal["cpu", "cuda"] = "cuda" if CUDA in self._session.get_providers() else "cpu"
        self.threads = threads
        self.input_names: tuple[str, ...] = tuple(node.name for node in self._session.get_inputs())

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """See `TowerSession`."""
        session = self._session
        if session is None:
            msg = f"{self._name} was closed"
            raise BundleError(msg)
        selected = select_inputs(self._name, self.input_names, inputs)
        try:
            outputs = session.run(None, selected)
        except Exception as error:  # as above
            msg = f"{self._name} failed: {first_line(error)}"
            raise BundleError(msg) from error
        return np.asarray(outputs[0], dtype=np.float32)

    def close(self) -> None:
        """Lets go of the weights."""
        self._session = None
