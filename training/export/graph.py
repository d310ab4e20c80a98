"""One torch module to one ONNX file: dynamic batch, no trace of the machine it was made on, same bytes every time."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor, nn

from twinlens.training.errors import first_line
from twinlens.training.export.errors import ExportError

if TYPE_CHECKING:
    import onnx_ir

# 20 is the first opset with Gelu as one operator; every onnxruntime we accept runs it.
OPSET = 20
OUTPUT_NAME = "embedding"
# A protobuf file ends at 2 GiB; weights of larger models go to a file beside it.
_INLINE_LIMIT_BYTES = 1_800_000_000


@dataclass(frozen=True)
class GraphInputs:
    """What a tower takes.

    Attributes:
        example: A batch of two for each input name: with a batch of one, the exporter bakes it into the graph.
        dynamic_axes: For each input name, the axes whose size may change, by name (`{0: "batch"}`).
    """

    example: Mapping[str, Tensor]
    dynamic_axes: Mapping[str, Mapping[int, str]]


def export_graph(module: nn.Module, inputs: GraphInputs, path: Path) -> None:
    """Writes `module` as ONNX to `path`; exporting the same weights again gives the same bytes.

    Args:
        module: In evaluation mode, on the CPU, in float32; takes its inputs by position in the order of
            `inputs.example` and returns one tensor of shape (n, d), which becomes the output `embedding`.
        inputs: The example batch and the axes that stay free.
        path: Where to write. Weights past the protobuf limit go to `<name>.data` beside it.

    Raises:
        ExportError: if the example batch is one, or torch cannot export the module.
    """
    if any(tensor.shape[0] < 2 for tensor in inputs.example.values()):
        raise ExportError("the example batch must be 2 or more: the exporter fixes the batch at 1 otherwise")
    names = list(inputs.example)
    dimensions = {axis: torch.export.Dim(axis) for axes in inputs.dynamic_axes.values() for axis in axes.values()}
    shapes = tuple({i: dimensions[axis] for i, axis in inputs.dynamic_axes.get(name, {}).items()} for name in names)
    try:
        with _quiet(), torch.no_grad():
            program = torch.onnx.export(
                module,
                tuple(inputs.example.values()),
                dynamo=True,
                opset_version=OPSET,
                input_names=names,
                dynamic_shapes=shapes,
                verbose=False,
                # The exporter's own report goes to the working folder when it fails; our message is the exception's.
                report=False,
            )
    except Exception as error:
        raise ExportError(f"torch cannot export {type(module).__name__}: {first_line(error)}") from error
    if program is None:  # pragma: no cover - only without dynamo
        raise ExportError("torch returned no program")
    _write(program.model, path)


def _write(model: onnx_ir.Model, path: Path) -> None:
    import onnx_ir  # noqa: PLC0415 - comes with onnxscript, needed here only

    _strip(model)
    _name_output(model)
    size = sum(v.const_value.nbytes for v in model.graph.initializers.values() if v.const_value is not None)
    external = f"{path.name}.data" if size > _INLINE_LIMIT_BYTES else None
    onnx_ir.save(model, path, external_data=external)


def _strip(model: onnx_ir.Model) -> None:
    """Removes stack traces and file names: they leak paths and make two exports of the same weights differ."""
    from onnx_ir.traversal import RecursiveGraphIterator  # noqa: PLC0415

    model.doc_string = None
    model.metadata_props.clear()
    parts: list[onnx_ir.Graph | onnx_ir.Function] = [model.graph, *model.functions.values()]
    for part in parts:
        part.doc_string = None
        part.metadata_props.clear()
        values = list(part.inputs)
        for node in RecursiveGraphIterator(part):
            node.doc_string = None
            node.metadata_props.clear()
            values += node.outputs
        for value in (*values, *model.graph.initializers.values()):
            value.doc_string = None
            value.metadata_props.clear()


def _name_output(model: onnx_ir.Model) -> None:
    """Calls the output `embedding`; the exporter gives what comes from a layer `embedding` inside the same name."""
    from onnx_ir.traversal import RecursiveGraphIterator  # noqa: PLC0415

    (output,) = model.graph.outputs
    others = [value for value in (*model.graph.inputs, *model.graph.initializers.values()) if value is not output]
    for node in RecursiveGraphIterator(model.graph):
        others += [value for value in node.outputs if value is not output]
    taken = {value.name for value in others}
    for value in others:
        if value.name == OUTPUT_NAME:
            free, number = f"{OUTPUT_NAME}_inner", 1
            while free in taken:
                number += 1
                free = f"{OUTPUT_NAME}_inner_{number}"
            value.name = free
            taken.add(free)
    output.name = OUTPUT_NAME


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keeps the exporter's progress lines and its warnings about itself away from the user."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir", "torch.export")]
    levels = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
