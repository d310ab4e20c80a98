"""What a CUDA machine is good for: indexes against exact search, towers, training; each rate beside a bare loop.

    python bench/gpu.py [--json FILE] [--device cpu]

Less than six minutes. Every kind of index that FAISS has for GPUs is compared with exact search, the towers run through
ONNX Runtime's CUDA provider and are compared with the CPU, CLIP and SimCLR are trained for 50 steps in bf16. Each part
is a process of its own; what it needs and does not find is said, and the others go on. `--device cpu` rehearses all of
it, small, where there is no GPU. The figures are kept under bench/results/.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

RESULTS = ROOT / "bench" / "results"
VIT_B_32 = {"image_size": 224, "layers": 12, "width": 768, "head_width": 64, "patch_size": 32}
SMALL_VIT = {"image_size": 32, "layers": 2, "width": 64, "head_width": 32, "patch_size": 8}
PACKAGES = ("torch", "onnxruntime-gpu", "onnxruntime", "faiss-gpu", "faiss-cpu", "open-clip-torch", "timm")
# Seconds that each part may take; together less than six minutes.
LIMITS = {"index_kinds": 120, "encoding": 90, "clip_steps": 80, "simclr_steps": 60}


def orders(device: str, bundle: Path | None) -> dict[str, dict[str, Any]]:
    """What each part is asked for."""
    large = device == "cuda"
    named = None if bundle is None else str(bundle)
    batches = [1, 8, 32, 128] if large else [1, 4]
    return {
        "index_kinds": {
            "rows": 200_000 if large else 4_000,
            "dimension": 256 if large else 32,
            "queries": 512 if large else 128,
            "seconds": 2.0 if large else 0.3,
        },
        "encoding": {"batches": batches, "seconds": 2.0 if large else 0.5, "bundle": named},
        "clip_steps": {
            "steps": 50 if large else 5,
            "batch": 256 if large else 8,
            "vision": VIT_B_32 if large else SMALL_VIT,
        },
        "simclr_steps": {
            "steps": 50 if large else 7,
            "batch": 512 if large else 16,
            "size": 96 if large else 32,
            "network": "resnet50" if large else "resnet18",
        },
    }


def main() -> int:
    """Returns 0 if every check held; what was skipped is no failure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--parts", type=lambda text: text.split(","), default=list(LIMITS), help=", ".join(LIMITS))
    parser.add_argument("--bundle", type=Path, help="whose towers run; default: one the size of ViT-B/32")
    parser.add_argument("--json", type=Path, help="default: bench/results/gpu-TIME.json")
    options = parser.parse_args()
    if unknown := set(options.parts) - set(LIMITS):
        parser.error(f"no part {min(unknown)!r}; there are: {', '.join(LIMITS)}")
    found: dict[str, Any] = {"device": options.device, **facts(), "parts": {}}
    begun_s = time.perf_counter()
    for name, order in orders(options.device, options.bundle).items():
        if name in options.parts:
            found["parts"][name] = run(name, {"device": options.device, **order})
    found["seconds"] = time.perf_counter() - begun_s
    show(found)
    path = options.json or RESULTS / f"gpu-{time.strftime('%Y%m%d-%H%M%S')}.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(found, indent=2) + "\n")
    print(f"kept in {path}")
    parts = found["parts"].values()
    held = all(row["held"] for part in parts for row in part["rows"])
    return 0 if held and not any(part["failed"] for part in parts) else 1


def facts() -> dict[str, Any]:
    """Machine and packages."""
    packages = {}
    for name in PACKAGES:
        try:
            packages[name] = version(name)
        except PackageNotFoundError:
            continue
    asked = "--query-gpu=name,driver_version,memory.total"
    try:
        told = subprocess.run(
            ["nvidia-smi", asked, "--format=csv,noheader"], capture_output=True, text=True, check=True, timeout=20
        )
        gpu = told.stdout.strip()
    except (OSError, subprocess.SubprocessError):
        gpu = "none that nvidia-smi tells of"
    return {"gpu": gpu, "python": platform.python_version(), "packages": packages}


def run(name: str, order: dict[str, Any]) -> dict[str, Any]:
    """Rows of a part, why it was skipped, and how it failed, if it did; what it says goes to the screen."""
    print(f"== {name}", flush=True)
    nothing = {"rows": [], "skipped": ""}
    command = [sys.executable, "-m", f"bench.cuda.{name}", json.dumps(order)]
    # So that a machine with nothing but the packages needs no installation of twinlens.
    paths = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    limit_s = LIMITS[name]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, check=False, timeout=limit_s
        )
    except subprocess.TimeoutExpired:
        return {**nothing, "failed": f"not done after {limit_s} s"}
    try:
        found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    except (IndexError, ValueError):
        return {**nothing, "failed": f"it ended with {done.returncode}"}
    return {**found, "failed": ""}


def show(found: dict[str, Any]) -> None:
    """Plain lines: a bare machine may lack everything else."""
    packages = ", ".join(f"{name} {number}" for name, number in found["packages"].items())
    print(f"\n{found['gpu']}; Python {found['python']}, {packages}; {found['seconds']:.0f} s\n")
    print(f"{'what':62} {'a second':>12} {'bare loop':>12} {'of it':>6}  check")
    for name, part in found["parts"].items():
        for row in part["rows"]:
            bare = row["bare_per_s"]
            beside = f"{bare:12,.1f} {row['per_s'] / bare:6.2f}" if bare else f"{'':12} {'':6}"
            held = "" if row["held"] else "  DOES NOT HOLD"
            print(f"{row['what']:62} {row['per_s']:12,.1f} {beside}  {row['check']}{held}")
        if part["skipped"]:
            print(f"{name}: skipped, {part['skipped']}")
        if part["failed"]:
            print(f"{name}: FAILED, {part['failed']}")


if __name__ == "__main__":
    raise SystemExit(main())
