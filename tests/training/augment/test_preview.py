"""`twinlens augment preview`: a sheet, a description, and one line for what is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.training.augment.test_augmenter import pictures
from tests.training.augment.test_recipe import shipped
from twinlens.__main__ import main
from twinlens.training.augment.preview import contact_sheet


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    photos = tmp_path / "photos"
    photos.mkdir()
    for number, pixels in enumerate(pictures(4, 80).numpy()):
        Image.fromarray(pixels).save(photos / f"{number}.png")
    return photos


Preview = Callable[..., tuple[int, str, str]]


@pytest.fixture
def preview(capsys: pytest.CaptureFixture[str]) -> Preview:
    """Runs the command: exit code, what it tells, what is wrong."""

    def run(*arguments: str | Path) -> tuple[int, str, str]:
        code = main(["augment", "preview", *map(str, arguments)])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


def test_a_sheet_has_a_row_per_picture_and_a_column_per_view() -> None:
    stored = pictures(3, 32).numpy()
    sheet = contact_sheet(shipped("swav", 32), stored, draws=2)
    assert sheet.size == (4 + 17 * 100, 20 + 3 * 100)
    shown = np.asarray(sheet)[20:116, 4:100]
    wanted = np.asarray(Image.fromarray(stored[0]).resize((96, 96), Image.Resampling.BICUBIC))
    assert np.array_equal(shown, wanted)


def test_the_sheet_shows_what_a_run_with_the_same_seed_would_see() -> None:
    stored = pictures(2, 32).numpy()
    sheets = [np.asarray(contact_sheet(shipped("simclr", 32), stored, seed=seed)) for seed in (0, 0, 1)]
    assert np.array_equal(sheets[0], sheets[1])
    assert not np.array_equal(sheets[0], sheets[2])


def test_the_name_of_a_picture_left_out_is_shown_escaped(preview: Preview, folder: Path, tmp_path: Path) -> None:
    (folder / "\x1b[31mred.png").write_bytes(b"no picture")
    code, _, wrong = preview("simclr", "--images", folder, "--out", tmp_path / "sheet.png")
    assert code == 0
    assert r"the first is \x1b[31mred.png: " in wrong
    assert "\x1b" not in wrong


@pytest.mark.parametrize("extra", [[], ["--exact"], ["--ablate", "crop"]])
def test_the_command_writes_a_sheet_and_says_what_is_done(
    preview: Preview, folder: Path, tmp_path: Path, extra: list[str]
) -> None:
    out = tmp_path / "sheets" / "today" / "sheet.png"  # neither of which is there
    code, text, wrong = preview("simclr", "--images", folder, "--out", out, "--set", "augment.size=32", *extra)
    assert code == 0, wrong
    assert "views 1-2: 32 px bicubic, crop 0.08-1 of the area, flip 0.5" in text
    assert ("jitter" in text.splitlines()[0]) == (extra != ["--ablate", "crop"])
    assert ("at 32 px, below 48: no blur" in text) == (extra != ["--ablate", "crop"])
    with Image.open(out) as sheet:
        assert sheet.size == (4 + 5 * 100, 20 + 4 * 100)


def test_a_sheet_too_large_for_its_kind_of_file_is_one_line(preview: Preview, folder: Path, tmp_path: Path) -> None:
    large = ("--set", "augment.size=64", "--set", "augment.views=[{count = 20}]", "--draws", "16")
    code, _, wrong = preview("random", "--images", folder, "--out", tmp_path / "sheet.webp", *large)
    assert code == 1
    assert wrong.startswith(f"twinlens: cannot write {tmp_path}/sheet.webp: ")
    assert "16383 pixels" in wrong
    assert wrong.count("\n") == 1


def test_pictures_that_cannot_be_used_are_left_out_of_the_sheet(preview: Preview, folder: Path, tmp_path: Path) -> None:
    (folder / "1.png").write_bytes(b"no picture")
    code, text, wrong = preview(
        "simclr", "--images", folder, "--out", tmp_path / "sheet.png", "--set", "augment.size=32"
    )
    assert code == 0
    assert "sheet.png: 3 picture(s)" in text
    assert wrong.startswith("left out 1 unusable picture(s); the first is ")
    assert "1.png" in wrong


def test_a_file_with_a_section_of_its_own_is_a_recipe(preview: Preview, folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text("[augment]\nsize = 40\n[[augment.views]]\ncount = 1\nflip = 1.0\n", encoding="utf-8")
    code, text, wrong = preview(file, "--images", folder, "--out", tmp_path / "sheet.png")
    assert code == 0, wrong
    assert "view 1: 40 px bilinear, whole picture, flip 1" in text


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simclr", "--images", "nowhere"], "no pictures at nowhere"),
        (["simclear", "--images", "PHOTOS"], "there is no method 'simclear'"),
        (["nowhere.toml", "--images", "PHOTOS"], "no configuration at nowhere.toml"),
        (["EMPTY.toml", "--images", "PHOTOS"], "has no section [augment]"),
        (["WRONG.toml", "--images", "PHOTOS"], "augment.views.0.flip"),
        (["simclr", "--images", "PHOTOS", "--set", "augment.blurr=1"], "unknown key augment.blurr"),
        (["simclr", "--images", "PHOTOS", "--set", "augment.size=128"], "smaller than the crop of 128"),
        (["simclr", "--images", "PHOTOS", "--out", "sheet.txt"], "must end in .png"),
        (
            ["simclr", "--images", "PHOTOS", "--out", "EMPTY.toml/new/sheet.png"],
            "EMPTY.toml/new cannot be made: Not a directory",
        ),
        (["simclr"], "simclr: data.path is missing: name the pictures in the file or with --images"),
        (
            ["simclr", "--images", "PHOTOS", "--pictures", "2", "--set", "augment.size=128"],
            "2 of 2 pictures looked at, out of 4, cannot be used; the first is ",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    preview: Preview,
    folder: Path,
    tmp_path: Path,
    arguments: list[str],
    words: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("EMPTY.toml").write_text("[train]\nsteps = 1\n", encoding="utf-8")
    Path("WRONG.toml").write_text("[augment]\n[[augment.views]]\nflip = 2\n", encoding="utf-8")
    given = [str(folder) if each == "PHOTOS" else each for each in arguments]
    code, _, wrong = preview(*given, *([] if "--out" in given else ["--out", "sheet.png"]))
    assert code == 1
    assert words in wrong
    assert wrong.startswith("twinlens: ")
    assert wrong.count("\n") == 1
