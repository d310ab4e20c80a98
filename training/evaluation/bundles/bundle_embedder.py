"""Embeds with a bundle in this process, by the code that serves it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from twinlens.client.split import split
from twinlens.encoders.errors import InvalidImage, InvalidText
from twinlens.encoders.protocol import EncoderLike, variant_of
from twinlens.encoders.tokenise import TokenisedText
from twinlens.training.data.bounded_map import bounded_map
from twinlens.training.data.listed_pictures import Picture
from twinlens.training.evaluation.bundles.embedder import (
    EvaluatedModel,
    OnDone,
    Outcome,
    Vectors,
    gathered,
    read_picture,
)

_IMAGES_A_RUN = 64
# The text tower sorts what it is given by length, so that short texts are not padded to long ones.
_TEXTS_A_RUN = 1024

Prepared = TypeVar("Prepared")


class BundleEmbedder:
    """An `Embedder` over an encoder of this process."""

    def __init__(self, encoder: EncoderLike, decoders: int = 1) -> None:
        """Wraps a loaded encoder.

        Args:
            encoder: Prepares and embeds.
            decoders: Threads that read and prepare.
        """
        self._encoder = encoder
        self._decoders = decoders

    @property
    def model(self) -> EvaluatedModel:
        """Who embeds."""
        manifest = self._encoder.manifest
        return EvaluatedModel(
            manifest.name,
            manifest.version,
            manifest.space_id,
            manifest.dimension,
            manifest.image is not None,
            manifest.text is not None,
            variant_of(self._encoder),
        )

    def images(self, pictures: Sequence[Picture], done: OnDone) -> Vectors:
        """Vectors of pictures; while the tower runs, a pool prepares the next ones.

        Raises:
            BundleError: if the tower fails.
        """

        def encode(prepared: list[NDArray[np.float32]]) -> NDArray[np.float32]:
            return self._encoder.encode_images(np.stack(prepared))

        each = bounded_map(self._prepare_image, pictures, threads=self._decoders)
        outcomes = _in_runs((found for _, found in each), encode, _IMAGES_A_RUN)
        return gathered(outcomes, len(pictures), self.model.dimension, done)

    def texts(self, texts: Sequence[str], done: OnDone) -> Vectors:
        """Vectors of texts.

        Raises:
            BundleError: if the tower fails.
        """
        outcomes = _in_runs(map(self._prepare_text, texts), self._encoder.encode_texts, _TEXTS_A_RUN)
        return gathered(outcomes, len(texts), self.model.dimension, done)

    def _prepare_image(self, picture: Picture) -> NDArray[np.float32] | str:
        data = read_picture(picture)
        if isinstance(data, str):
            return data
        try:
            return self._encoder.prepare_image(data)
        except InvalidImage as error:
            return str(error)

    def _prepare_text(self, text: str) -> TokenisedText | str:
        try:
            return self._encoder.prepare_text(text)
        except InvalidText as error:
            return str(error)


def _in_runs(
    prepared: Iterator[Prepared | str], encode: Callable[[list[Prepared]], NDArray[np.float32]], most: int
) -> Iterator[Outcome]:
    """What became of each item, in order; the tower gets `most` items at a time, without those that failed."""
    for run in split(prepared, lambda _: 0, max_count=most, max_bytes=1):
        usable = [each for each in run if not isinstance(each, str)]
        vectors = iter(encode(usable)) if usable else iter(())
        for each in run:
            if isinstance(each, str):
                yield each
            else:
                yield next(vectors), isinstance(each, TokenisedText) and each.truncated
