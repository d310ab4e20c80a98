"""The repository on an S3 that runs in this process; `test_repository.py` has what holds for every address."""

from __future__ import annotations

import itertools
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Lock
from typing import Any

import fsspec
import pytest

from tests.support.complaints import complaint
from tests.support.object_store import object_store
from tests.support.small_bundle import build_small
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.repository import ModelRepository


@pytest.fixture(scope="module")
def store() -> Iterator[str]:
    with object_store() as url:
        yield url


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of few files, one of them beside its graph."""
    root = tmp_path_factory.mktemp("bundle")
    build_small(root / "1")
    return root / "1"


_numbers = itertools.count()


@pytest.fixture
def url(store: str, bundle: Path) -> str:
    """A repository of its own for each test, with one bundle: tiny/1."""
    url = f"{store}/{next(_numbers)}"
    fsspec.filesystem("s3").put(f"{bundle}/", f"{url}/tiny/1/", recursive=True)
    return url


@pytest.fixture
def repository(url: str, tmp_path: Path) -> ModelRepository:
    return ModelRepository(url, tmp_path / "cache")


def s3() -> Any:
    """Another client: it neither knows nor spoils what the first remembers."""
    return fsspec.filesystem("s3", skip_instance_cache=True)


def flipped(raw: bytes) -> bytes:
    return bytes([raw[0] ^ 1]) + raw[1:]


def kept(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


class TestReading:
    @pytest.fixture
    def versions(self, repository: ModelRepository, url: str, tmp_path: Path) -> ModelRepository:
        """With the versions 1, 2 and 10 of tiny, of which nobody needs more than the manifests."""
        self.add(url, "2", tmp_path)
        self.add(url, "10", tmp_path)
        return repository

    def add(self, url: str, version: str, folder: Path) -> None:
        build_small(folder / version, version=version)
        s3().put_file(str(folder / version / "bundle.json"), f"{url}/tiny/{version}/bundle.json")

    def test_lists_by_version_as_people_count(self, versions: ModelRepository) -> None:
        assert [manifest.version for manifest in versions.list()] == ["1", "2", "10"]
        assert versions.manifest("tiny").version == "10"

    def test_a_slash_at_the_end_changes_nothing(self, url: str, tmp_path: Path) -> None:
        assert ModelRepository(f"{url}/", tmp_path).fetch("tiny").is_dir()

    def test_what_others_publish_meanwhile_is_seen(self, versions: ModelRepository, url: str, tmp_path: Path) -> None:
        """Clients of object stores remember listings; a server that runs for weeks must not believe them."""
        assert len(versions.list()) == 3
        self.add(url, "11", tmp_path)
        assert versions.manifest("tiny").version == "11"
        assert len(versions.list()) == 4

    def test_a_bundle_on_its_way_is_not_seen(self, repository: ModelRepository, url: str, bundle: Path) -> None:
        s3().put_file(str(bundle / "image.onnx"), f"{url}/tiny/12/image.onnx")
        assert repository.manifest("tiny").version == "1"
        assert [entry.version for entry in repository.scan()] == ["1"]
        assert "no model tiny/12" in complaint(repository.fetch, "tiny", "12")

    def test_a_broken_neighbour_hides_nothing(self, versions: ModelRepository, url: str) -> None:
        for raw in (b"", b"{", b"\xff\xfe\x00", b"[]"):
            s3().pipe_file(f"{url}/tiny/2/bundle.json", raw)
            (broken,) = [entry for entry in versions.scan() if entry.manifest is None]
            assert (broken.name, broken.version) == ("tiny", "2")
            assert broken.problem.startswith(f"{url}/tiny/2/bundle.json is not ")
            assert len(versions.list()) == 2

    def test_a_huge_manifest_is_not_read(self, repository: ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
        from twinlens.encoders import stored_bundle

        monkeypatch.setattr(stored_bundle, "MAX_MANIFEST_BYTES", 100)
        monkeypatch.setattr(repository._fs, "cat_file", _must_not_be_called)
        assert "is not a manifest: it has" in complaint(repository.manifest, "tiny", "1")


class TestFetching:
    def test_a_copy_is_whole_and_loads(self, repository: ModelRepository, bundle: Path) -> None:
        folder = repository.fetch("tiny", "1")
        assert Encoder.load(folder).manifest == repository.manifest("tiny")
        assert kept(folder) == kept(bundle)

    def test_a_second_fetch_copies_nothing(
        self, repository: ModelRepository, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        folder = repository.fetch("tiny")
        monkeypatch.setattr("twinlens.encoders.repository.download", _must_not_be_called)
        assert ModelRepository(url, tmp_path / "cache").fetch("tiny", "1") == folder

    def test_progress_adds_up(self, repository: ModelRepository) -> None:
        seen: list[int] = []
        repository.fetch("tiny", on_bytes=seen.append)
        assert sum(seen) == sum(entry.size for entry in repository.manifest("tiny").files)

    def test_large_files_come_in_parts(self, repository: ModelRepository, monkeypatch: pytest.MonkeyPatch) -> None:
        from twinlens.encoders import transfer

        monkeypatch.setattr(transfer, "_PART", 1000)
        seen: list[int] = []
        Encoder.load(repository.fetch("tiny", "1", on_bytes=seen.append))
        assert max(seen) == 1000

    def test_few_parts_are_in_memory_at_once(
        self, repository: ModelRepository, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        from twinlens.encoders import transfer

        monkeypatch.setattr(transfer, "_PART", 200)
        monkeypatch.setattr(transfer, "_AT_ONCE", 3)
        real, lock, running, most = repository._fs.cat_file, Lock(), 0, 0

        def count(path: str, **options: Any) -> Any:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            try:
                data = real(path, **options)
                assert "start" not in options or len(data) <= 200
                return data
            finally:
                with lock:
                    running -= 1

        monkeypatch.setattr(repository._fs, "cat_file", count)
        Encoder.load(repository.fetch("tiny"))
        assert most == 3

    @pytest.mark.parametrize(
        ("name", "harm"),
        [
            *(("w.bin", harm) for harm in ("missing", "cut short", "longer", "changed", "empty")),
            ("image.onnx", "missing"),
            ("image.onnx", "changed"),
            ("parity/embeddings.npz", "cut short"),
        ],
    )
    def test_harm_there_is_named_and_nothing_is_kept(
        self, repository: ModelRepository, url: str, tmp_path: Path, name: str, harm: str
    ) -> None:
        path = f"{url}/tiny/1/{name}"
        raw = s3().cat_file(path)
        if harm == "missing":
            s3().rm_file(path)
        else:
            changed = {"cut short": raw[:-1], "longer": raw + b"?", "changed": flipped(raw), "empty": b""}
            s3().pipe_file(path, changed[harm])
        said = complaint(repository.fetch, "tiny", "1")
        assert said.startswith(f"bundle {url}/tiny/1 is ")
        assert name in said
        assert [name for name in kept(tmp_path) if not name.endswith(".source")] == []

    def test_what_changes_while_it_is_read_is_not_kept(
        self, repository: ModelRepository, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = repository._fs.cat_file

        def meddle(path: str, **options: Any) -> Any:
            data = real(path, **options)
            return data[:-1] if path.endswith("w.bin") else data

        monkeypatch.setattr(repository._fs, "cat_file", meddle)
        assert complaint(repository.fetch, "tiny") == f"bundle {url}/tiny/1 changed while w.bin was read"

    def test_an_interrupted_copy_leaves_nothing_and_the_next_succeeds(
        self, repository: ModelRepository, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        real = repository._fs.cat_file
        calls = itertools.count()

        def fail(path: str, **options: Any) -> Any:
            if next(calls) == 4:
                raise ConnectionResetError(104, "Connection reset by peer")
            return real(path, **options)

        with monkeypatch.context() as patch:
            patch.setattr(repository._fs, "cat_file", fail)
            assert complaint(repository.fetch, "tiny", "1") == f"cannot copy {url}/tiny/1: Connection reset by peer"
        assert kept(tmp_path) == []
        assert Encoder.load(repository.fetch("tiny", "1")).manifest.version == "1"

    def test_a_full_disk_is_one_line_and_leaves_nothing(
        self, repository: ModelRepository, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def full(*_: Any) -> None:
            raise OSError(28, "No space left on device")

        monkeypatch.setattr("os.truncate", full)
        assert complaint(repository.fetch, "tiny", "1") == f"cannot copy {url}/tiny/1: No space left on device"
        assert kept(tmp_path) == []


class TestCopies:
    @pytest.mark.parametrize("harm", ["missing", "cut short", "no manifest", "link outside"])
    def test_one_that_is_not_whole_is_made_anew(self, repository: ModelRepository, tmp_path: Path, harm: str) -> None:
        folder = repository.fetch("tiny")
        if harm == "missing":
            (folder / "w.bin").unlink()
        elif harm == "cut short":
            (folder / "w.bin").write_bytes(b"")
        elif harm == "no manifest":
            (folder / "bundle.json").unlink()
        else:
            (folder / "w.bin").rename(tmp_path / "w.bin")
            (folder / "w.bin").symlink_to(tmp_path / "w.bin")
        assert repository.fetch("tiny") == folder
        Encoder.load(folder)
        assert [path.name for path in folder.parent.iterdir() if path.name.endswith(".tmp")] == []

    def test_a_flipped_bit_is_found_on_loading_which_says_what_to_do(
        self, repository: ModelRepository, url: str
    ) -> None:
        folder = repository.fetch("tiny")
        (folder / "w.bin").write_bytes(flipped((folder / "w.bin").read_bytes()))
        assert repository.fetch("tiny") == folder  # not every use reads gigabytes
        said = complaint(Encoder.load, folder)
        assert f"a copy of {url}/tiny/1; delete the folder {folder} and it is fetched anew" in said
        shutil.rmtree(folder)
        Encoder.load(repository.fetch("tiny"))

    def test_the_bundle_there_filled_anew_makes_another_copy_and_leaves_the_old_one(
        self, repository: ModelRepository, url: str, tmp_path: Path
    ) -> None:
        old = repository.fetch("tiny", "1")
        build_small(tmp_path / "new", change=1.0)
        s3().put(f"{tmp_path / 'new'}/", f"{url}/tiny/1/", recursive=True)
        new = repository.fetch("tiny", "1")
        assert Encoder.load(new).manifest.space_id != Encoder.load(old).manifest.space_id

    def test_copies_of_another_version_are_not_taken_for_this_one(self, url: str, tmp_path: Path) -> None:
        from twinlens.encoders.copies import Copies

        build_small(tmp_path / "b", version="1-rc")
        s3().put(f"{tmp_path / 'b'}/", f"{url}/tiny/1-rc/", recursive=True)
        folder = ModelRepository(url, tmp_path / "cache").fetch("tiny", "1-rc")
        copies = Copies(url, tmp_path / "cache")
        assert (copies.made("tiny", "1"), copies.made("tiny", "1-rc")) == ([], [folder])

    def test_many_at_once_get_the_same_whole_copy(self, url: str, tmp_path: Path) -> None:
        together = Barrier(5)

        def run(_: int) -> Path:
            together.wait()
            return ModelRepository(url, tmp_path / "cache").fetch("tiny")

        with ThreadPoolExecutor(5) as pool:
            (folder,) = set(pool.map(run, range(5)))
        Encoder.load(folder)
        assert len([path for path in folder.parent.iterdir() if path.is_dir()]) == 1

    def test_a_process_killed_while_it_copies_and_two_at_once_do_no_harm(self, url: str, tmp_path: Path) -> None:
        script = (
            "import os, signal, sys\n"
            "from pathlib import Path\n"
            "from twinlens.encoders.repository import ModelRepository\n"
            "if sys.argv[3] == 'killed':\n"
            "    sys.addaudithook(lambda event, _: os.kill(os.getpid(), 9) if event == 'os.rename' else None)\n"
            "print(ModelRepository(sys.argv[1], Path(sys.argv[2])).fetch('tiny'))\n"
        )
        command = [sys.executable, "-c", script, url, str(tmp_path / "cache")]
        killed = subprocess.run([*command, "killed"], check=False)
        assert killed.returncode == -signal.SIGKILL
        assert "w.bin" in kept(tmp_path)
        both = [subprocess.Popen([*command, "not"], stdout=subprocess.PIPE, text=True) for _ in range(2)]
        (folder,) = {Path(each.communicate()[0].strip()) for each in both}
        assert folder == ModelRepository(url, tmp_path / "cache").fetch("tiny")
        Encoder.load(folder)

    def test_a_cache_that_cannot_be_written_is_one_line(self, url: str, tmp_path: Path) -> None:
        (tmp_path / "cache").write_text("a file")
        said = complaint(ModelRepository(url, tmp_path / "cache").fetch, "tiny", "1")
        assert said.startswith(f"cannot copy {url}/tiny/1: ")


class TestUnreachable:
    """Nothing to be had: one line, and no copy is taken for the answer without a word."""

    @pytest.fixture(autouse=True)
    def forget_clients(self, url: str) -> Iterator[None]:
        """Clients live as long as the process; these have to find what the test makes of the world."""
        del url  # filled before
        files = fsspec.get_filesystem_class("s3")
        files.clear_instance_cache()
        yield
        files.clear_instance_cache()

    def everything(self, url: str, cache: Path) -> list[str]:
        repository = ModelRepository(url, cache)
        return [
            complaint(repository.list),
            complaint(repository.manifest, "tiny", "1"),
            complaint(repository.manifest, "tiny"),
            complaint(repository.fetch, "tiny", "1"),
        ]

    def test_no_network(self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        folder = ModelRepository(url, tmp_path).fetch("tiny", "1")
        fsspec.get_filesystem_class("s3").clear_instance_cache()
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        for said in self.everything(url, tmp_path):
            assert url in said
            assert "Could not connect" in said
        assert said.endswith(f"there is a copy in {folder}, which can be named itself")
        Encoder.load(folder)

    def test_no_credentials(self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.delenv("AWS_ACCESS_KEY_ID")
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
        for said in self.everything(url, tmp_path):
            assert "credentials" in said

    def test_not_allowed(self, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        async def forbidden(*_: Any, **__: Any) -> None:
            raise PermissionError("Forbidden")

        for method in ("_ls", "_info", "_cat_file"):
            monkeypatch.setattr(fsspec.get_filesystem_class("s3"), method, forbidden)
        for said in self.everything(url, tmp_path):
            assert said.endswith("Forbidden (check the credentials)")

    def test_no_such_bucket(self, tmp_path: Path) -> None:
        repository = ModelRepository("s3://no-such-bucket/models", tmp_path)
        assert complaint(repository.list) == "no model repository at s3://no-such-bucket/models"
        assert complaint(repository.fetch, "tiny") == "no model tiny in s3://no-such-bucket/models"


def _must_not_be_called(*_: Any, **__: Any) -> None:
    raise AssertionError("nothing should be read")
