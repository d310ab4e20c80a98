from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_bundle import build_tiny_bundle
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.tuning import Choice, Measured
from twinlens.server.core import tuned
from twinlens.server.core.active import StartError, load_encoder, open_catalog, open_data
from twinlens.server.settings import Settings, SettingsError, load_settings

TUNE = Settings(tune=True, encode_threads=1)
TUNED = Settings(precision="tuned", encode_threads=1)


@pytest.fixture(autouse=True)
def text_is_faster_on_openvino(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Stands in for the measurement, and counts how often there was one."""
    asked: list[int] = []

    def measure(folder: Path, *, threads: int, report: Any) -> list[Measured]:
        asked.append(threads)
        found = [
            Measured("image", Choice("cpu", "fp32"), {1: 10.0}, 1.0, 1.0),
            Measured("text", Choice("cpu", "fp32"), {1: 10.0}, 1.0, 1.0),
            Measured("text", Choice("openvino", "fp32"), {1: 20.0}, 2.0, 1.0),
            Measured("text", Choice("openvino", "bf16"), problem="parity: too far off"),
        ]
        for entry in found:
            report(entry)
        return found

    monkeypatch.setattr(tuned, "tune", measure)
    return asked


def load(bundle: Path, settings: Settings, data: Path | None) -> str:
    pytest.importorskip("onnxruntime")
    encoder = load_encoder(bundle, settings, data)
    assert isinstance(encoder, Encoder)
    return encoder.variant


@pytest.fixture
def openvino() -> None:
    from twinlens.encoders.openvino_session import openvino_capabilities

    if not openvino_capabilities():
        pytest.skip("needs the extra openvino")


CHOSEN = "image fp32 on cpu, text fp32 on openvino"


@pytest.mark.usefixtures("openvino")
class TestChoice:
    def test_tuning_serves_with_the_fastest_and_remembers_it(
        self, tiny_bundle: Path, tmp_path: Path, text_is_faster_on_openvino: list[int]
    ) -> None:
        data = tmp_path / "new" / "data"
        assert load(tiny_bundle, TUNE, data) == CHOSEN
        assert load(tiny_bundle, TUNED, data) == CHOSEN
        assert text_is_faster_on_openvino == [1]

    def test_what_was_remembered_is_not_used_unless_asked_for(self, tiny_bundle: Path, tmp_path: Path) -> None:
        load(tiny_bundle, TUNE, tmp_path)
        assert load(tiny_bundle, Settings(provider="cpu"), tmp_path) == "image fp32 on cpu, text fp32 on cpu"

    def test_tuning_again_measures_again(
        self, tiny_bundle: Path, tmp_path: Path, text_is_faster_on_openvino: list[int]
    ) -> None:
        load(tiny_bundle, TUNE, tmp_path)
        load(tiny_bundle, TUNE, tmp_path)
        assert text_is_faster_on_openvino == [1, 1]

    def test_the_table_and_the_choice_are_logged(
        self, tiny_bundle: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.INFO):
            load(tiny_bundle, TUNE, tmp_path)
        assert "tuning: measuring image in fp32 on cpu, " in caplog.text
        assert "tuning: batches of 1, 8, 32, threads a tower: 1; takes about" in caplog.text
        assert "speed against fp32 on cpu (x1.00)" in caplog.text
        assert "text  openvino fp32      20.0/s at 1  x2.00" in caplog.text
        assert "not usable: parity: too far off" in caplog.text
        assert "tuned: text runs in fp32 on openvino" in caplog.text

    def test_a_start_with_a_data_folder_finds_it(self, tiny_bundle: Path, tmp_path: Path) -> None:
        for settings in (TUNE, TUNED):
            encoder, catalog = open_data(tmp_path, tiny_bundle, settings)
            catalog.close()
            assert isinstance(encoder, Encoder)
            assert encoder.variant == CHOSEN


@pytest.mark.usefixtures("openvino")
class TestRefusals:
    def test_a_folder_that_is_served_is_not_measured_beside_its_server(
        self, tiny_bundle: Path, tmp_path: Path, text_is_faster_on_openvino: list[int]
    ) -> None:
        load(tiny_bundle, TUNE, tmp_path)
        before = (tmp_path / "tuned.json").stat()
        catalog = open_catalog(tmp_path, TUNE, variant="")
        try:
            with pytest.raises(StartError, match="in use"):
                open_data(tmp_path, tiny_bundle, TUNE)
        finally:
            catalog.close()
        assert text_is_faster_on_openvino == [1]
        assert (tmp_path / "tuned.json").stat().st_mtime_ns == before.st_mtime_ns

    def test_nothing_measured_yet(self, tiny_bundle: Path, tmp_path: Path) -> None:
        with pytest.raises(StartError, match=r"nothing was measured .* --tune"):
            load_encoder(tiny_bundle, TUNED, tmp_path)

    def test_no_folder_to_remember_in(self, tiny_bundle: Path) -> None:
        with pytest.raises(StartError, match="name a precision"):
            load_encoder(tiny_bundle, TUNED)

    @pytest.mark.parametrize("content", ["", "{}", "[]", '{"circumstances": 3}', "\0"])
    def test_a_damaged_file(self, tiny_bundle: Path, tmp_path: Path, content: str) -> None:
        (tmp_path / "tuned.json").write_text(content)
        with pytest.raises(StartError, match=r"^[^\n]*tuned\.json cannot be read: start once with --tune[^\n]*$"):
            load_encoder(tiny_bundle, TUNED, tmp_path)

    @pytest.mark.parametrize(
        ("field", "value", "said"),
        [
            ("cpu", "Another CPU", "on another processor"),
            ("features", ["avx2"], "with other features of the processor"),
            ("packages", {"openvino": "1.0"}, "with other versions of the runtimes"),
            ("files", {}, "with other files than {bundle} has"),
            ("space_id", "0" * 64, "for another space than that of {bundle}"),
            ("threads", 7, "with another number of threads"),
        ],
    )
    def test_measured_under_other_circumstances(
        self, tiny_bundle: Path, tmp_path: Path, field: str, value: object, said: str
    ) -> None:
        """The bundle that active.json names is not to blame."""
        _, catalog = open_data(tmp_path, tiny_bundle, TUNE)
        catalog.close()
        content = json.loads((tmp_path / "tuned.json").read_text())
        content["circumstances"][field] = value
        (tmp_path / "tuned.json").write_text(json.dumps(content))
        with pytest.raises(StartError) as refused:
            open_data(tmp_path, None, TUNED)
        assert str(refused.value) == (
            f"{tmp_path / 'tuned.json'} was measured {said.format(bundle=tiny_bundle.resolve())}: "
            "start once with --tune, or name a precision"
        )

    def test_a_choice_for_one_tower_only(self, tiny_bundle: Path, tmp_path: Path) -> None:
        load(tiny_bundle, TUNE, tmp_path)
        content = json.loads((tmp_path / "tuned.json").read_text())
        del content["towers"]["text"]
        (tmp_path / "tuned.json").write_text(json.dumps(content))
        with pytest.raises(StartError, match="does not choose for every tower: start once with --tune"):
            load_encoder(tiny_bundle, TUNED, tmp_path)

    def test_another_bundle_or_number_of_threads(self, tiny_bundle: Path, tmp_path: Path) -> None:
        load(tiny_bundle, TUNE, tmp_path)
        build_tiny_bundle(tmp_path / "other", seed=9)
        with pytest.raises(StartError, match="another space"):
            load_encoder(tmp_path / "other", TUNED, tmp_path)
        with pytest.raises(StartError, match="another number of threads"):
            load_encoder(tiny_bundle, Settings(precision="tuned", encode_threads=7), tmp_path)

    def test_a_bundle_that_is_corrupt_when_it_is_recalled(self, tiny_bundle: Path, tmp_path: Path) -> None:
        bundle = Path(shutil.copytree(tiny_bundle, tmp_path / "b"))
        load(bundle, TUNE, tmp_path)
        (bundle / "text.onnx").write_bytes(b"x")
        with pytest.raises(StartError, match=r"text\.onnx"):
            load_encoder(bundle, TUNED, tmp_path)


class TestSettings:
    @pytest.mark.parametrize("given", [{"tune": True}, {"precision": "tuned"}])
    @pytest.mark.parametrize("also", [{"provider": "cpu"}, {"precision": "int8"}])
    def test_tuning_chooses_alone(self, given: dict[str, object], also: dict[str, object]) -> None:
        if "precision" in given and "precision" in also:
            return
        with pytest.raises(SettingsError, match="chooses provider and precision by itself"):
            load_settings(None, **given, **also)

    def test_a_precision_the_bundle_does_not_have(self, tiny_bundle: Path, tmp_path: Path) -> None:
        with pytest.raises(StartError, match="has no int8"):
            load_encoder(tiny_bundle, Settings(precision="int8"), tmp_path)
