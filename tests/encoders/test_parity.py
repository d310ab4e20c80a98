from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.support.complaints import complaint as refusal
from tests.support.fake_encoder import FakeEncoder
from tests.support.tiny_bundle import TEXT, TinyTowers, build_tiny_bundle
from twinlens.encoders.bundle import read_manifest
from twinlens.encoders.decode import decode_image
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.parity import DEFAULT_PARITY_TEXTS, check_parity, default_parity_images, write_parity
from twinlens.encoders.tokenise import TextTokenizer


def own_vectors(encoder: FakeEncoder, images: dict[str, bytes], texts: tuple[str, ...]) -> tuple[Any, Any]:
    pixels = np.stack([encoder.prepare_image(data) for data in images.values()])
    return encoder.encode_images(pixels), encoder.encode_texts([encoder.prepare_text(text) for text in texts])


@pytest.fixture(scope="module")
def images() -> dict[str, bytes]:
    return default_parity_images()


@pytest.fixture
def folder(tmp_path: Path, fake_encoder: FakeEncoder, images: dict[str, bytes]) -> Path:
    vectors = own_vectors(fake_encoder, images, DEFAULT_PARITY_TEXTS)
    write_parity(tmp_path / "parity", images, DEFAULT_PARITY_TEXTS, *vectors)
    return tmp_path / "parity"


def complaint(action: Callable[[], object]) -> str:
    message = refusal(action)
    assert message.startswith("parity: ")
    return message


class TestDefaultInputs:
    def test_are_the_same_every_time(self, images: dict[str, bytes]) -> None:
        assert default_parity_images() == images

    def test_are_as_awkward_as_they_say(self, images: dict[str, bytes]) -> None:
        opened = {name: Image.open(io.BytesIO(data)) for name, data in images.items()}
        assert len(opened) == 10
        assert opened["exif_rotated.jpg"].getexif()[0x0112] == 6
        assert opened["grey_16_bit.png"].mode == "I;16"
        assert opened["transparent.png"].mode == "RGBA"
        assert opened["cmyk.jpg"].mode == "CMYK"
        assert "transparency" in opened["palette.png"].info
        assert min(opened["thin.png"].size) == 1
        assert min(opened["large.jpg"].size) >= 1400
        assert np.unique(np.asarray(opened["noise.png"])).tolist() == [0, 255]
        assert "icc_profile" in opened["profile.png"].info

    def test_each_picture_decodes_and_none_is_like_another(self, images: dict[str, bytes]) -> None:
        shapes = [decode_image(data) for data in images.values()]
        assert all(pixels.std() > 10 for pixels in shapes)

    @pytest.mark.parametrize("clean", ["none", "clip_lower", "clip_whitespace", "canonicalize"])
    def test_each_text_survives_every_clean_up(self, clean: str) -> None:
        tokenizer = TextTokenizer(TinyTowers().tokenizer_json(), TEXT.model_copy(update={"clean": clean}))
        tokens = [tokenizer(text) for text in DEFAULT_PARITY_TEXTS]
        assert len({t.ids for t in tokens}) == len(tokens) == 8
        assert any(t.truncated for t in tokens)


class TestCheck:
    def test_the_same_encoder_agrees(self, folder: Path, fake_encoder: FakeEncoder) -> None:
        report = check_parity(fake_encoder, folder)
        assert report.image == pytest.approx(1.0, abs=1e-6)
        assert report.text == pytest.approx(1.0, abs=1e-6)

    def test_another_encoder_does_not(self, folder: Path) -> None:
        said = complaint(lambda: check_parity(FakeEncoder(seed=1), folder))
        assert "image tower" in said

    def test_the_length_of_the_trainers_vectors_does_not_matter(
        self, tmp_path: Path, fake_encoder: FakeEncoder, images: dict[str, bytes]
    ) -> None:
        a, b = own_vectors(fake_encoder, images, ("blue",))
        write_parity(tmp_path / "p", images, ("blue",), 7.0 * a, 0.01 * b)
        check_parity(fake_encoder, tmp_path / "p")

    @pytest.mark.parametrize(("factor", "passes"), [(100.0, True), (-100.0, False), (0.0, False)])
    def test_long_vectors_in_the_file_do_not_count_for_near_ones(
        self, folder: Path, fake_encoder: FakeEncoder, factor: float, passes: bool
    ) -> None:
        with np.load(folder / "embeddings.npz") as archive:
            stored = {name: archive[name] * np.float32(factor) for name in archive}
        np.savez(folder / "embeddings.npz", **stored)
        if passes:
            assert check_parity(fake_encoder, folder).image == pytest.approx(1.0, abs=1e-6)
            stored["image_embeddings"] += 50 * np.eye(*stored["image_embeddings"].shape, dtype=np.float32)
            np.savez(folder / "embeddings.npz", **stored)
        assert "image tower" in complaint(lambda: check_parity(fake_encoder, folder))

    @pytest.mark.parametrize(("angle", "passes"), [(0.01, True), (0.02, False)])
    def test_the_line_is_drawn_at_0_9999(
        self, tmp_path: Path, fake_encoder: FakeEncoder, images: dict[str, bytes], angle: float, passes: bool
    ) -> None:
        a, b = own_vectors(fake_encoder, images, ("blue", "red"))
        other = np.roll(b[1], 1) - (np.roll(b[1], 1) @ b[1]) * b[1]
        b[1] = np.cos(angle) * b[1] + np.sin(angle) * other / np.linalg.norm(other)
        write_parity(tmp_path / "p", images, ("blue", "red"), a, b)
        if passes:
            report = check_parity(fake_encoder, tmp_path / "p")
            assert report.text == pytest.approx(np.cos(angle), abs=1e-6)
        else:
            said = complaint(lambda: check_parity(fake_encoder, tmp_path / "p"))
            assert "text tower" in said
            assert "'red'" in said
            assert check_parity(fake_encoder, tmp_path / "p", min_cosine=0.98).text is not None

    def test_a_changed_picture_is_named(self, folder: Path, fake_encoder: FakeEncoder) -> None:
        (folder / "images" / "grey.png").write_bytes((folder / "images" / "cmyk.jpg").read_bytes())
        assert "grey.png" in complaint(lambda: check_parity(fake_encoder, folder))

    def test_an_unreadable_picture_is_named(self, folder: Path, fake_encoder: FakeEncoder) -> None:
        (folder / "images" / "grey.png").write_bytes(b"not a picture")
        assert "cannot be read" in complaint(lambda: check_parity(fake_encoder, folder))

    @pytest.mark.parametrize("name", ["manifest.json", "embeddings.npz", "images/grey.png"])
    def test_a_missing_file_is_an_error(self, folder: Path, fake_encoder: FakeEncoder, name: str) -> None:
        (folder / name).unlink()
        complaint(lambda: check_parity(fake_encoder, folder))

    def test_no_folder_is_an_error(self, tmp_path: Path, fake_encoder: FakeEncoder) -> None:
        assert "missing or damaged" in complaint(lambda: check_parity(fake_encoder, tmp_path / "parity"))

    @pytest.mark.parametrize("raw", [b"", b"PK\3\4garbage", b"\x93NUMPY"])
    def test_a_damaged_archive_is_an_error(self, folder: Path, fake_encoder: FakeEncoder, raw: bytes) -> None:
        (folder / "embeddings.npz").write_bytes(raw)
        assert "damaged" in complaint(lambda: check_parity(fake_encoder, folder))

    def test_an_archive_of_objects_is_not_unpickled(self, folder: Path, fake_encoder: FakeEncoder) -> None:
        np.savez(folder / "embeddings.npz", image_embeddings=np.array([{}]), text_embeddings=np.array([{}]))
        assert "damaged" in complaint(lambda: check_parity(fake_encoder, folder))

    @pytest.mark.parametrize("dtype", ["<U8", "complex64", "bool"])
    def test_vectors_that_are_no_floats_are_an_error(self, folder: Path, fake_encoder: FakeEncoder, dtype: str) -> None:
        with np.load(folder / "embeddings.npz") as archive:
            others = {name: archive[name].astype(dtype) for name in archive.files}
        np.savez(folder / "embeddings.npz", **others)
        assert "not floats" in complaint(lambda: check_parity(fake_encoder, folder))

    def test_an_encoder_that_fails_on_them_is_one_line(
        self, folder: Path, fake_encoder: FakeEncoder, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def fail(_: Any) -> None:
            raise Exception("WordLevel error: Missing [UNK] token\nfrom the vocabulary")  # noqa: TRY002 - tokenizers' own

        monkeypatch.setattr(fake_encoder, "encode_texts", fail)
        assert complaint(lambda: check_parity(fake_encoder, folder)).endswith(": WordLevel error: Missing [UNK] token")

    @pytest.mark.parametrize("name", ["../../secret.png", "nul\0.png", ".."])
    def test_a_name_that_leaves_the_folder_is_an_error(
        self, folder: Path, fake_encoder: FakeEncoder, name: str
    ) -> None:
        listing = json.loads((folder / "manifest.json").read_text())
        listing["images"][0] = name
        (folder / "manifest.json").write_text(json.dumps(listing))
        assert "outside itself" in complaint(lambda: check_parity(fake_encoder, folder))

    def test_a_tower_without_inputs_is_an_error(self, tmp_path: Path, fake_encoder: FakeEncoder) -> None:
        write_parity(tmp_path / "p", {}, (), None, None)
        assert "no inputs" in complaint(lambda: check_parity(fake_encoder, tmp_path / "p"))


class TestWrite:
    def test_counts_must_match(self, tmp_path: Path) -> None:
        with pytest.raises(ValueError, match="1 parity vectors for 2 inputs"):
            write_parity(tmp_path, {}, ("a", "b"), None, np.ones((1, 4)))

    @pytest.mark.parametrize("value", [0.0, np.nan, np.inf])
    def test_vectors_without_a_direction_are_refused(self, tmp_path: Path, value: float) -> None:
        with pytest.raises(ValueError, match="zero or not finite"):
            write_parity(tmp_path, {}, ("a",), None, np.full((1, 4), value))


@pytest.mark.parametrize("tower", ["image", "text"])
def test_a_bundle_of_one_tower_is_checked_on_that_one(tmp_path: Path, tower: str) -> None:
    build_tiny_bundle(tmp_path / "b", image=tower == "image", text=tower == "text")
    report = check_parity(Encoder.load(tmp_path / "b", verify=False), tmp_path / "b" / "parity")
    assert (report.image is not None, report.text is not None) == (tower == "image", tower == "text")


@pytest.mark.parametrize(
    "change",
    [{"mean": (0.4, 0.5, 0.5)}, {"interpolation": "bilinear"}, {"resize_mode": "squash"}],
    ids=["mean", "interpolation", "resize mode"],
)
def test_a_bundle_with_the_wrong_preprocessing_does_not_load(
    tiny_bundle: Path, tmp_path: Path, change: dict[str, Any]
) -> None:
    from twinlens.encoders.manifest import compute_space_id

    bundle = Path(shutil.copytree(tiny_bundle, tmp_path / "b"))
    manifest = read_manifest(bundle)
    assert manifest.image is not None
    image = manifest.image.model_copy(update={"preprocess": manifest.image.preprocess.model_copy(update=change)})
    content = json.loads(manifest.model_dump_json())
    content["image"] = json.loads(image.model_dump_json())
    content["space_id"] = compute_space_id(manifest.dimension, image, manifest.text, manifest.files)
    (bundle / "bundle.json").write_text(json.dumps(content))
    assert "image tower" in complaint(lambda: Encoder.load(bundle))
