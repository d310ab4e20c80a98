from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.errors import BundleError


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def edit(bundle: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = bundle / "bundle.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def complaint(action: Callable[[], object]) -> str:
    with pytest.raises(BundleError) as caught:
        action()
    message = str(caught.value)
    assert "\n" not in message
    return message


class TestManifest:
    def test_reads_what_was_published(self, bundle: Path) -> None:
        manifest = read_manifest(bundle)
        assert (manifest.name, manifest.version, manifest.dimension) == ("tiny", "1", 16)
        verify_digests(bundle, manifest)

    def test_missing_folder(self, tmp_path: Path) -> None:
        assert "does not exist" in complaint(lambda: read_manifest(tmp_path / "nowhere"))

    def test_a_file_in_place_of_the_folder(self, bundle: Path) -> None:
        assert "is not a folder" in complaint(lambda: read_manifest(bundle / "image.onnx"))

    def test_folder_without_manifest(self, tmp_path: Path) -> None:
        assert "no bundle.json" in complaint(lambda: read_manifest(tmp_path))

    @pytest.mark.parametrize("raw", [b"", b"{", b"\xff\xfe\x00", b"not json", b"[" * 100_000])
    def test_not_json(self, bundle: Path, raw: bytes) -> None:
        (bundle / "bundle.json").write_bytes(raw)
        assert "is not JSON" in complaint(lambda: read_manifest(bundle))

    @pytest.mark.parametrize("raw", ["[]", "3", '"bundle"', "null"])
    def test_not_an_object(self, bundle: Path, raw: str) -> None:
        (bundle / "bundle.json").write_text(raw)
        assert "an object is wanted" in complaint(lambda: read_manifest(bundle))

    def test_another_schema_names_both(self, bundle: Path) -> None:
        edit(bundle, lambda m: m.update(schema_version=2, unheard_of=True))
        said = complaint(lambda: read_manifest(bundle))
        assert "schema_version 2" in said
        assert "reads 1" in said

    @pytest.mark.parametrize(
        ("change", "field"),
        [
            (lambda m: m.pop("dimension"), "dimension"),
            (lambda m: m.update(dimension=0), "dimension"),
            (lambda m: m.update(name="../up"), "name"),
            (lambda m: m.update(extra=1), "extra"),
            (lambda m: m["image"]["preprocess"].update(interpolation="nearest"), "image.preprocess.interpolation"),
            (lambda m: m["text"]["text"].update(context_length=-1), "text.text.context_length"),
            (lambda m: m["files"][0].update(path="../../etc/passwd"), "files.0"),
            (lambda m: m["files"][0].update(path="/etc/passwd"), "files.0"),
            (lambda m: m["files"][0].update(sha256="short"), "files.0.sha256"),
            (lambda m: m["image"]["preprocess"].update(std=[0.5, 0.0, 0.5]), "std above zero"),
            (lambda m: m.update(image=None, text=None), "at least one tower"),
            (lambda m: m.update(files=[]), "not listed"),
        ],
    )
    def test_a_wrong_field_is_named(self, bundle: Path, change: Callable[[dict[str, Any]], object], field: str) -> None:
        edit(bundle, change)
        assert field in complaint(lambda: read_manifest(bundle))

    @pytest.mark.parametrize(
        "change",
        [
            lambda m: m.update(space_id="0" * 64),
            lambda m: m["image"]["preprocess"].update(mean=[0.1, 0.5, 0.5]),
            lambda m: m["text"]["text"].update(clean="none"),
            lambda m: next(f for f in m["files"] if f["path"] == "text.onnx").update(sha256="0" * 64),
        ],
    )
    def test_what_changes_a_vector_is_bound_to_the_space(
        self, bundle: Path, change: Callable[[dict[str, Any]], object]
    ) -> None:
        edit(bundle, change)
        assert "space_id" in complaint(lambda: read_manifest(bundle))

    def test_a_description_may_change_without_leaving_the_space(self, bundle: Path) -> None:
        before = read_manifest(bundle).space_id
        edit(bundle, lambda m: m.update(description="better words", metrics={"recall": 0.5}))
        assert read_manifest(bundle).space_id == before


class TestDigests:
    files = ("image.onnx", "text.onnx", "tokenizer.json", "parity/embeddings.npz", "parity/images/thin.png")

    @pytest.mark.parametrize("name", files)
    def test_a_missing_file_is_named(self, bundle: Path, name: str) -> None:
        (bundle / name).unlink()
        said = complaint(lambda: verify_digests(bundle, read_manifest(bundle)))
        assert name in said
        assert "missing" in said

    @pytest.mark.parametrize("name", files)
    def test_a_flipped_bit_is_named(self, bundle: Path, name: str) -> None:
        raw = bytearray((bundle / name).read_bytes())
        raw[len(raw) // 2] ^= 1
        (bundle / name).write_bytes(raw)
        said = complaint(lambda: verify_digests(bundle, read_manifest(bundle)))
        assert name in said
        assert "SHA-256" in said

    @pytest.mark.parametrize("name", files)
    def test_a_file_cut_short_is_named(self, bundle: Path, name: str) -> None:
        raw = (bundle / name).read_bytes()
        (bundle / name).write_bytes(raw[:-1])
        assert f"{name} has {len(raw) - 1} bytes" in complaint(lambda: verify_digests(bundle, read_manifest(bundle)))
