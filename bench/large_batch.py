"""A SimCLR step with a batch larger than memory would hold: time and peak memory by the size of the chunks.

    python bench/large_batch.py [--batch 1024] [--chunks 0,256,64] [--size 64] [--rounds 3] [--threads 1] [--json FILE]

ResNet-18 on drawn pixels; 0 is the whole batch at once. Each row is a process of its own; memory is the peak above what
was resident before the first step, time the median of the processor time of a step, which other work on the machine
does not change much; `times` compares with the first row.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the package `bench` is found

import torch
from rich.console import Console
from rich.table import Table

from bench.peak_memory import highest_mib
from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.methods.simclr import SimCLR, SimCLROptions
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig


def measure(options: argparse.Namespace) -> dict[str, float]:
    torch.manual_seed(0)
    torch.set_num_threads(options.threads)
    n, size = options.batch, options.size
    plan = RunPlan(steps=1, batch_size=n, dataset_size=n, size=size, chunk_size=options.one or None)
    method = SimCLR(build_backbone(BackboneConfig(), size), SimCLROptions(), plan).to(memory_format=torch.channels_last)
    views = [torch.randn(n, 3, size, size).contiguous(memory_format=torch.channels_last) for _ in range(2)]
    batch = PictureBatch(torch.empty(0), torch.arange(n), torch.arange(n), 0)
    before_mib = highest_mib()
    taken_s = []
    for _ in range(options.rounds):
        start_s = time.process_time()
        method.zero_grad()
        torch.autograd.backward(method.step(views, batch).loss)
        taken_s.append(time.process_time() - start_s)
    return {"seconds": statistics.median(taken_s), "peak_mib": highest_mib() - before_mib}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures a step in chunks.")
    parser.add_argument("--batch", type=int, default=1024)
    parser.add_argument("--chunks", default="0,256,64", help="pictures' views encoded at a time; 0: all")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one is not None:
        print(json.dumps(measure(options)))
        return
    rows: list[dict[str, Any]] = []
    for chunk in options.chunks.split(","):
        command = [sys.executable, __file__, "--one", chunk]
        command += [f"--{name}={getattr(options, name)}" for name in ("batch", "size", "rounds", "threads")]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        rows.append({"chunk": chunk, **json.loads(done.stdout)})
    table = Table(title=f"SimCLR, ResNet-18, {options.size} px, batch {options.batch}, {options.threads} thread(s)")
    for column in ("chunk", "CPU s a step", "times", "peak MiB", "times"):
        table.add_column(column, justify="right")
    for row in rows:
        seconds, mib = row["seconds"], row["peak_mib"]
        row["times_seconds"], row["times_mib"] = seconds / rows[0]["seconds"], mib / rows[0]["peak_mib"]
        chunk = "all" if row["chunk"] == "0" else row["chunk"]
        table.add_row(chunk, f"{seconds:.2f}", f"{row['times_seconds']:.2f}", f"{mib:.0f}", f"{row['times_mib']:.2f}")
    Console().print(table)
    if options.json:
        options.json.write_text(json.dumps({"batch": options.batch, "size": options.size, "rows": rows}, indent=2))


if __name__ == "__main__":
    main()
