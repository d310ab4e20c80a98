from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.reduced_bundle import reducer
from tests.support.tiny_bundle import build_tiny_bundle
from twinlens.encoders import tuning
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError, RuntimeUnavailable
from twinlens.encoders.openvino_session import openvino_capabilities
from twinlens.encoders.runtime import Provider, RunPrecision, Tower
from twinlens.encoders.tuning import WORTH_IT, Choice, Measured, fastest, in_turns, plan, tune

BASE = Choice("cpu", "fp32")


def entry(tower: Tower, provider: Provider, precision: RunPrecision, gain: float, problem: str = "") -> Measured:
    return Measured(tower, Choice(provider, precision), {1: 10.0}, gain, 0.99, problem)


class TestFastest:
    def test_each_tower_has_its_own(self) -> None:
        measured = [
            entry("image", "cpu", "fp32", 1),
            entry("image", "openvino", "bf16", 2.5),
            entry("image", "cpu", "int8", 2.0),
            entry("text", "cpu", "fp32", 1),
            entry("text", "cpu", "int8", 1.9),
        ]
        assert fastest(measured) == {"image": Choice("openvino", "bf16"), "text": Choice("cpu", "int8")}

    def test_what_failed_is_never_chosen_however_fast(self) -> None:
        measured = [entry("image", "cpu", "fp32", 1), entry("image", "cpu", "int8", 9, problem="parity: too far off")]
        assert fastest(measured) == {"image": BASE}

    @pytest.mark.parametrize("gain", [0.5, 1.0, WORTH_IT])
    def test_a_gain_that_is_not_worth_it_leaves_fp32(self, gain: float) -> None:
        assert fastest([entry("text", "cpu", "fp32", 1), entry("text", "openvino", "bf16", gain)]) == {"text": BASE}


class TestTune:
    def test_every_choice_of_every_tower_is_measured_and_reported(self, tiny_bundle: Path) -> None:
        seen: list[Measured] = []
        measured = tune(tiny_bundle, threads=1, batches=(1, 3), report=seen.append)
        assert measured == seen
        wanted = {(tower, "cpu", "fp32") for tower in ("image", "text")}
        if openvino_capabilities():
            wanted |= {(tower, "openvino", "fp32") for tower in ("image", "text")}
        if "BF16" in openvino_capabilities():
            wanted |= {(tower, "openvino", "bf16") for tower in ("image", "text")}
        assert {(e.tower, e.choice.provider, e.choice.precision) for e in measured} == wanted
        assert measured[0].choice == BASE
        assert plan(tiny_bundle) == [(found.tower, found.choice) for found in measured]
        assert [found.gain for found in measured if found.choice == BASE] == [1.0, 1.0]
        for found in measured:
            assert found.problem == ""
            assert sorted(found.per_second) == [1, 3]
            assert found.cosine is not None
            assert found.cosine >= 0.98

    def test_one_tower(self, tmp_path: Path) -> None:
        build_tiny_bundle(tmp_path / "b", text=False)
        assert {found.tower for found in tune(tmp_path / "b", threads=1, batches=(1,))} == {"image"}

    def test_a_choice_that_fails_parity_is_reported_and_not_measured(
        self, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        load = Encoder.load.__func__  # type: ignore[attr-defined]
        monkeypatch.setattr(tuning, "available_providers", lambda: ("cpu", "openvino"))
        monkeypatch.setattr(tuning, "available_precisions", lambda _: ("fp32",))

        def broken(cls: Any, path: Path, *, provider: Any, verify: bool = True, **options: Any) -> Any:
            encoder = load(cls, path, provider="cpu", verify=verify, **options)
            if provider == {"text": "openvino"}:
                encoder.verify = lambda _: (_ for _ in ()).throw(BundleError("parity: far off"))
            return encoder

        monkeypatch.setattr(Encoder, "load", partial(broken, Encoder))
        measured = tune(tiny_bundle, threads=1, batches=(1,))
        bad = [found for found in measured if found.problem]
        assert [(found.tower, found.choice.provider, found.problem) for found in bad] == [
            ("text", "openvino", "parity: far off")
        ]
        assert bad[0].per_second == {}

    @pytest.mark.parametrize("tower", ["image", "text"])
    @pytest.mark.parametrize(("limit", "problem"), [(0.99, ""), (0.99999, "too far from fp32: cosine mean 0.99")])
    def test_a_runtime_the_gate_has_not_judged_is_held_to_its_limits(
        self,
        tower: Tower,
        limit: float,
        problem: str,
        tiny_bundle: Path,
        tmp_path: Path,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """Where the gate ran, on the CPU, what it said of the file is believed."""
        folder = reducer(tiny_bundle, tmp_path / "reduced")(tower, noise=0.02)
        monkeypatch.setattr(tuning, "MIN_MEAN_COSINE", limit)
        load = Encoder.load.__func__  # type: ignore[attr-defined]
        monkeypatch.setattr(tuning, "available_providers", lambda: ("cpu", "openvino"))

        def on_the_cpu(cls: Any, path: Path, *, provider: Any, **options: Any) -> Any:
            return load(cls, path, provider="cpu", **options)

        monkeypatch.setattr(tuning, "available_precisions", lambda _: ("fp32", "int8"))
        monkeypatch.setattr(Encoder, "load", partial(on_the_cpu, Encoder))
        measured = [one for one in tune(folder, threads=1, batches=()) if one.tower == tower]
        problems = {(one.choice.provider, one.choice.precision): one.problem for one in measured}
        found = problems.pop(("openvino", "int8"))
        assert found.startswith(problem)
        assert bool(found) == bool(problem)
        assert problems == {("cpu", "fp32"): "", ("cpu", "int8"): "", ("openvino", "fp32"): ""}

    def test_a_corrupt_bundle_is_refused(self, tiny_bundle: Path, tmp_path: Path) -> None:
        folder = Path(shutil.copytree(tiny_bundle, tmp_path / "b"))
        (folder / "image.onnx").write_bytes(b"x")
        with pytest.raises(BundleError, match=r"image\.onnx"):
            tune(folder, threads=1, batches=(1,))

    def test_without_a_runtime_to_compare_with(self, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tuning, "available_providers", lambda: ("openvino",))
        with pytest.raises(RuntimeUnavailable, match=r"twinlens\[cpu\]"):
            tune(tiny_bundle)


def test_calls_are_measured_in_turns_forwards_and_backwards() -> None:
    order: list[str] = []
    assert len(in_turns((lambda: order.append("a"), lambda: order.append("b")), rounds=3)) == 2
    assert "".join(order) == "ab" + "abbaab"


def test_a_slow_call_is_measured_three_times() -> None:
    order: list[str] = []
    in_turns((lambda: order.append("a"),), rounds=50, enough_s=0)
    assert len(order) == 1 + 3
