"""What the server, the demo and `embed` ask of an encoder; the tests' fake has the same five members."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.manifest import Manifest
from twinlens.encoders.tokenise import TokenisedText


@runtime_checkable
class EncoderLike(Protocol):
    """Bytes and strings in, unit vectors of one space out.

    `prepare_*` runs on worker threads, one item at a time; `encode_*` runs a batch of what they returned.
    """

    @property
    def manifest(self) -> Manifest:
        """Name, version, `space_id`, dimension, towers and scoring rule."""
        ...

    def prepare_image(self, data: bytes) -> NDArray[np.float32]:
        """Decodes and preprocesses one encoded picture; thread-safe.

        Returns:
            Pixels, shape (3, size, size).

        Raises:
            InvalidImage: if the bytes are not a picture we read, or break a limit.
        """
        ...

    def prepare_text(self, text: str) -> TokenisedText:
        """Cleans and tokenises one text; thread-safe.

        Raises:
            InvalidText: if the text is empty or holds characters no tokenizer can take.
        """
        ...

    def encode_images(self, pixels_nchw: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embeds a batch of prepared pictures, shape (n, 3, size, size), to unit vectors, shape (n, d)."""
        ...

    def encode_texts(self, tokens: Sequence[TokenisedText]) -> NDArray[np.float32]:
        """Embeds a batch of n prepared texts to unit vectors, shape (n, d)."""
        ...


@runtime_checkable
class HasVariant(Protocol):
    """An encoder that says where its towers run and in which precision."""

    @property
    def variant(self) -> str:
        """For records and logs: `image int8 on cpu, text fp32 on cpu`."""
        ...


@runtime_checkable
class HasProcess(Protocol):
    """An encoder whose sessions belong to the process that loaded it."""

    @property
    def process(self) -> int:
        """Its id."""
        ...


@runtime_checkable
class Closable(Protocol):
    """An encoder that holds memory until it is closed."""

    def close(self) -> None:
        """Lets go of the towers."""
        ...


def release(encoder: EncoderLike) -> None:
    """Closes an encoder that can be closed."""
    if isinstance(encoder, Closable):
        encoder.close()


def variant_of(encoder: EncoderLike) -> str:
    """What computes an encoder's vectors; empty where it does not say."""
    return encoder.variant if isinstance(encoder, HasVariant) else ""
