from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tests.support.tiny_bundle import SIZE, TinyTowers
from twinlens.encoders import runtime
from twinlens.encoders.errors import BundleError, RuntimeUnavailable
from twinlens.encoders.onnx_session import OnnxSession
from twinlens.encoders.runtime import Provider, available_providers, open_tower


def pixels(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 3, SIZE, SIZE)).astype(np.float32)


@pytest.fixture(scope="module")
def image_graph(tiny_bundle: Path) -> Path:
    return tiny_bundle / "image.onnx"


class TestSession:
    @pytest.mark.parametrize("count", [1, 2, 7])
    def test_gives_the_oracles_vectors_for_any_batch(self, image_graph: Path, count: int) -> None:
        found = open_tower(image_graph, provider="cpu").run({"pixels": pixels(count)})
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, TinyTowers().images(pixels(count)), rtol=1e-5, atol=1e-5)

    def test_texts_with_padding(self, tiny_bundle: Path) -> None:
        ids = np.array([[2, 5, 3, 0], [2, 6, 7, 3]], dtype=np.int64)
        mask = np.array([[1, 1, 1, 0], [1, 1, 1, 1]], dtype=np.int64)
        found = open_tower(tiny_bundle / "text.onnx").run({"input_ids": ids, "attention_mask": mask})
        np.testing.assert_allclose(found, TinyTowers().texts(ids, mask), rtol=1e-5, atol=1e-5)

    def test_inputs_the_graph_does_not_take_are_left_out(self, image_graph: Path) -> None:
        found = open_tower(image_graph).run({"pixels": pixels(2), "attention_mask": np.ones((2, 3), np.int64)})
        assert found.shape == (2, 16)

    def test_an_input_the_graph_misses_is_named(self, tiny_bundle: Path) -> None:
        with pytest.raises(BundleError, match=r"text\.onnx.*'attention_mask'"):
            open_tower(tiny_bundle / "text.onnx").run({"input_ids": np.ones((1, 3), np.int64)})

    def test_a_batch_the_graph_refuses_is_one_line(self, image_graph: Path) -> None:
        with pytest.raises(BundleError, match=r"^image\.onnx failed: [^\n]+$"):
            open_tower(image_graph).run({"pixels": np.zeros((1, 5, 9, 9), np.float32)})

    @pytest.mark.parametrize("raw", [b"", b"not a graph", b"\x08\x07" * 50])
    def test_a_broken_file_is_one_line(self, tmp_path: Path, raw: bytes) -> None:
        (tmp_path / "image.onnx").write_bytes(raw)
        with pytest.raises(BundleError, match=r"^image\.onnx cannot be loaded: [^\n]+$"):
            open_tower(tmp_path / "image.onnx")

    def test_a_missing_file_is_one_line(self, tmp_path: Path) -> None:
        with pytest.raises(BundleError, match=r"^image\.onnx cannot be loaded"):
            open_tower(tmp_path / "image.onnx")


class TestThreads:
    @pytest.mark.parametrize(("asked", "given"), [(None, 3), (1, 1), (2, 2), (3, 3), (64, 3), (-5, 1)])
    def test_never_above_the_cpus_allowed(
        self, image_graph: Path, monkeypatch: pytest.MonkeyPatch, asked: int | None, given: int
    ) -> None:
        monkeypatch.setattr(runtime, "allowed_cpus", lambda: 3)
        session = open_tower(image_graph, provider="cpu", threads=asked)
        assert session.threads == given
        assert isinstance(session, OnnxSession)
        assert session._session.get_session_options().intra_op_num_threads == given
        assert session._session.get_session_options().inter_op_num_threads == 1


class TestProviders:
    def test_auto_without_a_device_is_the_cpu(self, image_graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runtime, "_cuda_is_usable", lambda: False)
        assert open_tower(image_graph).provider == "cpu"

    def test_cuda_without_a_device_is_unavailable(self, image_graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runtime, "_cuda_is_usable", lambda: False)
        with pytest.raises(RuntimeUnavailable, match=r"twinlens\[gpu\]"):
            open_tower(image_graph, provider="cuda")

    def test_a_provider_without_a_device_behind_it_is_not_listed(self, monkeypatch: pytest.MonkeyPatch) -> None:
        import onnxruntime

        listed = ["CUDAExecutionProvider", "CPUExecutionProvider"]
        monkeypatch.setattr(onnxruntime, "get_available_providers", lambda: listed)
        monkeypatch.setattr(runtime, "openvino_capabilities", frozenset)
        monkeypatch.setattr(runtime, "_cuda_devices", lambda: 0)
        assert available_providers() == ("cpu",)
        monkeypatch.setattr(runtime, "_cuda_devices", lambda: 1)
        assert available_providers() == ("cuda", "cpu")

    def test_openvino_is_listed_last(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(runtime, "_cuda_is_usable", lambda: True)
        monkeypatch.setattr(runtime, "openvino_capabilities", lambda: frozenset({"FP32"}))
        assert available_providers() == ("cuda", "cpu", "openvino")

    def test_bf16_needs_openvino_asked_for(self, image_graph: Path) -> None:
        providers: tuple[Provider, ...] = ("auto", "cpu")
        for provider in providers:
            with pytest.raises(RuntimeUnavailable, match="openvino"):
                open_tower(image_graph, provider=provider, bf16=True)

    @pytest.mark.parametrize(("status", "count", "devices"), [(0, 2, 2), (100, 2, 0), (0, 0, 0)])
    def test_devices_are_counted_by_the_driver(
        self, monkeypatch: pytest.MonkeyPatch, status: int, count: int, devices: int
    ) -> None:
        def fill(reference: object) -> int:
            reference._obj.value = count  # type: ignore[attr-defined]
            return 0

        driver = SimpleNamespace(cuInit=lambda _: status, cuDeviceGetCount=fill)
        monkeypatch.setattr(ctypes, "CDLL", lambda _: driver)
        assert runtime._cuda_devices() == devices

    def test_no_driver_means_no_device(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(_: str) -> object:
            raise OSError("libcuda.so.1: cannot open shared object file")

        monkeypatch.setattr(ctypes, "CDLL", missing)
        assert runtime._cuda_devices() == 0

    def test_no_runtime_names_the_extra(self, image_graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "onnxruntime", None)
        monkeypatch.setattr(runtime, "openvino_capabilities", frozenset)
        assert available_providers() == ()
        with pytest.raises(RuntimeUnavailable, match=r"twinlens\[cpu\]"):
            open_tower(image_graph)


@pytest.mark.parametrize("module", ["onnxruntime", "openvino"])
def test_a_runtime_whose_library_is_damaged_says_so_in_one_line(module: str, tmp_path: Path) -> None:
    (tmp_path / f"{module}.py").write_text("raise OSError('libsomething.so: invalid ELF header')")
    room = {"onnxruntime": "onnx_session", "openvino": "openvino_session"}[module]
    code = (
        f"from twinlens.encoders.{room} import import_{module}\n"
        "from twinlens.encoders.errors import RuntimeUnavailable\n"
        f"try:\n    import_{module}()\nexcept RuntimeUnavailable as error:\n    print(error)\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "is installed but does not load: libsomething.so: invalid ELF header\n" in found.stdout
    assert found.stdout.count("\n") == 1


def test_a_run_that_fails_is_told_once(image_graph: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(BundleError, match=r"image\.onnx failed"):
        open_tower(image_graph).run({"pixels": pixels(1)[:, :, :5, :5]})
    assert capfd.readouterr().err == ""
