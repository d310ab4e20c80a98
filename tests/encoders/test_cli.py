from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.tiny_bundle import build_tiny_bundle
from twinlens.__main__ import main
from twinlens.encoders.bundle import read_manifest
from twinlens.encoders.doctor import diagnose


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("models")
    for version in ("1", "2"):
        build_tiny_bundle(root / "tiny" / version, version=version, seed=int(version))
    return root


def out(capsys: Any, *arguments: str) -> str:
    assert main(list(arguments)) == 0
    return str(capsys.readouterr().out)


def complaint(capsys: Any, *arguments: str) -> str:
    assert main(list(arguments)) != 0
    lines = capsys.readouterr().err.strip().splitlines()
    assert len(lines) == 1, lines
    return str(lines[0])


class TestList:
    def test_a_line_a_bundle(self, capsys: Any, models: Path) -> None:
        lines = out(capsys, "models", "list", "--models", str(models)).splitlines()
        assert [line.split()[0] for line in lines] == ["tiny/1", "tiny/2"]
        assert read_manifest(models / "tiny" / "1").space_id[:12] in lines[0]

    def test_json(self, capsys: Any, models: Path) -> None:
        rows = json.loads(out(capsys, "models", "list", "--models", str(models), "--json"))
        assert [(row["name"], row["version"], row["dimension"]) for row in rows] == [
            ("tiny", "1", 16),
            ("tiny", "2", 16),
        ]

    def test_an_unreadable_bundle_is_shown_as_such(self, capsys: Any, models: Path, tmp_path: Path) -> None:
        root = Path(shutil.copytree(models, tmp_path / "models"))
        (root / "tiny" / "1" / "bundle.json").write_text("{")
        first, second = out(capsys, "models", "list", "--models", str(root)).splitlines()
        assert "unreadable" in first
        assert second.startswith("tiny/2")

    def test_an_empty_repository(self, capsys: Any, tmp_path: Path) -> None:
        assert "no models in" in out(capsys, "models", "list", "--models", str(tmp_path))

    def test_a_missing_repository(self, capsys: Any, tmp_path: Path) -> None:
        assert "no model repository" in complaint(capsys, "models", "list", "--models", str(tmp_path / "nowhere"))


class TestShow:
    @pytest.mark.parametrize(("which", "version"), [("tiny", "2"), ("tiny/1", "1")])
    def test_by_name(self, capsys: Any, models: Path, which: str, version: str) -> None:
        shown = json.loads(out(capsys, "models", "show", which, "--models", str(models), "--json"))
        assert shown["version"] == version

    def test_by_folder(self, capsys: Any, models: Path) -> None:
        text = out(capsys, "models", "show", str(models / "tiny" / "1"))
        assert "name: tiny" in text
        assert "file: image.onnx" in text

    def test_json_is_the_manifest(self, capsys: Any, models: Path) -> None:
        text = out(capsys, "models", "show", str(models / "tiny" / "1"), "--json")
        assert json.loads(text) == json.loads((models / "tiny" / "1" / "bundle.json").read_text())

    @pytest.mark.parametrize("which", ["nope", "tiny/9", "tiny/1/more", "/no/such/folder", ""])
    def test_what_is_not_there(self, capsys: Any, models: Path, which: str) -> None:
        assert "no " in complaint(capsys, "models", "show", which, "--models", str(models))


class TestVerify:
    def test_a_sound_bundle(self, capsys: Any, models: Path) -> None:
        assert "tiny/2 is sound" in out(capsys, "models", "verify", "tiny", "--models", str(models))

    def test_json(self, capsys: Any, models: Path) -> None:
        facts = json.loads(out(capsys, "models", "verify", str(models / "tiny" / "1"), "--json"))
        assert facts["worst_cosine"]["image"] == pytest.approx(1, abs=1e-4)
        assert facts["provider"] == "cpu"

    def test_a_corrupt_bundle(self, capsys: Any, models: Path, tmp_path: Path) -> None:
        bundle = Path(shutil.copytree(models / "tiny" / "1", tmp_path / "b"))
        (bundle / "text.onnx").write_bytes(b"garbage")
        assert "text.onnx" in complaint(capsys, "models", "verify", str(bundle))

    def test_cuda_where_there_is_none(self, capsys: Any, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        from twinlens.encoders import runtime

        monkeypatch.setattr(runtime, "_cuda_is_usable", lambda: False)
        said = complaint(capsys, "models", "verify", "tiny", "--models", str(models), "--provider", "cuda")
        assert "CUDA" in said


class TestDoctor:
    def test_tells_what_there_is(self, capsys: Any) -> None:
        text = out(capsys, "doctor")
        assert "CPUs" in text
        assert "onnxruntime" in text

    def test_json(self, capsys: Any) -> None:
        facts = json.loads(out(capsys, "doctor", "--json"))
        assert facts["cpus_allowed"] >= 1
        assert facts["precisions"]["cpu"] == ["fp32", "fp16", "int8"]
        assert facts["bundle"] == []
        assert {"JPEG", "PNG", "WebP", "AVIF"} <= set(facts["image_formats"])

    def test_where_a_bundle_reproduces_its_vectors(self, capsys: Any, models: Path) -> None:
        rows = json.loads(out(capsys, "doctor", "--bundle", str(models / "tiny" / "1"), "--json"))["bundle"]
        assert {row["tower"] for row in rows} == {"image", "text"}
        assert all(row["problem"] == "" and row["worst_cosine"] >= 0.98 for row in rows)
        text = out(capsys, "doctor", "--bundle", str(models / "tiny" / "1"))
        assert "image tower, fp32 on cpu: worst cosine to the trainer's vectors 1.000000" in text

    def test_says_how_to_add_what_is_missing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from twinlens.encoders import doctor

        monkeypatch.setattr(doctor, "find_spec", lambda _: None)
        monkeypatch.setattr(doctor, "_version", lambda _: "")
        advice = "\n".join(diagnose().advice)
        for extra in ("cpu", "openvino", "train", "huggingface", "starter", "demo", "heic", "s3"):
            assert f"twinlens[{extra}]" in advice

    def test_two_runtimes_at_once_are_warned_of(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from twinlens.encoders import doctor

        monkeypatch.setattr(doctor, "_version", lambda _: "1.0")
        assert any("overwrite each other" in line for line in diagnose().advice)

    def test_loads_no_torch(self) -> None:
        script = (
            "import sys; from twinlens.encoders.doctor import diagnose; diagnose(); sys.exit('torch' in sys.modules)"
        )
        assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
