from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.variant_bundle import Graph
from twinlens.training.export.variants import observe
from twinlens.training.export.variants.layers import find_layers
from twinlens.training.export.variants.observe import Feed, observe_inputs
from twinlens.training.export.variants.sessions import open_model
from twinlens.training.export.variants.tower_graph import TowerGraph


@pytest.mark.parametrize(
    "attributes",
    [
        {},
        {"strides": [2, 1], "pads": [1, 0, 2, 1]},
        {"dilations": [2, 1], "pads": [1, 1, 1, 1]},
        {"group": 2, "pads": [1, 1, 1, 1], "strides": [2, 2]},
        {"group": 4},
    ],
)
def test_the_rows_of_a_convolution_times_its_weights_are_what_it_computes(attributes: dict[str, Any]) -> None:
    """Mean and second moment of the outputs follow from those of the rows; all positions are looked at."""
    builder = Graph(0)
    builder.conv("pixels", "embedding", builder.he(8, 4 // attributes.get("group", 1), 3, 3), **attributes)
    model = builder.model([helper.make_tensor_value_info("pixels", TensorProto.FLOAT, ["n", 4, 7, 6])])
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("embedding", TensorProto.FLOAT, None))
    graph = TowerGraph(model)
    (layer,) = find_layers(graph)
    feeds = [{"pixels": np.random.default_rng(i).standard_normal((5, 4, 7, 6), dtype=np.float32)} for i in range(2)]
    found = observe_inputs(graph, [layer], feeds)[layer.name]
    session = open_model(model)
    outputs = np.concatenate([session.run(None, feed)[0] for feed in feeds]).astype(np.float64)
    outputs -= graph.constant(layer.bias)[None, :, None, None]
    rows = np.moveaxis(outputs, 1, -1).reshape(-1, 8)
    weights = layer.matrix(graph).reshape(layer.groups, -1, found.mean.shape[-1])
    assert found.rows == rows.shape[0] / 10
    mean = np.einsum("grk,gk->gr", weights, found.mean).reshape(-1)
    np.testing.assert_allclose(mean, rows.mean(axis=0), atol=1e-5)
    energy = np.einsum("grk,gkl,grl->gr", weights, found.second, weights).reshape(-1)
    np.testing.assert_allclose(energy, (rows**2).mean(axis=0), rtol=1e-4)


@pytest.mark.parametrize("wide", [False, True])
def test_the_covariance_of_inputs_far_from_zero_is_exact(wide: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "LARGEST_COVARIANCE", 4 if wide else 64)
    builder = Graph(0)
    builder.node("MatMul", ["x", builder.constant("w", builder.he(16, 24))], "embedding")
    graph = TowerGraph(builder.model([helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 16])]))
    rng = np.random.default_rng(1)
    feeds: list[Feed] = [{"x": (1000.0 + 0.1 * rng.standard_normal((200, 16))).astype(np.float32)} for _ in range(3)]
    (found,) = observe_inputs(graph, find_layers(graph), feeds).values()
    rows = np.concatenate([feed["x"] for feed in feeds]).astype(np.float64)
    np.testing.assert_allclose(found.mean[0], rows.mean(axis=0))
    np.testing.assert_allclose((found.lowest[0], found.highest[0]), (rows.min(axis=0), rows.max(axis=0)))
    expected = np.cov(rows.T, bias=True)
    if wide:
        np.testing.assert_allclose(found.second[0] - found.mean[0] ** 2, np.diagonal(expected), atol=1e-6)
    else:
        np.testing.assert_allclose(found.second[0] - np.outer(found.mean[0], found.mean[0]), expected, atol=1e-6)
