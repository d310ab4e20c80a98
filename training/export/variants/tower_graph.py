"""A tower's ONNX graph in memory, with the look-ups that rewriting it needs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.training.errors import first_line
from twinlens.training.export.errors import ExportError

# A protobuf file ends at 2 GiB; weights of larger graphs go to a file beside it.
_INLINE_LIMIT_BYTES = 1_800_000_000


class TowerGraph:
    """An ONNX model whose tensors are all in memory. `model` is not changed by anything here."""

    def __init__(self, model: Any) -> None:
        """Indexes an `onnx.ModelProto`."""
        self.model = model
        self.constants: dict[str, Any] = {tensor.name: tensor for tensor in model.graph.initializer}
        self.producer: dict[str, Any] = {}
        self.consumers: dict[str, list[Any]] = {}
        for node in model.graph.node:
            for name in node.output:
                self.producer[name] = node
            for name in node.input:
                self.consumers.setdefault(name, []).append(node)
        self.outputs = {output.name for output in model.graph.output}

    @classmethod
    def load(cls, path: Path) -> TowerGraph:
        """Reads a graph with the weights that lie beside it. Nodes without a name of their own get one.

        Raises:
            ExportError: if the file is not a graph.
        """
        import onnx  # noqa: PLC0415 - an extra

        try:
            model = onnx.load(str(path))
        except Exception as error:  # protobuf's own, or whatever the side files bring
            raise ExportError(f"{path.name} cannot be read: {first_line(error)}") from error
        taken: set[str] = set()
        for number, node in enumerate(model.graph.node):
            if not node.name or node.name in taken:
                node.name = f"{node.op_type}_{number}"
            taken.add(node.name)
        return cls(model)

    def constant(self, name: str) -> NDArray[Any]:
        """The value of an initialiser."""
        from onnx import numpy_helper  # noqa: PLC0415

        value: NDArray[Any] = numpy_helper.to_array(self.constants[name])
        return value

    def only_consumer(self, tensor: str) -> Any | None:
        """The one node that reads a tensor; None if there are others, or it is an output of the graph."""
        readers = self.consumers.get(tensor, [])
        return readers[0] if len(readers) == 1 and tensor not in self.outputs else None


def attributes(node: Any) -> dict[str, Any]:
    """A node's attributes by name."""
    from onnx import helper  # noqa: PLC0415

    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def tensor(name: str, value: NDArray[Any]) -> Any:
    """An initialiser."""
    from onnx import numpy_helper  # noqa: PLC0415

    return numpy_helper.from_array(np.ascontiguousarray(value), name)


def with_nodes(graph: TowerGraph, nodes: Iterable[Any], constants: Iterable[Any]) -> Any:
    """A model of the same inputs and outputs with other nodes; constants that nothing reads are left out.

    Args:
        graph: The model to start from; not changed.
        nodes: All nodes, in an order in which each comes after what it reads.
        constants: Initialisers to add; one of the same name replaces the old.
    """
    import onnx  # noqa: PLC0415

    model = onnx.ModelProto()
    for field in ("ir_version", "producer_name", "producer_version", "domain", "model_version"):
        setattr(model, field, getattr(graph.model, field))
    model.opset_import.extend(graph.model.opset_import)
    model.functions.extend(graph.model.functions)
    model.graph.name = graph.model.graph.name
    model.graph.input.extend(graph.model.graph.input)
    model.graph.output.extend(graph.model.graph.output)
    model.graph.node.extend(nodes)
    read = {name for node in model.graph.node for name in node.input} | _read_inside(model.graph.node)
    every = graph.constants | {constant.name: constant for constant in constants}
    model.graph.initializer.extend(constant for name, constant in every.items() if name in read | graph.outputs)
    return model


def _read_inside(nodes: Iterable[Any]) -> set[str]:
    """What the branches of If, Loop and Scan read from outside."""
    read: set[str] = set()
    for node in nodes:
        for attribute in node.attribute:
            for inner in ([attribute.g] if attribute.HasField("g") else []) + list(attribute.graphs):
                read |= {name for child in inner.node for name in child.input} | _read_inside(inner.node)
    return read


def in_order(nodes: Sequence[Any]) -> list[Any]:
    """The nodes so that each comes after those that make what it reads, otherwise in the order given."""
    maker = {name: i for i, node in enumerate(nodes) for name in node.output}
    placed: set[int] = set()
    ordered: list[Any] = []
    for first in range(len(nodes)):
        waiting = [first]
        while waiting:
            number = waiting[-1]
            missing = [m for name in nodes[number].input if (m := maker.get(name)) is not None and m not in placed]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if number not in placed:
                placed.add(number)
                ordered.append(nodes[number])
    return ordered


def save(model: Any, path: Path) -> None:
    """Writes a model; weights past the protobuf limit go to `<name>.data` beside it."""
    import onnx  # noqa: PLC0415

    if model.ByteSize() > _INLINE_LIMIT_BYTES:
        onnx.save(
            model, str(path), save_as_external_data=True, all_tensors_to_one_file=True, location=f"{path.name}.data"
        )
    else:
        onnx.save(model, str(path))
