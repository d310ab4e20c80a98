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


def instructions() -> str:
    """The Dockerfile without its comments."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    return "\n".join(line for line in lines if not line.startswith("#"))


def test_an_image_has_the_versions_that_the_tests_last_passed_with() -> None:
    installs = re.findall(r"pip install .*\.whl.*", instructions())
    assert len(installs) == 2
    assert all("-c /dist/constraints.txt" in install for install in installs)
    assert (ROOT / "constraints.txt").is_file()
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert not {"constraints.txt", "*.txt"} & set(ignored)


def test_an_idle_container_spends_little_on_its_health() -> None:
    # A check takes 0.37 CPU seconds; 0.65 where what is Python's own is compiled each time, as nothing can be written.
    (interval_s, timeout_s) = (
        int(found[0]) for found in (re.findall(rf"--{name}=(\d+)s", instructions()) for name in ("interval", "timeout"))
    )
    assert 0.37 / interval_s < 0.02
    assert timeout_s > 5  # of a container that may use half a CPU
    base = instructions().partition(" AS base\n")[2].partition("\nFROM ")[0]
    assert "python -m compileall" in base


def test_who_a_container_is_does_not_change_with_the_image_it_is_made_from() -> None:
    base = instructions().partition(" AS base\n")[2].partition("\nFROM ")[0]
    assert "groupadd --gid 10001 " in base
    assert "useradd --uid 10001 --gid 10001 " in base


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
