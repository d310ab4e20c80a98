"""What the container promises: no rights, and nothing written outside its data."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import grpc
import pytest

from tests.server.running import picture
from tests.support.read_only_root import on_read_only_root
from twinlens.v1 import collection_pb2, collection_pb2_grpc

ROOT = Path(__file__).resolve().parents[2]


def test_every_image_runs_as_a_user_without_a_name_that_is_root() -> None:
    stages = re.split(r"^FROM ", (ROOT / "Dockerfile").read_text(), flags=re.MULTILINE)
    final = [stage for stage in stages if re.match(r"\S+ AS (cpu|gpu)\n", stage)]
    assert len(final) == 2
    for stage in final:
        assert re.findall(r"^USER (.*)$", stage, flags=re.MULTILINE) == ["10001"]


def test_a_server_needs_no_rights_and_writes_nowhere_but_to_its_data(tiny_bundle: Path, tmp_path: Path) -> None:
    data, root = tmp_path / "data", tmp_path / "root"
    data.mkdir()
    root.mkdir()
    command = [
        *(sys.executable, "-B", "-m", "twinlens", "serve", "--data", "/tmp/data", "--bundle", "/tmp/given"),
        *("--host", "127.0.0.1", "--port", "0", "--port-file", "/tmp/data/port"),
    ]
    environment = {"ORT_DISABLE_TELEMETRY": "1", "OMP_NUM_THREADS": "1"}
    with on_read_only_root(command, data=data, given=tiny_bundle, root=root, environment=environment) as process:
        assert process.stderr is not None
        said: list[str] = []
        for line in process.stderr:
            said.append(line)
            if "twinlens: serving" in line:
                break
        else:
            pytest.fail("".join(said))
        with grpc.insecure_channel(f"127.0.0.1:{(data / 'port').read_text().strip()}") as channel:
            collections = collection_pb2_grpc.CollectionServiceStub(channel)
            collections.CreateCollection(collection_pb2.CreateCollectionRequest(collection="photos"))
            items = [collection_pb2.NewItem(id="a", image=picture("red", 40))]
            request = collection_pb2.UpsertItemsRequest(collection="photos", items=items)
            assert collections.UpsertItems(iter([request])).stored_count == 1
        process.terminate()
        assert process.wait(30) == 0
    assert (data / "collections" / "photos").stat().st_uid == 10001
