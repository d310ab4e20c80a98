"""The towers of a bundle on the device, against ONNX Runtime on the CPU and beside a plain session."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))

from bench.cuda.part import Order, Row, Skipped, run_part  # noqa: E402

_LEAST_COSINE = 0.9999
_PROVIDERS = {"cuda": "CUDAExecutionProvider", "cpu": "CPUExecutionProvider"}


def measure(order: Order) -> Iterator[Row]:
    """A row for each tower and batch size.

    Args:
        order: `device` (cuda or cpu), `batches`, `seconds`, `bundle` (null: one the size of ViT-B/32, or where that
            cannot be made a small drawn one).
    """
    import onnxruntime  # noqa: PLC0415 - what is missing is reported, not raised

    from bench.encode import inputs_of, worst_cosine  # noqa: PLC0415
    from twinlens.encoders.bundle import read_manifest  # noqa: PLC0415
    from twinlens.encoders.encoder import tower_files  # noqa: PLC0415
    from twinlens.encoders.runtime import available_providers, open_tower  # noqa: PLC0415
    from twinlens.encoders.tuning import in_turns  # noqa: PLC0415

    device = order["device"]
    if device not in available_providers():
        raise Skipped(f"onnxruntime {onnxruntime.__version__} has no {device} provider that works here")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(order["bundle"]) if order["bundle"] else _bundle(Path(scratch))
        manifest = read_manifest(folder)
        for tower, files in tower_files(manifest).items():
            path = folder / files.fp32
            with closing(open_tower(path, provider=device)) as ours, closing(open_tower(path, provider="cpu")) as cpu:
                session = onnxruntime.InferenceSession(str(path), providers=[_PROVIDERS[device]])
                names = [entry.name for entry in session.get_inputs()]
                small = inputs_of(folder, manifest, tower, 8)
                cosine = worst_cosine(ours.run, cpu.run, small)
                for batch in order["batches"]:
                    inputs = inputs_of(folder, manifest, tower, batch)
                    plain = partial(_plain, session, {name: inputs[name] for name in names})
                    mine_s, bare_s = in_turns([partial(ours.run, inputs), plain], enough_s=order["seconds"])
                    yield Row(
                        f"{manifest.name}, {tower} tower, batch {batch}",
                        f"{tower}s",
                        batch / mine_s,
                        batch / bare_s,
                        f"worst cosine to the CPU {cosine:.6f}",
                        cosine >= _LEAST_COSINE,
                    )


def _plain(session: Any, inputs: dict[str, Any]) -> object:
    return session.run(None, inputs)


def _bundle(scratch: Path) -> Path:
    from bench.serving.bundles import vit_b_32  # noqa: PLC0415

    try:
        return vit_b_32()
    except subprocess.CalledProcessError:
        print("no bundle the size of ViT-B/32 can be made here; a small drawn one instead", file=sys.stderr)
    from tests.support.mid_bundle import build_mid_bundle  # noqa: PLC0415 - needs the package onnx

    build_mid_bundle(scratch / "mid")
    return scratch / "mid"


if __name__ == "__main__":
    run_part(measure)
