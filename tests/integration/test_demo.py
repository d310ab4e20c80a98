"""`twinlens demo`, as `make demo` runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from PIL import Image

from tests.support.pictures import write_folder
from twinlens.client import Client
from twinlens.training.demo.served import served

pytestmark = pytest.mark.slow


def _demo(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "twinlens", "demo", *map(str, arguments)]
    environment = {**os.environ, "COLUMNS": "160"}
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory, starter_bundle: Path) -> Path:
    """An output folder that holds the starter bundle already, so that it is built once a test run."""
    folder = tmp_path_factory.mktemp("demo") / "out"
    (folder / "models" / "starter").mkdir(parents=True)
    (folder / "models" / "starter" / "1").symlink_to(starter_bundle)
    return folder


def test_the_demo_searches_and_labels_the_shipped_photos(out: Path) -> None:
    done = _demo("--out", out)
    assert done.returncode == 0, done.stderr
    for title in ("Text → image", "Image → image", "Text → text", "Zero-shot labels"):
        assert title in done.stdout
    first_hits = [line.split() for line in done.stdout.splitlines()]
    assert any(words[:3] == ["a", "cat", "1"] and "chelsea.png" in words for words in first_hits)
    assert any(words[:2] == ["motorcycle_left.png", "1"] and "motorcycle_right.png" in words for words in first_hits)
    assert any(words[:2] == ["coffee.png", "cup"] for words in first_hits)
    assert "stopped cleanly" in done.stdout
    with Image.open(out / "contact_sheet.png") as sheet:
        assert sheet.width > 600
        assert sheet.height > 1000


def test_the_demo_takes_a_folder_with_a_broken_picture_in_it(out: Path, tmp_path: Path) -> None:
    pictures = write_folder(tmp_path / "pictures")
    done = _demo(pictures, "--out", out)
    assert done.returncode == 0, done.stderr
    assert "4 photos stored" in done.stdout
    assert done.stdout.count("not stored:") == 1


def test_the_demo_refuses_a_missing_and_an_empty_folder_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    for folder, expected in (("nowhere", "not a folder"), ("empty", "no pictures")):
        done = _demo(tmp_path / folder, "--out", tmp_path / "out")
        assert done.returncode == 1
        assert expected in done.stderr
        assert len(done.stderr.strip().splitlines()) == 1


def test_the_demo_leaves_other_collections_of_its_folder_alone(out: Path) -> None:
    with served(out / "data") as address, Client(address) as client:
        client.create_collection("mine", exist_ok=True)
    assert _demo("--out", out).returncode == 0
    with served(out / "data") as address, Client(address) as client:
        assert {collection.id for collection in client.list_collections()} == {"mine", "demo-photos"}
