"""The built wheel, in an environment of its own with the `cpu` extra only: serves, and has no torch."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

pytestmark = pytest.mark.slow


def _run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    # Nothing of the checkout may help: not its folder, not its environment.
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV", "TWINLENS"))}
    arguments = [str(part) for part in command]
    done = subprocess.run(arguments, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=600)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The bin folder of an environment that holds the wheel and its `cpu` extra."""
    folder = tmp_path_factory.mktemp("wheel")
    # From a copy: what an earlier build left in the checkout (build/, *.egg-info) must not get into the wheel.
    left_out = shutil.ignore_patterns(
        ".*", "build", "models", "runs", "dist", "*.egg-info", "__pycache__", "demo-out", "demo-loop-out"
    )
    shutil.copytree(ROOT, folder / "source", symlinks=True, ignore=left_out)
    _run(sys.executable, "-m", "build", "--wheel", "--outdir", folder / "dist", folder / "source", cwd=folder)
    (wheel,) = (folder / "dist").glob("*.whl")
    _run(sys.executable, "-m", "venv", folder / "venv", cwd=folder)
    _run(folder / "venv/bin/python", "-m", "pip", "install", "--quiet", f"{wheel}[cpu]", cwd=folder)
    return folder / "venv" / "bin"


def test_the_environment_has_no_training_framework(installed: Path, tmp_path: Path) -> None:
    listed = json.loads(_run(installed / "python", "-m", "pip", "list", "--format", "json", cwd=tmp_path).stdout)
    names = {package["name"].lower().replace("_", "-") for package in listed}
    assert "onnxruntime" in names
    assert not names & {"torch", "torchvision", "open-clip-torch", "timm", "transformers"}


def test_the_wheel_holds_the_recipe_of_every_method(installed: Path, tmp_path: Path) -> None:
    folder = "importlib.resources.files('twinlens.training') / 'recipes'"
    listed = f"import importlib.resources; print(*sorted(file.name for file in ({folder}).iterdir()))"
    names = _run(installed / "python", "-c", listed, cwd=tmp_path).stdout.split()
    assert names == sorted(file.name for file in (ROOT / "training/recipes").iterdir())
    assert "simclr.toml" in names


def test_the_wheel_serves_searches_and_labels_with_the_starter_bundle(
    installed: Path, starter_bundle: Path, tmp_path: Path
) -> None:
    from skimage import data  # type: ignore[import-untyped, unused-ignore]

    photos = tmp_path / "photos"
    photos.mkdir()
    shipped = Path(data.__file__).parent
    for name in ("chelsea.png", "coffee.png", "rocket.jpg"):
        (photos / name).write_bytes((shipped / name).read_bytes())
    twinlens = installed / "twinlens"
    store = ("--local", tmp_path / "store", "--bundle", starter_bundle)

    _run(twinlens, "ingest", photos, "--collection", "photos", *store, cwd=tmp_path)
    search = (twinlens, "search", "a cat", "--collection", "photos", *store, "--json")
    found = json.loads(_run(*search, cwd=tmp_path).stdout)
    assert found["hits"][0]["id"] == "chelsea.png"

    out = tmp_path / "labels.jsonl"
    _run(twinlens, "label", photos, "--labels", "cat,cup of coffee,rocket", *store, "--out", out, cwd=tmp_path)
    labels = {row["id"]: row["label"] for row in map(json.loads, out.read_text(encoding="utf-8").splitlines())}
    assert labels == {"chelsea.png": "cat", "coffee.png": "cup of coffee", "rocket.jpg": "rocket"}


def test_a_command_of_a_missing_extra_says_which_to_install(installed: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [str(installed / "twinlens"), "starter", "--out", str(tmp_path / "bundle")],
        cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert done.returncode == 1
    assert "twinlens[train" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
