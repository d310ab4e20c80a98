"""fp16: half the bytes, for CUDA. Inputs and outputs stay float32, and so do nodes whose values half cannot hold."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from twinlens.encoders.onnx_session import import_onnxruntime
from twinlens.training.errors import first_line
from twinlens.training.export.errors import ExportError
from twinlens.training.export.variants.observe import Feed, observe_ranges
from twinlens.training.export.variants.tower_graph import TowerGraph, attributes, in_order, with_nodes

# A quarter of the largest half: pictures and texts to come may be louder than those of the calibration.
_LARGEST_VALUE = 65504.0 / 4


def write_fp16(graph: TowerGraph, kept: Iterable[str]) -> Any:
    """The tower as an `onnx.ModelProto` in float16 with the nodes in `kept` in float32.

    Raises:
        ExportError: if the graph cannot be converted.
    """
    import onnx  # noqa: PLC0415 - an extra

    import_onnxruntime()  # with its telemetry off
    from onnxruntime.transformers.float16 import convert_float_to_float16  # noqa: PLC0415

    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    # The converter casts between fp16 and fp32 nodes only where it knows a tensor's type.
    del model.graph.value_info[:]
    model.graph.value_info.extend(_inferred(graph))
    logger = logging.getLogger("onnxruntime.transformers.float16")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # weights below the smallest half become zero: the gate sees to that
            converted = convert_float_to_float16(
                model, keep_io_types=True, disable_shape_infer=True, node_block_list=sorted(kept)
            )
    except Exception as error:  # the converter gives up in many ways
        raise ExportError(f"the graph cannot be converted to fp16: {first_line(error)}") from error
    finally:
        logger.setLevel(level)
    return _without_round_trips(TowerGraph(converted))


def _without_round_trips(graph: TowerGraph) -> Any:
    """Joins neighbouring fp32 nodes: the converter leads what flows between them through fp16, where it overflows."""
    from onnx import TensorProto  # noqa: PLC0415

    casts: dict[int, dict[str, str]] = {TensorProto.FLOAT: {}, TensorProto.FLOAT16: {}}
    for node in graph.model.graph.node:
        if node.op_type == "Cast" and (to := attributes(node)["to"]) in casts:
            casts[to][node.output[0]] = node.input[0]
    before = {
        output: casts[TensorProto.FLOAT16][middle]
        for output, middle in casts[TensorProto.FLOAT].items()
        if middle in casts[TensorProto.FLOAT16] and output not in graph.outputs
    }
    nodes = [node for node in graph.model.graph.node if not before.keys() & set(node.output)]
    for node in nodes:
        for i, name in enumerate(node.input):
            node.input[i] = before.get(name, name)
    read = {name for node in nodes for name in node.input} | graph.outputs
    nodes = [node for node in nodes if node.op_type != "Cast" or node.output[0] in read]
    return with_nodes(graph, in_order(nodes), ())


def loud_nodes(graph: TowerGraph, feeds: Iterable[Feed]) -> list[str]:
    """Nodes that take in or give out values near or past the largest half."""
    loud = {
        name
        for name, (lowest, highest) in observe_ranges(graph, _float_tensors(graph), feeds).items()
        if not max(-lowest, highest) <= _LARGEST_VALUE
    }
    weights = {
        name
        for name in graph.constants
        if (value := graph.constant(name)).dtype == np.float32
        and value.size > 1
        and np.abs(value).max() > _LARGEST_VALUE
    }
    return [
        node.name for node in graph.model.graph.node if node.name and (loud | weights) & {*node.input, *node.output}
    ]


def _float_tensors(graph: TowerGraph) -> list[str]:
    from onnx import TensorProto  # noqa: PLC0415

    return [
        value.name
        for value in _inferred(graph)
        if value.type.tensor_type.elem_type == TensorProto.FLOAT and value.name in graph.producer
    ]


def _inferred(graph: TowerGraph) -> list[Any]:
    """Types and shapes of the tensors inside the graph."""
    from onnx import shape_inference  # noqa: PLC0415

    return list(shape_inference.infer_shapes(_without_weights(graph)).graph.value_info)


def _without_weights(graph: TowerGraph) -> Any:
    """The graph with large weights as inputs: types are all that is wanted, and 2 GB are too much for inference."""
    import onnx  # noqa: PLC0415
    from onnx import helper  # noqa: PLC0415

    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    del model.graph.initializer[:]
    for constant in graph.model.graph.initializer:
        if constant.ByteSize() < 1024:
            model.graph.initializer.append(constant)
        else:
            model.graph.input.append(
                helper.make_tensor_value_info(constant.name, constant.data_type, list(constant.dims))
            )
    return model
