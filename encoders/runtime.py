"""Where towers run and in which precision: what this machine has, and the choice among it."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.cpus import allowed_cpus
from twinlens.encoders.errors import RuntimeUnavailable
from twinlens.encoders.onnx_session import CUDA, OnnxSession, import_onnxruntime
from twinlens.encoders.openvino_session import OpenVinoSession, openvino_capabilities

Provider = Literal["auto", "cpu", "cuda", "openvino"]

# What a tower computes in. fp16 and int8 are files of a bundle; bf16 is OpenVINO running the fp32 file.
RunPrecision = Literal["fp32", "bf16", "fp16", "int8"]

Tower = Literal["image", "text"]


class TowerSession(Protocol):
    """One ONNX graph, loaded and ready."""

    input_names: tuple[str, ...]
    threads: int
    # Whether it compiles and keeps code for every shape it meets: then few of them should be brought.
    compiles_shapes: bool

    @property
    def provider(self) -> Literal["cpu", "cuda", "openvino"]:
        """Where it runs."""
        ...

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float32]:
        """Runs the graph on a batch; thread-safe.

        Args:
            inputs: By input name, at least those the graph takes.

        Returns:
            The first output, shape (n, d), float32, not normalised.

        Raises:
            BundleError: if the graph fails on these, or was closed.
        """
        ...

    def close(self) -> None:
        """Lets go of the weights; running afterwards is an error."""
        ...


def available_providers() -> tuple[Provider, ...]:
    """The providers that would work here: `("cuda", "cpu", "openvino")` at most, nothing without a runtime.

    `auto` takes the first that is not OpenVINO, which is used only where it is asked for.
    """
    found: list[Provider] = []
    with suppress(RuntimeUnavailable):
        import_onnxruntime()
        found += ["cuda", "cpu"] if _cuda_is_usable() else ["cpu"]
    if openvino_capabilities():
        found.append("openvino")
    return tuple(found)


def available_precisions(provider: str) -> tuple[RunPrecision, ...]:
    """What a provider can compute in on this machine, given the files."""
    if provider == "openvino" and "BF16" in openvino_capabilities():
        return ("fp32", "bf16", "fp16", "int8")
    return ("fp32", "fp16", "int8")


def open_tower(
    path: str | Path,
    *,
    provider: Provider = "auto",
    bf16: bool = False,
    threads: int | None = None,
) -> TowerSession:
    """Loads a graph where it was asked to run.

    Args:
        path: The `.onnx` file; external data is found beside it.
        provider: `auto` takes CUDA where it is usable and ONNX Runtime's CPU otherwise.
        bf16: Compute in bfloat16; OpenVINO only.
        threads: Threads of a run; never more than `allowed_cpus()`, which is also the default.

    Raises:
        RuntimeUnavailable: if the provider is not there, or cannot compute in bf16.
        BundleError: if the file is not a graph that loads.
    """
    cpus = allowed_cpus()
    granted = max(1, min(threads or cpus, cpus))
    if provider == "openvino":
        return OpenVinoSession(path, bf16=bf16, threads=granted)
    if bf16:
        raise RuntimeUnavailable("bf16 is computed by OpenVINO only: ask for the provider openvino with it")
    cuda = provider != "cpu" and _cuda_is_usable()
    if provider == "cuda" and not cuda:
        raise RuntimeUnavailable(
            "CUDA was asked for, but onnxruntime sees no usable CUDA device; "
            "install twinlens[gpu] on a machine with one, or choose the provider cpu"
        )
    session = OnnxSession(path, device="cuda" if cuda else "cpu", threads=granted)
    if provider == "cuda" and session.provider != "cuda":
        raise RuntimeUnavailable("CUDA was asked for, but onnxruntime could not start it; are its libraries there?")
    return session


def _cuda_is_usable() -> bool:
    return CUDA in import_onnxruntime().get_available_providers() and _cuda_devices() > 0


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
