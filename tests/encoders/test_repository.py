from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fsspec
import pytest

from tests.support.tiny_bundle import build_tiny_bundle
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError
from twinlens.encoders.repository import ModelRepository, version_key

VERSIONS = ("1", "2", "10")


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("repository")
    for seed, version in enumerate(VERSIONS):
        build_tiny_bundle(root / "tiny" / version, version=version, seed=seed)
    build_tiny_bundle(root / "words" / "2026.1", name="words", version="2026.1", image=False)
    (root / "tiny" / ".3.abc.tmp").mkdir()
    (root / "tiny" / "no-manifest").mkdir()
    (root / "README.md").write_text("models of the team")
    return root


@pytest.fixture
def memory(models: Path) -> Iterator[str]:
    fs = fsspec.filesystem("memory")
    fs.put(f"{models}/", "/models", recursive=True)
    yield "memory://models"
    fs.rm("/models", recursive=True)


def names(repository: ModelRepository) -> list[str]:
    return [f"{manifest.name}/{manifest.version}" for manifest in repository.list()]


WANTED = ["tiny/1", "tiny/2", "tiny/10", "words/2026.1"]


class TestLocal:
    @pytest.mark.parametrize("form", ["{}", "file://{}"])
    def test_lists_by_name_and_by_version_as_people_count(self, models: Path, form: str) -> None:
        assert names(ModelRepository(form.format(models))) == WANTED

    def test_relative_path(self, models: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.chdir(models.parent)
        assert names(ModelRepository(f"./{models.name}")) == WANTED

    def test_is_used_in_place(self, models: Path, tmp_path: Path) -> None:
        repository = ModelRepository(str(models), cache=tmp_path / "cache")
        assert repository.fetch("tiny", "2") == models / "tiny" / "2"
        assert not (tmp_path / "cache").exists()

    def test_the_newest_is_the_default(self, models: Path) -> None:
        assert ModelRepository(str(models)).fetch("tiny") == models / "tiny" / "10"

    @pytest.mark.parametrize(("name", "version"), [("nope", None), ("tiny", "99"), ("../up", None), ("tiny", "3")])
    def test_what_is_not_there_is_named(self, models: Path, name: str, version: str | None) -> None:
        with pytest.raises(BundleError, match=f"no model {name}"):
            ModelRepository(str(models)).fetch(name, version)

    def test_a_missing_repository(self, tmp_path: Path) -> None:
        with pytest.raises(BundleError, match="no model repository at"):
            ModelRepository(str(tmp_path / "nowhere")).list()

    def test_an_empty_repository(self, tmp_path: Path) -> None:
        assert ModelRepository(str(tmp_path)).list() == []

    def test_a_broken_bundle_does_not_hide_the_others(self, models: Path, tmp_path: Path) -> None:
        root = Path(shutil.copytree(models, tmp_path / "models"))
        (root / "tiny" / "2" / "bundle.json").write_text("{")
        repository = ModelRepository(str(root))
        assert names(repository) == ["tiny/1", "tiny/10", "words/2026.1"]
        (broken,) = [entry for entry in repository.scan() if entry.manifest is None]
        assert (broken.name, broken.version) == ("tiny", "2")
        assert "not JSON" in broken.problem

    def test_a_model_whose_folder_cannot_be_read_does_not_hide_the_others(
        self, models: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        repository = ModelRepository(str(models))
        real = repository._fs.ls

        def ls(path: str, **options: Any) -> Any:
            if path.endswith("/tiny"):
                raise PermissionError(13, "Permission denied")
            return real(path, **options)

        monkeypatch.setattr(repository._fs, "ls", ls)
        broken, found = repository.scan()
        assert (broken.name, broken.version, broken.manifest) == ("tiny", "", None)
        assert "Permission denied" in broken.problem
        assert found.name == "words"

    def test_a_bundle_in_the_wrong_folder_is_a_problem(self, models: Path, tmp_path: Path) -> None:
        root = Path(shutil.copytree(models, tmp_path / "models"))
        (root / "tiny" / "2").rename(root / "tiny" / "7")
        problems = [entry.problem for entry in ModelRepository(str(root)).scan() if entry.problem]
        assert len(problems) == 1
        assert "is the manifest of tiny/2" in problems[0]


class TestRemote:
    def test_lists_the_same(self, memory: str, tmp_path: Path) -> None:
        assert names(ModelRepository(memory, tmp_path)) == WANTED

    def test_a_fetched_copy_is_whole_and_loads(self, memory: str, models: Path, tmp_path: Path) -> None:
        folder = ModelRepository(memory, tmp_path).fetch("tiny")
        assert folder.is_relative_to(tmp_path)
        assert Encoder.load(folder).manifest.version == "10"
        assert (folder / "image.onnx").read_bytes() == (models / "tiny" / "10" / "image.onnx").read_bytes()

    def test_a_second_fetch_copies_nothing(self, memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        first = ModelRepository(memory, tmp_path).fetch("tiny", "1")
        again = ModelRepository(memory, tmp_path)
        monkeypatch.setattr(type(again._fs), "get_file", _must_not_be_called)
        assert again.fetch("tiny", "1") == first

    def test_a_bundle_published_anew_under_the_same_name_replaces_the_copy(self, memory: str, tmp_path: Path) -> None:
        repository = ModelRepository(memory, tmp_path / "cache")
        old = Encoder.load(repository.fetch("tiny", "1")).manifest.space_id
        build_tiny_bundle(tmp_path / "new", version="1", seed=9)
        fs = fsspec.filesystem("memory")
        fs.rm("/models/tiny/1", recursive=True)
        fs.put(f"{tmp_path / 'new'}/", "/models/tiny/1", recursive=True)
        assert Encoder.load(repository.fetch("tiny", "1")).manifest.space_id != old

    def test_a_copy_that_does_not_match_its_digests_is_not_kept(self, memory: str, tmp_path: Path) -> None:
        fs = fsspec.filesystem("memory")
        raw = fs.cat_file("/models/tiny/1/image.onnx")
        fs.pipe_file("/models/tiny/1/image.onnx", raw[:-1] + b"?")
        with pytest.raises(BundleError, match=r"image\.onnx"):
            ModelRepository(memory, tmp_path).fetch("tiny", "1")
        assert [p for p in tmp_path.rglob("*") if p.is_file()] == []

    def test_a_file_missing_there_is_one_line(self, memory: str, tmp_path: Path) -> None:
        fsspec.filesystem("memory").rm("/models/tiny/1/text.onnx")
        with pytest.raises(BundleError, match=r"^bundle memory://models/tiny/1 is incomplete: text\.onnx is missing$"):
            ModelRepository(memory, tmp_path).fetch("tiny", "1")

    def test_a_manifest_that_points_outside_is_refused(self, memory: str, tmp_path: Path) -> None:
        fs = fsspec.filesystem("memory")
        content = json.loads(fs.cat_file("/models/tiny/1/bundle.json"))
        content["files"][0]["path"] = "../../../stolen"
        fs.pipe_file("/models/tiny/1/bundle.json", json.dumps(content).encode())
        with pytest.raises(BundleError, match="leaves the bundle"):
            ModelRepository(memory, tmp_path).fetch("tiny", "1")

    def test_a_missing_repository(self, tmp_path: Path) -> None:
        with pytest.raises(BundleError, match="no model repository at memory://nowhere"):
            ModelRepository("memory://nowhere", tmp_path).list()

    @pytest.mark.parametrize("url", ["nonsense://models", "s3x://bucket"])
    def test_an_unknown_kind_of_address(self, url: str) -> None:
        with pytest.raises(BundleError, match=f"cannot open the model repository {url}"):
            ModelRepository(url)

    def test_a_file_system_that_is_not_installed_is_named_by_its_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def missing(*_: Any, **__: Any) -> None:
            raise ImportError("Install s3fs to access S3")

        monkeypatch.setattr(fsspec, "url_to_fs", missing)
        with pytest.raises(BundleError, match=r"^cannot open .*s3://bucket: pip install 'twinlens\[s3\]'$"):
            ModelRepository("s3://bucket")

    def test_the_cache_lies_where_the_system_keeps_caches(
        self, memory: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
        assert ModelRepository(memory).fetch("tiny", "1").is_relative_to(tmp_path / "twinlens" / "models")


@pytest.mark.parametrize(
    "ordered",
    [["1", "2", "10"], ["1.9", "1.10", "1.10.1"], ["v1", "v2", "v10"], ["2025.12", "2026.1"], ["a", "b"], ["1", "1.1"]],
)
def test_versions_are_ordered_as_people_count(ordered: list[str]) -> None:
    assert sorted([ordered[-1], *ordered[:-1]], key=version_key) == ordered


def _must_not_be_called(*_: Any, **__: Any) -> None:
    raise AssertionError("nothing should be copied")


@pytest.mark.parametrize("url", ["", " ", "file://"])
def test_an_empty_address_is_not_the_folder_we_are_in(url: str) -> None:
    with pytest.raises(BundleError, match="the address of the model repository is empty"):
        ModelRepository(url)
