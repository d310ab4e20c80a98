from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.tiny_bundle import TinyTowers
from tests.support.variant_bundle import SIZE, Graph, image_graph, text_graph
from twinlens.training.export.agreement import row_cosines
from twinlens.training.export.variants.observe import Feed
from twinlens.training.export.variants.prepare import prepare
from twinlens.training.export.variants.rounding import LARGEST
from twinlens.training.export.variants.sessions import open_model
from twinlens.training.export.variants.static_qdq import write_int8
from twinlens.training.export.variants.tower_graph import TowerGraph

VOCABULARY = len(TinyTowers().vocabulary)


def pixel_feeds() -> Iterator[Feed]:
    rng = np.random.default_rng(0)
    for _ in range(4):
        yield {"pixels": rng.standard_normal((8, 3, SIZE, SIZE), dtype=np.float32)}


def text_feeds() -> Iterator[Feed]:
    rng = np.random.default_rng(0)
    for length in (5, 9, 14):
        ids = rng.integers(4, VOCABULARY, (16, length))
        ids[:, 0] = 2
        yield {"input_ids": ids, "attention_mask": np.ones_like(ids)}


def kinds(model: Any) -> list[str]:
    return [node.op_type for node in model.graph.node]


def cosines(model: Any, exact: Any, feed: Feed) -> np.ndarray:
    (found,), (expected,) = open_model(model).run(None, dict(feed)), open_model(exact).run(None, dict(feed))
    return row_cosines(expected, found)


def test_with_every_layer_kept_nothing_changes() -> None:
    graph = TowerGraph(image_graph())
    prepared = prepare(graph, pixel_feeds)
    same = write_int8(prepared, {layer.name for layer in prepared.layers})
    assert [node.SerializeToString() for node in same.graph.node] == [
        node.SerializeToString() for node in graph.model.graph.node
    ]


def test_convolutions_and_what_lies_between_run_in_bytes() -> None:
    graph = TowerGraph(image_graph())
    prepared = prepare(graph, pixel_feeds)
    assert len(prepared.layers) == 5, "the projection is too small to be worth it"
    model = write_int8(prepared, ())
    assert "Clip" not in kinds(model), "a range that starts at 0 and ends at 6 cuts off what Clip would"
    assert "Relu" not in kinds(model)
    assert cosines(model, graph.model, next(pixel_feeds())).min() > 0.995
    levels = [numpy_helper.to_array(c) for c in model.graph.initializer if c.name.endswith("_weight_levels")]
    assert len(levels) == 5
    assert all(value.dtype == np.int8 and np.abs(value.astype(int)).max() <= LARGEST for value in levels)


def test_the_runtime_recognises_the_pattern(tmp_path: Any) -> None:
    import onnx
    import onnxruntime

    for name, graph, feeds, wanted in (
        ("image", TowerGraph(image_graph()), pixel_feeds, {"QLinearConv"}),
        ("text", TowerGraph(text_graph(VOCABULARY)), text_feeds, {"MatMulIntegerToFloat", "QGemm"}),
    ):
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 3
        options.optimized_model_filepath = str(tmp_path / f"{name}.onnx")
        prepared = prepare(graph, feeds)
        model = write_int8(prepared, ())
        onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        optimised = onnx.load(str(tmp_path / f"{name}.onnx"))
        assert sum(kind in wanted for kind in kinds(optimised)) == len(prepared.layers)


def test_loud_channels_go_into_the_norm_where_only_layers_read_it_and_beside_it_otherwise() -> None:
    model = text_graph(VOCABULARY)
    for constant in model.graph.initializer:
        if constant.name == "norm_b":
            values = np.linspace(-3, 3, constant.dims[0], dtype=np.float32)
            constant.CopyFrom(numpy_helper.from_array(values, "norm_b"))
    graph = TowerGraph(model)
    prepared = prepare(graph, text_feeds)
    assert "normed" in prepared.divisors
    assert prepared.divisors["normed"][[3, 17]].min() > 2 * np.median(prepared.divisors["normed"])
    folded = write_int8(prepared, ())
    constants = {constant.name: numpy_helper.to_array(constant) for constant in folded.graph.initializer}
    assert "normed_factors" not in constants
    norm = next(node for node in folded.graph.node if node.op_type == "LayerNormalization")
    for divided, whole in zip(norm.input[1:], ("norm_w", "norm_b"), strict=True):
        np.testing.assert_allclose(constants[divided] * prepared.divisors["normed"], graph.constant(whole), rtol=1e-5)
    assert cosines(folded, graph.model, next(text_feeds())).min() > 0.99

    read_twice = text_graph(VOCABULARY)
    for node in read_twice.graph.node:
        if node.name == "stream":
            node.input[1] = "normed"
    graph = TowerGraph(read_twice)
    beside = write_int8(prepare(graph, text_feeds), ())
    assert "normed_factors" in {constant.name for constant in beside.graph.initializer}
    assert cosines(beside, graph.model, next(text_feeds())).min() > 0.99


@pytest.mark.parametrize("transposed", [0, 1])
@pytest.mark.parametrize("biased", [False, True])
def test_gemm_of_either_orientation_becomes_int8(transposed: int, biased: bool) -> None:
    graph = Graph(5)
    weight = graph.he(24, 16)
    inputs = ["x", graph.constant("w", weight if transposed else weight.T)]
    inputs += [graph.constant("b", graph.rng.standard_normal(24))] if biased else []
    graph.node("Gemm", inputs, "embedding", transB=transposed)
    model = graph.model([helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])])
    rng = np.random.default_rng(6)
    feeds: list[Feed] = [{"x": rng.standard_normal((50, 16), dtype=np.float32)}]
    written = write_int8(prepare(TowerGraph(model), lambda: iter(feeds)), ())
    assert kinds(written).count("DequantizeLinear") == 3, "of the input, the weights and the bias"
    assert cosines(written, model, feeds[0]).min() > 0.998


def test_pooling_and_a_residual_behind_a_relu_stay_in_bytes() -> None:
    graph = Graph(7)
    a = graph.node("Relu", [graph.conv("pixels", "a", graph.he(16, 3, 3, 3), pads=[1, 1, 1, 1])], "a_act")
    pooled = graph.node("MaxPool", [a], "pooled", kernel_shape=[2, 2], strides=[2, 2])
    b = graph.conv(pooled, "b", graph.he(16, 16, 3, 3), pads=[1, 1, 1, 1])
    summed = graph.node("Relu", [graph.node("Add", [b, pooled], "sum")], "sum_act")
    c = graph.conv(summed, "c", graph.he(24, 16, 3, 3), group=1, dilations=[2, 2])
    graph.node("ReduceMean", [c, graph.constant("axes", [2, 3], np.int64)], "embedding", keepdims=0)
    model = graph.model([helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 3, SIZE, SIZE])])
    written = write_int8(prepare(TowerGraph(model), pixel_feeds), ())
    assert kinds(written).count("Relu") == 0
    pool = next(node for node in written.graph.node if node.op_type == "MaxPool")
    consumer = next(node for node in written.graph.node if pool.output[0] in node.input)
    assert consumer.op_type == "QuantizeLinear"
    assert cosines(written, model, next(pixel_feeds())).min() > 0.995
