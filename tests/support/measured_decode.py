"""Decodes bombs in a process of its own and prints what each cost, as lines of JSON.

    python -m tests.support.measured_decode claims|too_many_parts|heavy_metadata SIZE

Each line: the name, the refusal or null, CPU seconds, and by how many megabytes memory grew at its peak.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from PIL import Image

from tests.support import bomb_files
from tests.support.image_files import encode, scene
from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidImage


def main() -> int:
    """Measures every bomb of one kind."""
    kind, size = sys.argv[1], int(sys.argv[2])
    for form in ("JPEG", "PNG", "WEBP", "TIFF", "AVIF", "BMP"):
        decode_image(encode(scene(), form))  # what is loaded on first use is no cost of a bomb
    decode_image(encode(Image.fromarray(scene()).quantize(8), "GIF"))
    bombs = bomb_files.claims() if kind == "claims" else getattr(bomb_files, kind)(size)
    for name, data in bombs:
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew (proc_pid_clear_refs(5))
        before, start = _peak_mb(), time.process_time()
        try:
            decoded = decode_image(data)
        except InvalidImage as refusal:
            refused: str | None = str(refusal)
        else:
            refused = None
            assert decoded.shape == scene().shape, name
            assert np.abs(decoded.astype(int) - scene()).mean() < 12, name
        spent = time.process_time() - start
        print(json.dumps({"name": name, "refused": refused, "s": spent, "mb": _peak_mb() - before}))  # noqa: T201
    return 0


def _peak_mb() -> float:
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


if __name__ == "__main__":
    raise SystemExit(main())
