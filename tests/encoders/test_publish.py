from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from tests.support.tiny_bundle import TinyTowers, build_tiny_bundle, stage_tiny_bundle, tiny_draft
from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import Agreement, TowerFiles
from twinlens.encoders.placing import place
from twinlens.encoders.publish import BundleDraft, publish


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


@pytest.mark.parametrize(
    "step",
    [
        "shutil.copyfile",
        "twinlens.encoders.publish.verify_digests",
        "os.fsync",
        "pathlib.Path.rename",
        "pathlib.Path.mkdir",
    ],
)
@pytest.mark.parametrize("reason", ["No space left on device", "Read-only file system"])
def test_a_failure_on_the_way_is_one_line_and_leaves_nothing(
    staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: str, reason: str
) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, reason)

    destination = tmp_path / "models" / "tiny" / "1"
    destination.parent.mkdir(parents=True)
    with monkeypatch.context() as patch:
        patch.setattr(step, fail)
        with pytest.raises(BundleError, match=rf"^cannot publish to \S+1: {reason}$"):
            publish(tiny_draft(), staging, destination)
    assert list(destination.parent.iterdir()) == []
    publish(tiny_draft(), staging, destination)


def test_everything_is_on_disk_before_it_has_its_name(
    staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    destination = tmp_path / "models" / "tiny" / "1"
    synced: set[tuple[int, int]] = set()
    fsync, rename = os.fsync, Path.rename

    def note(descriptor: int) -> None:
        found = os.fstat(descriptor)
        synced.add((found.st_dev, found.st_ino))
        fsync(descriptor)

    def check(path: Path, target: Path) -> Path:
        for file in (path, *path.rglob("*")):
            assert (file.stat().st_dev, file.stat().st_ino) in synced, file
        synced.clear()
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(Path, "rename", check)
    publish(tiny_draft(), staging, destination)
    parent = destination.parent.stat()
    assert synced == {(parent.st_dev, parent.st_ino)}


class TestRaces:
    def test_publishers_of_the_same_agree(self, staging: Path, tmp_path: Path) -> None:
        destination = tmp_path / "models" / "tiny" / "1"
        together = Barrier(6)

        def run() -> Any:
            together.wait()
            return publish(tiny_draft(), staging, destination)

        with ThreadPoolExecutor(6) as pool:
            manifests = [future.result() for future in [pool.submit(run) for _ in range(6)]]
        assert all(manifest == read_manifest(destination) for manifest in manifests)
        verify_digests(destination, manifests[0])
        assert [p.name for p in destination.parent.iterdir()] == ["1"]

    def test_of_publishers_of_different_spaces_one_wins_and_the_others_are_told(self, tmp_path: Path) -> None:
        destination = tmp_path / "models" / "tiny" / "1"
        together = Barrier(4)
        for seed in range(4):
            stage_tiny_bundle(tmp_path / str(seed), TinyTowers(seed))

        def run(seed: int) -> Any:
            together.wait()
            try:
                return publish(tiny_draft(), tmp_path / str(seed), destination)
            except BundleError as error:
                return str(error)

        with ThreadPoolExecutor(4) as pool:
            results = list(pool.map(run, range(4)))
        (winner,) = [result for result in results if not isinstance(result, str)]
        assert winner == read_manifest(destination)
        verify_digests(destination, winner)
        assert all(winner.space_id[:12] in result for result in results if isinstance(result, str))
        assert [p.name for p in destination.parent.iterdir()] == ["1"]

    @pytest.mark.parametrize("other", ["the same", "half a bundle"])
    def test_what_appears_at_the_last_moment_is_looked_at(
        self, staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: str
    ) -> None:
        destination = tmp_path / "models" / "tiny" / "1"

        def other_is_faster(sibling: Path, target: Path) -> None:
            shutil.copytree(sibling, destination)
            if other != "the same":
                (destination / "bundle.json").unlink()
            place(sibling, target)

        monkeypatch.setattr("twinlens.encoders.publish.place", other_is_faster)
        if other == "the same":
            assert publish(tiny_draft(), staging, destination) == read_manifest(destination)
        else:
            with pytest.raises(BundleError, match="something else already"):
                publish(tiny_draft(), staging, destination)
        assert [p.name for p in destination.parent.iterdir()] == ["1"]


class TestLeftovers:
    """What a killed publisher left beside the bundle."""

    def leave(self, folder: Path, hours: float) -> Path:
        left = folder / ".1.0123456789ab.tmp"
        (left / "parity").mkdir(parents=True)
        (left / "bundle.json").write_text("{")
        then = time.time() - 3600 * hours
        os.utime(left, (then, then))
        return left

    def test_are_removed_by_the_next_one_when_nobody_can_be_at_work(self, staging: Path, tmp_path: Path) -> None:
        left = self.leave(tmp_path / "tiny", hours=25)
        publish(tiny_draft(), staging, tmp_path / "tiny" / "1")
        assert not left.exists()

    def test_are_kept_while_somebody_may_be_at_work(self, staging: Path, tmp_path: Path) -> None:
        left = self.leave(tmp_path / "tiny", hours=1)
        publish(tiny_draft(), staging, tmp_path / "tiny" / "1")
        assert left.exists()

    def test_of_other_versions_are_kept(self, staging: Path, tmp_path: Path) -> None:
        left = self.leave(tmp_path / "tiny", hours=25)
        publish(tiny_draft(version="2"), staging, tmp_path / "tiny" / "2")
        assert left.exists()

    def test_are_not_listed(self, staging: Path, tmp_path: Path) -> None:
        from twinlens.encoders.repository import ModelRepository

        self.leave(tmp_path / "tiny", hours=1)
        publish(tiny_draft(), staging, tmp_path / "tiny" / "1")
        (found,) = ModelRepository(str(tmp_path)).scan()
        assert (found.version, found.problem) == ("1", "")


@pytest.mark.parametrize("blocked", ["destination", "parent"])
def test_a_file_in_the_way_is_one_line(staging: Path, tmp_path: Path, blocked: str) -> None:
    destination = tmp_path / "tiny" / "1"
    in_the_way = destination if blocked == "destination" else destination.parent
    in_the_way.parent.mkdir(exist_ok=True)
    in_the_way.write_text("mine")
    with pytest.raises(BundleError, match=r"^cannot publish to [^\n]+$"):
        publish(tiny_draft(), staging, destination)
    assert in_the_way.read_text() == "mine"


def test_half_a_bundle_at_the_destination_is_not_completed(staging: Path, tmp_path: Path) -> None:
    publish(tiny_draft(), staging, tmp_path / "1")
    (tmp_path / "1" / "bundle.json").unlink()
    with pytest.raises(BundleError, match=r"something else already .*has no bundle\.json"):
        publish(tiny_draft(), staging, tmp_path / "1")


class TestReducedPrecision:
    """A file of reduced precision shares the space, but is not to be lost without a word."""

    def with_int8(self, staging: Path) -> BundleDraft:
        shutil.copy(staging / "image.onnx", staging / "image.int8.onnx")
        draft = tiny_draft()
        assert draft.image is not None
        agreement = Agreement(mean_cosine=1.0, worst_cosine=1.0, items=8)
        files = TowerFiles(fp32="image.onnx", int8="image.int8.onnx", agreement={"int8": agreement})
        return replace(draft, image=draft.image.model_copy(update={"files": files}))

    def test_is_published_and_read_back(self, staging: Path, tmp_path: Path) -> None:
        manifest = publish(self.with_int8(staging), staging, tmp_path / "1")
        assert read_manifest(tmp_path / "1") == manifest
        assert manifest.image is not None
        assert manifest.image.files.by_precision()["int8"] == "image.int8.onnx"

    def test_is_of_the_same_space(self, staging: Path, tmp_path: Path) -> None:
        plain = publish(tiny_draft(), staging, tmp_path / "1")
        assert publish(self.with_int8(staging), staging, tmp_path / "2").space_id == plain.space_id

    def test_is_not_added_to_what_is_published(self, staging: Path, tmp_path: Path) -> None:
        publish(tiny_draft(), staging, tmp_path / "1")
        before = contents(tmp_path / "1")
        with pytest.raises(BundleError, match=r"same space, but other image\.int8\.onnx"):
            publish(self.with_int8(staging), staging, tmp_path / "1")
        assert contents(tmp_path / "1") == before


def test_links_to_files_are_published_as_files(staging: Path, tmp_path: Path) -> None:
    (staging / "image.onnx").rename(tmp_path / "elsewhere.onnx")
    (staging / "image.onnx").symlink_to(tmp_path / "elsewhere.onnx")
    publish(tiny_draft(), staging, tmp_path / "1")
    assert not (tmp_path / "1" / "image.onnx").is_symlink()


def _link_to_folder(staging: Path) -> None:
    (staging / "more").symlink_to(staging / "parity")


def _link_to_nothing(staging: Path) -> None:
    (staging / "more").symlink_to(staging / "nothing")


def _pipe(staging: Path) -> None:
    os.mkfifo(staging / "more")


@pytest.mark.parametrize("put", [_link_to_folder, _link_to_nothing, _pipe])
def test_what_is_no_file_is_refused(staging: Path, tmp_path: Path, put: Callable[[Path], None]) -> None:
    put(staging)
    with pytest.raises(BundleError, match="more: it is neither a file nor a folder"):
        publish(tiny_draft(), staging, tmp_path / "1")


@pytest.mark.parametrize("name", [b"sch\xf6n.txt", b"two\nlines.txt"])
def test_a_file_name_that_json_cannot_hold_is_refused(staging: Path, tmp_path: Path, name: bytes) -> None:
    Path(os.fsdecode(bytes(staging) + b"/" + name)).write_text("")
    with pytest.raises(BundleError, match=r"^cannot publish tiny/1: [^\n]+$"):
        publish(tiny_draft(), staging, tmp_path / "1")


def test_a_metric_that_json_cannot_hold_is_refused(staging: Path, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match=r"metrics\.recall: .*finite"):
        publish(replace(tiny_draft(), metrics={"recall": float("nan")}), staging, tmp_path / "1")


def test_a_file_that_changes_while_it_is_copied_is_not_published(
    staging: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = shutil.copyfile

    def meddle(source: Path, target: Path) -> None:
        real(source, target)
        if source.name == "image.onnx":
            target.write_bytes(target.read_bytes()[:-1] + b"?")

    monkeypatch.setattr(shutil, "copyfile", meddle)
    with pytest.raises(BundleError, match=r"image\.onnx has SHA-256"):
        publish(tiny_draft(), staging, tmp_path / "tiny" / "1")
    assert list((tmp_path / "tiny").iterdir()) == []


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
