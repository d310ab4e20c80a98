"""A bundle of some 40 MB whose towers work as real ones do, so that leaked weights and kept shapes show in memory."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tests.support.tiny_bundle import DIMENSION, PREPROCESS, SIZE, TEXT, TinyTowers, tiny_draft
from twinlens.encoders.manifest import Manifest
from twinlens.encoders.parity import DEFAULT_PARITY_TEXTS, default_parity_images, write_parity
from twinlens.encoders.preprocess import load_pixels
from twinlens.encoders.publish import publish
from twinlens.encoders.tokenise import TextTokenizer, collate

WINDOW = 96
_WIDTH = 384
_LAYERS = 3
_CHANNELS = 32


def build_mid_bundle(destination: Path) -> Manifest:
    """Publishes it; takes about a second."""
    import onnx

    towers = TinyTowers()
    spec = TEXT.model_copy(update={"context_length": WINDOW})
    images = default_parity_images()
    with tempfile.TemporaryDirectory() as folder:
        staging = Path(folder)
        onnx.save(_image_graph(), str(staging / "image.onnx"))
        onnx.save(_text_graph(len(towers.vocabulary)), str(staging / "text.onnx"))
        (staging / "tokenizer.json").write_bytes(towers.tokenizer_json())
        tokenizer = TextTokenizer(towers.tokenizer_json(), spec)
        ids, mask = collate([tokenizer(text) for text in DEFAULT_PARITY_TEXTS], spec)
        pixels = np.stack([load_pixels(data, PREPROCESS) for data in images.values()])
        write_parity(
            staging / "parity",
            images,
            DEFAULT_PARITY_TEXTS,
            _reference(staging / "image.onnx", {"pixels": pixels}),
            _reference(staging / "text.onnx", {"input_ids": ids, "attention_mask": mask}),
        )
        draft = tiny_draft(name="mid")
        assert draft.text is not None
        return publish(replace(draft, text=draft.text.model_copy(update={"text": spec})), staging, destination)


class _Graph:
    """Nodes and weights, added one after the other."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.weights: dict[str, NDArray[Any]] = {}

    def add(self, kind: str, *inputs: str, output: str = "", **attributes: Any) -> str:
        from onnx import helper

        name = output or f"v{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def draw(self, *shape: int) -> str:
        fan_in = int(np.prod(shape[1:])) if len(shape) == 4 else shape[0]
        return self.constant(self._rng.standard_normal(shape).astype(np.float32) / np.float32(fan_in**0.5))

    def constant(self, value: Any) -> str:
        name = f"w{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def model(self, inputs: list[Any]) -> Any:
        from onnx import TensorProto, helper, numpy_helper

        output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", DIMENSION])
        weights = [numpy_helper.from_array(value, name) for name, value in self.weights.items()]
        graph = helper.make_graph(self.nodes, "tower", inputs, [output], initializer=weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def _image_graph() -> Any:
    from onnx import TensorProto, helper

    graph = _Graph(seed=1)
    value = "pixels"
    for channels in (3, _CHANNELS, _CHANNELS):
        weights = graph.draw(_CHANNELS, channels, 3, 3)
        value = graph.add("Relu", graph.add("Conv", value, weights, pads=[1, 1, 1, 1], strides=[2, 2]))
    value = graph.add("Flatten", value)
    side = SIZE // 8
    value = graph.add("Relu", graph.add("MatMul", value, graph.draw(_CHANNELS * side * side, 4096)))
    value = graph.add("Relu", graph.add("MatMul", value, graph.draw(4096, 1024)))
    graph.add("MatMul", value, graph.draw(1024, DIMENSION), output="embedding")
    return graph.model([helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])])


def _text_graph(vocabulary: int) -> Any:
    """Layers of attention over the words of a text, as wide as a small BERT, then their mean."""
    from onnx import TensorProto, helper

    graph = _Graph(seed=2)
    words = graph.add("Gather", graph.draw(vocabulary, _WIDTH), "input_ids")
    mask = graph.add("Cast", "attention_mask", to=TensorProto.FLOAT)
    one = graph.constant(np.float32(1))
    away = graph.add("Mul", graph.add("Sub", mask, one), graph.constant(np.float32(1e4)))
    away = graph.add("Unsqueeze", away, graph.constant(np.array([1])))
    for _ in range(_LAYERS):
        query, key, value = (graph.add("MatMul", words, graph.draw(_WIDTH, _WIDTH)) for _ in range(3))
        scores = graph.add("MatMul", query, graph.add("Transpose", key, perm=[0, 2, 1]))
        scores = graph.add("Mul", scores, graph.constant(np.float32(_WIDTH**-0.5)))
        attention = graph.add("Softmax", graph.add("Add", scores, away), axis=-1)
        words = graph.add("Add", words, graph.add("MatMul", attention, value))
        hidden = graph.add("Relu", graph.add("MatMul", words, graph.draw(_WIDTH, 2 * _WIDTH)))
        words = graph.add("Add", words, graph.add("MatMul", hidden, graph.draw(2 * _WIDTH, _WIDTH)))
    weights = graph.add("Unsqueeze", mask, graph.constant(np.array([2])))
    middle = graph.constant(np.array([1]))
    total = graph.add("ReduceSum", graph.add("Mul", words, weights), middle, keepdims=0)
    mean = graph.add("Div", total, graph.add("ReduceSum", weights, middle, keepdims=0))
    graph.add("MatMul", mean, graph.draw(_WIDTH, DIMENSION), output="embedding")
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"])
        for name in ("input_ids", "attention_mask")
    ]
    return graph.model(inputs)


def _reference(graph: Path, inputs: dict[str, NDArray[Any]]) -> NDArray[np.float32]:
    """The vectors by the reference evaluator of the ONNX project, in NumPy."""
    from onnx.reference import ReferenceEvaluator

    outputs: Any = ReferenceEvaluator(str(graph)).run(None, inputs)
    return np.asarray(outputs[0], dtype=np.float32)
