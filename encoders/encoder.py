"""The encoder of a bundle: raw pictures and texts in, unit vectors of its space out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.decode import DECODE_CONTRACT, DEFAULT_LIMITS, DecodeLimits
from twinlens.encoders.errors import BundleError, InvalidImage, InvalidText
from twinlens.encoders.manifest import Manifest
from twinlens.encoders.parity import check_parity
from twinlens.encoders.preprocess import load_pixels
from twinlens.encoders.runtime import Provider, TowerSession
from twinlens.encoders.tokenise import TextTokenizer, TokenisedText, collate

# Bounds the memory of one run whatever the caller brings.
_CHUNK = 64


class Encoder:
    """An `EncoderLike` over the ONNX towers of a bundle. Thread-safe."""

    def __init__(
        self,
        manifest: Manifest,
        image: TowerSession | None,
        text: TowerSession | None,
        tokenizer: TextTokenizer | None,
        limits: DecodeLimits = DEFAULT_LIMITS,
    ) -> None:
        """Use `load`; this takes parts that are known to fit."""
        self._manifest = manifest
        self._image = image
        self._text = text
        self._tokenizer = tokenizer
        self._limits = limits

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        provider: Provider = "auto",
        threads: int | None = None,
        verify: bool = True,
        limits: DecodeLimits = DEFAULT_LIMITS,
    ) -> Self:
        """Loads the bundle at `path`.

        Args:
            path: The bundle's folder.
            provider: Where the towers run.
            threads: Threads for each tower, never more than the CPUs this process may use.
            verify: Check the digests, then re-embed `parity/` from raw bytes and compare (cosine at least 0.9999).
            limits: Caps on the pictures to come.

        Raises:
            BundleError: if the bundle is missing, corrupt, of another contract, or does not reproduce its vectors.
            RuntimeUnavailable: if there is no runtime, or CUDA was asked for and is not usable.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        if manifest.image is not None and manifest.image.preprocess.decode_contract != DECODE_CONTRACT:
            msg = (
                f"bundle {folder} was made for decode contract {manifest.image.preprocess.decode_contract}; "
                f"this program has {DECODE_CONTRACT}, its vectors would differ"
            )
            raise BundleError(msg)
        if verify:
            verify_digests(folder, manifest)
        image = text = tokenizer = None
        if manifest.image is not None:
            image = TowerSession(folder / manifest.image.files.fp32, provider=provider, threads=threads)
        if manifest.text is not None:
            text = TowerSession(folder / manifest.text.files.fp32, provider=provider, threads=threads)
            tokenizer = TextTokenizer(folder / manifest.text.text.tokenizer, manifest.text.text)
        encoder = cls(manifest, image, text, tokenizer, limits)
        if verify:
            check_parity(encoder, folder / "parity")
        return encoder

    @property
    def manifest(self) -> Manifest:
        """The bundle's manifest."""
        return self._manifest

    @property
    def provider(self) -> str:
        """Where the towers run: `cpu` or `cuda`; empty after `close`."""
        session = self._image or self._text
        return session.provider if session is not None else ""

    def prepare_image(self, data: bytes) -> NDArray[np.float32]:
        """Decodes and preprocesses one encoded picture; thread-safe.

        Returns:
            Pixels, shape (3, size, size).

        Raises:
            InvalidImage: if the bytes are not a picture we read, break a limit, or the model takes no pictures.
        """
        if self._manifest.image is None:
            raise InvalidImage("this model embeds texts only")
        return load_pixels(data, self._manifest.image.preprocess, self._limits)

    def prepare_text(self, text: str) -> TokenisedText:
        """Cleans and tokenises one text; thread-safe.

        Raises:
            InvalidText: if the text is empty, holds characters no tokenizer can take, or the model takes no texts.
        """
        if self._tokenizer is None:
            raise InvalidText("this model embeds pictures only")
        return self._tokenizer(text)

    def encode_images(self, pixels_nchw: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embeds prepared pictures.

        Args:
            pixels_nchw: Shape (n, 3, size, size).

        Returns:
            Unit vectors, shape (n, d).

        Raises:
            BundleError: if the tower fails, or gives a vector that is zero or not finite.
        """
        if self._image is None:
            raise BundleError("this model has no image tower, or was closed")
        rows = [
            self._unit("image", self._image.run({"pixels": pixels_nchw[part]}), part)
            for part in _chunks(len(pixels_nchw))
        ]
        return self._stack(rows)

    def encode_texts(self, tokens: Sequence[TokenisedText]) -> NDArray[np.float32]:
        """Embeds prepared texts.

        Returns:
            Unit vectors in the order given, shape (n, d).

        Raises:
            BundleError: if the tower fails, or gives a vector that is zero or not finite.
        """
        if self._text is None or self._manifest.text is None:
            raise BundleError("this model has no text tower, or was closed")
        spec = self._manifest.text.text
        # Like lengths together: less padding to compute.
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i].ids))
        rows = []
        for part in _chunks(len(tokens)):
            ids, mask = collate([tokens[i] for i in order[part]], spec)
            inputs = {"input_ids": ids, "attention_mask": mask} if spec.attention_mask else {"input_ids": ids}
            rows.append(self._unit("text", self._text.run(inputs), part))
        vectors = np.empty((len(tokens), self._manifest.dimension), dtype=np.float32)
        vectors[order] = self._stack(rows)
        return vectors

    def close(self) -> None:
        """Lets go of the towers; encoding afterwards is an error."""
        self._image = self._text = None

    def _unit(self, tower: str, raw: NDArray[np.float32], part: slice) -> NDArray[np.float32]:
        wanted = (part.stop - part.start, self._manifest.dimension)
        if raw.shape != wanted:
            msg = f"the {tower} tower gave vectors of shape {raw.shape}, {wanted} expected"
            raise BundleError(msg)
        # In float64: the squares of large float32 outputs may overflow.
        norms = np.linalg.norm(raw.astype(np.float64), axis=1, keepdims=True)
        bad = ~np.isfinite(norms[:, 0]) | (norms[:, 0] == 0.0)
        if bad.any():
            msg = f"the {tower} tower gave a vector that is zero or not finite (item {part.start + int(bad.argmax())})"
            raise BundleError(msg)
        return np.asarray(raw / norms, dtype=np.float32)

    def _stack(self, rows: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        if not rows:
            return np.zeros((0, self._manifest.dimension), dtype=np.float32)
        return np.concatenate(rows)


def _chunks(total: int) -> Iterator[slice]:
    for start in range(0, total, _CHUNK):
        yield slice(start, min(start + _CHUNK, total))
