from __future__ import annotations

import json
from pathlib import Path

import pytest

from twinlens.__main__ import main
from twinlens.training.export.cli import bundle_name_and_version


def test_starter_leaves_an_existing_one_and_says_so(starter_bundle: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["starter", "--out", str(starter_bundle)]) == 0
    assert "already there, nothing to do: starter/1" in capsys.readouterr().out
    assert main(["starter", "--out", str(starter_bundle), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["existed"] is True


def test_starter_into_a_busy_folder_is_one_clear_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "holiday.jpg").write_bytes(b"")
    assert main(["starter", "--out", str(tmp_path)]) == 1
    captured = capsys.readouterr()
    assert captured.err == f"twinlens: {tmp_path} is not empty and holds no bundle; name a new folder\n"


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["export", "none.pt"], "no checkpoint at none.pt"),
        (["pull", "no-such-model:tag"], "open_clip knows no model 'no-such-model'; its names: open_clip.list_models()"),
        (
            ["pull", ":tag"],
            "no model name in ':tag': write NAME, NAME:TAG, NAME:/path/to/checkpoint.pt, timm:NAME or hf:FOLDER",
        ),
    ],
)
def test_what_cannot_be_done_is_one_clear_line(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments, "--out", str(tmp_path / "bundle")]) == 1
    assert capsys.readouterr().err == f"twinlens: {line}\n"
    assert not (tmp_path / "bundle").exists()


@pytest.mark.parametrize(
    ("name", "version", "out", "expected"),
    [
        (None, None, "models/scenes/7", ("scenes", "7")),
        (None, "beta", "models/scenes/beta", ("scenes", "beta")),
        ("mine", None, "models/scenes/7", ("mine", "7")),
        (None, "2", "models/scenes/7", (None, "2")),
        (None, None, "models/scenes", (None, "1")),
        (None, None, "models/with space/7", (None, "7")),
    ],
)
def test_a_folder_of_a_repository_says_name_and_version(
    name: str | None, version: str | None, out: str, expected: tuple[str | None, str]
) -> None:
    assert bundle_name_and_version(name, version, Path(out)) == expected


def test_a_folder_is_taken_as_it_is_written_from_where_one_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "scenes").mkdir()
    monkeypatch.chdir(tmp_path / "scenes")
    assert bundle_name_and_version(None, None, Path("3")) == ("scenes", "3")


@pytest.mark.parametrize(
    ("out", "version", "warned"), [("mine/2", "3", True), ("mine/2", "2", False), ("mine/new", "3", False)]
)
def test_a_folder_of_another_version_is_warned_of(
    out: str, version: str, warned: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["export", "none.pt", "--out", str(tmp_path / out), "--version", version]) == 1
    *before, _ = capsys.readouterr().err.splitlines()
    line = (
        "warning: the bundle is of version 3, and a model repository finds it only in a folder of that name, not in 2"
    )
    assert before == ([line] if warned else [])
