"""Writing a tower in int8: ONNX's QuantizeLinear and DequantizeLinear around what a runtime then computes in bytes.

Both ONNX Runtime and OpenVINO recognise the pattern and run the int8 kernels they have. All steps are fixed at export,
so a vector does not depend on what else is in its batch, as it does with dynamic quantisation, where one step spans the
whole batch.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.training.export.variants.layers import Layer
from twinlens.training.export.variants.prepare import Prepared, removable
from twinlens.training.export.variants.tower_graph import tensor, with_nodes

_LEVELS = 255
_LARGEST_BIAS = 2.0**30


def write_int8(prepared: Prepared, kept: Collection[str]) -> Any:
    """The tower as an `onnx.ModelProto` with all layers in int8 but those in `kept`."""
    writer = _Writer(prepared, {layer.name: layer for layer in prepared.layers if layer.name not in kept})
    for node in prepared.graph.model.graph.node:
        writer.write(node)
    return with_nodes(prepared.graph, writer.nodes, writer.constants)


class _Writer:
    """Takes the nodes of the fp32 graph one by one and collects those of the int8 graph."""

    def __init__(self, prepared: Prepared, layers: dict[str, Layer]) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._prepared = prepared
        self._graph = prepared.graph
        self._layers = layers
        # Tensors that are there in int8 as well, and what to read for them: the output of a DequantizeLinear.
        self._in_int8: dict[str, str] = {}
        # Outputs of int8 nodes: whoever reads them reads int8.
        self._made_in_int8: set[str] = set()
        self._steps: dict[str, np.float32] = {}
        # Tensors that are there no more; nor are the nodes that read them: activations that a range makes superfluous,
        # and Adds of a bias that a product takes up.
        self._dropped: set[str] = set()
        # Constants of Adds that take up a correction, by the Add's input.
        self._shifted: dict[str, tuple[str, str]] = {}
        self._folded = {name for name in prepared.divisors if self._folds(name)}

    def write(self, node: Any) -> None:
        """Writes what a node of the fp32 graph becomes."""
        layer = self._layers.get(node.name)
        if layer is not None and layer.output == node.output[0]:
            if layer.kind == "conv":
                self._conv(node, layer)
            else:
                self._linear(layer)
        elif self._dropped.intersection(node.input):
            return
        elif node.op_type in {"Add", "MaxPool"} and self._stays_in_int8(node):
            self._between(node)
        elif node.op_type == "LayerNormalization" and node.output[0] in self._folded:
            self._scaled_norm(node)
        else:
            self.nodes.append(self._with_shifted_bias(node))

    def _node(self, kind: str, inputs: list[str], outputs: list[str], name: str = "", **attributes: Any) -> None:
        from onnx import helper  # noqa: PLC0415

        self.nodes.append(helper.make_node(kind, inputs, outputs, name=name, **attributes))

    def _constant(self, name: str, value: NDArray[Any]) -> str:
        self.constants.append(tensor(name, value))
        return name

    def _conv(self, node: Any, layer: Layer) -> None:
        import onnx  # noqa: PLC0415

        rounded = self._prepared.rounded[layer.name]
        x = self._quantised(layer.input)
        levels = layer.restored(rounded.levels, self._graph)
        weight = self._dequantised(f"{layer.name}_weight", levels, rounded.steps, axis=0)
        added = self._bias_in_steps(layer)
        settled = self._settled(node.output[0])
        written = onnx.NodeProto()
        written.CopyFrom(node)
        del written.input[:], written.output[:]
        written.input.extend([x, weight, added])
        written.output.append(f"{settled}_exact")
        self.nodes.append(written)
        self._requantise(settled)

    def _linear(self, layer: Layer) -> None:
        rounded = self._prepared.rounded[layer.name]
        x = self._quantised(layer.input)
        levels = rounded.levels if layer.transposed else layer.restored(rounded.levels, self._graph)
        weight = self._dequantised(f"{layer.name}_weight", levels.T, rounded.steps, axis=1)
        behind = self._graph.only_consumer(layer.output) if layer.bias else None
        if behind is not None and layer.bias not in behind.input:
            behind = None
        if layer.name in self._prepared.flat:
            # Runtimes turn MatMul and Add of two dimensions into Gemm, and know it in int8 with a bias of int32 only.
            if behind is not None:
                self._dropped.add(layer.output)
            output = layer.output if behind is None else behind.output[0]
            self._node("Gemm", [x, weight, self._bias_in_steps(layer)], [output], layer.name)
        elif behind is not None:
            self._node("MatMul", [x, weight], [layer.output], layer.name)
            self._shifted[layer.output] = (layer.bias, self._bias(layer))
        elif layer.bias or np.any(rounded.shift):
            self._node("MatMul", [x, weight], [f"{layer.output}_product"], layer.name)
            self._node("Add", [f"{layer.output}_product", self._bias(layer)], [layer.output], f"{layer.name}_add")
        else:
            self._node("MatMul", [x, weight], [layer.output], layer.name)

    def _bias(self, layer: Layer) -> str:
        return self._constant(f"{layer.name}_bias_corrected", self._corrected(layer).astype(np.float32))

    def _bias_in_steps(self, layer: Layer) -> str:
        """The bias as int32, in steps of input times weight, as the products are summed."""
        weight_steps = self._prepared.rounded[layer.name].steps.astype(np.float64)
        steps = self._steps[layer.input].astype(np.float64) * weight_steps
        levels = np.clip(np.round(self._corrected(layer) / steps), -_LARGEST_BIAS, _LARGEST_BIAS).astype(np.int32)
        return self._dequantised(f"{layer.name}_bias", levels, steps.astype(np.float32), axis=0)

    def _corrected(self, layer: Layer) -> NDArray[np.float64]:
        shift = self._prepared.rounded[layer.name].shift
        return shift + self._graph.constant(layer.bias) if layer.bias else shift

    def _with_shifted_bias(self, node: Any) -> Any:
        found = [name for name in node.input if name in self._shifted]
        if node.op_type != "Add" or not found:
            return node
        import onnx  # noqa: PLC0415

        old, new = self._shifted[found[0]]
        written = onnx.NodeProto()
        written.CopyFrom(node)
        inputs = [new if name == old else name for name in node.input]
        del written.input[:]
        written.input.extend(inputs)
        return written

    def _between(self, node: Any) -> None:
        """An Add or MaxPool whose inputs are int8 already."""
        import onnx  # noqa: PLC0415

        settled = self._settled(node.output[0]) if node.op_type == "Add" else node.output[0]
        written = onnx.NodeProto()
        written.CopyFrom(node)
        inputs = [self._in_int8[name] for name in node.input]
        del written.input[:], written.output[:]
        written.input.extend(inputs)
        written.output.append(f"{settled}_exact")
        self.nodes.append(written)
        self._requantise(settled, like=node.input[0] if node.op_type == "MaxPool" else "")

    def _stays_in_int8(self, node: Any) -> bool:
        if len(node.output) != 1 or not all(name in self._made_in_int8 for name in node.input):
            return False
        result = removable(self._graph, node.output[0]) if node.op_type == "Add" else node.output[0]
        if node.op_type == "Add" and result not in self._prepared.ranges:
            return False
        return any(reader.name in self._layers for reader in self._graph.consumers.get(result, []))

    def _settled(self, output: str) -> str:
        """The tensor to span instead of `output`; notes the activation in between as superfluous."""
        settled = removable(self._graph, output)
        if settled != output:
            self._dropped.add(output)
        return settled

    def _requantise(self, name: str, like: str = "") -> None:
        """Rounds `<name>_exact` to int8; whoever reads `name` reads the rounded values from now on."""
        source = like or name
        if like:
            self._steps[name] = self._steps[like]
        self._pair(f"{name}_exact", name, source)
        self._in_int8[name] = name
        self._made_in_int8.add(name)

    def _quantised(self, name: str) -> str:
        """What to read for an int8 input, rounding it first if nobody has."""
        if name not in self._in_int8:
            source = name
            divisors = self._prepared.divisors.get(name)
            if divisors is not None and name not in self._folded:
                factors = self._constant(f"{name}_factors", (1.0 / divisors).astype(np.float32))
                source = f"{name}_smooth"
                self._node("Mul", [name, factors], [source])
            self._pair(source, f"{name}_rounded", name)
            self._in_int8[name] = f"{name}_rounded"
        return self._in_int8[name]

    def _pair(self, source: str, result: str, ranged: str) -> None:
        step, zero = f"{ranged}_step", f"{ranged}_zero"
        if ranged not in self._steps:
            lowest, highest = self._prepared.ranges[ranged]
            lowest, highest = min(lowest, 0.0), max(highest, 0.0)
            size = np.float32((highest - lowest) / _LEVELS or 1.0)
            self._steps[ranged] = size
            self._constant(step, np.array(size))
            self._constant(zero, np.array(np.clip(round(-lowest / float(size)), 0, _LEVELS), np.uint8))
        self._node("QuantizeLinear", [source, step, zero], [f"{result}_bytes"])
        self._node("DequantizeLinear", [f"{result}_bytes", step, zero], [result])

    def _dequantised(self, name: str, levels: NDArray[Any], steps: NDArray[np.float32], axis: int) -> str:
        inputs = [
            self._constant(f"{name}_levels", levels),
            self._constant(f"{name}_steps", steps),
            self._constant(f"{name}_zeros", np.zeros(len(steps), levels.dtype)),
        ]
        self._node("DequantizeLinear", inputs, [name], axis=axis)
        return name

    def _folds(self, name: str) -> bool:
        """Whether the layer norm that makes a tensor can divide it at no cost: only int8 layers read it."""
        norm = self._graph.producer.get(name)
        if norm is None or norm.op_type != "LayerNormalization" or len(norm.output) > 1 or name in self._graph.outputs:
            return False
        constant = all(part in self._graph.constants for part in norm.input[1:])
        return constant and all(reader.name in self._layers for reader in self._graph.consumers.get(name, []))

    def _scaled_norm(self, node: Any) -> None:
        import onnx  # noqa: PLC0415

        factors = 1.0 / self._prepared.divisors[node.output[0]]
        written = onnx.NodeProto()
        written.CopyFrom(node)
        del written.input[1:]
        for part in node.input[1:]:
            scaled = (self._graph.constant(part) * factors).astype(np.float32)
            written.input.append(self._constant(f"{node.output[0]}_{len(written.input)}_smooth", scaled))
        self.nodes.append(written)
