"""A deterministic encoder without a runtime: hashes of pixels and words become unit vectors."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tests.support.pictures import COLOURS
from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidText
from twinlens.encoders.manifest import (
    FileEntry,
    ImageTower,
    Manifest,
    PreprocessSpec,
    ScoringRule,
    TextSpec,
    TextTower,
    TowerFiles,
    compute_space_id,
)
from twinlens.encoders.preprocess import preprocess
from twinlens.encoders.tokenise import TokenisedText

_SIZE = 8
_CONTEXT = 16


class FakeEncoder:
    """An `EncoderLike` whose space puts a colour's name beside pictures of that colour.

    A picture's vector is its mean colour (the direction of the nearest of eight named colours, mostly) plus a small
    part that is a hash of its downscaled pixels. A text's vector is the colours it names, or a hash of its words.
    """

    def __init__(
        self,
        dimension: int = 32,
        seed: int = 0,
        *,
        name: str = "fake",
        version: str = "1",
        image: bool = True,
        text: bool = True,
    ) -> None:
        self._seed = seed
        both = _manifest(dimension, seed, name, version)
        self._manifest = both if image and text else _without_a_tower(both, image=image, text=text)
        self._axes = {colour: self._direction(f"colour {colour}") for colour in COLOURS}

    @property
    def manifest(self) -> Manifest:
        return self._manifest

    def prepare_image(self, data: bytes) -> NDArray[np.float32]:
        image = self._manifest.image
        assert image is not None
        return preprocess(decode_image(data), image.preprocess)

    def prepare_text(self, text: str) -> TokenisedText:
        assert self._manifest.text is not None
        words = text.lower().replace(".", " ").replace(",", " ").split()
        if not words:
            raise InvalidText("the text is empty")
        ids = tuple(_word_id(word) for word in words)
        return TokenisedText(ids[:_CONTEXT], truncated=len(ids) > _CONTEXT)

    def encode_images(self, pixels_nchw: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._stack([self._image_vector(pixels) for pixels in pixels_nchw])

    def encode_texts(self, tokens: Sequence[TokenisedText]) -> NDArray[np.float32]:
        return self._stack([self._text_vector(text) for text in tokens])

    def _image_vector(self, pixels: NDArray[np.float32]) -> NDArray[np.float64]:
        mean = pixels.reshape(3, -1).mean(axis=1) * 255.0
        distances = {c: float(np.abs(mean - np.array(rgb)).sum()) for c, rgb in COLOURS.items()}
        vector = sum(np.exp(-distance / 60.0) * self._axes[c] for c, distance in distances.items())
        texture = np.round(pixels * 16).astype(np.int16).tobytes()
        return np.asarray(vector + 0.02 * self._direction(hashlib.sha256(texture).hexdigest()))

    def _text_vector(self, text: TokenisedText) -> NDArray[np.float64]:
        named = [self._axes[c] for c in COLOURS if _word_id(c) in text.ids]
        rest = 0.1 if named else 1.0
        return np.asarray(sum(named, start=rest * self._direction(repr(text.ids))))

    def _direction(self, key: str) -> NDArray[np.float64]:
        digest = hashlib.sha256(f"{self._seed} {key}".encode()).digest()
        rng = np.random.default_rng(int.from_bytes(digest[:8], "big"))
        vector = rng.standard_normal(self._manifest.dimension)
        return np.asarray(vector / np.linalg.norm(vector))

    def _stack(self, vectors: list[NDArray[np.float64]]) -> NDArray[np.float32]:
        if not vectors:
            return np.zeros((0, self._manifest.dimension), dtype=np.float32)
        matrix = np.stack(vectors)
        return np.asarray(matrix / np.linalg.norm(matrix, axis=1, keepdims=True), dtype=np.float32)


def _word_id(word: str) -> int:
    return int.from_bytes(hashlib.sha256(word.encode("utf-8", "surrogatepass")).digest()[:4], "big")


def _manifest(dimension: int, seed: int, name: str, version: str) -> Manifest:
    digest = hashlib.sha256(f"fake {dimension} {seed}".encode()).hexdigest()
    files = tuple(FileEntry(path=p, sha256=digest, size=0) for p in ("image.onnx", "text.onnx", "tokenizer.json"))
    spec = PreprocessSpec(size=_SIZE, resize_size=_SIZE, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    image = ImageTower(files=TowerFiles(fp32="image.onnx"), preprocess=spec)
    text = TextTower(
        files=TowerFiles(fp32="text.onnx"),
        text=TextSpec(context_length=_CONTEXT, pad_id=0, pad_to_context=False, attention_mask=True),
    )
    return Manifest(
        name=name,
        version=version,
        dimension=dimension,
        image=image,
        text=text,
        scoring=ScoringRule(scale=20.0),
        files=files,
        space_id=compute_space_id(dimension, image, text, files),
        description="A stand-in for tests: hashes of pixels and words.",
    )


def _without_a_tower(both: Manifest, *, image: bool, text: bool) -> Manifest:
    towers = {"image": both.image if image else None, "text": both.text if text else None}
    kept = {"image.onnx"} if image else {"text.onnx", "tokenizer.json"}
    files = tuple(entry for entry in both.files if entry.path in kept)
    space_id = compute_space_id(both.dimension, towers["image"], towers["text"], files)  # type: ignore[arg-type]
    return Manifest(**{**both.model_dump(), **towers, "files": files, "space_id": space_id})
