"""Pictures and texts a second, for every provider and precision of a bundle, beside torch and plain onnxruntime.

Run as ``python bench/encode.py [--bundle DIR ...]``; without one, the starter encoder is built and measured. The towers
alone: no decoding, no tokenising. All take turns in one process, so that they feel alike what else the machine does.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.table import Table

from twinlens.encoders.bundle import read_manifest
from twinlens.encoders.cpus import allowed_cpus, cpu_model
from twinlens.encoders.encoder import tower_files
from twinlens.encoders.manifest import Manifest
from twinlens.encoders.onnx_session import import_onnxruntime
from twinlens.encoders.parity_inputs import default_parity_images
from twinlens.encoders.preprocess import load_pixels
from twinlens.encoders.runtime import Tower, available_precisions, available_providers, open_tower
from twinlens.encoders.tokenise import TextTokenizer, collate
from twinlens.encoders.tuning import in_turns

BATCHES = (1, 8, 32)
PLAIN = "onnxruntime, plain"
OURS = "cpu fp32"
QUERIES = (
    "a photo of a dog on the beach",
    "two children playing football in a park",
    "a red car in front of an old house",
    "sunset over the mountains with a lake",
    "a plate of pasta with tomato sauce",
    "people waiting for a train at night",
    "a black and white portrait of a woman",
    "a small boat in the harbour",
)

Inputs = Mapping[str, NDArray[Any]]
Run = Callable[[Inputs], NDArray[np.float32]]


def inputs_of(folder: Path, manifest: Manifest, tower: Tower, count: int) -> Inputs:
    """Ordinary content, repeated."""
    if tower == "image":
        assert manifest.image is not None
        pixels = np.stack([load_pixels(data, manifest.image.preprocess) for data in default_parity_images().values()])
        return {"pixels": np.resize(pixels, (count, *pixels.shape[1:]))}
    assert manifest.text is not None
    spec = manifest.text.text
    tokenizer = TextTokenizer(folder / spec.tokenizer, spec)
    ids, mask = collate([tokenizer(QUERIES[i % len(QUERIES)]) for i in range(count)], spec)
    return {"input_ids": ids, "attention_mask": mask}


def plain_onnxruntime(path: Path) -> Run:
    """A session as the runtime's own documentation makes it."""
    session = import_onnxruntime().InferenceSession(str(path), providers=["CPUExecutionProvider"])
    names = [entry.name for entry in session.get_inputs()]
    return lambda inputs: np.asarray(session.run(None, {name: inputs[name] for name in names})[0])


def torch_tower(manifest: Manifest, tower: Tower) -> Run | None:
    """The same architecture in torch with random weights, which are as fast; None where it is not known."""
    try:
        import torch  # noqa: PLC0415 - an extra
    except ImportError:
        return None
    torch.set_num_threads(allowed_cpus())
    module = _starter_module(tower) if manifest.name == "starter" else _open_clip_module(manifest, tower)
    if module is None:
        return None
    wants_mask = tower == "text" and manifest.text is not None and manifest.text.text.attention_mask

    def run(inputs: Inputs) -> NDArray[np.float32]:
        given = [torch.from_numpy(inputs["pixels" if tower == "image" else "input_ids"])]
        if wants_mask:
            given.append(torch.from_numpy(inputs["attention_mask"]))
        with torch.inference_mode():
            return np.asarray(module(*given).numpy())

    return run


def _starter_module(tower: Tower) -> Any:
    if tower == "text":
        from twinlens.training.starter.minilm import MiniLM  # noqa: PLC0415

        return MiniLM().eval()
    import timm  # noqa: PLC0415

    return timm.create_model("tf_efficientnet_lite0", pretrained=False).eval()


def _open_clip_module(manifest: Manifest, tower: Tower) -> Any:
    """Text is padded to the whole window, as open_clip does it."""
    import open_clip  # noqa: PLC0415
    import torch  # noqa: PLC0415

    name = next((name for name in sorted(open_clip.list_models(), key=len)[::-1] if name in manifest.description), "")
    if not name:
        return None
    model = open_clip.create_model(name, pretrained=None).eval()
    if tower == "image":
        return model.encode_image
    window = model.context_length
    return lambda ids: model.encode_text(torch.nn.functional.pad(ids, (0, window - ids.shape[1])))


def engines(folder: Path, manifest: Manifest, tower: Tower, stack: ExitStack) -> Iterator[tuple[str, Run]]:
    """Everything that can compute a tower here; the baseline first."""
    files = tower_files(manifest)[tower]
    yield PLAIN, plain_onnxruntime(folder / files.fp32)
    found = torch_tower(manifest, tower)
    if found is not None:
        yield "torch", found
    for provider in available_providers():
        for precision in available_precisions(provider):
            path = files.fp32 if precision == "bf16" else files.by_precision().get(precision)
            if path is not None:
                session = open_tower(folder / path, provider=provider, bf16=precision == "bf16")
                stack.callback(session.close)
                yield f"{provider} {precision}", session.run


def measure(runs: Mapping[str, Run], inputs: Inputs, rounds: int, enough_s: float) -> dict[str, float]:
    """Median seconds of each, taken in turns."""
    calls = [partial(run, inputs) for run in runs.values()]
    return dict(zip(runs, in_turns(calls, rounds=rounds, enough_s=enough_s), strict=True))


def worst_cosine(run: Run, reference: Run, inputs: Inputs) -> float:
    a, b = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True) for vectors in (run(inputs), reference(inputs)))
    return float((a * b).sum(axis=1).min())


def bench_bundle(folder: Path, rounds: int, enough_s: float) -> list[dict[str, Any]]:
    """Prints a table a tower and returns its rows."""
    manifest = read_manifest(folder)
    rows: list[dict[str, Any]] = []
    for tower in tower_files(manifest):
        table = Table(
            title=f"{manifest.name}, {tower}s a second by batch size, {allowed_cpus()} thread(s), {cpu_model()}"
        )
        for heading in (
            "engine",
            *(f"{batch}" for batch in BATCHES),
            "gain over plain",
            f"over {OURS}",
            "worst cosine",
        ):
            table.add_column(heading, justify="left" if heading == "engine" else "right")
        with ExitStack() as stack:
            runs = dict(engines(folder, manifest, tower, stack))
            given = {batch: inputs_of(folder, manifest, tower, batch) for batch in BATCHES}
            seconds = {batch: measure(runs, given[batch], rounds, enough_s) for batch in BATCHES}
            for name, run in runs.items():
                gains = {
                    over: {batch: seconds[batch][over] / seconds[batch][name] for batch in BATCHES}
                    for over in (PLAIN, OURS)
                }
                row = {
                    "bundle": manifest.name,
                    "tower": tower,
                    "engine": name,
                    "per_second": {batch: batch / seconds[batch][name] for batch in BATCHES},
                    "gain_over": gains,
                    # Torch has weights of its own here.
                    "worst_cosine": None if name == "torch" else worst_cosine(run, runs[PLAIN], given[8]),
                }
                rows.append(row)
                shown = "" if row["worst_cosine"] is None else f"{row['worst_cosine']:.5f}"
                speeds = (f"{batch / seconds[batch][name]:.1f}" for batch in BATCHES)
                over = (" / ".join(f"{gain:.2f}" for gain in of.values()) for of in gains.values())
                table.add_row(name, *speeds, *over, shown)
        Console(width=120).print(table)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bundle", type=Path, action="append", default=[], help="measure this one; repeatable")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--seconds", type=float, default=20.0, help="at most so long a batch size, after 3 rounds")
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        bundles = options.bundle
        if not bundles:
            from twinlens.training.starter.build import build_starter  # noqa: PLC0415 - needs the extra starter

            bundles = [Path(scratch) / "starter"]
            build_starter(bundles[0])
        rows = [row for folder in bundles for row in bench_bundle(folder, options.rounds, options.seconds)]
    if options.json is not None:
        facts = {"cpu": cpu_model(), "threads": allowed_cpus(), "rows": rows}
        options.json.write_text(json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    main()
