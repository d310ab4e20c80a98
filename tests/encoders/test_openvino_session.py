from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_bundle import SIZE, TinyTowers
from twinlens.encoders import openvino_session, runtime
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError, RuntimeUnavailable
from twinlens.encoders.openvino_session import OpenVinoSession, import_openvino, openvino_capabilities
from twinlens.encoders.runtime import available_precisions, available_providers, open_tower

needs_openvino = pytest.mark.skipif(find_spec("openvino") is None, reason="needs the extra openvino")


def pixels(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 3, SIZE, SIZE)).astype(np.float32)


@pytest.fixture(scope="module")
def image_graph(tiny_bundle: Path) -> Path:
    return tiny_bundle / "image.onnx"


@needs_openvino
class TestRuns:
    @pytest.mark.parametrize("count", [1, 2, 7])
    def test_gives_the_oracles_vectors_for_any_batch(self, image_graph: Path, count: int) -> None:
        found = open_tower(image_graph, provider="openvino").run({"pixels": pixels(count)})
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, TinyTowers().images(pixels(count)), rtol=1e-5, atol=1e-5)

    def test_texts_of_any_number_and_length(self, tiny_bundle: Path) -> None:
        session = open_tower(tiny_bundle / "text.onnx", provider="openvino")
        for count, length in ((1, 3), (4, 9), (2, 5), (1, 3)):
            ids = np.random.default_rng(length).integers(4, 20, (count, length))
            mask = np.ones_like(ids)
            mask[0, 2:] = 0
            found = session.run({"input_ids": ids, "attention_mask": mask})
            np.testing.assert_allclose(found, TinyTowers().texts(ids, mask), rtol=1e-5, atol=1e-5)

    def test_threads_do_not_disturb_each_other(self, image_graph: Path) -> None:
        session = open_tower(image_graph, provider="openvino")
        with ThreadPoolExecutor(4) as pool:
            found = list(pool.map(lambda n: session.run({"pixels": pixels(n)}), range(1, 20)))
        for count, vectors in enumerate(found, start=1):
            np.testing.assert_allclose(vectors, TinyTowers().images(pixels(count)), rtol=1e-5, atol=1e-5)

    def test_what_a_run_gave_stays_after_the_next(self, image_graph: Path) -> None:
        session = open_tower(image_graph, provider="openvino")
        first = session.run({"pixels": pixels(2)})
        kept = first.copy()
        session.run({"pixels": pixels(2) + 1})
        np.testing.assert_array_equal(first, kept)

    def test_a_whole_bundle_passes_its_parity_check(self, tiny_bundle: Path) -> None:
        encoder = Encoder.load(tiny_bundle, provider="openvino")
        assert encoder.provider == "openvino"
        assert dict(encoder.precisions) == {"image": "fp32", "text": "fp32"}

    def test_weights_beside_the_graph(self, tmp_path: Path) -> None:
        import onnx

        onnx.save(
            TinyTowers().image_graph(),
            str(tmp_path / "image.onnx"),
            save_as_external_data=True,
            location="image.onnx.data",
            size_threshold=0,
        )
        assert (tmp_path / "image.onnx.data").is_file()
        found = open_tower(tmp_path / "image.onnx", provider="openvino").run({"pixels": pixels(2)})
        np.testing.assert_allclose(found, TinyTowers().images(pixels(2)), rtol=1e-5, atol=1e-5)


@needs_openvino
class TestPrecision:
    def options(self, session: Any) -> dict[str, Any]:
        compiled = session._request.get_compiled_model()
        names = ("INFERENCE_PRECISION_HINT", "INFERENCE_NUM_THREADS", "NUM_STREAMS")
        return {name: compiled.get_property(name) for name in names}

    def test_fp32_is_computed_in_fp32_also_where_bf16_is_the_default(self, image_graph: Path) -> None:
        found = self.options(OpenVinoSession(image_graph, bf16=False, threads=1))
        assert "float32" in repr(found["INFERENCE_PRECISION_HINT"])

    @pytest.mark.skipif("BF16" not in openvino_capabilities(), reason="this CPU has no bf16")
    def test_bf16_where_it_was_asked_for(self, tiny_bundle: Path) -> None:
        assert "bf16" in available_precisions("openvino")
        encoder = Encoder.load(tiny_bundle, provider="openvino", precision="bf16")
        assert encoder.precision == "bf16"
        assert dict(encoder.precisions) == {"image": "bf16", "text": "bf16"}
        found = self.options(encoder._image)
        assert "bfloat16" in repr(found["INFERENCE_PRECISION_HINT"])

    def test_bf16_on_a_cpu_without_it_is_unavailable(self, image_graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(openvino_session, "openvino_capabilities", lambda: frozenset({"FP32", "INT8"}))
        monkeypatch.setattr(runtime, "openvino_capabilities", lambda: frozenset({"FP32", "INT8"}))
        assert available_precisions("openvino") == ("fp32", "fp16", "int8")
        with pytest.raises(RuntimeUnavailable, match=r"bf16 .* this CPU"):
            open_tower(image_graph, provider="openvino", bf16=True)

    @pytest.mark.parametrize(("asked", "given"), [(None, 3), (1, 1), (64, 3), (-5, 1)])
    def test_threads_never_above_the_cpus_allowed(
        self, image_graph: Path, monkeypatch: pytest.MonkeyPatch, asked: int | None, given: int
    ) -> None:
        monkeypatch.setattr(runtime, "allowed_cpus", lambda: 3)
        session = open_tower(image_graph, provider="openvino", threads=asked)
        assert session.threads == given
        assert self.options(session)["INFERENCE_NUM_THREADS"] == min(given, os.cpu_count() or 1)
        assert self.options(session)["NUM_STREAMS"] == 1


@needs_openvino
class TestRefusals:
    @pytest.mark.parametrize("raw", [b"", b"not a graph", b"\x08\x07" * 50, None])
    def test_a_broken_or_missing_file_is_one_line(self, tmp_path: Path, raw: bytes | None) -> None:
        if raw is not None:
            (tmp_path / "image.onnx").write_bytes(raw)
        with pytest.raises(BundleError, match=r"^image\.onnx cannot be loaded: [^\n]+$"):
            open_tower(tmp_path / "image.onnx", provider="openvino")

    def test_a_batch_the_graph_refuses_is_one_line(self, image_graph: Path) -> None:
        with pytest.raises(BundleError, match=r"^image\.onnx failed: [^\n]+$"):
            open_tower(image_graph, provider="openvino").run({"pixels": np.zeros((1, 5, 9, 9), np.float32)})

    def test_an_input_the_graph_misses_is_named(self, tiny_bundle: Path) -> None:
        with pytest.raises(BundleError, match=r"text\.onnx.*'attention_mask'"):
            open_tower(tiny_bundle / "text.onnx", provider="openvino").run({"input_ids": np.ones((1, 3), np.int64)})

    def test_after_closing_nothing_runs(self, image_graph: Path) -> None:
        session = open_tower(image_graph, provider="openvino")
        session.close()
        with pytest.raises(BundleError, match="closed"):
            session.run({"pixels": pixels(1)})


class TestAbsence:
    def test_what_to_install_is_named(self, image_graph: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "openvino", None)
        import_openvino.cache_clear()
        openvino_session._core.cache_clear()
        try:
            assert "openvino" not in available_providers()
            with pytest.raises(RuntimeUnavailable, match=r"twinlens\[openvino\]"):
                open_tower(image_graph, provider="openvino")
        finally:
            import_openvino.cache_clear()
            openvino_session._core.cache_clear()


# A library that phones home would do so from here: the import alone starts the thread that sends.
_IMPORTS = """
import os, sys
from twinlens.encoders.onnx_session import import_onnxruntime
from twinlens.encoders.openvino_session import import_openvino
import numpy
before = len(os.listdir("/proc/self/task"))
import_onnxruntime()
if len(sys.argv) > 1:
    import_openvino().Core()
assert len(os.listdir("/proc/self/task")) == before, "a runtime started a thread when it was imported"
assert not [name for name in sys.modules if "telemetry" in name], "telemetry was imported"
"""


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="counts threads where Linux lists them")
@pytest.mark.parametrize("with_openvino", [False, pytest.param(True, marks=needs_openvino)])
def test_no_runtime_sends_usage(tmp_path: Path, with_openvino: bool) -> None:
    arguments = ["openvino"] if with_openvino else []
    environment = {**os.environ, "HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    environment.pop("ORT_DISABLE_TELEMETRY", None)
    subprocess.run([sys.executable, "-c", _IMPORTS, *arguments], env=environment, check=True)
    assert list(tmp_path.iterdir()) == [], "a runtime left files in the user's home"
