"""Which processor searches merged vectors."""

from __future__ import annotations

from enum import StrEnum

from twinlens.index.errors import EngineUnavailable, InvalidArgument
from twinlens.index.faiss_library import import_faiss


class Device(StrEnum):
    """`auto` takes a GPU where FAISS sees one; `cuda` wants one and never does without."""

    AUTO = "auto"
    CPU = "cpu"
    CUDA = "cuda"


def check_device(device: Device | str) -> Device:
    """Returns the device to use, never `auto`.

    Raises:
        InvalidArgument: there is none of that name.
        EngineUnavailable: `cuda` is asked for and FAISS sees no GPU.
    """
    try:
        wanted = Device(device)
    except ValueError as error:
        raise InvalidArgument(f"index device {device!r}: it must be one of {', '.join(Device)}") from error
    if wanted is Device.CPU or sees_gpu():
        return Device.CPU if wanted is Device.CPU else Device.CUDA
    if wanted is Device.CUDA:
        raise EngineUnavailable(
            "FAISS sees no CUDA device: install twinlens[gpu] on a machine with an NVIDIA driver, "
            "or set the index device to auto or cpu"
        )
    return Device.CPU


def sees_gpu() -> bool:
    """Whether FAISS was built for GPUs and there is one."""
    try:
        return bool(import_faiss().get_num_gpus())
    except (AttributeError, RuntimeError):  # a build without; a driver that does not answer
        return False
