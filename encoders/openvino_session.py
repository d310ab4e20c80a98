"""A tower in OpenVINO, on the CPU."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.errors import BundleError, RuntimeUnavailable, first_line
from twinlens.encoders.shapes import batch_parts
from twinlens.encoders.tower_inputs import select_inputs

# Importing `openvino` imports its model converter too, which starts a thread and sends usage over the network.
# Towers are ONNX files, which the runtime reads itself.
_CONVERTER = "openvino.tools.ovc"


@lru_cache(maxsize=1)
def import_openvino() -> Any:
    """The module, without its converter and with its telemetry out of reach.

    Raises:
        RuntimeUnavailable: if it is not installed, or does not load.
    """
    absent = object()
    before = sys.modules.get(_CONVERTER, absent)
    if before is absent:
        sys.modules[_CONVERTER] = None  # type: ignore[assignment] # an import of it now fails, and openvino allows that
    try:
        import openvino  # noqa: PLC0415 - heavy, and an extra
    except ImportError:
        raise RuntimeUnavailable("OpenVINO is not installed; install twinlens[openvino]") from None
    except OSError as error:  # one of its libraries is missing or damaged
        raise RuntimeUnavailable(f"OpenVINO is installed but does not load: {first_line(error)}") from error
    finally:
        if before is absent:
            del sys.modules[_CONVERTER]
    return openvino


@lru_cache(maxsize=1)
def _core() -> Any:
    return import_openvino().Core()


def openvino_capabilities() -> frozenset[str]:
    """What OpenVINO can do on this CPU, such as `FP32`, `BF16`, `INT8`; nothing where it is not installed."""
    try:
        return frozenset(_core().get_property("CPU", "OPTIMIZATION_CAPABILITIES"))
    except (RuntimeUnavailable, RuntimeError):
        return frozenset()


class OpenVinoSession:
    """One ONNX graph, compiled and ready; `run` is thread-safe, callers take turns."""

    provider: Literal["openvino"] = "openvino"
    compiles_shapes = True

    def __init__(self, path: str | Path, *, bf16: bool, threads: int) -> None:
        """Reads and compiles the graph.

        Args:
            path: The `.onnx` file; external data is found beside it.
            bf16: Compute in bfloat16 wherever OpenVINO has it, instead of float32.
            threads: Threads of a run.

        Raises:
            RuntimeUnavailable: if OpenVINO is not installed, or the CPU has no bfloat16 and it was asked for.
            BundleError: if the file is not a graph that loads.
        """
        import_openvino()
        if bf16 and "BF16" not in openvino_capabilities():
            raise RuntimeUnavailable("bf16 was asked for, but this CPU does not have it; choose fp32")
        options = {
            # Without this it takes bf16 by itself on CPUs that have it.
            "INFERENCE_PRECISION_HINT": "bf16" if bf16 else "f32",
            "INFERENCE_NUM_THREADS": threads,
            "NUM_STREAMS": 1,
            # Several servers on one machine would be pinned to the same cores.
            "ENABLE_CPU_PINNING": False,
            # Activations of int8 weights stay as the graph has them.
            "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        }
        self._name = Path(path).name
        try:
            model = _core().read_model(str(path))
            self._request: Any = _core().compile_model(model, "CPU", options).create_infer_request()
        except Exception as error:  # it raises RuntimeError and more
            msg = f"{self._name} cannot be loaded: {_reason(error)}"
            raise BundleError(msg) from error
        self._turn = threading.Lock()
        self.threads = threads
        self.input_names: tuple[str, ...] = tuple(entry.any_name for entry in model.inputs)

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """See `TowerSession`."""
        selected = select_inputs(self._name, self.input_names, inputs)
        with self._turn:
            if self._request is None:
                msg = f"{self._name} was closed"
                raise BundleError(msg)
            try:
                parts = [self._run_part(selected, part) for part in batch_parts(len(selected[self.input_names[0]]))]
            except Exception as error:  # as above
                msg = f"{self._name} failed: {_reason(error)}"
                raise BundleError(msg) from error
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def _run_part(self, inputs: Mapping[str, NDArray[Any]], part: slice) -> NDArray[np.float32]:
        outputs = self._request.infer({name: of[part] for name, of in inputs.items()}, share_inputs=True)
        return np.array(outputs[0], dtype=np.float32)  # what comes out belongs to the request

    def close(self) -> None:
        """Lets go of the weights, after a run that is under way."""
        with self._turn:
            self._request = None


def _reason(error: Exception) -> str:
    """Its messages are a trail of source lines with the reason at the end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    reasons = [line for line in lines if not line.startswith(("Exception from", "Check '"))]
    return (reasons or lines or [type(error).__name__])[-1][:200]
