"""infinity-emb, from an environment of its own, serving the same architecture with random weights.

It needs packages that twinlens does not go together with, so it is not imported here, only started:

    python -m venv DIR && DIR/bin/pip install "infinity-emb[torch,vision,server]==0.0.78" aiohttp
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.serving.processes import free_port
from bench.serving.twinlens_server import Running, end, last_lines

MODEL = "clip"
_START_S = 300.0
_MAKE = Path(__file__).with_name("make_clip_folder.py")


def clip_folder(python: Path, folder: Path, bundle: Path) -> Path:
    """A folder with transformers' CLIP ViT-B/32, made once by infinity's own environment.

    Args:
        python: Of that environment.
        folder: Where it lies from then on.
        bundle: One with CLIP's tokenizer, whose vocabulary is taken.

    Raises:
        subprocess.CalledProcessError: it cannot be made.
    """
    if not (folder / "done").exists():
        folder.mkdir(parents=True, exist_ok=True)
        tokenizer = json.loads((bundle / "tokenizer.json").read_text(encoding="utf-8"))["model"]
        # open_clip and transformers have other names for the two special tokens, the last of the vocabulary.
        named = {"<start_of_text>": "<|startoftext|>", "<end_of_text>": "<|endoftext|>"}
        vocabulary = {named.get(word, word): number for word, number in tokenizer["vocab"].items()}
        (folder / "vocab.json").write_text(json.dumps(vocabulary), encoding="utf-8")
        pairs = [pair if isinstance(pair, str) else " ".join(pair) for pair in tokenizer["merges"]]
        (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *pairs]) + "\n", encoding="utf-8")
        subprocess.run([str(python), str(_MAKE), str(folder)], check=True, stdout=subprocess.DEVNULL)
        (folder / "done").touch()
    return folder


@contextmanager
def infinity_server(python: Path, model: Path, log: Path) -> Iterator[Running]:
    """Starts it with its own defaults for a CPU and stops it at the end.

    Args:
        python: Of its environment.
        model: Folder of transformers' CLIP.
        log: What it says.

    Raises:
        RuntimeError: it does not serve; the message has the end of its log.
    """
    port = free_port()
    command = [str(python.with_name("infinity_emb")), "v2", "--model-id", str(model), "--served-model-name", MODEL]
    command += ["--engine", "torch", "--device", "cpu", "--host", "127.0.0.1", "--port", str(port)]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"DO_NOT_TRACK": "1", "INFINITY_ANONYMOUS_USAGE_STATS": "0", "HF_HUB_OFFLINE": "1"}
    with log.open("ab") as lines:
        began_s = time.perf_counter()
        process = subprocess.Popen(command, stdout=lines, stderr=lines, stdin=subprocess.DEVNULL, env=environment)
    try:
        while not _is_up(port):
            if process.poll() is not None or time.perf_counter() > began_s + _START_S:
                raise RuntimeError(f"infinity does not serve:\n{last_lines(log)}")
            time.sleep(0.2)
        yield Running(f"127.0.0.1:{port}", process.pid, "", time.perf_counter() - began_s)
    finally:
        end(process)


def _is_up(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=5) as answer:
            return bool(answer.status == 200)
    except (OSError, urllib.error.URLError):
        return False
