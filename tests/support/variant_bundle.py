"""Bundles with a small convolutional tower and a small text tower, and layers in them that int8 must spoil."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from tests.support.tiny_bundle import TEXT, TinyTowers
from twinlens.encoders.manifest import ImageTower, Manifest, PreprocessSpec, ScoringRule, TextTower, TowerFiles
from twinlens.encoders.parity import DEFAULT_PARITY_TEXTS, default_parity_images, write_parity
from twinlens.encoders.preprocess import load_pixels
from twinlens.encoders.publish import BundleDraft, publish
from twinlens.encoders.tokenise import TextTokenizer, collate

SIZE = 32
DIMENSION = 24
PREPROCESS = PreprocessSpec(size=SIZE, resize_size=SIZE, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
PLANTED_CONV = "planted_conv"
PLANTED_LINEAR = "planted_linear"
_WIDTH = 48
_LOUD = 400.0


class Graph:
    """Collects nodes and constants."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, name: str, value: Any, kind: Any = np.float32) -> str:
        self.constants.append(numpy_helper.from_array(np.asarray(value, kind), name))
        return name

    def node(self, kind: str, inputs: list[str], output: str, name: str = "", **attributes: Any) -> str:
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name or output, **attributes))
        return output

    def conv(self, x: str, name: str, weight: NDArray[Any], *, silent: bool = False, **attributes: Any) -> str:
        """With `silent`, the first channel is zero."""
        bias = 0.1 * self.rng.standard_normal(len(weight))
        if silent:
            weight[0] = bias[0] = 0.0
        constants = [self.constant(f"{name}_w", weight), self.constant(f"{name}_b", bias)]
        return self.node("Conv", [x, *constants], name, **attributes)

    def he(self, *shape: int) -> NDArray[np.float64]:
        return np.asarray(self.rng.standard_normal(shape) * np.sqrt(2.0 / np.prod(shape[1:])))

    def model(self, inputs: list[Any]) -> Any:
        output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", DIMENSION])
        graph = helper.make_graph(self.nodes, "tower", inputs, [output], initializer=self.constants)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def image_graph(*, planted: bool = False, hopeless: bool = False) -> Any:
    """Stem, depthwise and pointwise convolutions with a residual, a strided one, mean, projection.

    `planted`: in one layer the weights of a channel that is always silent are a thousand times the others, so that no
    step fits both. `hopeless`: so it is in the layer with most of the work, too.
    """
    graph = Graph(0)
    six = [graph.constant("zero", 0.0), graph.constant("six", 6.0)]
    stem = graph.conv("pixels", "stem", graph.he(32, 3, 3, 3), silent=True, strides=[2, 2], pads=[1, 1, 1, 1])
    x = graph.node("Clip", [stem, *six], "stem_act")
    deep = graph.conv(x, "depthwise", graph.he(32, 1, 3, 3), pads=[1, 1, 1, 1], group=32)
    deep = graph.node("Clip", [deep, *six], "depthwise_act")
    y = graph.node("Add", [graph.conv(deep, "pointwise", graph.he(32, 32, 1, 1), silent=True), x], "residual")
    loud = 1000.0 if planted or hopeless else 1.0
    z = graph.conv(y, PLANTED_CONV, _first_channel(graph.he(64, 32, 1, 1), loud), silent=True)
    z = graph.node("Relu", [z], "planted_act")
    last = _first_channel(graph.he(64, 64, 3, 3), 1000.0 if hopeless else 1.0)
    z = graph.node("Relu", [graph.conv(z, "last", last, strides=[2, 2])], "last_act")
    mean = graph.node("ReduceMean", [z, graph.constant("axes", [2, 3], np.int64)], "mean", keepdims=0)
    projection = graph.constant("projection", graph.he(DIMENSION, 64))
    graph.node("Gemm", [mean, projection, graph.constant("offset", np.zeros(DIMENSION))], "embedding", transB=1)
    return graph.model([helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])])


def text_graph(vocabulary: int, *, planted: bool = False) -> Any:
    """Word vectors with loud channels behind a layer norm, a feed-forward with a residual, a masked mean, projection.

    `planted`: before one product some words are made 400 times as loud, and as quiet again behind it. Evening out
    channels does not help there: it is rows that differ.
    """
    graph = Graph(1)
    x = graph.node(
        "Gather", [graph.constant("table", graph.rng.standard_normal((vocabulary, _WIDTH))), "input_ids"], "x"
    )
    gains = 1.0 + 0.1 * graph.rng.standard_normal(_WIDTH)
    gains[[3, 17]] = 25.0
    weights = [graph.constant("norm_w", gains), graph.constant("norm_b", np.zeros(_WIDTH))]
    normed = graph.node("LayerNormalization", [x, *weights], "normed", axis=-1)
    reading = graph.he(_WIDTH, 4 * _WIDTH)
    reading[[3, 17]] /= 25.0
    up = graph.node("MatMul", [normed, graph.constant("up_w", reading)], "up")
    up = graph.node("Add", [up, graph.constant("up_b", 0.1 * graph.rng.standard_normal(4 * _WIDTH))], "up_added")
    active = graph.node("Gelu", [up], "active")
    down = graph.node("MatMul", [active, graph.constant("down_w", graph.he(4 * _WIDTH, _WIDTH))], "down")
    y = graph.node("Add", [down, x], "stream")
    if planted:
        loudness = np.ones((vocabulary, 1))
        loudness[2] = _LOUD  # [CLS]
        loud = graph.node("Gather", [graph.constant("loudness", loudness), "input_ids"], "loud")
        y = graph.node("Mul", [y, loud], "louder")
        y = graph.node("MatMul", [y, graph.constant("planted_w", graph.he(_WIDTH, _WIDTH))], PLANTED_LINEAR)
        y = graph.node("Div", [y, loud], "quiet")
    mask = graph.node("Cast", ["attention_mask"], "mask", to=TensorProto.FLOAT)
    mask = graph.node("Unsqueeze", [mask, graph.constant("two", [2], np.int64)], "mask_column")
    one = graph.constant("one", [1], np.int64)
    total = graph.node("ReduceSum", [graph.node("Mul", [y, mask], "masked"), one], "total", keepdims=0)
    mean = graph.node("Div", [total, graph.node("ReduceSum", [mask, one], "count", keepdims=0)], "mean")
    graph.node("MatMul", [mean, graph.constant("out_w", graph.he(_WIDTH, DIMENSION))], "embedding")
    named = ("input_ids", "attention_mask")
    return graph.model([helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"]) for name in named])


def publish_with(destination: Path, image: Any | None, text: Any | None, *, external: bool = False) -> Manifest:
    """A bundle of these graphs; with `external`, their weights lie beside them."""
    images = default_parity_images() if image is not None else {}
    texts = DEFAULT_PARITY_TEXTS if text is not None else ()
    image_vectors = text_vectors = None
    with tempfile.TemporaryDirectory() as folder:
        staging = Path(folder)
        if image is not None:
            pixels = np.stack([load_pixels(data, PREPROCESS) for data in images.values()])
            _centre(image, pixels)
            image_vectors = _run(image, {"pixels": pixels})
            _save(image, staging / "image.onnx", external=external)
        if text is not None:
            tokenizer_json = TinyTowers().tokenizer_json()
            (staging / "tokenizer.json").write_bytes(tokenizer_json)
            tokenizer = TextTokenizer(tokenizer_json, TEXT)
            ids, mask = collate([tokenizer(t) for t in texts], TEXT)
            text_vectors = _run(text, {"input_ids": ids, "attention_mask": mask})
            _save(text, staging / "text.onnx", external=external)
        write_parity(staging / "parity", images, texts, image_vectors, text_vectors)
        draft = BundleDraft(
            name="small",
            version="1",
            dimension=DIMENSION,
            image=None if image is None else ImageTower(files=TowerFiles(fp32="image.onnx"), preprocess=PREPROCESS),
            text=None if text is None else TextTower(files=TowerFiles(fp32="text.onnx"), text=TEXT),
            scoring=ScoringRule(scale=20.0),
        )
        return publish(draft, staging, destination)


def write_pictures(folder: Path, count: int, seed: int = 0, *, captions: bool = False) -> Path:
    """Pictures of soft patches, no two alike; optionally a captions.jsonl with a caption of its own for each."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        coarse = Image.fromarray(rng.integers(0, 256, (5, 5, 3), dtype=np.uint8))
        coarse.resize((48, 40), Image.Resampling.BICUBIC).save(folder / f"{i:03}.png")
        rows.append({"image": f"{i:03}.png", "caption": f"picture {i} of a {rng.choice(['cat', 'dog', 'circle'])}"})
    if captions:
        (folder / "captions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return folder


def _first_channel(weight: NDArray[Any], factor: float) -> NDArray[Any]:
    weight[:, 0] *= factor
    return weight


def _centre(model: Any, pixels: NDArray[np.float32]) -> None:
    """Takes the mean embedding out, so that pictures differ by more than a little."""
    mean = _run(model, {"pixels": pixels}).mean(axis=0)
    for constant in model.graph.initializer:
        if constant.name == "offset":
            constant.CopyFrom(numpy_helper.from_array(-mean, "offset"))


def _run(model: Any, feed: dict[str, Any]) -> NDArray[np.float32]:
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    result: NDArray[np.float32] = session.run(None, feed)[0]
    return result


def _save(model: Any, path: Path, *, external: bool) -> None:
    if external:
        onnx.save(model, str(path), save_as_external_data=True, location=f"{path.name}.data", size_threshold=64)
    else:
        onnx.save(model, str(path))
