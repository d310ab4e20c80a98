"""ONNX Runtime sessions: which device, how many threads."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.errors import BundleError, RuntimeUnavailable

Provider = Literal["auto", "cpu", "cuda"]

_CUDA = "CUDAExecutionProvider"
_CPU = "CPUExecutionProvider"


def allowed_cpus(root: Path = Path("/")) -> int:
    """CPUs this process may use: its affinity mask, further limited by the quotas of its cgroups (v2 and v1).

    Args:
        root: Where `proc` and `sys` lie; tests pass a folder of their own.
    """
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quotas = [quota for quota in _quotas(root) if quota > 0]
    return max(1, min([affinity, *(int(quota) for quota in quotas)]))


def available_providers() -> tuple[str, ...]:
    """The providers that would work here, best first: `("cuda", "cpu")`, `("cpu",)`, or nothing without a runtime."""
    try:
        import onnxruntime  # noqa: PLC0415
    except ImportError:
        return ()
    if _CUDA in onnxruntime.get_available_providers() and _cuda_devices() > 0:
        return ("cuda", "cpu")
    return ("cpu",)


class TowerSession:
    """One ONNX graph, loaded and ready; `run` is thread-safe."""

    def __init__(self, path: str | Path, *, provider: Provider = "auto", threads: int | None = None) -> None:
        """Loads the graph.

        Args:
            path: The `.onnx` file; external data is found beside it.
            provider: `auto` takes CUDA where it is usable and the CPU otherwise.
            threads: Intra-op threads; never more than `allowed_cpus()`, which is also the default.

        Raises:
            RuntimeUnavailable: if onnxruntime is not installed, or CUDA was asked for and is not usable.
            BundleError: if the file is not a graph that loads.
        """
        onnxruntime = _import_runtime()
        cuda = provider != "cpu" and "cuda" in available_providers()
        if provider == "cuda" and not cuda:
            raise RuntimeUnavailable(
                "CUDA was asked for, but onnxruntime sees no usable CUDA device; "
                "install twinlens[gpu] on a machine with one, or choose the provider cpu"
            )
        if cuda and hasattr(onnxruntime, "preload_dlls"):
            onnxruntime.preload_dlls()  # finds the CUDA libraries that came as wheels
        options = onnxruntime.SessionOptions()
        cpus = allowed_cpus()
        options.intra_op_num_threads = max(1, min(threads or cpus, cpus))
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        # Waiting threads would burn the CPUs that decoding needs.
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        # TF32 keeps 10 bits of the mantissa: parity with the exporter would be left to luck.
        providers: list[Any] = [(_CUDA, {"use_tf32": "0"}), _CPU] if cuda else [_CPU]
        try:
            self._session = onnxruntime.InferenceSession(str(path), sess_options=options, providers=providers)
        except Exception as error:  # the runtime's own exception types are not public
            msg = f"{Path(path).name} cannot be loaded: {_first_line(error)}"
            raise BundleError(msg) from error
        if provider == "cuda" and _CUDA not in self._session.get_providers():
            raise RuntimeUnavailable("CUDA was asked for, but onnxruntime could not start it; are its libraries there?")
        self._name = Path(path).name
        self.provider: Literal["cpu", "cuda"] = "cuda" if _CUDA in self._session.get_providers() else "cpu"
        self.threads: int = options.intra_op_num_threads
        self.input_names: tuple[str, ...] = tuple(node.name for node in self._session.get_inputs())

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Runs the graph on a batch.

        Args:
            inputs: By input name; the graph takes those it names and the rest is left out.

        Returns:
            The first output, shape (n, d), float32, not normalised.

        Raises:
            BundleError: if the graph wants an input that is not there, or fails on these.
        """
        missing = [name for name in self.input_names if name not in inputs]
        if missing:
            msg = f"{self._name} wants an input named {missing[0]!r}, which this tower does not have"
            raise BundleError(msg)
        try:
            outputs = self._session.run(None, {name: inputs[name] for name in self.input_names})
        except Exception as error:  # as above
            msg = f"{self._name} failed: {_first_line(error)}"
            raise BundleError(msg) from error
        return np.asarray(outputs[0], dtype=np.float32)


def _import_runtime() -> Any:
    try:
        import onnxruntime  # noqa: PLC0415 - heavy, and absent from the base install
    except ImportError:
        raise RuntimeUnavailable(
            "onnxruntime is not installed; install twinlens[cpu], or twinlens[gpu] on a machine with a CUDA device"
        ) from None
    return onnxruntime


def _cuda_devices() -> int:
    """CUDA devices the driver shows; 0 without a driver. The runtime lists its provider even where none is."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
        count = ctypes.c_int(0)
        if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
            return 0
    except (OSError, AttributeError):
        return 0
    return count.value


def _quotas(root: Path) -> list[float]:
    """CPUs granted by each cgroup on the way to the root, v2 (`cpu.max`) and v1 (`cpu.cfs_quota_us`)."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return []
    quotas: list[float] = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers not in {"", "cpu", "cpu,cpuacct", "cpuacct,cpu"}:
            continue
        base = root / "sys/fs/cgroup" if controllers == "" else root / "sys/fs/cgroup" / controllers
        folder = base / path.strip("/")
        # In a container the path may be the host's; its own group then lies at the base.
        for group in {base, *(p for p in (folder, *folder.parents) if p.is_relative_to(base))}:
            quotas += _quota_of(group)
    return quotas


def _quota_of(group: Path) -> list[float]:
    try:
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text(encoding="utf-8").split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text(encoding="utf-8").strip()
            period = (group / "cpu.cfs_period_us").read_text(encoding="utf-8").strip()
        return [float(quota) / float(period)] if quota not in {"max", "-1"} else []
    except (OSError, ValueError, ZeroDivisionError):
        return []


def _first_line(error: Exception) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
