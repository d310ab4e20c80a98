from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.complaints import complaint
from twinlens.encoders.bundle import read_manifest, verify_digests


@pytest.fixture
def bundle(tiny_bundle: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))


def edit(bundle: Path, change: Callable[[dict[str, Any]], object]) -> None:
    file = bundle / "bundle.json"
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


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

    @pytest.mark.parametrize("encoding", ["utf-16", "utf-32", "latin-1"])
    def test_json_in_another_encoding_is_refused(self, bundle: Path, encoding: str) -> None:
        edit(bundle, lambda m: m.update(description="été"))
        text = json.dumps(json.loads((bundle / "bundle.json").read_text()), ensure_ascii=False)
        (bundle / "bundle.json").write_bytes(text.encode(encoding))
        assert "is not UTF-8" in complaint(lambda: read_manifest(bundle))

    def test_a_byte_order_mark_does_no_harm(self, bundle: Path) -> None:
        before = read_manifest(bundle)
        (bundle / "bundle.json").write_bytes(b"\xef\xbb\xbf" + (bundle / "bundle.json").read_bytes())
        assert read_manifest(bundle) == before

    def test_a_manifest_cut_short_anywhere_is_one_line(self, bundle: Path) -> None:
        raw = (bundle / "bundle.json").read_bytes().rstrip()
        for length in range(0, len(raw), 97):
            (bundle / "bundle.json").write_bytes(raw[:length])
            assert "is not JSON" in complaint(lambda: read_manifest(bundle))

    def test_a_huge_manifest_is_refused_without_reading_it(self, bundle: Path) -> None:
        with (bundle / "bundle.json").open("wb") as stream:
            stream.truncate(1 << 40)  # takes no disk
        assert "more than 16 MiB" in complaint(lambda: read_manifest(bundle))

    @pytest.mark.parametrize("put", ["folder", "pipe", "circle", "nothing"])
    def test_something_else_in_place_of_the_manifest(self, bundle: Path, put: str) -> None:
        file = bundle / "bundle.json"
        file.unlink()
        if put == "folder":
            file.mkdir()
        elif put == "pipe":
            os.mkfifo(file)
        else:
            file.symlink_to(file if put == "circle" else bundle / "nowhere")
        complaint(lambda: read_manifest(bundle))

    @pytest.mark.parametrize(
        ("schema", "way_out"),
        [(2, "update twinlens"), (0, "make the bundle anew"), ("1", "anew"), (True, ""), (1.5, ""), (None, "")],
    )
    def test_another_schema_says_what_to_do(self, bundle: Path, schema: Any, way_out: str) -> None:
        edit(bundle, lambda m: m.update(schema_version=schema))
        said = complaint(lambda: read_manifest(bundle))
        assert f"schema_version {schema!r}" in said
        assert way_out in said

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
            (lambda m: m["files"].append(m["files"][0]), "lists a path twice"),
            (lambda m: m["files"][0].update(path="a\0b"), "files.0"),
            (lambda m: m["files"][0].update(size=-1), "files.0.size"),
            (lambda m: m["files"][0].update(size=10**400), "files.0.size"),
            (lambda m: m["scoring"].update(scale=float("inf")), "scoring.scale"),
            (lambda m: m["image"]["files"].update(side_files=["w.bin"]), "w.bin is used but not listed"),
            (lambda m: m["image"]["files"].update(int8="image.onnx"), "two precisions"),
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


class TestLinks:
    def test_one_that_leads_outside_is_refused(self, bundle: Path, tmp_path: Path) -> None:
        """As in a cache that links snapshots to a pool of files: what is served could change behind the bundle."""
        (bundle / "image.onnx").rename(tmp_path / "pooled")
        (bundle / "image.onnx").symlink_to(tmp_path / "pooled")
        said = complaint(lambda: verify_digests(bundle, read_manifest(bundle)))
        assert "image.onnx is a link that leads outside" in said

    def test_a_folder_that_leads_outside_is_refused(self, bundle: Path, tmp_path: Path) -> None:
        (bundle / "parity").rename(tmp_path / "parity")
        (bundle / "parity").symlink_to(tmp_path / "parity")
        assert "leads outside" in complaint(lambda: verify_digests(bundle, read_manifest(bundle)))

    def test_one_that_stays_inside_is_followed(self, bundle: Path) -> None:
        (bundle / "image.onnx").rename(bundle / "tower")
        (bundle / "image.onnx").symlink_to("tower")
        verify_digests(bundle, read_manifest(bundle))

    def test_a_bundle_reached_by_a_link_is_as_good(self, bundle: Path, tmp_path: Path) -> None:
        (tmp_path / "current").symlink_to(bundle)
        verify_digests(tmp_path / "current", read_manifest(tmp_path / "current"))

    def test_one_in_a_circle_or_to_nothing_is_one_line(self, bundle: Path) -> None:
        for target in ("image.onnx", "nowhere"):
            (bundle / "image.onnx").unlink()
            (bundle / "image.onnx").symlink_to(target)
            assert "image.onnx" in complaint(lambda: verify_digests(bundle, read_manifest(bundle)))


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

    def test_a_disk_that_fails_is_one_line(self, bundle: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        def fail(_: Path) -> str:
            raise OSError(5, "Input/output error")

        monkeypatch.setattr("twinlens.encoders.bundle.sha256_of", fail)
        said = complaint(lambda: verify_digests(bundle, read_manifest(bundle)))
        assert said.endswith("cannot be read: image.onnx: Input/output error")
