"""Every usual mistake between a trainer and a server must be refused on loading, at the cosine asked of fp32."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from PIL import Image, ImageOps

from tests.support import small_networks
from tests.support.forged_bundle import forge
from tests.support.tiny_bundle import TinyTowers
from twinlens.encoders.decode import decode_image
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import ImageTower, PreprocessSpec, TextSpec, TextTower, TowerFiles
from twinlens.encoders.parity import DEFAULT_PARITY_TEXTS, default_parity_images, write_parity
from twinlens.encoders.preprocess import load_pixels, normalise, preprocess_picture
from twinlens.encoders.publish import BundleDraft, publish

SIDE = small_networks.SIDE
CONTEXT = 40
# CLIP's own numbers.
SPEC = PreprocessSpec(
    size=SIDE,
    resize_size=SIDE,
    mean=(0.48145466, 0.4578275, 0.40821073),
    std=(0.26862954, 0.26130258, 0.27577711),
)
Mistake = Callable[[bytes], NDArray[np.float32]]


def tokenizer() -> dict[str, Any]:
    """Whole words and letters, upper case unknown: what clean-up leaves is seen."""
    content: dict[str, Any] = json.loads(TinyTowers().tokenizer_json())
    return {**content, "normalizer": None}


def make(folder: Path, *, masked: bool) -> Path:
    """A bundle of a convolutional tower and a text tower with a mask, or of transformers that see padding."""
    staging = folder / "staging"
    staging.mkdir(parents=True)
    image = small_networks.convolutional() if masked else small_networks.vision_transformer()
    onnx.save(image, str(staging / "image.onnx"))
    words = tokenizer()
    vocabulary = len(words["model"]["vocab"])
    onnx.save(small_networks.text_transformer(vocabulary, CONTEXT, masked=masked), str(staging / "text.onnx"))
    (staging / "tokenizer.json").write_text(json.dumps(words))
    text = TextSpec(
        clean="clip_lower", context_length=CONTEXT, pad_id=0, pad_to_context=not masked, attention_mask=masked
    )
    draft = BundleDraft(
        name="small",
        version="1",
        dimension=small_networks.DIMENSION,
        image=ImageTower(files=TowerFiles(fp32="image.onnx"), preprocess=SPEC),
        text=TextTower(files=TowerFiles(fp32="text.onnx"), text=text),
    )
    publish(draft, staging, folder / "unproven")
    encoder = Encoder.load(folder / "unproven", verify=False)
    pictures = default_parity_images()
    image_vectors = encoder.encode_images(np.stack([encoder.prepare_image(data) for data in pictures.values()]))
    texts = [encoder.encode_texts([encoder.prepare_text(each)]) for each in DEFAULT_PARITY_TEXTS]
    write_parity(staging / "parity", pictures, DEFAULT_PARITY_TEXTS, image_vectors, np.concatenate(texts))
    publish(draft, staging, folder / "bundle")
    return folder / "bundle"


@pytest.fixture(scope="module")
def masked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("masked"), masked=True)


@pytest.fixture(scope="module")
def padded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make(tmp_path_factory.mktemp("padded"), masked=False)


@pytest.fixture(params=["masked", "padded"])
def bundle(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return Path(shutil.copytree(request.getfixturevalue(request.param), tmp_path / "bundle"))


def refused(bundle: Path, tower: str) -> None:
    with pytest.raises(BundleError, match=f"^parity: the {tower} tower does not reproduce"):
        Encoder.load(bundle)


def test_without_a_mistake_it_loads(bundle: Path) -> None:
    Encoder.load(bundle)
    forge(bundle)
    Encoder.load(bundle)


@pytest.mark.parametrize(
    "change",
    [
        {"mean": (0.485, 0.456, 0.406), "std": (0.229, 0.224, 0.225)},
        {"mean": (0.485, 0.456, 0.406)},
        {"mean": (0.5, 0.5, 0.5), "std": (0.5, 0.5, 0.5)},
        {"mean": (0.0, 0.0, 0.0), "std": (1.0, 1.0, 1.0)},
        {"interpolation": "bilinear"},
        {"resize_mode": "squash"},
        {"resize_mode": "longest"},
        {"resize_size": 73},
    ],
    ids=["ImageNet", "mean only", "Inception", "none", "bilinear", "squash", "longest", "resize size"],
)
def test_other_preprocessing(bundle: Path, change: dict[str, Any]) -> None:
    forge(bundle, lambda content: content["image"]["preprocess"].update(change))
    refused(bundle, "image")


def opened(data: bytes) -> Image.Image:
    return Image.open(io.BytesIO(data))


def plainly(data: bytes) -> NDArray[np.float32]:
    """What most servers do."""
    return preprocess_picture(opened(data).convert("RGB"), SPEC)


def where(fits: Callable[[Image.Image], object], wrong: Callable[[Image.Image], Image.Image]) -> Mistake:
    """Goes wrong on pictures of one kind only, as decoders do."""
    return lambda data: (
        preprocess_picture(wrong(opened(data)).convert("RGB"), SPEC) if fits(opened(data)) else load_pixels(data, SPEC)
    )


def over_black(picture: Image.Image) -> Image.Image:
    canvas = Image.new("RGBA", picture.size, (0, 0, 0, 255))
    canvas.alpha_composite(picture.convert("RGBA"))
    return canvas


def clipped(picture: Image.Image) -> Image.Image:
    return Image.fromarray(np.minimum(np.asarray(picture), 255).astype(np.uint8))


def has_alpha(picture: Image.Image) -> bool:
    return picture.mode == "RGBA" or "transparency" in picture.info


def without_antialias(data: bytes) -> NDArray[np.float32]:
    picture = Image.fromarray(decode_image(data))
    ratio = SIDE / min(picture.size)
    width, height = (max(SIDE, int(side * ratio)) for side in picture.size)
    grid = (picture.width / width, 0, 0, 0, picture.height / height, 0)
    resized = picture.transform((width, height), Image.Transform.AFFINE, grid, Image.Resampling.BICUBIC)
    left, top = (width - SIDE) // 2, (height - SIDE) // 2
    return normalise(resized.crop((left, top, left + SIDE, top + SIDE)), SPEC)


MISTAKES: dict[str, Mistake] = {
    "BGR": lambda data: load_pixels(data, SPEC)[::-1].copy(),
    "0 to 255": lambda data: load_pixels(data, SPEC) * 255,
    "mirrored": lambda data: load_pixels(data, SPEC)[:, :, ::-1].copy(),
    "sides exchanged": lambda data: load_pixels(data, SPEC).transpose(0, 2, 1).copy(),
    "as most servers do": plainly,
    "EXIF ignored": where(lambda p: p.getexif().get(0x0112, 1) != 1, lambda p: p),
    "EXIF applied twice": where(
        lambda p: p.getexif().get(0x0112, 1) != 1, lambda p: p.transpose(Image.Transpose.ROTATE_180)
    ),
    "alpha ignored": where(has_alpha, lambda p: p.convert("RGBA")),
    "alpha over black": where(has_alpha, over_black),
    "16 bit clipped": where(lambda p: p.mode.startswith("I;16"), clipped),
    "CMYK the wrong way round": where(lambda p: p.mode == "CMYK", lambda p: ImageOps.invert(p.convert("RGB"))),
    "colour profile ignored": where(lambda p: "icc_profile" in p.info, lambda p: p),
    "no antialias": without_antialias,
}


@pytest.mark.parametrize("mistake", MISTAKES.values(), ids=MISTAKES.keys())
def test_another_way_to_read_pictures(bundle: Path, monkeypatch: pytest.MonkeyPatch, mistake: Mistake) -> None:
    monkeypatch.setattr("twinlens.encoders.encoder.load_pixels", lambda data, *_: mistake(data))
    refused(bundle, "image")


@pytest.mark.parametrize("clean", ["none", "clip_whitespace", "canonicalize"])
def test_another_clean_up(bundle: Path, clean: str) -> None:
    forge(bundle, lambda content: content["text"]["text"].update(clean=clean))
    refused(bundle, "text")


def test_a_shorter_window(bundle: Path) -> None:
    forge(bundle, lambda content: content["text"]["text"].update(context_length=CONTEXT - 8))
    refused(bundle, "text")


class TestPadding:
    """Of a tower that sees it."""

    @pytest.fixture
    def bundle(self, padded: Path, tmp_path: Path) -> Path:
        return Path(shutil.copytree(padded, tmp_path / "bundle"))

    def test_to_the_longest_of_the_batch_in_place_of_the_window(self, bundle: Path) -> None:
        """Beside the long text among the parity inputs every text has the whole window: alone it has not."""
        forge(bundle, lambda content: content["text"]["text"].update(pad_to_context=False))
        refused(bundle, "text")

    def test_with_another_token(self, bundle: Path) -> None:
        forge(bundle, lambda content: content["text"]["text"].update(pad_id=1))
        refused(bundle, "text")


def test_a_mask_that_is_not_applied(masked: Path, padded: Path, tmp_path: Path) -> None:
    """The same tower, exported without its mask: with padding to the window its vectors are others."""
    bundle = Path(shutil.copytree(masked, tmp_path / "bundle"))
    shutil.copy(padded / "text.onnx", bundle / "text.onnx")
    forge(bundle, lambda m: m["text"]["text"].update(attention_mask=False, pad_to_context=True))
    refused(bundle, "text")


def test_a_tokenizer_with_other_numbers(bundle: Path) -> None:
    words = tokenizer()
    vocabulary = words["model"]["vocab"]
    names = list(vocabulary)
    for one, other in zip(names[4::2], names[5::2], strict=False):
        vocabulary[one], vocabulary[other] = vocabulary[other], vocabulary[one]
    (bundle / "tokenizer.json").write_text(json.dumps(words))
    forge(bundle)
    refused(bundle, "text")


def test_a_tokenizer_without_its_special_tokens(bundle: Path) -> None:
    (bundle / "tokenizer.json").write_text(json.dumps({**tokenizer(), "post_processor": None}))
    forge(bundle)
    refused(bundle, "text")


def test_another_activation(masked: Path, tmp_path: Path) -> None:
    """GELU for the quick-GELU of OpenAI's CLIP."""
    bundle = Path(shutil.copytree(masked, tmp_path / "bundle"))
    onnx.save(small_networks.convolutional(activation="gelu"), str(bundle / "image.onnx"))
    forge(bundle)
    refused(bundle, "image")


@pytest.mark.parametrize(("file", "tower"), [("image.onnx", "image"), ("text.onnx", "text")])
def test_other_weights(bundle: Path, file: str, tower: str) -> None:
    model = onnx.load(str(bundle / file))
    largest = max(model.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    values = onnx.numpy_helper.to_array(largest)
    largest.CopyFrom(onnx.numpy_helper.from_array(np.roll(values, 1, axis=0), largest.name))
    onnx.save(model, str(bundle / file))
    forge(bundle)
    refused(bundle, tower)


def test_a_tower_that_looks_at_its_neighbours_in_the_batch(masked: Path, tmp_path: Path) -> None:
    """As a batch norm does that was exported while training."""
    bundle = Path(shutil.copytree(masked, tmp_path / "bundle"))
    model = onnx.load(str(bundle / "image.onnx"))
    model.graph.node[-1].output[0] = "before"
    mean = onnx.helper.make_node("ReduceMean", ["before"], ["mean"], axes=[0], keepdims=1)
    model.graph.node.extend([mean, onnx.helper.make_node("Add", ["before", "mean"], ["embedding"])])
    onnx.save(model, str(bundle / "image.onnx"))
    encoder = Encoder.load(bundle, verify=False)
    pictures = default_parity_images()
    vectors = encoder.encode_images(np.stack([encoder.prepare_image(data) for data in pictures.values()]))
    shutil.rmtree(bundle / "parity")
    texts = [encoder.encode_texts([encoder.prepare_text(each)]) for each in DEFAULT_PARITY_TEXTS]
    write_parity(bundle / "parity", pictures, DEFAULT_PARITY_TEXTS, vectors, np.concatenate(texts))
    forge(bundle)
    refused(bundle, "image")
