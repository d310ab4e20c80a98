"""The two towers of a bundle as torch modules with all that feeds them, written as graphs and checked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.encoders.preprocess import load_pixels
from twinlens.encoders.tokenise import TextTokenizer, TokenisedText, collate
from twinlens.training.export.agreement import BATCHES, ExportedGraph, run_torch
from twinlens.training.export.graph import GraphInputs, export_graph

IMAGE_FILE = "image.onnx"
TEXT_FILE = "text.onnx"
TOKENIZER_FILE = "tokenizer.json"

_SHORT_WORDS = 24
_WORDS = ("red", "dog", "two", "café", "house", "running", "under", "photograph", "猫", "x1", "of", "Zürich", "blue")


@dataclass(frozen=True)
class ImageExport:
    """The image tower.

    Attributes:
        module: Pixels float32 (n, 3, size, size) to embeddings (n, d), in evaluation mode on the CPU.
        preprocess: How pixels are made from bytes.
        architecture: For people.
        pooling: For people.
        activation: For people.
    """

    module: nn.Module
    preprocess: PreprocessSpec
    architecture: str = ""
    pooling: str = ""
    activation: str = ""

    def pixels(self, images: Sequence[bytes]) -> NDArray[np.float32]:
        """Encoded pictures as the tower's input, shape (n, 3, size, size)."""
        return np.stack([load_pixels(data, self.preprocess) for data in images])


@dataclass(frozen=True)
class TextExport:
    """The text tower.

    Attributes:
        module: `input_ids` (n, l), and `attention_mask` if the spec says so, to embeddings (n, d).
        spec: How ids are made from a string. Without `pad_to_context` the graph takes any length.
        tokenizer_json: The Hugging Face `tokenizers` file.
        reference: The module whose vectors are the truth, fed rows padded to the whole window; None: `module`.
        architecture: For people.
        pooling: For people.
        activation: For people.
    """

    module: nn.Module
    spec: TextSpec
    tokenizer_json: str
    reference: nn.Module | None = None
    architecture: str = ""
    pooling: str = ""
    activation: str = ""

    def tokenise(self, texts: Sequence[str]) -> list[TokenisedText]:
        """Strings to ids, as serving does it."""
        tokenizer = TextTokenizer(self.tokenizer_json.encode(), self.spec)
        return [tokenizer(text) for text in texts]

    def inputs(self, tokens: Sequence[TokenisedText]) -> dict[str, NDArray[np.int64]]:
        """The graph's inputs by name."""
        return _named(tokens, self.spec)

    def expected(self, tokens: Sequence[TokenisedText]) -> NDArray[np.float32]:
        """Torch's vectors, shape (n, d): the reference's, on rows padded to the window, where there is one."""
        if self.reference is None:
            return run_torch(self.module, self.inputs(tokens))
        return run_torch(self.reference, _named(tokens, self.spec.model_copy(update={"pad_to_context": True})))


def _named(tokens: Sequence[TokenisedText], spec: TextSpec) -> dict[str, NDArray[np.int64]]:
    input_ids, attention_mask = collate(tokens, spec)
    named = {"input_ids": input_ids}
    if spec.attention_mask:
        named["attention_mask"] = attention_mask
    return named


def frozen(module: nn.Module) -> nn.Module:
    """A module as it is exported: evaluation mode (no dropout, no stochastic depth), no gradients, float32."""
    module = module.eval().float()
    for parameter in module.parameters():
        parameter.requires_grad = False
    return module


def export_image(tower: ImageExport, images: Sequence[bytes], staging: Path) -> NDArray[np.float32]:
    """Writes `image.onnx` and checks it on noise (batches of 1, 3, 33) and on real pictures.

    Returns:
        Torch's embeddings of `images`, shape (n, d): the parity vectors.

    Raises:
        ExportError: if torch cannot export the tower, or the graph does not reproduce it.
    """
    size = tower.preprocess.size
    example = {"pixels": torch.zeros(2, 3, size, size)}
    export_graph(tower.module, GraphInputs(example, {"pixels": {0: "batch"}}), staging / IMAGE_FILE)
    graph = ExportedGraph(staging / IMAGE_FILE, "image")
    noise = np.random.default_rng(0)
    for batch in BATCHES:
        pixels = noise.standard_normal((batch, 3, size, size), dtype=np.float32)
        graph.agreement({"pixels": pixels}, run_torch(tower.module, {"pixels": pixels}))
    pixels = tower.pixels(images)
    embeddings = run_torch(tower.module, {"pixels": pixels})
    graph.agreement({"pixels": pixels}, embeddings)
    return embeddings


def export_text(tower: TextExport, texts: Sequence[str], staging: Path) -> NDArray[np.float32]:
    """Writes `text.onnx` and `tokenizer.json`, and checks them on made-up texts (1, 3, 33) and on real ones.

    Returns:
        Torch's embeddings of `texts`, shape (n, d): the parity vectors.

    Raises:
        ExportError: if torch cannot export the tower, or the graph does not reproduce it.
    """
    (staging / TOKENIZER_FILE).write_text(tower.tokenizer_json, encoding="utf-8")
    made_up = _made_up_texts(sum(BATCHES), tower.spec.context_length)
    example = {name: torch.from_numpy(value) for name, value in tower.inputs(tower.tokenise(made_up[-2:])).items()}
    axes = {0: "batch"} if tower.spec.pad_to_context else {0: "batch", 1: "length"}
    export_graph(tower.module, GraphInputs(example, dict.fromkeys(example, axes)), staging / TEXT_FILE)
    graph = ExportedGraph(staging / TEXT_FILE, "text")
    start = 0
    for batch in BATCHES:
        tokens = tower.tokenise(made_up[start : start + batch])
        graph.agreement(tower.inputs(tokens), tower.expected(tokens))
        start += batch
    tokens = tower.tokenise(texts)
    embeddings = tower.expected(tokens)
    graph.agreement(tower.inputs(tokens), embeddings)
    return embeddings


def _made_up_texts(count: int, context_length: int) -> list[str]:
    chance = random.Random(0)  # noqa: S311 - not for secrets
    # From one word to one text that fills the window; most are short, as long ones cost the most and show nothing new.
    lengths = [1, *(chance.randint(1, min(context_length, _SHORT_WORDS)) for _ in range(count - 2)), context_length]
    return [" ".join(chance.choices(_WORDS, k=length)) for length in lengths]
