"""`twinlens train clip` beside open_clip's own trainer: samples a second on the same files, model, batch and precision.

    python bench/train_clip.py [--rounds 3] [--steps 8] [--cases …] [--captions FILE.JSONL] [--json FILE]

Both read JPEG files and a table of captions, crop as open_clip's trainer does, start from random weights of one model
configuration with CLIP's own tokenizer and window, and take AdamW steps; theirs with two worker processes. They take
turns, a process each. A run's rate is that of its steps after the second; the table has the median of the rounds, the
median of the ratios that neighbouring runs make, and the least and the largest of these. `start` is all that comes
before the first step and after the last, which for us includes to decode every picture once. In the busy cases, a
process that never rests takes what it can get of one core.

The captions are those of Flickr8k where they lie beside the project, else pictures and sentences are made up. The
contender needs pandas, which nothing here brings.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # so that the package `bench` is found

import numpy as np
from PIL import Image
from rich.console import Console
from rich.table import Table

from bench.drawn_photos import drawn_photos

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data" / "flickr8k_a" / "captions.jsonl"
TEXT = {"context_length": 77, "vocab_size": 49408, "width": 256, "heads": 4, "layers": 4}
VIT = {"image_size": 64, "layers": 12, "width": 384, "head_width": 64, "patch_size": 16}
EFFICIENTNET = {
    "timm_model_name": "efficientnet_b0",
    "timm_model_pretrained": False,
    "timm_pool": "",
    "timm_proj": "linear",
    "image_size": 96,
}
# Steps before this many are warm-up.
WARM = 2
SCALE, RATIO = (0.9, 1.0), (3 / 4, 4 / 3)


@dataclass(frozen=True)
class Case:
    """What is trained how."""

    title: str
    vision: dict[str, Any]
    precision: str
    busy: bool = False


CASES = {
    "vit": Case("ViT 12x384, 64 px", VIT, "bf16"),
    "vit-fp32": Case("ViT 12x384, 64 px", VIT, "fp32"),
    "efficientnet": Case("EfficientNet-B0, 96 px", EFFICIENTNET, "fp32"),
    "busy": Case("ViT 12x384, one other core busy", VIT, "bf16", busy=True),
    "busy-fp32": Case("ViT 12x384, one other core busy", VIT, "fp32", busy=True),
}


@dataclass(frozen=True)
class Run:
    """One run of a trainer: its rate, and the seconds that were no steps."""

    samples_per_s: float
    start_s: float


def write_data(folder: Path, rows: int, captions: Path | None) -> Path:
    """A table of JPEG files and captions: of a JSONL file, or drawn pictures with sentences as long as Flickr8k's."""
    pairs: list[tuple[str, str]] = []
    if captions is not None:
        for line in captions.read_text(encoding="utf-8").splitlines():
            row = json.loads(line)
            pairs.append((str(captions.parent / row["image"]), row["caption"]))
    else:
        rng = np.random.default_rng(0)
        words = ["a", "dog", "two", "red", "on", "the", "grass", "people", "snow", "jumping", "blue", "of", "near"]
        for number, pixels in enumerate(drawn_photos(rows // 5 + 1, 256)):
            path = folder / f"{number}.jpg"
            Image.fromarray(pixels).save(path, quality=90)
            lengths = rng.normal(12, 4, 5).clip(4, 30).astype(int)
            pairs += [(str(path), " ".join(rng.choice(words, length)) + f" {number}") for length in lengths]
    if len(pairs) < rows:
        raise SystemExit(f"{captions} has {len(pairs)} rows; {rows} are needed: lower --steps or --batch")
    # Evenly, so that captions of one picture are rarely in one batch.
    chosen = [pairs[i] for i in np.linspace(0, len(pairs) - 1, rows).astype(int)]
    table = folder / "pairs.tsv"
    with table.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t")
        writer.writerow(["filepath", "title"])
        writer.writerows(chosen)
    return table


def model_config(case: Case) -> dict[str, Any]:
    return {"embed_dim": 256, "vision_cfg": case.vision, "text_cfg": TEXT}


def open_clip_run(case: Case, table: Path, folder: Path, options: argparse.Namespace) -> Run:
    model = folder / "model"
    model.mkdir()
    (model / "open_clip_config.json").write_text(json.dumps({"model_cfg": model_config(case), "preprocess_cfg": {}}))
    command = [sys.executable, "-m", "open_clip_train.main", "--device", "cpu", "--dataset-type", "csv"]
    command += ["--train-data", str(table), "--model", f"local-dir:{model}", "--batch-size", str(options.batch)]
    command += ["--workers", str(options.workers), "--epochs", "1", "--warmup", "10", "--lr", "1e-4", "--wd", "0.1"]
    command += ["--precision", "amp_bf16" if case.precision == "bf16" else "fp32", "--log-every-n-steps", "1"]
    command += ["--aug-cfg", f"scale=({SCALE[0]}, {SCALE[1]})", "--logs", str(folder / "logs")]
    wall_s, told = finished(command)
    # Logged at every step, the mean of a window is the step itself.
    steps_s = [float(found) for found in re.findall(r"Batch \(t\): ([\d.]+),", told)]
    if len(steps_s) != options.steps:
        raise SystemExit(f"open_clip made {len(steps_s)} steps, not {options.steps}:\n{told[-2000:]}")
    return Run(options.batch * (len(steps_s) - WARM) / sum(steps_s[WARM:]), wall_s - sum(steps_s))


def twinlens_run(case: Case, table: Path, folder: Path, options: argparse.Namespace) -> Run:
    from twinlens.encoders.manifest import PreprocessSpec  # noqa: PLC0415 - seconds, and not for --help
    from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, build_model, save_checkpoint  # noqa: PLC0415
    from twinlens.training.tokenizers import clip_tokenizer  # noqa: PLC0415

    size = case.vision["image_size"]
    mean, std = (0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711)
    tokenizer = clip_tokenizer()
    spec = DualEncoderSpec(
        model_config(case),
        PreprocessSpec(size=size, resize_size=size, mean=mean, std=std),
        tokenizer.spec,
        tokenizer.json,
        "bench",
    )
    save_checkpoint(folder / "start.pt", spec, build_model(spec), CheckpointMeta())
    sections: dict[str, dict[str, Any]] = {
        "data": {"source": "captions", "path": str(table), "image_column": "filepath", "caption_column": "title"},
        "model": {"from_checkpoint": str(folder / "start.pt")},
        "augment": {"crop_scale": SCALE, "crop_ratio": RATIO},
        "train": {
            "steps": options.steps,
            "batch_size": options.batch,
            "precision": case.precision,
            "learning_rate": 1e-4,
            "weight_decay": 0.1,
            "warmup_steps": 10,
            "log_every": 1,
            "state_every": 0,
        },
    }
    config = folder / "clip.toml"
    lines = []
    for name, section in sections.items():
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in section.items())]
    config.write_text("\n".join(lines) + "\n")
    out = folder / "run"
    wall_s, _ = finished([sys.executable, "-m", "twinlens", "train", "clip", str(config), "--out", str(out)])
    with (out / "metrics.csv").open(encoding="utf-8", newline="") as file:
        at_s = [float(row["seconds"]) for row in csv.DictReader(file)]
    return Run(options.batch * (len(at_s) - WARM) / (at_s[-1] - at_s[WARM - 1]), wall_s - at_s[-1])


TRAINERS = {"open_clip": open_clip_run, "twinlens": twinlens_run}


def finished(command: list[str]) -> tuple[float, str]:
    """Seconds and output of a command, in an environment that says nothing of threads."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("OMP_", "GOMP_", "KMP_", "MKL_"))}
    began_s = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}\n{done.stderr[-2000:]}")
    return time.perf_counter() - began_s, done.stdout + done.stderr


@contextmanager
def busy_core(wanted: bool) -> Iterator[None]:
    """Another process that never rests."""
    if not wanted:
        yield
        return
    spinning = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        yield
    finally:
        spinning.kill()
        spinning.wait()


def measure(case: Case, options: argparse.Namespace) -> dict[str, Any]:
    runs: dict[str, list[Run]] = {name: [] for name in TRAINERS}
    for number in range(options.rounds):
        for name, run in TRAINERS.items():
            with tempfile.TemporaryDirectory() as made, busy_core(case.busy):
                folder = Path(made)
                table = write_data(folder, options.steps * options.batch, options.captions)
                runs[name].append(run(case, table, folder, options))
            told = runs[name][-1]
            print(f"{case.title}, {case.precision}, round {number + 1}: {name} {told.samples_per_s:.1f}/s", flush=True)
    ratios = [
        ours.samples_per_s / theirs.samples_per_s
        for theirs, ours in zip(runs["open_clip"], runs["twinlens"], strict=True)
    ]
    row: dict[str, Any] = {"case": case.title, "precision": case.precision}
    for name, of_name in runs.items():
        row[f"{name}_samples_per_s"] = statistics.median(run.samples_per_s for run in of_name)
        row[f"{name}_start_s"] = statistics.median(run.start_s for run in of_name)
    return {**row, "times": statistics.median(ratios), "least": min(ratios), "largest": max(ratios)}


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures training of CLIP beside open_clip's trainer.")
    parser.add_argument("--cases", default="vit,vit-fp32,efficientnet,busy", help=f"of {', '.join(CASES)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=8)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=2, help="of open_clip")
    parser.add_argument("--captions", type=Path, default=SHARED if SHARED.is_file() else None)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    if options.steps <= WARM + 1:
        parser.error(f"--steps must be more than {WARM + 1}")
    names = options.cases.split(",")
    if unknown := [name for name in names if name not in CASES]:
        parser.error(f"no case {unknown[0]!r}; there are: {', '.join(CASES)}")
    rows = [measure(CASES[name], options) for name in names]
    table = Table(title=f"batch {options.batch}, {len(os.sched_getaffinity(0))} cores, samples a second")
    for column in ("model", "precision", "open_clip", "start s", "twinlens", "start s", "times", "least to largest"):
        table.add_column(column, justify="left" if column in {"model", "precision"} else "right")
    for row in rows:
        table.add_row(
            row["case"],
            row["precision"],
            f"{row['open_clip_samples_per_s']:.1f}",
            f"{row['open_clip_start_s']:.1f}",
            f"{row['twinlens_samples_per_s']:.1f}",
            f"{row['twinlens_start_s']:.1f}",
            f"{row['times']:.2f}",
            f"{row['least']:.2f} to {row['largest']:.2f}",
        )
    Console(width=120).print(table)
    if options.json is not None:
        options.json.write_text(json.dumps(rows, indent=2) + "\n")


if __name__ == "__main__":
    main()
