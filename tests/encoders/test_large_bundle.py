"""A graph of more than 2 GiB, which is more than one protobuf may hold: its weights lie beside it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.tiny_bundle import DIMENSION, TinyTowers, stage_tiny_bundle

_ROWS = 36_000_000
_BYTES = _ROWS * DIMENSION * 4
_PUBLISH_AND_LOAD = """
import json, sys
from pathlib import Path
import numpy as np
from tests.support.tiny_bundle import SIZE, tiny_draft
from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.publish import publish

def peak_mib():  # not from getrusage, which remembers what the parent had
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024

root, step = Path(sys.argv[1]), sys.argv[2]
before = peak_mib()
if step == "publish":
    manifest = publish(tiny_draft(text=False), root / "staging", root / "tiny" / "1")
else:
    verify_digests(root / "tiny" / "1", read_manifest(root / "tiny" / "1"))
    encoder = Encoder.load(root / "tiny" / "1", threads=1)
    vectors = encoder.encode_images(np.ones((3, 3, SIZE, SIZE), np.float32))
    manifest = encoder.manifest
    assert vectors.shape == (3, manifest.dimension)
print(json.dumps({"side_files": manifest.image.files.side_files, "grew_mib": peak_mib() - before}))
"""


def stage_large(staging: Path) -> None:
    """The tiny bundle with a row of a table of zeros added to its vectors; the file of zeros takes no disk."""
    stage_tiny_bundle(staging, TinyTowers(), text=False)
    model = onnx.load(str(staging / "image.onnx"))
    model.graph.node[-1].output[0] = "before"
    # By a number that only the picture tells: otherwise the runtime would look the row up on loading.
    model.graph.node.append(helper.make_node("ArgMax", ["before"], ["best"], axis=1, keepdims=0))
    model.graph.node.append(helper.make_node("Gather", ["table", "best"], ["row"]))
    model.graph.node.append(helper.make_node("Add", ["before", "row"], ["embedding"]))
    table = TensorProto(name="table", data_type=TensorProto.FLOAT, dims=[_ROWS, DIMENSION])
    table.data_location = TensorProto.EXTERNAL
    for key, value in (("location", "table.bin"), ("offset", "0"), ("length", str(_BYTES))):
        table.external_data.add(key=key, value=value)
    model.graph.initializer.append(table)
    (staging / "image.onnx").write_bytes(model.SerializeToString())
    with (staging / "table.bin").open("wb") as stream:
        stream.truncate(_BYTES)


@pytest.fixture
def room(tmp_path: Path) -> Iterator[Path]:
    """A folder that is not kept for looking at, as others are."""
    yield tmp_path
    shutil.rmtree(tmp_path)


@pytest.mark.slow
def test_a_graph_of_more_than_two_gibibytes_is_published_and_served_in_little_memory(room: Path) -> None:
    assert _BYTES > 2**31
    stage_large(room / "staging")
    for step in ("publish", "load"):
        done = subprocess.run(
            [sys.executable, "-c", _PUBLISH_AND_LOAD, str(room), step], check=True, capture_output=True, text=True
        )
        facts = json.loads(done.stdout)
        assert facts["side_files"] == ["table.bin"]
        # What is read is read block by block, and weights are mapped: only the row in use is in memory.
        assert facts["grew_mib"] < 200, step
