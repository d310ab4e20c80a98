from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.pictures import write_folder
from twinlens.__main__ import main
from twinlens.training.export.errors import ExportError


def test_a_data_folder_that_no_demo_made_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    photos = write_folder(tmp_path / "photos")
    (tmp_path / "data").mkdir()
    (tmp_path / "data/active.json").write_text("mine")
    assert main(["demo", str(photos), "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == (
        f"twinlens: {tmp_path / 'data'} holds something that no earlier demo left there; name another folder\n"
    )
    assert (tmp_path / "data/active.json").read_text() == "mine"


def test_an_encoder_that_cannot_be_built_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(out: Path) -> None:
        raise ExportError(f"the package for {out.name} is not installed")

    monkeypatch.setattr("twinlens.training.starter.build.build_starter", missing)
    assert main(["demo", str(write_folder(tmp_path / "photos")), "--out", str(tmp_path / "out")]) == 1
    assert capsys.readouterr().err == "twinlens: the package for 1 is not installed\n"
