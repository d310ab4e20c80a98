from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.tiny_bundle import TinyTowers
from twinlens.encoders.errors import BundleError
from twinlens.encoders.onnx_side_files import side_files


def outside(location: str, name: str = "w") -> Any:
    """A tensor whose bytes lie in another file."""
    tensor = numpy_helper.from_array(np.zeros(4, dtype=np.float32), name)
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in (("location", location), ("offset", "0"), ("length", "16")):
        tensor.external_data.add(key=key, value=value)
    return tensor


def graph_of(*initializers: Any, nodes: tuple[Any, ...] = ()) -> Any:
    return helper.make_graph(list(nodes), "g", [], [], initializer=list(initializers))


def model_of(graph: Any, **options: Any) -> Any:
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, **options)


def saved(folder: Path, model: Any) -> Path:
    file = folder / "g.onnx"
    file.write_bytes(model.SerializeToString())
    return file


def constant(value: Any) -> Any:
    return helper.make_node("Constant", [], ["c"], value=value)


def in_a_branch() -> Any:
    branch = graph_of(outside("deep.bin"), nodes=(constant(outside("deeper.bin")),))
    return model_of(graph_of(nodes=(helper.make_node("If", ["x"], ["y"], then_branch=branch, else_branch=branch),)))


def in_lists() -> Any:
    node = helper.make_node("Custom", [], ["y"], domain="x")
    node.attribute.add(name="tensors", type=onnx.AttributeProto.TENSORS, tensors=[outside("t.bin")])
    node.attribute.add(name="graphs", type=onnx.AttributeProto.GRAPHS, graphs=[graph_of(outside("g.bin"))])
    return model_of(graph_of(nodes=(node,)))


def in_sparse_tensors() -> Any:
    sparse = onnx.SparseTensorProto(values=outside("values.bin"), indices=outside("indices.bin"), dims=[9])
    graph = graph_of(nodes=(helper.make_node("Constant", [], ["c"], sparse_value=sparse),))
    graph.sparse_initializer.add().CopyFrom(
        onnx.SparseTensorProto(values=outside("v.bin"), indices=outside("i.bin"), dims=[9])
    )
    return model_of(graph)


def in_a_function() -> Any:
    function = helper.make_function("x", "F", [], ["c"], [constant(outside("f.bin"))], [helper.make_opsetid("", 17)])
    function.attribute_proto.add(name="d", type=onnx.AttributeProto.TENSOR, t=outside("default.bin"))
    return model_of(graph_of(), functions=[function])


def in_training() -> Any:
    model = model_of(graph_of())
    model.training_info.add(initialization=graph_of(outside("i.bin")), algorithm=graph_of(outside("a.bin")))
    return model


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: model_of(graph_of()), ()),
        (lambda: TinyTowers().image_graph(), ()),
        (lambda: model_of(graph_of(outside("b.bin"), outside("a.bin"), outside("b.bin"))), ("a.bin", "b.bin")),
        (lambda: model_of(graph_of(outside("sub/./w.bin"), outside("./w.bin"))), ("sub/w.bin", "w.bin")),
        (lambda: model_of(graph_of(outside("poids-été.bin"))), ("poids-été.bin",)),
        (lambda: model_of(graph_of(nodes=(constant(outside("c.bin")),))), ("c.bin",)),
        (in_a_branch, ("deep.bin", "deeper.bin")),
        (in_lists, ("g.bin", "t.bin")),
        (in_sparse_tensors, ("i.bin", "indices.bin", "v.bin", "values.bin")),
        (in_a_function, ("default.bin", "f.bin")),
        (in_training, ("a.bin", "i.bin")),
    ],
    ids=[
        "none",
        "real",
        "two",
        "folders",
        "non-ASCII",
        "constant",
        "branch",
        "lists",
        "sparse",
        "function",
        "training",
    ],
)
def test_every_place_that_can_hold_a_tensor_is_read(
    tmp_path: Path, make: Callable[[], Any], names: tuple[str, ...]
) -> None:
    assert side_files(saved(tmp_path, make())) == names


def test_what_onnx_itself_writes_is_found(tmp_path: Path) -> None:
    onnx.save_model(
        TinyTowers().text_graph(),
        str(tmp_path / "g.onnx"),
        save_as_external_data=True,
        all_tensors_to_one_file=False,
        size_threshold=0,
        convert_attribute=True,
    )
    written = {path.name for path in tmp_path.iterdir()} - {"g.onnx"}
    assert len(written) == 3
    assert set(side_files(tmp_path / "g.onnx")) == written


def test_a_name_counts_also_where_the_tensor_does_not_say_it_lies_outside(tmp_path: Path) -> None:
    tensor = outside("w.bin")
    tensor.data_location = TensorProto.DEFAULT
    assert side_files(saved(tmp_path, model_of(graph_of(tensor)))) == ("w.bin",)


def test_a_graph_in_two_pieces_is_read_whole(tmp_path: Path) -> None:
    """Protobuf merges a message that is written twice."""
    pieces = [model_of(graph_of(outside(name))).SerializeToString() for name in ("a.bin", "b.bin")]
    (tmp_path / "g.onnx").write_bytes(b"".join(pieces))
    assert side_files(tmp_path / "g.onnx") == ("a.bin", "b.bin")


def test_the_last_of_two_names_of_one_tensor_counts_and_so_does_the_first(tmp_path: Path) -> None:
    tensor = outside("first.bin")
    tensor.external_data.add(key="location", value="last.bin")
    assert side_files(saved(tmp_path, model_of(graph_of(tensor)))) == ("first.bin", "last.bin")


@pytest.mark.parametrize(
    "name",
    [
        "../w.bin",
        "/etc/passwd",
        "a/../../w.bin",
        "a/../w.bin",
        "..",
        "",
        "a\\b",
        "C:w.bin",
        "w\0.bin",
        "*/_ORT_MEM_ADDR_/*",
    ],
)
def test_a_name_that_leaves_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(BundleError, match="not a file below its folder"):
        side_files(saved(tmp_path, model_of(graph_of(outside(name)))))


@pytest.mark.parametrize(
    "raw",
    [b"", b"garbage", b"ORTM\0\0\0\0", b"\x3a\xff\xff\xff\xff\x0f", b"\x08", b"\xff" * 11, b"\x3a\x05abc", b"\x08\x07"],
)
def test_what_is_no_graph_is_one_line(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / "g.onnx").write_bytes(raw)
    with pytest.raises(BundleError, match=r"^g\.onnx is not an ONNX graph: [^\n]+$"):
        side_files(tmp_path / "g.onnx")


def test_a_missing_graph_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="cannot be read: No such file"):
        side_files(tmp_path / "g.onnx")


def test_a_graph_nested_without_end_is_refused(tmp_path: Path) -> None:
    graph = graph_of(outside("w.bin")).SerializeToString()
    for _ in range(40):
        attribute = _message(6, graph)  # AttributeProto.g
        graph = _message(1, _message(5, attribute))  # GraphProto.node, NodeProto.attribute
    (tmp_path / "g.onnx").write_bytes(_message(7, graph))
    with pytest.raises(BundleError, match="nested too deeply"):
        side_files(tmp_path / "g.onnx")


def test_damage_anywhere_is_an_answer_or_one_line(tmp_path: Path) -> None:
    rng = random.Random(3)
    for make in (in_a_branch, in_lists, in_sparse_tensors, in_a_function):
        sound = make().SerializeToString()
        for _ in range(150):
            raw = bytearray(sound[: rng.randrange(1, len(sound) + 1)])
            for _ in range(rng.randrange(3)):
                raw[rng.randrange(len(raw))] = rng.randrange(256)
            (tmp_path / "g.onnx").write_bytes(raw)
            try:
                side_files(tmp_path / "g.onnx")
            except BundleError as error:
                assert "\n" not in str(error)  # noqa: PT017 - an answer is as good


def test_weights_are_skipped_not_read(tmp_path: Path) -> None:
    """A sparse file of 1 GiB of weights takes no memory and no time: only its few headers are touched."""
    import resource

    size = 1 << 30
    weights = b"\x4a" + _varint(size)  # TensorProto.raw_data
    tensor = b"\x2a" + _varint(len(weights) + size) + weights  # GraphProto.initializer
    graph = b"\x3a" + _varint(len(tensor) + size) + tensor  # ModelProto.graph
    with (tmp_path / "g.onnx").open("wb") as stream:
        stream.write(graph)
        stream.truncate(len(graph) + size)
    before_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert side_files(tmp_path / "g.onnx") == ()
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kib < 50 * 1024


def _message(field: int, content: bytes) -> bytes:
    return bytes([field << 3 | 2]) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])
