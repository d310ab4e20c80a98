from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.fake_encoder import FakeEncoder
from tests.support.image_files import encode, scene
from tests.support.pictures import COLOURS
from tests.support.tiny_bundle import PREPROCESS, TinyTowers, build_tiny_bundle
from twinlens.encoders.bundle import read_manifest
from twinlens.encoders.decode import DecodeLimits
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError, InvalidImage, InvalidText
from twinlens.encoders.manifest import compute_space_id
from twinlens.encoders.onnx_session import OnnxSession
from twinlens.encoders.preprocess import load_pixels
from twinlens.encoders.protocol import EncoderLike
from twinlens.encoders.tokenise import TokenisedText, collate


@pytest.fixture(scope="module")
def encoder(tiny_bundle: Path) -> Encoder:
    return Encoder.load(tiny_bundle, provider="cpu", threads=1)


def unit(vectors: np.ndarray) -> np.ndarray:
    return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def solid(colour: tuple[int, int, int]) -> bytes:
    return encode(np.full((20, 30, 3), colour, np.uint8))


def pixels(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((count, 3, 32, 32)).astype(np.float32)


def test_the_real_and_the_fake_encoder_keep_the_protocol(encoder: Encoder, fake_encoder: FakeEncoder) -> None:
    assert isinstance(encoder, EncoderLike)
    assert isinstance(fake_encoder, EncoderLike)


class TestVectors:
    def test_images_are_the_oracles_at_unit_length(self, encoder: Encoder) -> None:
        found = encoder.encode_images(pixels(5))
        np.testing.assert_allclose(found, unit(TinyTowers().images(pixels(5))), atol=1e-5)
        np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1, atol=1e-6)
        assert found.dtype == np.float32

    def test_texts_are_the_oracles_at_unit_length_in_the_order_given(self, encoder: Encoder) -> None:
        texts = ["a very long text about a red circle on a blue square", "cat", "a photo of a dog", "blue"]
        tokens = [encoder.prepare_text(text) for text in texts]
        assert encoder.manifest.text is not None
        wanted = TinyTowers().texts(*collate(tokens, encoder.manifest.text.text))
        np.testing.assert_allclose(encoder.encode_texts(tokens), unit(wanted), atol=1e-5)

    @pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 200])
    def test_a_batch_of_any_size_equals_one_at_a_time(self, encoder: Encoder, count: int) -> None:
        batch = pixels(count)
        found = encoder.encode_images(batch)
        assert found.shape == (count, 16)
        for i in range(0, count, 37):
            np.testing.assert_allclose(found[i], encoder.encode_images(batch[i : i + 1])[0], atol=1e-6)

    @pytest.mark.parametrize("count", [0, 1, 150])
    def test_texts_of_any_number_equal_one_at_a_time(self, encoder: Encoder, count: int) -> None:
        tokens = [encoder.prepare_text("dog " * (1 + i * 7 % 20) + "red" * (i % 3)) for i in range(count)]
        found = encoder.encode_texts(tokens)
        assert found.shape == (count, 16)
        for i in range(0, count, 29):
            np.testing.assert_allclose(found[i], encoder.encode_texts(tokens[i : i + 1])[0], atol=1e-6)

    def test_one_long_text_does_not_make_the_short_ones_cost_as_much(self, encoder: Encoder) -> None:
        shapes: list[tuple[int, ...]] = []

        class Recording:
            compiles_shapes = False

            def run(self, inputs: Any) -> np.ndarray:
                shapes.append(inputs["input_ids"].shape)
                return np.asarray(TinyTowers().texts(inputs["input_ids"], inputs["attention_mask"]))

        recording: Any = Recording()
        texts = ["red cat"] * 5 + ["blue dog on a square " * 5] + ["green"] * 2
        tokens = [encoder.prepare_text(text) for text in texts]
        found = Encoder(encoder.manifest, None, recording, None).encode_texts(tokens)
        assert [count for count, _ in shapes] == [7, 1]
        assert shapes[0][1] < 8 < shapes[1][1]
        np.testing.assert_allclose(found, encoder.encode_texts(tokens), atol=1e-5)

    def test_a_colours_name_lies_beside_pictures_of_it(self, encoder: Encoder) -> None:
        images = encoder.encode_images(np.stack([encoder.prepare_image(solid(rgb)) for rgb in COLOURS.values()]))
        texts = encoder.encode_texts([encoder.prepare_text(colour) for colour in COLOURS])
        assert (images @ texts.T).argmax(axis=1).tolist() == list(range(len(COLOURS)))

    def test_prepared_pictures_are_those_of_the_contract(self, encoder: Encoder) -> None:
        data = encode(scene(), "JPEG")
        np.testing.assert_array_equal(encoder.prepare_image(data), load_pixels(data, PREPROCESS))

    def test_threads_do_not_disturb_each_other(self, encoder: Encoder) -> None:
        batches = [pixels(3, seed) for seed in range(20)]
        alone = [encoder.encode_images(batch) for batch in batches]
        with ThreadPoolExecutor(4) as pool:
            for found, wanted in zip(pool.map(encoder.encode_images, batches), alone, strict=True):
                np.testing.assert_allclose(found, wanted, atol=1e-6)


class TestRefusals:
    def test_a_bad_picture_is_the_callers_mistake(self, encoder: Encoder) -> None:
        with pytest.raises(InvalidImage):
            encoder.prepare_image(b"not a picture")

    def test_a_bad_text_is_the_callers_mistake(self, encoder: Encoder) -> None:
        with pytest.raises(InvalidText):
            encoder.prepare_text(" ")

    def test_limits_are_handed_on(self, tiny_bundle: Path) -> None:
        small = Encoder.load(tiny_bundle, verify=False, limits=DecodeLimits(max_pixels=100))
        with pytest.raises(InvalidImage, match="too many pixels"):
            small.prepare_image(encode(scene()))

    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_a_vector_that_is_not_finite_is_an_error(self, encoder: Encoder, value: float) -> None:
        batch = pixels(3)
        batch[1] = value
        with pytest.raises(BundleError, match=r"image tower .* zero or not finite \(item 1\)"):
            encoder.encode_images(batch)

    def test_a_zero_vector_is_an_error(self, encoder: Encoder) -> None:
        zero = TinyTowers()
        zero.bias[:] = 0
        session: Any = type("Session", (), {"run": lambda _, inputs: zero.images(inputs["pixels"])})()
        broken = Encoder(encoder.manifest, session, None, None)
        with pytest.raises(BundleError, match="zero"):
            broken.encode_images(np.zeros((2, 3, 32, 32), np.float32))

    def test_vectors_of_another_dimension_are_an_error(self, encoder: Encoder) -> None:
        session: Any = type("Session", (), {"run": lambda _, inputs: np.ones((len(inputs["pixels"]), 3), np.float32)})()
        with pytest.raises(BundleError, match=r"\(2, 3\), \(2, 16\) expected"):
            Encoder(encoder.manifest, session, None, None).encode_images(pixels(2))

    def test_large_vectors_do_not_overflow(self, encoder: Encoder) -> None:
        session: Any = type("Session", (), {"run": lambda *_: np.full((1, 16), 3e38, np.float32)})()
        found = Encoder(encoder.manifest, session, None, None).encode_images(pixels(1))
        np.testing.assert_allclose(found, 0.25, atol=1e-6)

    def test_after_closing_nothing_is_embedded(self, tiny_bundle: Path) -> None:
        closed = Encoder.load(tiny_bundle, verify=False)
        assert closed.provider == "cpu"
        closed.close()
        assert closed.provider == ""
        with pytest.raises(BundleError, match="closed"):
            closed.encode_images(pixels(1))
        with pytest.raises(BundleError, match="closed"):
            closed.encode_texts([TokenisedText((2, 3), truncated=False)])

    @pytest.mark.parametrize("tower", ["image", "text"])
    def test_closing_between_two_parts_of_a_batch_is_said_as_well(
        self, tiny_bundle: Path, monkeypatch: pytest.MonkeyPatch, tower: str
    ) -> None:
        encoder = Encoder.load(tiny_bundle, provider="cpu", verify=False)
        run = OnnxSession.run

        def run_and_close(session: OnnxSession, inputs: Any) -> Any:
            found = run(session, inputs)
            encoder.close()
            return found

        monkeypatch.setattr(OnnxSession, "run", run_and_close)
        encode: Callable[[], object] = {
            "image": lambda: encoder.encode_images(pixels(65)),
            "text": lambda: encoder.encode_texts([TokenisedText((2, 3), truncated=False)] * 65),
        }[tower]
        with pytest.raises(BundleError, match=rf"{tower}\.onnx was closed"):
            encode()


class TestOneTower:
    def test_pictures_only(self, tmp_path: Path) -> None:
        build_tiny_bundle(tmp_path / "b", text=False)
        encoder = Encoder.load(tmp_path / "b")
        assert encoder.encode_images(pixels(2)).shape == (2, 16)
        with pytest.raises(InvalidText, match="pictures only"):
            encoder.prepare_text("a dog")

    def test_texts_only(self, tmp_path: Path) -> None:
        build_tiny_bundle(tmp_path / "b", image=False)
        encoder = Encoder.load(tmp_path / "b")
        assert encoder.encode_texts([encoder.prepare_text("a dog")]).shape == (1, 16)
        with pytest.raises(InvalidImage, match="texts only"):
            encoder.prepare_image(encode(scene()))


class TestLoading:
    @pytest.fixture
    def bundle(self, tiny_bundle: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(tiny_bundle, tmp_path / "bundle"))

    @pytest.mark.parametrize("name", ["image.onnx", "text.onnx", "tokenizer.json", "parity/embeddings.npz"])
    def test_a_corrupt_file_is_named(self, bundle: Path, name: str) -> None:
        raw = bytearray((bundle / name).read_bytes())
        raw[len(raw) // 3] ^= 0x40
        (bundle / name).write_bytes(raw)
        with pytest.raises(BundleError, match=name):
            Encoder.load(bundle)

    @pytest.mark.parametrize("name", ["image.onnx", "text.onnx", "tokenizer.json"])
    def test_without_verification_an_unloadable_file_is_still_one_line(self, bundle: Path, name: str) -> None:
        (bundle / name).write_bytes(b"garbage")
        with pytest.raises(BundleError, match=r"^[^\n]+$"):
            Encoder.load(bundle, verify=False)

    def test_swapped_weights_do_not_pass_for_the_trainers(self, bundle: Path, tmp_path: Path) -> None:
        """A bundle whose digests are right, but whose weights are not those the parity vectors came from."""
        other = build_tiny_bundle(tmp_path / "other", seed=5)
        shutil.copy(tmp_path / "other" / "image.onnx", bundle / "image.onnx")
        manifest = read_manifest(bundle)
        replaced = next(entry for entry in other.files if entry.path == "image.onnx")
        files = tuple(replaced if entry.path == "image.onnx" else entry for entry in manifest.files)
        content = json.loads(manifest.model_dump_json())
        content["files"] = [json.loads(entry.model_dump_json()) for entry in files]
        content["space_id"] = compute_space_id(manifest.dimension, manifest.image, manifest.text, files)
        (bundle / "bundle.json").write_text(json.dumps(content))
        with pytest.raises(BundleError, match=r"parity: the image tower does not reproduce"):
            Encoder.load(bundle)

    def test_another_decode_contract_names_both(self, bundle: Path) -> None:
        manifest = read_manifest(bundle)
        assert manifest.image is not None
        image = manifest.image.model_copy(
            update={"preprocess": manifest.image.preprocess.model_copy(update={"decode_contract": 2})}
        )
        content = json.loads(manifest.model_dump_json())
        content["image"]["preprocess"]["decode_contract"] = 2
        content["space_id"] = compute_space_id(manifest.dimension, image, manifest.text, manifest.files)
        (bundle / "bundle.json").write_text(json.dumps(content))
        with pytest.raises(BundleError, match=r"contract 2; this program has 1"):
            Encoder.load(bundle)
