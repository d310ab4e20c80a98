"""Bundles that are made once and kept: a model the size of ViT-B/32, and the starter encoder."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def cache_folder() -> Path:
    """Where what takes long to make is kept: `$XDG_CACHE_HOME/twinlens/bench`."""
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "twinlens" / "bench"


def vit_b_32() -> Path:
    """open_clip's ViT-B-32 with random weights, which are as fast as any; needs the extra `train` the first time.

    Raises:
        subprocess.CalledProcessError: it cannot be made.
    """
    return _made("ViT-B-32", ["pull", "ViT-B-32", "--no-checkpoint"])


def starter() -> Path:
    """The starter encoder; needs the extras `train` and `starter` the first time.

    Raises:
        subprocess.CalledProcessError: it cannot be made.
    """
    return _made("starter", ["starter"])


def _made(name: str, command: list[str]) -> Path:
    folder = cache_folder() / "models" / name.lower() / "1"
    if not (folder / "bundle.json").exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        print(f"making the bundle {name}, once", file=sys.stderr, flush=True)
        subprocess.run([sys.executable, "-m", "twinlens", *command, "--out", str(folder)], check=True)
    return folder
