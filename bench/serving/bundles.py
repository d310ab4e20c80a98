"""Bundles that are made once and kept: a model the size of ViT-B/32, and the starter encoder."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from bench.serving.photo_files import write_photos

# Pictures that `twinlens quantize` needs at least, and some.
_CALIBRATING = 110


def cache_folder() -> Path:
    """Where what takes long to make is kept: `$XDG_CACHE_HOME/twinlens/bench`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "twinlens" / "bench"


def vit_b_32(*, quantize: bool = False) -> Path:
    """open_clip's ViT-B-32 with random weights, which are as fast as any; needs the extra `train` the first time.

    Args:
        quantize: With int8 files, which take some minutes the first time. Once they are there, they always are.

    Raises:
        subprocess.CalledProcessError: it cannot be made.
    """
    plain = _made("ViT-B-32", ["pull", "ViT-B-32", "--no-checkpoint"])
    quantized = plain.with_name("2")
    if quantize and not (quantized / "bundle.json").exists():
        with tempfile.TemporaryDirectory() as photos:
            write_photos(Path(photos), _CALIBRATING, ((320, 240),))
            _run(["quantize", str(plain), "--photos", photos], quantized, "int8 files")
    return quantized if (quantized / "bundle.json").exists() else plain


def starter() -> Path:
    """The starter encoder; needs the extras `train` and `starter` the first time.

    Raises:
        subprocess.CalledProcessError: it cannot be made.
    """
    return _made("starter", ["starter"])


def _made(name: str, command: list[str]) -> Path:
    folder = cache_folder() / "models" / name.lower() / "1"
    if not (folder / "bundle.json").exists():
        _run(command, folder, f"the bundle {name}")
    return folder


def _run(command: list[str], out: Path, what: str) -> None:
    out.parent.mkdir(parents=True, exist_ok=True)
    print(f"making {what}, once", file=sys.stderr, flush=True)
    subprocess.run([sys.executable, "-m", "twinlens", *command, "--out", str(out)], check=True)
