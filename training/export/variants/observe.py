"""What flows through a tower on calibration data: moments of the layers' inputs and ranges of tensors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.training.export.variants.layers import Layer, weight_taps
from twinlens.training.export.variants.rounding import LARGEST_COVARIANCE
from twinlens.training.export.variants.sessions import open_model
from twinlens.training.export.variants.tower_graph import TowerGraph, attributes, with_nodes

Feed = Mapping[str, NDArray[Any]]
# Of each picture in a batch, so many output positions of a convolution are looked at.
_POSITIONS = 32


@dataclass
class Moments:
    """Moments of a layer's input rows.

    Attributes:
        mean: Shape (groups, in).
        second: E[x x'], shape (groups, in, in), or its diagonal, shape (groups, in), of very wide layers.
        lowest: Of each input over all rows, shape (groups, in).
        highest: The same.
        rows: Rows (or output positions) that one item brings: times the weights, its multiply-adds.
        flat: Whether the input has two dimensions.
    """

    mean: NDArray[np.float64]
    second: NDArray[np.float64]
    lowest: NDArray[np.float32]
    highest: NDArray[np.float32]
    rows: float
    flat: bool = False


def observe_inputs(graph: TowerGraph, layers: Sequence[Layer], feeds: Iterable[Feed]) -> dict[str, Moments]:
    """Moments of the layers' inputs by layer name; layers that share an input see it once each."""
    sums: dict[str, Moments] = {}
    # A mean far from zero would leave little of the covariance in float32: sums are taken around the first batch's.
    centres: dict[str, NDArray[np.float32]] = {}
    seen: dict[str, int] = {}
    items = 0
    tensors = list(dict.fromkeys(layer.input for layer in layers))
    # Matrix products of one tensor see the same rows.
    apart = {layer.input if layer.kind == "linear" else layer.name: layer for layer in layers}
    positions = np.random.default_rng(0)
    for feed, values in _runs(graph, tensors, feeds):
        items += len(next(iter(feed.values())))
        for key, layer in apart.items():
            rows, brought = _rows(layer, graph, values[layer.input], positions)
            centre = centres.setdefault(key, rows.mean(axis=1, keepdims=True))
            _add(sums, key, rows - centre, brought)
            seen[key] = seen.get(key, 0) + rows.shape[1]
            sums[key].flat = values[layer.input].ndim == 2
    for key, moments in sums.items():
        moments.mean /= seen[key]
        moments.second /= seen[key]
        moments.rows /= items
        _move(moments, centres[key][:, 0])
    return {layer.name: sums[layer.input if layer.kind == "linear" else layer.name] for layer in layers}


def observe_ranges(graph: TowerGraph, tensors: Sequence[str], feeds: Iterable[Feed]) -> dict[str, tuple[float, float]]:
    """Lowest and highest value of float tensors.

    Cutting rare values for finer steps was tried (least squared error over a histogram): it made no difference to the
    starter's image tower, and is worse where a picture is unlike those of the calibration.
    """
    ranges: dict[str, tuple[float, float]] = {}
    for _, values in _runs(graph, tensors, feeds):
        for name, value in values.items():
            lowest, highest = ranges.get(name, (np.inf, -np.inf))
            ranges[name] = (min(lowest, float(value.min())), max(highest, float(value.max())))
    return ranges


def multiply_adds(layers: Iterable[Layer], graph: TowerGraph, moments: Mapping[str, Moments]) -> dict[str, float]:
    """Multiply-adds of one item, by layer name."""
    return {layer.name: weight_taps(layer, graph) * moments[layer.name].rows for layer in layers}


def _runs(
    graph: TowerGraph, tensors: Sequence[str], feeds: Iterable[Feed]
) -> Iterable[tuple[Feed, dict[str, NDArray[np.float32]]]]:
    """Runs the graph with tensors from its inside as outputs."""
    from onnx import TensorProto, helper  # noqa: PLC0415

    inputs = {value.name for value in graph.model.graph.input}
    inner = [name for name in tensors if name not in inputs]
    model = with_nodes(graph, graph.model.graph.node, ())
    model.graph.output.extend(
        helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inner if name not in graph.outputs
    )
    session = open_model(model)
    for feed in feeds:
        found = dict(zip(inner, session.run(inner, dict(feed)) if inner else [], strict=True))
        yield feed, found | {name: feed[name] for name in tensors if name in inputs}


def _add(sums: dict[str, Moments], name: str, rows: NDArray[np.float32], brought: int) -> None:
    """Adds rows, shape (groups, m, in), to the sums."""
    width = rows.shape[-1]
    second = np.matmul(np.swapaxes(rows, 1, 2), rows) if width <= LARGEST_COVARIANCE else (rows**2).sum(axis=1)
    mean, lowest, highest = rows.sum(axis=1).astype(np.float64), rows.min(axis=1), rows.max(axis=1)
    if name not in sums:
        sums[name] = Moments(mean, second.astype(np.float64), lowest, highest, brought)
        return
    known = sums[name]
    known.mean += mean
    known.second += second
    known.lowest, known.highest = np.minimum(known.lowest, lowest), np.maximum(known.highest, highest)
    known.rows += brought


def _move(moments: Moments, centre: NDArray[np.float32]) -> None:
    """From moments around a centre, shape (groups, in), to those around zero."""
    exact, mean = centre.astype(np.float64), moments.mean.copy()
    moments.mean += exact
    if moments.second.ndim == 2:
        moments.second += 2.0 * exact * mean + exact**2
    else:
        crossed = exact[:, :, None] * mean[:, None, :]
        moments.second += crossed + np.swapaxes(crossed, 1, 2) + exact[:, :, None] * exact[:, None, :]
    moments.lowest += centre
    moments.highest += centre


def _rows(
    layer: Layer, graph: TowerGraph, value: NDArray[np.float32], positions: np.random.Generator
) -> tuple[NDArray[np.float32], int]:
    """The rows that the layer's weights meet, shape (groups, m, in), and how many all items brought."""
    if layer.kind == "linear":
        rows = value.reshape(1, -1, value.shape[-1])
        return rows, rows.shape[1]
    node = graph.producer[layer.output]
    known = attributes(node)
    top, left, bottom, right = known.get("pads", [0] * 4)
    stride_y, stride_x = known.get("strides", [1, 1])
    dilation_y, dilation_x = known.get("dilations", [1, 1])
    _, per_group, taps_y, taps_x = graph.constants[layer.weight].dims
    padded = np.pad(value, ((0, 0), (0, 0), (top, bottom), (left, right)))
    height = (padded.shape[2] - dilation_y * (taps_y - 1) - 1) // stride_y + 1
    width = (padded.shape[3] - dilation_x * (taps_x - 1) - 1) // stride_x + 1
    chosen = positions.choice(height * width, min(_POSITIONS, height * width), replace=False)
    y, x = chosen // width * stride_y, chosen % width * stride_x
    items, channels = value.shape[:2]
    taken = np.empty((items, len(chosen), channels, taps_y, taps_x), np.float32)
    for i in range(taps_y):
        for j in range(taps_x):
            taken[..., i, j] = np.swapaxes(padded[:, :, y + i * dilation_y, x + j * dilation_x], 1, 2)
    rows = taken.reshape(items * len(chosen), layer.groups, per_group * taps_y * taps_x)
    return np.ascontiguousarray(np.swapaxes(rows, 0, 1)), items * height * width
