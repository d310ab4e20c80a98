"""Resident memory while a bundle is loaded and let go, or run with random shapes; JSON on stdout, {count: MiB}.

    memory_curve.py cycles BUNDLE PROVIDER PRECISION 1,10,100
    memory_curve.py calls BUNDLE PROVIDER PRECISION 100,500,2000

Runs in a process of its own, so that nothing else is measured.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from twinlens.encoders.encoder import Encoder
from twinlens.encoders.tokenise import TokenisedText

_LARGEST_BATCH = 12


def resident_mib() -> float:
    """Memory this process holds (Linux)."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20


def cycles(bundle: Path, marks: list[int], options: dict[str, Any]) -> dict[int, float]:
    """After so many times of loading, embedding and closing."""
    curve = {}
    for count in range(1, max(marks) + 1):
        encoder = Encoder.load(bundle, **options)
        encoder.close()
        if count in marks:
            curve[count] = resident_mib()
    return curve


def calls(bundle: Path, marks: list[int], options: dict[str, Any]) -> dict[int, float]:
    """After so many batches of random sizes, of pictures and of texts of random lengths in turns."""
    encoder = Encoder.load(bundle, **options)
    rng = np.random.default_rng(0)
    image, text = encoder.manifest.image, encoder.manifest.text
    curve = {}
    for count in range(1, max(marks) + 1):
        batch = int(rng.integers(1, _LARGEST_BATCH + 1))
        if image is not None and (count % 2 or text is None):
            size = image.preprocess.size
            encoder.encode_images(rng.standard_normal((batch, 3, size, size), dtype=np.float32))
        elif text is not None:
            longest = min(text.text.context_length, 96)
            lengths = rng.integers(3, rng.integers(4, longest + 1), batch)
            encoder.encode_texts([TokenisedText(tuple(rng.integers(4, 40, length)), False) for length in lengths])
        if count in marks:
            curve[count] = resident_mib()
    return curve


def main() -> None:
    what, bundle, provider, precision, marks = sys.argv[1:]
    measure = {"cycles": cycles, "calls": calls}[what]
    options = {"provider": provider, "precision": precision, "threads": 1}
    print(json.dumps(measure(Path(bundle), [int(mark) for mark in marks.split(",")], options)))  # noqa: T201


if __name__ == "__main__":
    main()
