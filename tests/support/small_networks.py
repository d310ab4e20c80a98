"""Towers of a convolutional network and of transformers, drawn at random: small, but every part of a real one.

Random weights forgive more than trained ones: a mistake in front of them that shows here shows in any model.
"""

from __future__ import annotations

from typing import Any, Final, Literal

import numpy as np

Activation = Literal["quick_gelu", "gelu"]

SIDE: Final = 64
DIMENSION: Final = 32
_WIDTH: Final = 48


class Graph:
    """Collects nodes and weights of an ONNX graph; each method adds a node and gives the name of its result."""

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[Any] = []
        self._weights: list[Any] = []

    def weight(self, *shape: int, fan_in: int) -> str:
        return self.constant((self._rng.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32))

    def constant(self, value: Any) -> str:
        from onnx import numpy_helper

        name = f"w{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def add(self, kind: str, *inputs: str, **attributes: Any) -> str:
        from onnx import helper

        name = f"n{len(self._nodes)}"
        self._nodes.append(helper.make_node(kind, list(inputs), [name], **attributes))
        return name

    def act(self, x: str, activation: Activation) -> str:
        if activation == "quick_gelu":  # OpenAI's CLIP
            return self.add("Mul", x, self.add("Sigmoid", self.add("Mul", x, self.constant(np.float32(1.702)))))
        half = self.add("Erf", self.add("Mul", x, self.constant(np.float32(np.sqrt(0.5)))))
        one = self.add("Add", half, self.constant(np.float32(1)))
        return self.add("Mul", self.add("Mul", x, self.constant(np.float32(0.5))), one)

    def norm(self, x: str) -> str:
        scale = self.constant(np.ones(_WIDTH, np.float32))
        return self.add("LayerNormalization", x, scale, self.constant(np.zeros(_WIDTH, np.float32)))

    def block(self, x: str, mask: str | None, activation: Activation) -> str:
        """A transformer's block of one head, (n, length, width); `mask` is added to the scores."""
        y = self.norm(x)
        q, k, v = (self.add("MatMul", y, self.weight(_WIDTH, _WIDTH, fan_in=_WIDTH)) for _ in range(3))
        scores = self.add("MatMul", q, self.add("Transpose", k, perm=[0, 2, 1]))
        scores = self.add("Mul", scores, self.constant(np.float32(_WIDTH**-0.5)))
        if mask is not None:
            scores = self.add("Add", scores, mask)
        x = self.add("Add", x, self.add("MatMul", self.add("Softmax", scores, axis=-1), v))
        y = self.add("MatMul", self.norm(x), self.weight(_WIDTH, 2 * _WIDTH, fan_in=_WIDTH))
        y = self.add("MatMul", self.act(y, activation), self.weight(2 * _WIDTH, _WIDTH, fan_in=2 * _WIDTH))
        return self.add("Add", x, y)

    def model(self, inputs: list[Any]) -> Any:
        from onnx import TensorProto, helper

        self._nodes[-1].output[0] = "embedding"
        output = helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", DIMENSION])
        graph = helper.make_graph(self._nodes, "tower", inputs, [output], initializer=self._weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def convolutional(*, activation: Activation = "quick_gelu", seed: int = 0) -> Any:
    """`pixels` (n, 3, 64, 64) to `embedding`: three strided convolutions, the mean over places, a projection."""
    g = Graph(seed)
    x = "pixels"
    for inside, outside in ((3, 16), (16, 32), (32, _WIDTH)):
        weight = g.weight(outside, inside, 3, 3, fan_in=9 * inside)
        x = g.act(g.add("Conv", x, weight, strides=[2, 2], pads=[1, 1, 1, 1]), activation)
    x = g.add("Flatten", g.add("GlobalAveragePool", x))
    g.add("MatMul", x, g.weight(_WIDTH, DIMENSION, fan_in=_WIDTH))
    return g.model([_pixels()])


def vision_transformer(*, activation: Activation = "quick_gelu", seed: int = 0) -> Any:
    """`pixels` (n, 3, 64, 64) to `embedding`: 8 x 8 patches, two blocks, the mean over patches, a projection."""
    g = Graph(seed)
    x = g.add("Conv", "pixels", g.weight(_WIDTH, 3, 8, 8, fan_in=192), strides=[8, 8])
    x = g.add("Transpose", g.add("Reshape", x, g.constant(np.array([0, _WIDTH, -1]))), perm=[0, 2, 1])
    x = g.add("Add", x, g.weight((SIDE // 8) ** 2, _WIDTH, fan_in=_WIDTH))
    for _ in range(2):
        x = g.block(x, None, activation)
    x = g.add("ReduceMean", g.norm(x), axes=[1], keepdims=0)
    g.add("MatMul", x, g.weight(_WIDTH, DIMENSION, fan_in=_WIDTH))
    return g.model([_pixels()])


def text_transformer(
    vocabulary: int, context: int, *, masked: bool, activation: Activation = "quick_gelu", seed: int = 0
) -> Any:
    """`input_ids` (n, length) and, if masked, `attention_mask` to `embedding`: two blocks, a mean, a projection.

    Without a mask every position counts, padding too, as in SigLIP's text tower.
    """
    from onnx import TensorProto, helper

    g = Graph(seed)
    length = g.add("Gather", g.add("Shape", "input_ids"), g.constant(np.array(1)))
    positions = g.add("Range", g.constant(np.array(0)), length, g.constant(np.array(1)))
    x = g.add("Gather", g.weight(vocabulary, _WIDTH, fan_in=_WIDTH), "input_ids")
    x = g.add("Add", x, g.add("Gather", g.weight(context, _WIDTH, fan_in=_WIDTH), positions))
    mask = weights = None
    if masked:
        seen = g.add("Cast", "attention_mask", to=TensorProto.FLOAT)
        hidden = g.add("Mul", g.add("Sub", seen, g.constant(np.float32(1))), g.constant(np.float32(1e9)))
        mask = g.add("Unsqueeze", hidden, g.constant(np.array([1])))
        weights = g.add("Unsqueeze", seen, g.constant(np.array([2])))
    for _ in range(2):
        x = g.block(x, mask, activation)
    x = g.norm(x)
    if weights is None:
        x = g.add("ReduceMean", x, axes=[1], keepdims=0)
    else:
        axis = g.constant(np.array([1]))
        total = g.add("ReduceSum", g.add("Mul", x, weights), axis, keepdims=0)
        x = g.add("Div", total, g.add("ReduceSum", weights, axis, keepdims=0))
    g.add("MatMul", x, g.weight(_WIDTH, DIMENSION, fan_in=_WIDTH))
    names = ["input_ids", "attention_mask"] if masked else ["input_ids"]
    return g.model([helper.make_tensor_value_info(name, TensorProto.INT64, ["n", "length"]) for name in names])


def _pixels() -> Any:
    from onnx import TensorProto, helper

    return helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIDE, SIDE])
