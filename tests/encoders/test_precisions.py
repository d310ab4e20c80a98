"""Loading a bundle in the precision asked for, and holding each tower to the rule for what it runs."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from tests.support.forged_bundle import forge
from tests.support.reduced_bundle import Reduce, reducer
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError, RuntimeUnavailable
from twinlens.encoders.onnx_session import OnnxSession
from twinlens.encoders.runtime import RunPrecision


@pytest.fixture
def reduced(tiny_bundle: Path, tmp_path: Path) -> Reduce:
    return reducer(tiny_bundle, tmp_path / "reduced")


def vectors(encoder: Encoder) -> np.ndarray:
    return encoder.encode_images(np.random.default_rng(0).standard_normal((4, 3, 32, 32)).astype(np.float32))


def test_fp32_is_what_runs_unless_another_is_asked_for(reduced: Reduce) -> None:
    encoder = Encoder.load(reduced("image", noise=0.05), provider="cpu")
    assert dict(encoder.precisions) == {"image": "fp32", "text": "fp32"}
    assert encoder.precision == "fp32"
    assert encoder.variant == "image fp32 on cpu, text fp32 on cpu"


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_a_tower_without_the_file_runs_its_fp32_file(reduced: Reduce, precision: Literal["int8", "fp16"]) -> None:
    folder = reduced("image", precision, noise=0.05)
    encoder = Encoder.load(folder, provider="cpu", precision=precision)
    assert dict(encoder.precisions) == {"image": precision, "text": "fp32"}
    assert encoder.precision == precision
    assert encoder.variant == f"image {precision} on cpu, text fp32 on cpu"
    exact = vectors(Encoder.load(folder, provider="cpu"))
    assert not np.allclose(vectors(encoder), exact, atol=1e-4)
    assert ((vectors(encoder) * exact).sum(axis=1) > 0.98).all()


def test_both_towers(reduced: Reduce) -> None:
    reduced("image", noise=0.02)
    encoder = Encoder.load(reduced("text", noise=0.02), provider="cpu", precision="int8")
    assert dict(encoder.precisions) == {"image": "int8", "text": "int8"}


def test_each_tower_its_own(reduced: Reduce) -> None:
    folder = reduced("image", noise=0.02)
    reduced("text", noise=0.02)
    encoder = Encoder.load(folder, provider="cpu", precision={"text": "int8"})
    assert dict(encoder.precisions) == {"image": "fp32", "text": "int8"}


@pytest.mark.skipif(find_spec("openvino") is None, reason="needs the extra openvino")
def test_each_tower_where_it_is_fastest(reduced: Reduce) -> None:
    folder = reduced("text", noise=0.02)
    encoder = Encoder.load(folder, provider={"image": "openvino", "text": "cpu"}, precision={"text": "int8"})
    assert encoder.variant == "image fp32 on openvino, text int8 on cpu"
    assert encoder.provider == "cpu+openvino"


class TestRefusals:
    @pytest.mark.parametrize("precision", ["int8", "fp16"])
    def test_a_precision_no_tower_has_names_those_there_are(self, tiny_bundle: Path, precision: RunPrecision) -> None:
        with pytest.raises(BundleError, match=rf"has no {precision} tower, only fp32; `twinlens quantize`"):
            Encoder.load(tiny_bundle, precision=precision)

    def test_a_precision_asked_for_one_tower_that_lacks_it(self, reduced: Reduce) -> None:
        with pytest.raises(BundleError, match=r"the text tower of bundle .* has no int8 file"):
            Encoder.load(reduced("image", noise=0.02), precision={"text": "int8"})

    @pytest.mark.parametrize("provider", ["auto", "cpu"])
    def test_bf16_without_openvino_asked_for(self, tiny_bundle: Path, provider: Literal["auto", "cpu"]) -> None:
        with pytest.raises(RuntimeUnavailable, match="openvino"):
            Encoder.load(tiny_bundle, provider=provider, precision="bf16")

    def test_a_reduced_tower_that_is_too_far_off(self, reduced: Reduce) -> None:
        folder = reduced("image", noise=0.6)
        with pytest.raises(BundleError, match=r"parity: the image tower .* at least 0\.98 wanted"):
            Encoder.load(folder, provider="cpu", precision="int8")
        Encoder.load(folder, provider="cpu")

    def test_beside_a_reduced_tower_the_other_is_still_held_to_the_rule_for_fp32(self, reduced: Reduce) -> None:
        """The text tower's fp32 file is another than the parity vectors came from, by as much as int8 may be."""
        folder = reduced("image", noise=0.02)
        reduced("text", "fp16", noise=0.01)
        (folder / "text.fp16.onnx").replace(folder / "text.onnx")

        def without_fp16(content: dict[str, Any]) -> None:
            content["text"]["files"] = {"fp32": "text.onnx"}

        forge(folder, without_fp16)
        with pytest.raises(BundleError, match=r"parity: the text tower, which runs in fp32, .* at least 0\.9999"):
            Encoder.load(folder, provider="cpu", precision="int8")

    def test_what_was_loaded_before_a_refusal_is_let_go(self, reduced: Reduce, monkeypatch: pytest.MonkeyPatch) -> None:
        closed: list[OnnxSession] = []

        def close(session: OnnxSession) -> None:
            closed.append(session)

        monkeypatch.setattr(OnnxSession, "close", close)
        with pytest.raises(BundleError, match="parity"):
            Encoder.load(reduced("image", noise=0.6), provider="cpu", precision="int8")
        assert len(closed) == 2

    def test_a_corrupt_reduced_file_is_named(self, reduced: Reduce) -> None:
        folder = reduced("image", noise=0.02)
        (folder / "image.int8.onnx").write_bytes(b"x")
        with pytest.raises(BundleError, match=r"image\.int8\.onnx"):
            Encoder.load(folder, provider="cpu", precision="int8")
