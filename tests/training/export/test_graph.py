from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from twinlens.training.export.errors import ExportError
from twinlens.training.export.graph import GraphInputs, export_graph


class WordMean(nn.Module):
    """`nn.Embedding` is called `embedding` by the exporter, as is our output."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(11, 4)

    def forward(self, input_ids: Tensor) -> Tensor:
        mean: Tensor = self.embedding(input_ids).mean(dim=1)
        return mean


def word_mean() -> WordMean:
    torch.manual_seed(0)
    return WordMean().eval()


INPUTS = GraphInputs({"input_ids": torch.ones(2, 5, dtype=torch.int64)}, {"input_ids": {0: "batch", 1: "length"}})


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("graph") / "text.onnx"
    export_graph(word_mean(), INPUTS, path)
    return path


@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (3, 2), (33, 5)])
def test_batch_and_length_are_free(exported: Path, shape: tuple[int, int]) -> None:
    session = onnxruntime.InferenceSession(exported)
    assert [entry.name for entry in session.get_inputs()] == ["input_ids"]
    assert [entry.name for entry in session.get_outputs()] == ["embedding"]
    ids = np.random.default_rng(0).integers(0, 11, shape)
    (found,) = session.run(None, {"input_ids": ids})
    with torch.no_grad():
        expected = word_mean()(torch.from_numpy(ids)).numpy()
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_the_same_weights_give_the_same_bytes(exported: Path, tmp_path: Path) -> None:
    again = tmp_path / "text.onnx"
    export_graph(word_mean(), INPUTS, again)
    assert again.read_bytes() == exported.read_bytes()


def test_no_file_name_or_stack_trace_is_left_in_the_graph(exported: Path) -> None:
    data = exported.read_bytes()
    for trace in (b".py", b"stack_trace", b"site-packages", str(Path.cwd()).encode(), str(Path.home()).encode() + b"/"):
        assert trace not in data


def test_an_example_batch_of_one_is_refused_because_it_would_be_baked_in(tmp_path: Path) -> None:
    single = GraphInputs({"input_ids": torch.ones(1, 5, dtype=torch.int64)}, {"input_ids": {0: "batch"}})
    with pytest.raises(ExportError, match="batch must be 2"):
        export_graph(word_mean(), single, tmp_path / "text.onnx")


def test_a_module_that_cannot_be_exported_is_one_clear_line(tmp_path: Path) -> None:
    class Untraceable(nn.Module):
        def forward(self, input_ids: Tensor) -> Tensor:
            return input_ids if bool(input_ids.sum() > 3) else -input_ids

    with pytest.raises(ExportError, match="cannot export Untraceable") as caught:
        export_graph(Untraceable(), INPUTS, tmp_path / "text.onnx")
    assert "\n" not in str(caught.value)


def test_weights_past_the_protobuf_limit_go_to_a_file_beside_the_graph(
    exported: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlens.training.export.graph._INLINE_LIMIT_BYTES", 16)
    path = tmp_path / "text.onnx"
    export_graph(word_mean(), INPUTS, path)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["text.onnx", "text.onnx.data"]
    ids = {"input_ids": np.array([[1, 2, 3]])}
    (found,) = onnxruntime.InferenceSession(path).run(None, ids)
    (expected,) = onnxruntime.InferenceSession(exported).run(None, ids)
    np.testing.assert_array_equal(found, expected)


class TwoEmbeddings(nn.Module):
    """Layers whose values the exporter calls `embedding`, one of them of a parameter that is used as it is."""

    def __init__(self) -> None:
        super().__init__()
        self.patch = nn.Module()
        self.patch.embedding = nn.Embedding(11, 4)
        self.embedding = nn.Parameter(torch.ones(4))

    def forward(self, input_ids: Tensor) -> Tensor:
        first: Tensor = self.patch.embedding(input_ids)  # type: ignore[operator]
        return (first + self.embedding).mean(dim=1)


def test_any_value_may_be_called_embedding_inside(tmp_path: Path) -> None:
    module = TwoEmbeddings().eval()
    export_graph(module, INPUTS, tmp_path / "text.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "text.onnx")
    assert [entry.name for entry in session.get_outputs()] == ["embedding"]
    ids = np.array([[1, 2, 3]])
    with torch.no_grad():
        np.testing.assert_allclose(
            session.run(None, {"input_ids": ids})[0], module(torch.from_numpy(ids)).numpy(), atol=1e-6
        )
