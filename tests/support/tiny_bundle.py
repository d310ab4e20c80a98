"""A real bundle small enough for any test: ONNX towers of one matrix each, made in milliseconds."""

from __future__ import annotations

import json
import tempfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.pictures import COLOURS
from twinlens.encoders.manifest import (
    ImageTower,
    Lineage,
    Manifest,
    PreprocessSpec,
    ScoringRule,
    TextSpec,
    TextTower,
    TowerFiles,
)
from twinlens.encoders.parity import DEFAULT_PARITY_TEXTS, default_parity_images, write_parity
from twinlens.encoders.preprocess import load_pixels
from twinlens.encoders.publish import BundleDraft, publish
from twinlens.encoders.tokenise import TextTokenizer, collate

SIZE = 32
DIMENSION = 16
CONTEXT = 24
_GRID = 4
PREPROCESS = PreprocessSpec(size=SIZE, resize_size=SIZE, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
TEXT = TextSpec(clean="clip_lower", context_length=CONTEXT, pad_id=0, pad_to_context=False, attention_mask=True)
_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class TinyTowers:
    """The towers' weights with a NumPy transcription of both graphs, the oracle of the runtime's tests."""

    def __init__(self, seed: int = 0, dimension: int = DIMENSION) -> None:
        rng = np.random.default_rng(seed)
        self.dimension = dimension
        self.weight = rng.standard_normal((3 * _GRID * _GRID, dimension)).astype(np.float32)
        self.bias = rng.standard_normal(dimension).astype(np.float32)
        self.vocabulary = _vocabulary()
        # Colour names lie where solid pictures of that colour do; every other word weighs little.
        self.table = (0.3 * rng.standard_normal((len(self.vocabulary), dimension))).astype(np.float32)
        for colour, rgb in COLOURS.items():
            level = np.array(rgb, dtype=np.float32) / np.float32(127.5) - np.float32(1)
            solid = np.broadcast_to(level[:, None, None], (1, 3, SIZE, SIZE)).astype(np.float32)
            self.table[self.vocabulary[colour]] = self.images(solid)[0]

    def images(self, pixels: NDArray[np.float32]) -> NDArray[np.float32]:
        step = SIZE // _GRID
        pooled = pixels.reshape(len(pixels), 3, _GRID, step, _GRID, step).mean(axis=(3, 5))
        return np.asarray(pooled.reshape(len(pixels), -1) @ self.weight + self.bias, dtype=np.float32)

    def texts(self, ids: NDArray[np.int64], mask: NDArray[np.int64]) -> NDArray[np.float32]:
        weights = mask[..., None].astype(np.float32)
        return np.asarray((self.table[ids] * weights).sum(axis=1) / weights.sum(axis=1), dtype=np.float32)

    def tokenizer_json(self) -> bytes:
        """WordPiece over whole known words and single letters, so that any word has ids of its own."""
        return json.dumps(
            {
                "version": "1.0",
                "truncation": None,
                "padding": None,
                "added_tokens": [
                    {
                        "id": i,
                        "content": token,
                        "special": True,
                        "normalized": False,
                        "single_word": False,
                        "lstrip": False,
                        "rstrip": False,
                    }
                    for i, token in enumerate(_SPECIAL)
                ],
                "normalizer": {"type": "Lowercase"},
                "pre_tokenizer": {"type": "BertPreTokenizer"},
                "post_processor": {
                    "type": "TemplateProcessing",
                    "single": [
                        {"SpecialToken": {"id": "[CLS]", "type_id": 0}},
                        {"Sequence": {"id": "A", "type_id": 0}},
                        {"SpecialToken": {"id": "[SEP]", "type_id": 0}},
                    ],
                    "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 0}}],
                    "special_tokens": {
                        token: {"id": token, "ids": [_SPECIAL.index(token)], "tokens": [token]}
                        for token in ("[CLS]", "[SEP]")
                    },
                },
                "decoder": None,
                "model": {
                    "type": "WordPiece",
                    "unk_token": "[UNK]",
                    "continuing_subword_prefix": "##",
                    "max_input_chars_per_word": 100,
                    "vocab": self.vocabulary,
                },
            }
        ).encode()

    def image_graph(self) -> Any:
        from onnx import TensorProto, helper

        step = SIZE // _GRID
        nodes = [
            helper.make_node("AveragePool", ["pixels"], ["pooled"], kernel_shape=[step, step], strides=[step, step]),
            helper.make_node("Flatten", ["pooled"], ["flat"]),
            helper.make_node("Gemm", ["flat", "weight", "bias"], ["embedding"]),
        ]
        pixels = helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])
        return self._model(nodes, [pixels], {"weight": self.weight, "bias": self.bias})

    def text_graph(self) -> Any:
        from onnx import TensorProto, helper

        nodes = [
            helper.make_node("Gather", ["table", "input_ids"], ["rows"]),
            helper.make_node("Cast", ["attention_mask"], ["mask"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["mask", "last"], ["weights"]),
            helper.make_node("Mul", ["rows", "weights"], ["weighted"]),
            helper.make_node("ReduceSum", ["weighted", "middle"], ["total"], keepdims=0),
            helper.make_node("ReduceSum", ["weights", "middle"], ["count"], keepdims=0),
            helper.make_node("Div", ["total", "count"], ["embedding"]),
        ]
        inputs = [
            helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"])
            for name in ("input_ids", "attention_mask")
        ]
        constants = {"table": self.table, "last": np.array([2]), "middle": np.array([1])}
        return self._model(nodes, inputs, constants)

    def _model(self, nodes: list[Any], inputs: list[Any], constants: dict[str, NDArray[Any]]) -> Any:
        from onnx import TensorProto, helper, numpy_helper

        output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", self.dimension])
        weights = [numpy_helper.from_array(value, name) for name, value in constants.items()]
        graph = helper.make_graph(nodes, "tower", inputs, [output], initializer=weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def stage_tiny_bundle(staging: Path, towers: TinyTowers, *, image: bool = True, text: bool = True) -> None:
    """Writes what `publish` takes: the graphs, the tokenizer and the parity folder with the oracle's vectors."""
    import onnx

    staging.mkdir(parents=True, exist_ok=True)
    images = _parity_images() if image else {}
    texts = DEFAULT_PARITY_TEXTS if text else ()
    image_vectors = text_vectors = None
    if image:
        onnx.save(towers.image_graph(), str(staging / "image.onnx"))
        image_vectors = towers.images(np.stack([load_pixels(data, PREPROCESS) for data in images.values()]))
    if text:
        onnx.save(towers.text_graph(), str(staging / "text.onnx"))
        (staging / "tokenizer.json").write_bytes(towers.tokenizer_json())
        tokenizer = TextTokenizer(towers.tokenizer_json(), TEXT)
        text_vectors = towers.texts(*collate([tokenizer(t) for t in texts], TEXT))
    write_parity(staging / "parity", images, texts, image_vectors, text_vectors)


def tiny_draft(
    *, name: str = "tiny", version: str = "1", dimension: int = DIMENSION, image: bool = True, text: bool = True
) -> BundleDraft:
    return BundleDraft(
        name=name,
        version=version,
        dimension=dimension,
        image=ImageTower(files=TowerFiles(fp32="image.onnx"), preprocess=PREPROCESS) if image else None,
        text=TextTower(files=TowerFiles(fp32="text.onnx"), text=TEXT) if text else None,
        scoring=ScoringRule(scale=20.0),
        lineage=Lineage(method="drawn at random"),
        licence="Apache-2.0",
        description="A stand-in for tests.",
    )


def build_tiny_bundle(
    destination: Path,
    *,
    name: str = "tiny",
    version: str = "1",
    seed: int = 0,
    dimension: int = DIMENSION,
    image: bool = True,
    text: bool = True,
) -> Manifest:
    """Publishes a tiny bundle; another `seed` gives another `space_id`."""
    with tempfile.TemporaryDirectory() as folder:
        staging = Path(folder)
        stage_tiny_bundle(staging, TinyTowers(seed, dimension), image=image, text=text)
        draft = tiny_draft(name=name, version=version, dimension=dimension, image=image, text=text)
        return publish(draft, staging, destination)


@lru_cache(maxsize=1)
def _parity_images() -> dict[str, bytes]:
    return default_parity_images()


def _vocabulary() -> dict[str, int]:
    letters = [chr(code) for code in range(ord("!"), ord("~") + 1) if not chr(code).isupper()]
    words = ["a", "an", "the", "photo", "of", "and", "on", "with", "cat", "dog", "square", "circle", "picture"]
    tokens = dict.fromkeys([*_SPECIAL, *COLOURS, *words, *letters, *(f"##{letter}" for letter in letters)])
    return {token: i for i, token in enumerate(tokens)}
