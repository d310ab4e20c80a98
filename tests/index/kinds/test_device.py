from __future__ import annotations

import pytest

from tests.support.fake_gpu import FakeGpuFaiss
from twinlens.index.errors import EngineUnavailable, InvalidArgument
from twinlens.index.kinds import device
from twinlens.index.kinds.device import Device, check_device


def with_gpus(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    faiss = FakeGpuFaiss(gpus=gpus)
    monkeypatch.setattr(device, "import_faiss", lambda: faiss)


@pytest.mark.parametrize(
    ("asked", "gpus", "used"),
    [("auto", 0, Device.CPU), ("auto", 1, Device.CUDA), ("cpu", 1, Device.CPU), ("cuda", 2, Device.CUDA)],
)
def test_auto_takes_a_gpu_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, asked: str, gpus: int, used: Device
) -> None:
    with_gpus(monkeypatch, gpus)
    assert check_device(asked) is used


def test_asking_for_a_gpu_where_there_is_none_is_an_error_that_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    with_gpus(monkeypatch, 0)
    with pytest.raises(EngineUnavailable, match=r"no CUDA device: install twinlens\[gpu\].*or set .* to auto or cpu"):
        check_device("cuda")


def test_a_driver_that_does_not_answer_counts_as_no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def get_num_gpus(self) -> int:
            raise RuntimeError("CUDA error 100 no CUDA-capable device is detected")

    monkeypatch.setattr(device, "import_faiss", Broken)
    assert check_device("auto") is Device.CPU
    monkeypatch.setattr(device, "import_faiss", object)
    assert check_device("auto") is Device.CPU


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="'tpu': it must be one of auto, cpu, cuda"):
        check_device("tpu")
