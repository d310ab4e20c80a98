from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_bundle import TinyTowers, build_tiny_bundle, stage_tiny_bundle, tiny_draft
from twinlens.encoders import publish as publish_module
from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError
from twinlens.encoders.publish import publish


@pytest.fixture
def staging(tmp_path: Path) -> Path:
    folder = tmp_path / "staging"
    stage_tiny_bundle(folder, TinyTowers())
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_what_is_published_loads(staging: Path, tmp_path: Path) -> None:
    destination = tmp_path / "models" / "tiny" / "1"
    manifest = publish(tiny_draft(), staging, destination)
    assert read_manifest(destination) == manifest
    verify_digests(destination, manifest)
    assert Encoder.load(destination).manifest == manifest
    assert {entry.path for entry in manifest.files} == set(contents(destination)) - {"bundle.json"}


def test_staging_is_left_alone_and_nothing_temporary_stays(staging: Path, tmp_path: Path) -> None:
    before = contents(staging)
    destination = tmp_path / "models" / "tiny" / "1"
    publish(tiny_draft(), staging, destination)
    assert contents(staging) == before
    assert [p.name for p in destination.parent.iterdir()] == ["1"]


def test_whoever_may_read_new_files_may_read_the_bundle(staging: Path, tmp_path: Path) -> None:
    staging.chmod(0o700)
    (staging / "parity").chmod(0o700)
    (staging / "image.onnx").chmod(0o600)
    (tmp_path / "usual").mkdir()
    (tmp_path / "usual" / "file").touch()
    publish(tiny_draft(), staging, tmp_path / "bundle")
    for path in (tmp_path / "bundle", *(tmp_path / "bundle").rglob("*")):
        usual = tmp_path / "usual" / ("" if path.is_dir() else "file")
        assert path.stat().st_mode == usual.stat().st_mode, path


def test_publishing_the_same_again_changes_nothing(staging: Path, tmp_path: Path) -> None:
    destination = tmp_path / "models" / "tiny" / "1"
    first = publish(tiny_draft(), staging, destination)
    written = {p: p.stat().st_mtime_ns for p in destination.rglob("*")}
    assert publish(tiny_draft(), staging, destination) == first
    assert {p: p.stat().st_mtime_ns for p in destination.rglob("*")} == written


def test_the_same_inputs_give_the_same_space_wherever_they_are_published(tmp_path: Path) -> None:
    ids = {build_tiny_bundle(tmp_path / name).space_id for name in ("a", "b")}
    assert len(ids) == 1
    assert build_tiny_bundle(tmp_path / "c", seed=1).space_id not in ids


def test_another_space_is_not_overwritten(staging: Path, tmp_path: Path) -> None:
    destination = tmp_path / "models" / "tiny" / "1"
    old = build_tiny_bundle(destination, seed=1)
    before = contents(destination)
    with pytest.raises(BundleError, match=old.space_id[:12]):
        publish(tiny_draft(), staging, destination)
    assert contents(destination) == before


def test_something_else_is_not_overwritten(staging: Path, tmp_path: Path) -> None:
    destination = tmp_path / "mine"
    destination.mkdir()
    (destination / "thesis.txt").write_text("years of work")
    with pytest.raises(BundleError, match="something else"):
        publish(tiny_draft(), staging, destination)
    assert contents(destination) == {"thesis.txt": b"years of work"}


def test_a_damaged_bundle_is_not_taken_for_the_same(staging: Path, tmp_path: Path) -> None:
    destination = tmp_path / "models" / "tiny" / "1"
    publish(tiny_draft(), staging, destination)
    (destination / "image.onnx").write_bytes(b"")
    with pytest.raises(BundleError, match=r"image\.onnx"):
        publish(tiny_draft(), staging, destination)


def test_an_empty_destination_is_filled(staging: Path, tmp_path: Path) -> None:
    destination = tmp_path / "out"
    destination.mkdir()
    publish(tiny_draft(), staging, destination)
    assert (destination / "bundle.json").is_file()


@pytest.mark.parametrize("step", ["_sync_tree", "verify_digests"])
def test_a_failure_on_the_way_leaves_nothing(
    staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publish_module, step, fail)
    destination = tmp_path / "models" / "tiny" / "1"
    with pytest.raises(OSError, match="No space"):
        publish(tiny_draft(), staging, destination)
    assert list(destination.parent.iterdir()) == []


def test_a_racing_publisher_of_the_same_space_wins_quietly(
    staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = tmp_path / "models" / "tiny" / "1"
    real = publish_module._sync_tree

    def other_is_faster(folder: Path) -> None:
        real(folder)
        if not destination.exists():
            shutil.copytree(folder, destination)

    monkeypatch.setattr(publish_module, "_sync_tree", other_is_faster)
    manifest = publish(tiny_draft(), staging, destination)
    assert read_manifest(destination) == manifest
    assert [p.name for p in destination.parent.iterdir()] == ["1"]


@pytest.mark.parametrize("name", ["image.onnx", "text.onnx", "tokenizer.json"])
def test_a_missing_file_is_named(staging: Path, tmp_path: Path, name: str) -> None:
    (staging / name).unlink()
    with pytest.raises(BundleError, match=f"{name} is used but not listed"):
        publish(tiny_draft(), staging, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_missing_staging(tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="not a folder"):
        publish(tiny_draft(), tmp_path / "nowhere", tmp_path / "out")


def test_a_name_that_is_no_folder_name_is_refused(staging: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="name"):
        publish(tiny_draft(name="../up"), staging, tmp_path / "out")


def test_a_stale_manifest_in_staging_is_not_published(staging: Path, tmp_path: Path) -> None:
    (staging / "bundle.json").write_text("stale")
    manifest = publish(tiny_draft(), staging, tmp_path / "out")
    assert read_manifest(tmp_path / "out") == manifest
    assert "bundle.json" not in {entry.path for entry in manifest.files}


def test_weights_beside_the_graph_belong_to_the_space_and_load(tmp_path: Path) -> None:
    import onnx

    spaces = []
    for change in (0.0, 1.0):
        towers = TinyTowers()
        towers.weight = towers.weight + np.float32(change)
        staging = tmp_path / f"staging{change}"
        stage_tiny_bundle(staging, towers, text=False)
        model = onnx.load(str(staging / "image.onnx"))
        onnx.save_model(
            model,
            str(staging / "image.onnx"),
            save_as_external_data=True,
            location="image.onnx.data",
            size_threshold=0,
        )
        destination = tmp_path / f"out{change}"
        manifest = publish(tiny_draft(text=False), staging, destination)
        assert "image.onnx.data" in {entry.path for entry in manifest.files}
        Encoder.load(destination)
        spaces.append(manifest.space_id)
    assert spaces[0] != spaces[1]
