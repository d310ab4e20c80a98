from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.server.running import embed_request, picture, run_server
from tests.support.fake_encoder import FakeEncoder
from twinlens.encoders.encoder import Encoder
from twinlens.server.core.active import StartError, bundle_folder, open_data, read_active
from twinlens.server.local import local_server
from twinlens.server.settings import Settings, SettingsError, load_settings
from twinlens.v1 import collection_pb2, collection_pb2_grpc, embedding_pb2_grpc

SETTINGS = Settings(canary_interval_s=3600.0, provider="cpu", encode_threads=1)


def twinlens(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "twinlens", *arguments], capture_output=True, text=True, timeout=60, check=False
    )


async def test_collections_of_another_space_refuse_to_start_and_both_sides_are_named(data: Path) -> None:
    old, new = FakeEncoder(seed=0), FakeEncoder(seed=1, name="newer")
    async with run_server(data, old) as served:
        await served.create()
    with pytest.raises(StartError) as caught:
        async with run_server(data, new):
            pass
    message = str(caught.value)
    for part in (old.manifest.space_id[:12], new.manifest.space_id[:12], "photos", "newer/1", "twinlens reindex"):
        assert part in message
    assert "\n" not in message
    async with run_server(data, old):
        pass


async def test_collections_of_two_spaces_can_only_be_moved(data: Path) -> None:
    old, new = FakeEncoder(seed=0), FakeEncoder(seed=1, name="newer")
    async with run_server(data, old) as served:
        await served.create("photos")
        await served.create("pictures")
        # As a re-indexing leaves them that was killed between two flips.
        moved = served.app.catalog.get("photos")
        moved.activate(moved.begin_generation(space_id=new.manifest.space_id, dimension=new.manifest.dimension))
    for encoder in (old, new):
        with pytest.raises(StartError, match="finish moving all of them with `twinlens reindex") as caught:
            open_data(data, None, SETTINGS, encoder)
        assert "start with" not in str(caught.value)


async def test_an_empty_folder_takes_any_encoder(data: Path) -> None:
    async with run_server(data, FakeEncoder(seed=0)):
        pass
    async with run_server(data, FakeEncoder(seed=1)):
        pass


def test_a_bundle_given_once_is_remembered(data: Path, tiny_bundle: Path) -> None:
    encoder, catalog = open_data(data, tiny_bundle, SETTINGS)
    catalog.close()
    active = read_active(data)
    assert active is not None
    assert active.bundle == tiny_bundle.resolve()
    assert active.space_id == encoder.manifest.space_id
    again, catalog = open_data(data, None, SETTINGS)
    catalog.close()
    assert again.manifest.space_id == encoder.manifest.space_id


def test_nothing_starts_without_a_bundle_or_with_a_broken_one(data: Path, tmp_path: Path, tiny_bundle: Path) -> None:
    with pytest.raises(StartError, match="--bundle"):
        open_data(data, None, SETTINGS)
    with pytest.raises(StartError, match="missing"):
        open_data(data, tmp_path / "missing", SETTINGS)
    corrupt = tmp_path / "corrupt"
    shutil.copytree(tiny_bundle, corrupt)
    with (corrupt / "image.onnx").open("ab") as file:
        file.write(b"x")
    with pytest.raises(StartError, match=r"image\.onnx"):
        open_data(data, corrupt, SETTINGS)


def test_a_folder_in_use_or_with_an_unreadable_active_file_says_so(data: Path, tiny_bundle: Path) -> None:
    _, catalog = open_data(data, tiny_bundle, SETTINGS)
    with pytest.raises(StartError, match="in use"):
        open_data(data, tiny_bundle, SETTINGS)
    catalog.close()
    for content in ("{", "[" * 100_000, "[]", '{"bundle": 3}', '{"bundle": "a\\u0000b", "space_id": "x"}'):
        (data / "active.json").write_text(content)
        with pytest.raises(StartError, match=r"active\.json.*name the bundle with --bundle"):
            open_data(data, None, SETTINGS)


def test_a_remembered_bundle_that_is_gone_can_be_replaced(data: Path, tiny_bundle: Path, tmp_path: Path) -> None:
    moved = tmp_path / "moved"
    shutil.copytree(tiny_bundle, moved)
    open_data(data, moved, SETTINGS)[1].close()
    shutil.rmtree(moved)
    with pytest.raises(StartError, match=r"no bundle at .*moved.*active\.json; name another with --bundle DIR"):
        open_data(data, None, SETTINGS)
    open_data(data, tiny_bundle, SETTINGS)[1].close()
    open_data(data, None, SETTINGS)[1].close()


def test_an_unreadable_active_file_is_written_anew_where_the_bundle_is_named(data: Path, tiny_bundle: Path) -> None:
    data.mkdir()
    (data / "active.json").write_text("{")
    _, catalog = open_data(data, tiny_bundle, SETTINGS)
    catalog.close()
    active = read_active(data)
    assert active is not None
    assert active.bundle == tiny_bundle.resolve()


def test_the_serve_command_fails_on_one_line(tmp_path: Path) -> None:
    result = twinlens("serve", "--data", str(tmp_path / "data"), "--bundle", str(tmp_path / "none"), "--port", "0")
    assert result.returncode == 1
    assert "Traceback" not in result.stderr
    assert "none" in result.stderr


def test_a_local_server_answers_on_a_private_socket_and_leaves_nothing_behind(data: Path) -> None:
    with local_server(data, encoder=FakeEncoder(), settings=SETTINGS) as target:
        folder = Path(target.removeprefix("unix:")).parent
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700
        with grpc.insecure_channel(target) as channel:
            reply = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed(embed_request("red", picture("red")))
            assert [result.WhichOneof("outcome") for result in reply.results] == ["embedding"] * 2
            collection_pb2_grpc.CollectionServiceStub(channel).CreateCollection(
                collection_pb2.CreateCollectionRequest(collection="photos")
            )
    assert not folder.exists()
    with (
        local_server(data, encoder=FakeEncoder(), settings=SETTINGS) as target,
        grpc.insecure_channel(target) as channel,
    ):
        listed = collection_pb2_grpc.CollectionServiceStub(channel).ListCollections(
            collection_pb2.ListCollectionsRequest()
        )
        assert [collection.id for collection in listed.collections] == ["photos"]


def test_a_local_server_with_a_bundle_needs_no_data_folder(tiny_bundle: Path) -> None:
    with local_server(None, tiny_bundle, settings=SETTINGS) as target, grpc.insecure_channel(target) as channel:
        reply = embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed(embed_request(picture("red", 40)))
        assert reply.results[0].WhichOneof("outcome") == "embedding"


def test_a_local_server_that_cannot_start_says_why(data: Path) -> None:
    with pytest.raises(StartError, match="--bundle"), local_server(data, settings=SETTINGS):
        pass


def test_a_flag_overrules_the_environment_and_that_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = tmp_path / "twinlens.toml"
    config.write_text('port = 1\nmax_batch = 2\nhost = "0.0.0.0"\n')
    monkeypatch.setenv("TWINLENS_MAX_BATCH", "3")
    monkeypatch.setenv("TWINLENS_HOST", "127.0.0.2")
    settings = load_settings(config, host="127.0.0.3", data=None)
    assert (settings.port, settings.max_batch, settings.host) == (1, 3, "127.0.0.3")


@pytest.mark.parametrize(
    ("content", "named"),
    [("prot = 1", "setting prot: there is no such setting"), ("port = 99999", "port"), ("port = [", "twinlens.toml")],
)
def test_a_wrong_setting_is_named_on_one_line(tmp_path: Path, content: str, named: str) -> None:
    config = tmp_path / "twinlens.toml"
    config.write_text(content)
    with pytest.raises(SettingsError, match=named) as caught:
        load_settings(config)
    assert "\n" not in str(caught.value)
    with pytest.raises(SettingsError, match="no settings file"):
        load_settings(tmp_path / "missing.toml")


def test_active_json_is_plain_json(data: Path, tiny_bundle: Path) -> None:
    _, catalog = open_data(data, tiny_bundle, SETTINGS)
    catalog.close()
    content = json.loads((data / "active.json").read_text())
    assert set(content) == {"bundle", "space_id"}


def test_a_local_server_that_cannot_even_be_made_gives_the_folder_back(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> None:
        raise RuntimeError("no threads left")

    with monkeypatch.context() as patched:
        patched.setattr("twinlens.server.local.GrpcServer", broken)
        with pytest.raises(RuntimeError, match="no threads"), local_server(data, encoder=FakeEncoder()):
            pass
    with local_server(data, encoder=FakeEncoder(), settings=SETTINGS):
        pass


def test_a_bundle_is_served_by_its_address(tiny_bundle: Path, tmp_path: Path) -> None:
    missing = twinlens("serve", "--data", str(tmp_path / "data"), "--bundle", f"file://{tmp_path}/models/none/1")
    assert missing.returncode == 1
    assert missing.stderr.startswith("twinlens: no ")
    assert missing.stderr.count("\n") == 1
    folder = bundle_folder(f"file://{tiny_bundle}")
    assert (folder / "bundle.json").read_bytes() == (tiny_bundle / "bundle.json").read_bytes()
    assert bundle_folder(str(tiny_bundle)) == tiny_bundle


def test_a_local_server_lets_go_of_the_model_it_loaded(
    tiny_bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded: list[Encoder] = []
    load = Encoder.load

    def kept(*arguments: Any, **options: Any) -> Encoder:
        loaded.append(load(*arguments, **options))
        return loaded[-1]

    monkeypatch.setattr(Encoder, "load", kept)
    with local_server(tmp_path / "data", tiny_bundle, settings=SETTINGS):
        assert loaded[0].provider == "cpu"
    assert loaded[0].provider == ""
