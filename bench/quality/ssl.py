"""Every self-supervised method under one budget on CIFAR-10 pictures, and the published ablations in small.

    python bench/quality/ssl.py [--minutes 12] [--methods simclr,byol] [--ablations] [--jobs 1] [--clock wall]
                                [--data ../shared/data/cifar10_shards] [--out DIR] [--json FILE]

Prints kNN, linear probe, fine-tuning on 1 % and 10 % of the labels, std and effective rank of the features, and images
a second; draws the learning curves as one picture. Every run is a process of its own and leaves a file in --out, so
that a later call with the same folder goes on where an earlier one stopped. --clock cpu counts what a run computes
instead of the time on the wall, for machines that do other things as well; with --jobs N, N runs share the processors.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

# Python puts this folder first on the path of every script in it, and so this file before the standard library's `ssl`.
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != Path(__file__).resolve().parent]
if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))
    from bench.self_supervised.command import main

    raise SystemExit(main(__doc__))
if __name__ == "ssl":
    del sys.modules["ssl"]
    sys.modules["ssl"] = importlib.import_module("ssl")
