"""Decodes damaged files one after the other, in a process of its own: a crash of a codec ends it, and the test sees so.

    python -m tests.support.fuzz_decode FIRST_SEED COUNT [--format PREFIX] [--heic]

The last line is JSON: how many became pictures and refusals, the slowest and what memory grew by. Any other exception,
a message of more than one line, a picture that is none or a run-away ends the process with a status other than 0; the
standard error stream names the file and the seed, and `damaged_file(name, seed)` gives its bytes back.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from tests.support.mutations import mutate
from tests.support.picture_corpus import corpus
from twinlens.encoders.decode import DecodeLimits, decode_image
from twinlens.encoders.errors import InvalidImage

LIMITS = DecodeLimits(max_pixels=2_000_000)
# A picture of 2 megapixels takes some 8 MB a copy, floats 16 MB; a run-away takes gigabytes.
MEMORY_MB = 80
HANG_S = 20.0


def damaged_file(name: str, seed: int, files: dict[str, bytes] | None = None) -> bytes:
    """The bytes of one try."""
    files = corpus() if files is None else files
    return mutate(files[name], list(files.values()), seed)


def run(
    files: dict[str, bytes], names: Sequence[str], seeds: range, min_sides: Sequence[int | None]
) -> dict[str, object]:
    """Decodes one damaged file a seed, in turn from each name.

    Returns:
        Counts of pictures and refusals, the slowest try, and by how much memory grew at its peak.

    Raises:
        AssertionError: if anything comes out but a picture or a refusal of one line.
    """
    for name in names:
        decode_image(files[name], limits=LIMITS)  # what is loaded on first use is no growth
    counts: Counter[str] = Counter()
    before = _peak_mb()
    slowest = (0.0, "")
    for seed in seeds:
        name = names[seed % len(names)]
        data = damaged_file(name, seed, files)
        what = f"damaged_file({name!r}, {seed})"
        sys.stderr.write(what + "\n")  # the last line names what a crash was about
        faulthandler.dump_traceback_later(HANG_S, exit=True)
        start = time.perf_counter()
        try:
            pixels = decode_image(data, min_side=min_sides[seed % len(min_sides)], limits=LIMITS)
        except InvalidImage as refusal:
            message = str(refusal)
            assert message, what
            assert len(message) < 250, f"{what}: {message}"
            assert message.isprintable(), f"{what}: {message!r}"
            counts["refused"] += 1
        else:
            assert pixels.dtype == np.uint8, what
            assert pixels.ndim == 3, what
            assert pixels.shape[2] == 3, what
            assert pixels.size > 0, what
            counts["pictures"] += 1
        faulthandler.cancel_dump_traceback_later()
        slowest = max(slowest, (time.perf_counter() - start, what))
        grown = _peak_mb() - before
        assert grown < MEMORY_MB, f"{what}: memory grew by {grown:.0f} MB"
    return {**counts, "slowest_s": round(slowest[0], 3), "slowest": slowest[1], "grown_mb": round(_peak_mb() - before)}


def _peak_mb() -> float:
    """The most memory this process has held, as Linux counts it: unlike `getrusage` without what its parent held."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:")) / 1024


def main() -> int:
    """Runs a range of seeds over the files of one or all formats."""
    parser = argparse.ArgumentParser()
    parser.add_argument("first", type=int)
    parser.add_argument("count", type=int)
    parser.add_argument("--format", default="", help="only files whose name begins so")
    parser.add_argument("--heic", action="store_true", help="also what takes pillow-heif")
    arguments = parser.parse_args()
    files = corpus(heic=arguments.heic)
    names = [name for name in files if name.startswith(arguments.format)]
    report = run(files, names, range(arguments.first, arguments.first + arguments.count), (None, 8, None))
    print(json.dumps(report))  # noqa: T201 - what the test reads
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
