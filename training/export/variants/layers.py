"""The nodes of a tower that multiply by constant weights: what can be computed in int8."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from twinlens.training.export.variants.tower_graph import TowerGraph, attributes

Kind = Literal["conv", "linear"]


@dataclass(frozen=True)
class Layer:
    """A convolution, or a product with a matrix.

    Attributes:
        name: The node's.
        kind: `conv` for Conv over pictures, `linear` for MatMul and Gemm.
        input: The tensor that flows in.
        output: The tensor that flows out.
        weight: The initialiser's name.
        bias: The bias initialiser's name; empty without one. That of a MatMul is the constant of the Add behind it.
        groups: Groups of a convolution, else 1.
        transposed: Whether the weights lie as (in, out), as those of MatMul do.
    """

    name: str
    kind: Kind
    input: str
    output: str
    weight: str
    bias: str = ""
    groups: int = 1
    transposed: bool = False

    def matrix(self, graph: TowerGraph) -> NDArray[np.float64]:
        """The weights as (out, in a group and tap): rows of one group lie together."""
        weight = graph.constant(self.weight).astype(np.float64)
        return weight.T if self.transposed else weight.reshape(len(weight), -1)

    def restored(self, matrix: NDArray[Any], graph: TowerGraph) -> NDArray[Any]:
        """A matrix of that form in the shape of the node's weights."""
        shape = tuple(graph.constants[self.weight].dims)
        return np.ascontiguousarray(matrix.T if self.transposed else matrix.reshape(shape))


def find_layers(graph: TowerGraph) -> list[Layer]:
    """The layers that we know how to compute in int8, in the graph's order."""
    found = []
    for node in graph.model.graph.node:
        layer = {"Conv": _conv, "MatMul": _matmul, "Gemm": _gemm}.get(node.op_type, _none)(node, graph)
        if layer is not None:
            found.append(layer)
    return found


def weight_taps(layer: Layer, graph: TowerGraph) -> int:
    """Multiply-adds for one output row (of a linear layer) or one output position (of a convolution)."""
    return math.prod(graph.constants[layer.weight].dims)


def _none(node: Any, graph: TowerGraph) -> Layer | None:
    del node, graph
    return None


def _conv(node: Any, graph: TowerGraph) -> Layer | None:
    known = attributes(node)
    constants = all(name in graph.constants for name in node.input[1:])
    if not constants or len(graph.constants[node.input[1]].dims) != 4 or node.input[0] in graph.constants:
        return None
    if known.get("auto_pad", b"NOTSET") != b"NOTSET":
        return None
    return Layer(
        name=node.name,
        kind="conv",
        input=node.input[0],
        output=node.output[0],
        weight=node.input[1],
        bias=node.input[2] if len(node.input) > 2 else "",
        groups=known.get("group", 1),
    )


def _matmul(node: Any, graph: TowerGraph) -> Layer | None:
    x, weight = node.input
    if weight not in graph.constants or x in graph.constants or len(graph.constants[weight].dims) != 2:
        return None
    return Layer(node.name, "linear", x, node.output[0], weight, _bias_behind(node, graph), transposed=True)


def _bias_behind(node: Any, graph: TowerGraph) -> str:
    """The constant that the Add behind a MatMul adds to each row."""
    add = graph.only_consumer(node.output[0])
    if add is None or add.op_type != "Add":
        return ""
    other = add.input[1] if add.input[0] == node.output[0] else add.input[0]
    width = graph.constants[node.input[1]].dims[1]
    return other if other in graph.constants and list(graph.constants[other].dims) == [width] else ""


def _gemm(node: Any, graph: TowerGraph) -> Layer | None:
    known = attributes(node)
    x, weight = node.input[:2]
    plain = known.get("alpha", 1.0) == 1.0 and known.get("beta", 1.0) == 1.0 and not known.get("transA", 0)
    if not plain or weight not in graph.constants or x in graph.constants:
        return None
    transposed = not known.get("transB", 0)
    bias = node.input[2] if len(node.input) > 2 else ""
    width = graph.constants[weight].dims[1 if transposed else 0]
    if bias and (bias not in graph.constants or list(graph.constants[bias].dims) != [width]):
        return None
    return Layer(node.name, "linear", x, node.output[0], weight, bias, transposed=transposed)
