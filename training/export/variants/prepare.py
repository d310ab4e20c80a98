"""All that calibration finds out about a tower, once: each trial of the search is then only a matter of writing it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.training.export.variants.layers import Layer, find_layers
from twinlens.training.export.variants.observe import (
    Feed,
    Moments,
    multiply_adds,
    observe_inputs,
    observe_ranges,
)
from twinlens.training.export.variants.rounding import LARGEST_COVARIANCE, Rounded, round_weights
from twinlens.training.export.variants.smoothing import smoothed, smoothing
from twinlens.training.export.variants.tower_graph import TowerGraph
from twinlens.training.export.variants.watch import Watch, unwatched

# Covariances held at once, in bytes of float64.
_MEMORY_BYTES = 1_000_000_000
# A matrix product of less than this share of the tower's multiply-adds is left alone: nothing to gain.
_LEAST_SHARE = 0.005


@dataclass(frozen=True)
class Prepared:
    """A tower ready to be written in int8.

    Attributes:
        graph: The tower in fp32.
        layers: What can be computed in int8.
        rounded: Their weights, by layer name.
        divisors: Of activations by tensor, where they are smoothed.
        ranges: Lowest and highest value of tensors, as int8 shall span them.
        costs: Multiply-adds of one item by layer name, also of layers that stay in fp32.
        flat: The layers whose input has two dimensions.
    """

    graph: TowerGraph
    layers: tuple[Layer, ...]
    rounded: dict[str, Rounded]
    divisors: dict[str, NDArray[np.float64]]
    ranges: dict[str, tuple[float, float]]
    costs: dict[str, float]
    flat: frozenset[str]

    def share(self, names: Iterable[str]) -> float:
        """The part of the tower's multiply-adds (by constant weights) that these layers do."""
        return sum(self.costs[name] for name in names) / sum(self.costs.values())


def prepare(graph: TowerGraph, feeds: Callable[[], Iterator[Feed]], watch: Watch = unwatched) -> Prepared:
    """Observes a tower on calibration data and rounds its weights.

    In a convolutional tower the convolutions and what lies between them become int8; in a transformer the products
    with weight matrices, while attention, norms and the residual stream stay in fp32.

    Args:
        graph: The tower in fp32.
        feeds: Gives the calibration batches, each time anew. Rows must not be padding that the tower ignores.
        watch: Told how far rounding is.
    """
    every = find_layers(graph)
    rounded: dict[str, Rounded] = {}
    divisors: dict[str, NDArray[np.float64]] = {}
    ranges: dict[str, tuple[float, float]] = {}
    first = next(iter(feeds()))
    shapes = observe_inputs(graph, every, [{name: value[:2] for name, value in first.items()}])
    costs = multiply_adds(every, graph, shapes)
    layers = _eligible(every, costs)
    for part in _parts(layers, graph):
        moments = observe_inputs(graph, part, feeds())
        with watch("rounding weights", len(part)) as progress:
            for group in _by_input(part):
                scales = _smoothing(group, graph, moments)
                for layer in group:
                    known = moments[layer.name]
                    weights = layer.matrix(graph)
                    if scales is not None:
                        divisors[layer.input] = scales
                        known, weights = smoothed(known, scales), weights * scales
                    rounded[layer.name] = round_weights(weights, known.mean, known.second)
                    if layer.kind == "linear":
                        ranges[layer.input] = (float(known.lowest.min()), float(known.highest.max()))
                    progress.advance()
    spanned = [name for name in _spanned(layers, graph) if name not in ranges]
    if spanned:
        ranges |= observe_ranges(graph, spanned, feeds())
    flat = frozenset(name for name, moments in shapes.items() if moments.flat)
    return Prepared(graph, tuple(layers), rounded, divisors, ranges, costs, flat)


def removable(graph: TowerGraph, tensor: str) -> str:
    """What a tensor becomes behind a ReLU, or a Clip from 0, that alone reads it; else the tensor itself.

    An int8 range that ends at 0 cuts off what lies below, so such a node need not be computed.
    """
    node = graph.only_consumer(tensor)
    if node is None:
        return tensor
    if node.op_type == "Relu":
        return str(node.output[0])
    if node.op_type == "Clip" and len(node.input) > 1 and node.input[1] in graph.constants:
        return str(node.output[0]) if float(graph.constant(node.input[1])) == 0.0 else tensor
    return tensor


def _eligible(every: Sequence[Layer], costs: dict[str, float]) -> list[Layer]:
    total = sum(costs.values())
    convolutional = sum(costs[layer.name] for layer in every if layer.kind == "conv") > total / 2
    return [
        layer
        for layer in every
        if (convolutional if layer.kind == "conv" else costs[layer.name] >= _LEAST_SHARE * total)
    ]


def _spanned(layers: Sequence[Layer], graph: TowerGraph) -> list[str]:
    """The tensors that become int8 between convolutions."""
    names: dict[str, None] = {}
    for layer in layers:
        if layer.kind == "conv":
            names[layer.input] = names[removable(graph, layer.output)] = None
    if names:
        for node in graph.model.graph.node:
            if node.op_type == "Add":
                names[removable(graph, node.output[0])] = None
    return list(names)


def _parts(layers: Sequence[Layer], graph: TowerGraph) -> Iterator[list[Layer]]:
    """Layers in portions whose covariances fit the memory; those that read one tensor stay together."""
    part: list[Layer] = []
    used = 0
    for group in _by_input(layers):
        size = sum(_covariance_bytes(layer, graph) for layer in group)
        if part and used + size > _MEMORY_BYTES:
            yield part
            part, used = [], 0
        part += group
        used += size
    if part:
        yield part


def _by_input(layers: Iterable[Layer]) -> list[list[Layer]]:
    groups: dict[str, list[Layer]] = {}
    for layer in layers:
        groups.setdefault(layer.input, []).append(layer)
    return list(groups.values())


def _covariance_bytes(layer: Layer, graph: TowerGraph) -> int:
    width = layer.matrix(graph).shape[1]
    return int(8 * layer.groups * width * (width if width <= LARGEST_COVARIANCE else 1))


def _smoothing(group: list[Layer], graph: TowerGraph, moments: dict[str, Moments]) -> NDArray[np.float64] | None:
    if any(layer.kind == "conv" for layer in group):
        return None
    return smoothing([layer.matrix(graph) for layer in group], moments[group[0].name])
