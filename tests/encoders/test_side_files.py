"""Weights that lie beside a graph belong to the bundle and to its space, whatever their files are called."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.support.complaints import complaint
from tests.support.forged_bundle import forge
from tests.support.small_bundle import keep_beside, stage
from tests.support.tiny_bundle import TinyTowers, stage_tiny_bundle, tiny_draft
from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.manifest import Agreement, FileEntry, ImageTower, Manifest, TowerFiles, compute_space_id
from twinlens.encoders.publish import publish

LAYOUTS: dict[str, dict[str, Any]] = {
    "as exporters call it": {"location": "image.onnx.data"},
    "any name": {"location": "weights.bin"},
    "in a folder": {"location": "weights/w.bin"},
    "a file a tensor": {"all_tensors_to_one_file": False},
}


def published(folder: Path, **layout: Any) -> Manifest:
    return publish(tiny_draft(text=False), stage(folder / "staging", **layout), folder / "bundle")


def loading_and_verifying(bundle: Path) -> str:
    """The complaint of both, which is the same."""
    said = complaint(lambda: verify_digests(bundle, read_manifest(bundle)))
    assert complaint(lambda: Encoder.load(bundle)) == said
    return said


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS.keys())
class TestEveryLayout:
    def test_is_found_listed_and_loads(self, tmp_path: Path, layout: dict[str, Any]) -> None:
        manifest = published(tmp_path, **layout)
        assert manifest.image is not None
        beside = manifest.image.files.side_files
        assert len(beside) == (1 if "location" in layout else 2)
        assert set(beside) <= {entry.path for entry in manifest.files}
        Encoder.load(tmp_path / "bundle")

    def test_other_weights_make_another_space(self, tmp_path: Path, layout: dict[str, Any]) -> None:
        spaces = {published(tmp_path / str(change), change=change, **layout).space_id for change in (0.0, 1.0)}
        graphs = {(tmp_path / str(change) / "bundle" / "image.onnx").read_bytes() for change in (0.0, 1.0)}
        assert len(graphs) == 1
        assert len(spaces) == 2

    def test_a_missing_one_is_named(self, tmp_path: Path, layout: dict[str, Any]) -> None:
        name = _first(published(tmp_path, **layout))
        (tmp_path / "bundle" / name).unlink()
        assert f"{name} is missing" in loading_and_verifying(tmp_path / "bundle")

    def test_one_cut_short_is_named(self, tmp_path: Path, layout: dict[str, Any]) -> None:
        name = _first(published(tmp_path, **layout))
        raw = (tmp_path / "bundle" / name).read_bytes()
        (tmp_path / "bundle" / name).write_bytes(raw[:-4])
        assert f"{name} has {len(raw) - 4} bytes, {len(raw)} expected" in loading_and_verifying(tmp_path / "bundle")

    def test_one_with_a_flipped_bit_is_named(self, tmp_path: Path, layout: dict[str, Any]) -> None:
        name = _first(published(tmp_path, **layout))
        raw = bytearray((tmp_path / "bundle" / name).read_bytes())
        raw[1] ^= 1
        (tmp_path / "bundle" / name).write_bytes(raw)
        assert f"{name} has SHA-256" in loading_and_verifying(tmp_path / "bundle")

    def test_one_that_is_not_there_is_not_published(self, tmp_path: Path, layout: dict[str, Any]) -> None:
        name = _first(published(tmp_path, **layout))
        (tmp_path / "staging" / name).unlink()
        said = complaint(lambda: publish(tiny_draft(text=False), tmp_path / "staging", tmp_path / "again"))
        assert f"image.onnx reads weights from {name}, which is not there" in said
        assert not (tmp_path / "again").exists()

    def test_a_manifest_that_does_not_list_it_is_refused(self, tmp_path: Path, layout: dict[str, Any]) -> None:
        name = _first(published(tmp_path, **layout))

        def leave_out(content: dict[str, Any]) -> None:
            content["files"] = [entry for entry in content["files"] if entry["path"] != name]
            content["image"]["files"]["side_files"] = [
                path for path in content["image"]["files"]["side_files"] if path != name
            ]

        forge(tmp_path / "bundle", leave_out)
        said = loading_and_verifying(tmp_path / "bundle")
        assert f"image.onnx reads weights from {name}, which the manifest does not list" in said

    def test_a_renamed_one_is_refused(self, tmp_path: Path, layout: dict[str, Any]) -> None:
        name = _first(published(tmp_path, **layout))
        (tmp_path / "bundle" / name).rename(tmp_path / "bundle" / "other.bin")

        def rename(content: dict[str, Any]) -> None:
            names = content["image"]["files"]["side_files"]
            names[names.index(name)] = "other.bin"

        forge(tmp_path / "bundle", rename)
        assert f"reads weights from {name}" in loading_and_verifying(tmp_path / "bundle")


def test_one_outside_the_space_is_refused(tmp_path: Path) -> None:
    """What a server of before would have accepted: the file is listed, but the space does not depend on it."""
    published(tmp_path, location="weights.bin")
    forge(tmp_path / "bundle", lambda content: content["image"]["files"].update(side_files=[]))
    assert "weights.bin, which space_id does not cover" in loading_and_verifying(tmp_path / "bundle")


def test_one_that_the_graph_does_not_read_is_refused(tmp_path: Path) -> None:
    published(tmp_path, location="weights.bin")
    (tmp_path / "bundle" / "more.bin").write_bytes(b"of no use")
    forge(tmp_path / "bundle", lambda content: content["image"]["files"]["side_files"].append("more.bin"))
    assert "does not read more.bin" in loading_and_verifying(tmp_path / "bundle")


def test_two_that_changed_places_are_refused(tmp_path: Path) -> None:
    manifest = published(tmp_path, all_tensors_to_one_file=False)
    assert manifest.image is not None
    first, second = (tmp_path / "bundle" / name for name in manifest.image.files.side_files)
    contents = first.read_bytes(), second.read_bytes()
    second.write_bytes(contents[0])
    first.write_bytes(contents[1])
    assert "corrupt" in loading_and_verifying(tmp_path / "bundle")
    # With digests that fit, the space says it.
    content = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    forge(tmp_path / "bundle")
    forged = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    assert forged["space_id"] != content["space_id"]
    (tmp_path / "bundle" / "bundle.json").write_text(json.dumps({**forged, "space_id": content["space_id"]}))
    assert "space_id" in complaint(lambda: Encoder.load(tmp_path / "bundle"))


@pytest.mark.parametrize("name", ["../weights.bin", "/etc/hostname", "sub/../weights.bin", "*/_ORT_MEM_ADDR_/*"])
def test_a_graph_that_reads_elsewhere_is_neither_published_nor_loaded(tmp_path: Path, name: str) -> None:
    published(tmp_path, location="weights.bin")
    for folder in ("staging", "bundle"):
        (tmp_path / folder / "sub").mkdir()
        shutil.copy(tmp_path / folder / "weights.bin", tmp_path / "weights.bin")
        file = tmp_path / folder / "image.onnx"
        model = onnx.load(str(file), load_external_data=False)
        for tensor in model.graph.initializer:
            for entry in tensor.external_data:
                if entry.key == "location":
                    entry.value = name
        file.write_bytes(model.SerializeToString())
    said = complaint(lambda: publish(tiny_draft(text=False), tmp_path / "staging", tmp_path / "again"))
    assert "reads weights from" in said
    forge(tmp_path / "bundle")
    assert "reads weights from" in loading_and_verifying(tmp_path / "bundle")


def test_a_link_that_leads_outside_is_refused(tmp_path: Path) -> None:
    published(tmp_path, location="weights.bin")
    inside = tmp_path / "bundle" / "weights.bin"
    inside.rename(tmp_path / "elsewhere.bin")
    inside.symlink_to(tmp_path / "elsewhere.bin")
    assert "weights.bin is a link that leads outside" in loading_and_verifying(tmp_path / "bundle")


def test_a_graph_in_a_folder_reads_beside_itself(tmp_path: Path) -> None:
    staging = stage(tmp_path / "staging", location="weights.bin")
    (staging / "towers").mkdir()
    for name in ("image.onnx", "weights.bin"):
        (staging / name).rename(staging / "towers" / name)
    draft = tiny_draft(text=False)
    assert draft.image is not None
    moved = draft.image.model_copy(update={"files": TowerFiles(fp32="towers/image.onnx")})
    manifest = publish(_with_image(draft, moved), staging, tmp_path / "bundle")
    assert manifest.image is not None
    assert manifest.image.files.side_files == ("towers/weights.bin",)
    Encoder.load(tmp_path / "bundle")


def test_what_the_maker_says_of_side_files_does_not_count(tmp_path: Path) -> None:
    staging = stage(tmp_path / "staging", location="weights.bin")
    draft = tiny_draft(text=False)
    assert draft.image is not None
    said = draft.image.model_copy(update={"files": TowerFiles(fp32="image.onnx", side_files=("parity/manifest.json",))})
    manifest = publish(_with_image(draft, said), staging, tmp_path / "bundle")
    assert manifest.image is not None
    assert manifest.image.files.side_files == ("weights.bin",)


def test_both_towers_may_read_one_file(tmp_path: Path) -> None:
    staging = tmp_path / "staging"
    stage_tiny_bundle(staging, TinyTowers())
    keep_beside(staging / "image.onnx", location="all.bin")
    size = (staging / "all.bin").stat().st_size
    keep_beside(staging / "text.onnx", location="text.bin")
    shared = (staging / "all.bin").read_bytes() + (staging / "text.bin").read_bytes()
    (staging / "all.bin").write_bytes(shared)
    model = onnx.load(str(staging / "text.onnx"), load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "all.bin"
            if entry.key == "offset":
                entry.value = str(int(entry.value) + size)
    (staging / "text.onnx").write_bytes(model.SerializeToString())
    (staging / "text.bin").unlink()
    manifest = publish(tiny_draft(), staging, tmp_path / "bundle")
    assert manifest.image is not None
    assert manifest.text is not None
    assert manifest.image.files.side_files == manifest.text.files.side_files == ("all.bin",)
    Encoder.load(tmp_path / "bundle")


class TestReducedPrecision:
    def publish(self, tmp_path: Path) -> Manifest:
        staging = stage(tmp_path / "staging", location="image.onnx.data")
        shutil.copy(staging / "image.onnx", staging / "keep.onnx")
        keep_beside(staging / "image.onnx", location="image.int8.data")
        (staging / "image.onnx").rename(staging / "image.int8.onnx")
        (staging / "keep.onnx").rename(staging / "image.onnx")
        draft = tiny_draft(text=False)
        assert draft.image is not None
        agreement = Agreement(mean_cosine=1.0, worst_cosine=1.0, items=8)
        files = TowerFiles(fp32="image.onnx", int8="image.int8.onnx", agreement={"int8": agreement})
        image = draft.image.model_copy(update={"files": files})
        return publish(_with_image(draft, image), staging, tmp_path / "bundle")

    def test_its_weights_are_listed_but_do_not_make_the_space(self, tmp_path: Path) -> None:
        manifest = self.publish(tmp_path)
        assert manifest.image is not None
        assert manifest.image.files.side_files == ("image.onnx.data",)
        assert "image.int8.data" in {entry.path for entry in manifest.files}
        assert manifest.space_id == published(tmp_path / "plain", location="image.onnx.data").space_id

    def test_its_weights_must_be_there_and_listed(self, tmp_path: Path) -> None:
        self.publish(tmp_path)
        (tmp_path / "bundle" / "image.int8.data").unlink()
        assert "image.int8.data is missing" in loading_and_verifying(tmp_path / "bundle")
        forge(tmp_path / "bundle")
        said = loading_and_verifying(tmp_path / "bundle")
        assert "image.int8.onnx reads weights from image.int8.data, which the manifest does not list" in said


class TestBundlesOfBefore:
    """What was published without `side_files` keeps its space and loads."""

    def test_spaces_are_the_same(self) -> None:
        from tests.support.tiny_bundle import PREPROCESS, TEXT
        from twinlens.encoders.manifest import TextTower

        image = ImageTower(files=TowerFiles(fp32="image.onnx"), preprocess=PREPROCESS)
        text = TextTower(files=TowerFiles(fp32="text.onnx"), text=TEXT)
        digests = {"image.onnx": "a" * 64, "text.onnx": "b" * 64, "tokenizer.json": "c" * 64}
        plain = tuple(FileEntry(path=path, sha256=digest, size=1) for path, digest in digests.items())
        data = FileEntry(path="image.onnx.data", sha256="d" * 64, size=1)
        # Computed by the first version of this function.
        assert compute_space_id(4, image, text, plain) == (
            "89951bb95401c18a17e7c246b042b280476bab4f22c285c6ef2b0a885165ac28"
        )
        beside = compute_space_id(4, image, text, (*plain, data))
        assert beside == "8f28d55b366e9aa5f54cb1e1e7670318c48f1c83efd5333d827212a39d984ae2"
        now = image.model_copy(update={"files": TowerFiles(fp32="image.onnx", side_files=("image.onnx.data",))})
        assert compute_space_id(4, now, text, (*plain, data)) == beside

    def test_weights_under_the_usual_name_load(self, tmp_path: Path) -> None:
        manifest = published(tmp_path, location="image.onnx.data")
        content = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
        for key in ("side_files", "agreement"):
            del content["image"]["files"][key]
        (tmp_path / "bundle" / "bundle.json").write_text(json.dumps(content))
        assert Encoder.load(tmp_path / "bundle").manifest.space_id == manifest.space_id


def _first(manifest: Manifest) -> str:
    assert manifest.image is not None
    return manifest.image.files.side_files[0]


def _with_image(draft: Any, image: ImageTower) -> Any:
    from dataclasses import replace

    return replace(draft, image=image)
