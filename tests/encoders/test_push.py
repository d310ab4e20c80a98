from __future__ import annotations

import itertools
import json
import shutil
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import fsspec
import pytest

from tests.support.complaints import complaint
from tests.support.forged_bundle import forge
from tests.support.object_store import object_store
from tests.support.small_bundle import build_small
from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError
from twinlens.encoders.repository import ModelRepository
from twinlens.encoders.transfer import upload

_numbers = itertools.count()


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    with object_store() as url:
        yield url


@pytest.fixture(params=["memory", "s3", "file"])
def anywhere(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The address of an empty repository of each kind."""
    number = next(_numbers)
    if request.param == "s3":
        return f"{request.getfixturevalue('s3')}/{number}"
    return f"memory://pushed/{number}" if request.param == "memory" else f"file://{tmp_path}/models"


@pytest.fixture(params=["memory", "s3"])
def store(request: pytest.FixtureRequest) -> str:
    """The address of an empty repository on a store where nothing can be renamed."""
    number = next(_numbers)
    return f"{request.getfixturevalue('s3')}/{number}" if request.param == "s3" else f"memory://pushed/{number}"


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("bundle")
    build_small(root / "1")
    return root / "1"


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of the same name and version, but another space."""
    root = tmp_path_factory.mktemp("other")
    build_small(root / "1", change=1.0)
    return root / "1"


def contents(url: str) -> dict[str, bytes]:
    """What lies in the bundle tiny/1, seen by another client."""
    fs, root = fsspec.url_to_fs(url, skip_instance_cache=True)
    prefix = f"{root.rstrip('/')}/tiny/1/"
    return {path.removeprefix(prefix): fs.cat_file(path) for path in fs.find(prefix)}


def of(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


class TestAnywhere:
    def test_what_is_pushed_can_be_listed_fetched_and_loaded(self, anywhere: str, bundle: Path, tmp_path: Path) -> None:
        repository = ModelRepository(anywhere, tmp_path / "cache")
        manifest = repository.push(bundle)
        assert repository.list() == [manifest] == [read_manifest(bundle)]
        assert contents(anywhere) == of(bundle)
        Encoder.load(repository.fetch("tiny"))

    def test_again_changes_nothing(self, anywhere: str, bundle: Path) -> None:
        first = ModelRepository(anywhere).push(bundle)
        before = contents(anywhere)
        sent: list[int] = []
        assert ModelRepository(anywhere).push(bundle, on_bytes=sent.append) == first
        assert sent == []
        assert contents(anywhere) == before

    def test_another_space_is_not_overwritten(self, anywhere: str, bundle: Path, other: Path) -> None:
        published = ModelRepository(anywhere).push(bundle)
        before = contents(anywhere)
        said = complaint(ModelRepository(anywhere).push, other)
        assert said.startswith("cannot publish to ")
        assert published.space_id[:12] in said
        assert "choose another version" in said
        assert contents(anywhere) == before

    def test_a_bundle_that_is_not_sound_is_not_pushed(self, anywhere: str, bundle: Path, tmp_path: Path) -> None:
        broken = Path(shutil.copytree(bundle, tmp_path / "broken"))
        (broken / "w.bin").unlink()
        assert "w.bin is missing" in complaint(ModelRepository(anywhere).push, broken)
        assert "no model tiny" in complaint(ModelRepository(anywhere).manifest, "tiny")

    def test_only_what_is_listed_is_pushed(self, anywhere: str, bundle: Path, tmp_path: Path) -> None:
        copy = Path(shutil.copytree(bundle, tmp_path / "copy"))
        (copy / "notes.txt").write_text("for ourselves")
        ModelRepository(anywhere).push(copy)
        assert contents(anywhere) == of(bundle)

    def test_pushers_of_the_same_agree(self, anywhere: str, bundle: Path) -> None:
        together = Barrier(4)

        def run(_: int) -> Any:
            together.wait()
            return ModelRepository(anywhere).push(bundle)

        with ThreadPoolExecutor(4) as pool:
            assert list(pool.map(run, range(4))) == [read_manifest(bundle)] * 4
        assert contents(anywhere) == of(bundle)

    # Without memory://, whose `create` looks first and writes then.
    @pytest.mark.parametrize("anywhere", ["s3", "file"], indirect=True)
    def test_of_pushers_of_different_spaces_one_wins_and_its_bundle_is_whole(
        self, anywhere: str, bundle: Path, other: Path, tmp_path: Path
    ) -> None:
        together = Barrier(4)

        def run(folder: Path) -> Any:
            together.wait()
            try:
                return ModelRepository(anywhere).push(folder).space_id
            except BundleError as error:
                assert "choose another version" in str(error)  # noqa: PT017 - both outcomes are right
                return None

        with ThreadPoolExecutor(4) as pool:
            spaces = set(pool.map(run, [bundle, other, bundle, other])) - {None}
        assert len(spaces) == 1
        folder = ModelRepository(anywhere, tmp_path / "cache").fetch("tiny")
        verify_digests(folder, read_manifest(folder))
        assert {read_manifest(folder).space_id} == spaces


class TestStores:
    def test_the_manifest_comes_last(self, store: str, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Broken off after any file the bundle is not there, and the next push completes it."""
        for after in (0, 3, 5):
            repository = ModelRepository(f"{store}/{after}")
            opened = itertools.count()
            real = repository._fs.open

            def fail(
                *arguments: Any, opened: Any = opened, real: Any = real, after: int = after, **options: Any
            ) -> Any:
                if next(opened) == after:
                    raise ConnectionResetError(104, "Connection reset by peer")
                return real(*arguments, **options)

            with monkeypatch.context() as patch:
                patch.setattr(repository._fs, "open", fail)
                said = complaint(repository.push, bundle) if after < len(read_manifest(bundle).files) else ""
            assert said in {"", f"cannot publish to {store}/{after}/tiny/1: Connection reset by peer"}
            assert "bundle.json" not in contents(f"{store}/{after}")
            assert "no model tiny" in complaint(repository.fetch, "tiny")
            repository.push(bundle)
            assert contents(f"{store}/{after}") == of(bundle)

    def test_what_was_lost_there_is_sent_again(self, store: str, bundle: Path) -> None:
        ModelRepository(store).push(bundle)
        fs, root = fsspec.url_to_fs(store)
        fs.rm_file(f"{root}/tiny/1/w.bin")
        fs.pipe_file(f"{root}/tiny/1/image.onnx", b"short")
        ModelRepository(store).push(bundle)
        assert contents(store) == of(bundle)

    def test_other_papers_of_the_same_space_are_no_other_bundle(self, store: str, bundle: Path, tmp_path: Path) -> None:
        first = ModelRepository(store).push(bundle)
        renamed = Path(shutil.copytree(bundle, tmp_path / "copy"))
        forge(renamed, lambda content: content.update(description="better words"))
        assert ModelRepository(store).push(renamed) == first

    def test_what_another_push_left_unfinished_is_not_mixed_with_ours(
        self, store: str, bundle: Path, other: Path
    ) -> None:
        claim(store, read_manifest(other), hours=1)
        said = complaint(ModelRepository(store).push, bundle)
        assert "is under way there or was broken off" in said
        assert f"remove {store}/tiny/1/.pushing" in said
        assert set(contents(store)) == {".pushing"}
        ModelRepository(store).push(other)
        assert contents(store) == of(other)

    def test_a_push_that_is_broken_off_keeps_the_place_for_the_same(
        self, store: str, bundle: Path, other: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Somebody may be pushing the same beside it: another bundle's files among theirs would not be noticed."""

        def fail(*_: Any, **__: Any) -> None:
            raise ConnectionResetError(104, "Connection reset by peer")

        with monkeypatch.context() as patch:
            patch.setattr("twinlens.encoders.push.upload", fail)
            assert "Connection reset" in complaint(ModelRepository(store).push, bundle)
        assert "was broken off" in complaint(ModelRepository(store).push, other)
        ModelRepository(store).push(bundle)
        assert contents(store) == of(bundle)

    def test_of_two_with_other_papers_at_once_the_first_ones_stay(
        self, store: str, bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        reworded = Path(shutil.copytree(bundle, tmp_path / "copy"))
        forge(reworded, lambda content: content.update(description="better words"))

        def another_is_faster(*arguments: Any) -> None:
            monkeypatch.undo()
            assert ModelRepository(store).push(reworded).description == "better words"
            upload(*arguments)

        monkeypatch.setattr("twinlens.encoders.push.upload", another_is_faster)
        assert ModelRepository(store).push(bundle).description == "better words"
        assert contents(store) == of(reworded)

    @pytest.mark.parametrize("claim", [b"", b"[]", b'{"space_id": "x"}'])
    def test_what_is_no_claim_can_be_removed(self, store: str, bundle: Path, claim: bytes) -> None:
        fs, root = fsspec.url_to_fs(store)
        fs.pipe_file(f"{root}/tiny/1/.pushing", claim)
        said = complaint(ModelRepository(store).push, bundle)
        assert said.endswith(f"remove {store}/tiny/1/.pushing, which no push has written")

    def test_what_was_left_a_day_ago_is_taken_over(self, store: str, bundle: Path, other: Path) -> None:
        claim(store, read_manifest(other), hours=25)
        ModelRepository(store).push(bundle)
        assert contents(store) == of(bundle)

    def test_a_store_that_cannot_be_written_is_one_line(
        self, store: str, bundle: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def forbidden(*_: Any, **__: Any) -> None:
            raise PermissionError("Access Denied")

        repository = ModelRepository(store)
        monkeypatch.setattr(repository._fs, "pipe_file", forbidden)
        said = complaint(repository.push, bundle)
        assert said == f"cannot publish to {store}/tiny/1: Access Denied (check the credentials)"


def claim(url: str, manifest: Any, hours: float) -> None:
    fs, root = fsspec.url_to_fs(url)
    content = {"space_id": manifest.space_id, "files": sorted(entry.sha256 for entry in manifest.files)}
    fs.pipe_file(f"{root}/tiny/1/.pushing", json.dumps({**content, "time": time.time() - 3600 * hours}).encode())
