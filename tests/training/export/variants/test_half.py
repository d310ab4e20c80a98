from __future__ import annotations

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from tests.support.variant_bundle import DIMENSION, Graph
from twinlens.training.export.agreement import row_cosines
from twinlens.training.export.variants.half import loud_nodes, write_fp16
from twinlens.training.export.variants.sessions import open_model
from twinlens.training.export.variants.tower_graph import TowerGraph, in_order


def test_nodes_with_values_that_half_cannot_hold_stay_in_fp32() -> None:
    builder = Graph(0)
    x = builder.node("MatMul", ["x", builder.constant("w", builder.he(16, 32))], "quiet")
    x = builder.node("Mul", [x, builder.constant("gain", 3e4)], "loud")
    x = builder.node("Mul", [x, builder.constant("loss", 1 / 3e4)], "quiet_again")
    builder.node("MatMul", [x, builder.constant("v", builder.he(32, DIMENSION))], "embedding")
    graph = TowerGraph(builder.model([helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])]))
    feed = {"x": np.random.default_rng(1).standard_normal((20, 16), dtype=np.float32)}
    kept = loud_nodes(graph, [feed])
    assert kept == ["loud", "quiet_again"]
    (exact,) = open_model(graph.model).run(None, feed)
    (found,) = open_model(write_fp16(graph, kept)).run(None, feed)
    assert found.dtype == np.float32
    assert row_cosines(exact, found).min() > 0.9999
    written = write_fp16(graph, kept)
    loud = next(node for node in written.graph.node if node.name == "loud")
    readers = [node.name for node in written.graph.node if loud.output[0] in node.input]
    assert readers == ["quiet_again"], "what is loud is never cast to half"


def test_weights_take_half_the_bytes() -> None:
    builder = Graph(0)
    builder.node("MatMul", ["x", builder.constant("w", builder.he(64, DIMENSION))], "embedding")
    model = builder.model([helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 64])])
    written = write_fp16(TowerGraph(model), ())
    (weight,) = (constant for constant in written.graph.initializer if constant.name == "w")
    assert numpy_helper.to_array(weight).dtype == np.float16


def test_nodes_come_after_what_they_read() -> None:
    builder = Graph(0)
    builder.node("Neg", ["b"], "embedding")
    builder.node("Neg", ["a"], "b")
    builder.node("Neg", ["x"], "a")
    assert [node.name for node in in_order(builder.nodes)] == ["a", "b", "embedding"]
