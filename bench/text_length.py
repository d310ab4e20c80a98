"""What a text costs that needs no padding: queries of several lengths, against the same tower padded to its window.

    python bench/text_length.py [--rounds 60] [--json FILE]

A text tower of ViT-B/32's size with random weights is exported twice, for any length and for the window of 77 tokens,
and each bundle is served by a server of its own. Both answer the same query in turn, so that they feel alike what else
the machine does; times are a client's, from call to vector.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table

from twinlens.client.client import Client
from twinlens.encoders.cpus import allowed_cpus, cpu_model
from twinlens.encoders.manifest import ScoringRule
from twinlens.training.export.bundle import About, publish_towers
from twinlens.training.export.causal_text import CausalTextTower
from twinlens.training.export.towers import TextExport, frozen
from twinlens.training.modules.causal_text import EndToken
from twinlens.training.tokenizers import clip_tokenizer

WINDOW = 77
LENGTHS = (4, 10, 25, 50, WINDOW)
_START_S = 120


def export_both(folder: Path) -> None:
    """The bundles `any` and `window`."""
    from open_clip.transformer import TextTransformer  # noqa: PLC0415 - seconds

    torch.manual_seed(0)
    tower = frozen(TextTransformer(context_length=WINDOW, width=512, heads=8, layers=12, output_dim=512))
    tokenizer = clip_tokenizer(WINDOW)
    for name, padded in (("any", False), ("window", True)):
        spec = tokenizer.spec.model_copy(update={"pad_to_context": padded})
        module = CausalTextTower(tower, EndToken("argmax"))
        text = TextExport(module, spec, tokenizer.json, reference=module)
        publish_towers(None, text, About(name, "1", ScoringRule()), folder / name)


@contextlib.contextmanager
def serving(folder: Path, name: str) -> Iterator[Client]:
    """A client of a server for the bundle `name`."""
    port_file = folder / f"{name}.port"
    command = [sys.executable, "-m", "twinlens", "serve", "--data", str(folder / f"{name}-data")]
    command += ["--bundle", str(folder / name), "--port", "0", "--port-file", str(port_file), "--log-level", "error"]
    server = subprocess.Popen(command)
    try:
        deadline = time.monotonic() + _START_S
        while not port_file.exists() or not port_file.read_text().strip():
            if server.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the server does not start")
            time.sleep(0.1)
        with Client(f"127.0.0.1:{port_file.read_text().strip()}") as client:
            yield client
    finally:
        server.terminate()
        server.wait()


def query(tokens: int) -> str:
    """A text of so many tokens, the two at its ends included; every word is one."""
    return " ".join(["dog", "on", "the", "red", "house"][n % 5] for n in range(tokens - 2))


def measure(clients: dict[str, Client], rounds: int) -> dict[str, dict[str, float]]:
    """Median milliseconds a query by length, and the median of the rounds' ratios."""
    figures = {}
    for length in LENGTHS:
        text = query(length)
        taken: dict[str, list[float]] = {name: [] for name in clients}
        vectors = {name: client.embed_texts([text]).vectors[0] for name, client in clients.items()}
        for number in range(rounds):
            order = list(clients) if number % 2 else list(clients)[::-1]
            for name in order:
                start = time.perf_counter()
                clients[name].embed_texts([text])
                taken[name].append((time.perf_counter() - start) * 1000)
        ratios = [window / any_length for any_length, window in zip(taken["any"], taken["window"], strict=True)]
        figures[str(length)] = {
            "any_ms": statistics.median(taken["any"]),
            "window_ms": statistics.median(taken["window"]),
            "ratio": statistics.median(ratios),
            "largest_difference": float(np.abs(vectors["any"] - vectors["window"]).max()),
        }
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="Measures what a short text costs.")
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--json", type=Path, help="write the figures here as well")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        export_both(folder)
        with serving(folder, "any") as any_length, serving(folder, "window") as window:
            figures = measure({"any": any_length, "window": window}, options.rounds)
    table = Table(title=f"one query through the server, {cpu_model()}, {allowed_cpus()} CPUs")
    for column in ("tokens", "any length, ms", "padded to 77, ms", "faster", "largest difference"):
        table.add_column(column, justify="right")
    for length, row in figures.items():
        cells = (f"{row['any_ms']:.1f}", f"{row['window_ms']:.1f}", f"{row['ratio']:.2f}x")
        table.add_row(length, *cells, f"{row['largest_difference']:.1e}")
    Console().print(table)
    if options.json is not None:
        document = {"rounds": options.rounds, "cpu": cpu_model(), "cpus": allowed_cpus(), "lengths": figures}
        options.json.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main()
