"""A fake encoder that fails as it is told, in each of the ways a tower can."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from tests.support.fake_encoder import FakeEncoder
from twinlens.encoders.tokenise import TokenisedText

# What a failure says of itself, and nobody outside may read.
SECRET = "/srv/secret/of/the/server"  # noqa: S105 - a path


class Panic(BaseException):
    """No `Exception`, as a panic of Rust, which tokenizers are written in, is none to Python."""


class Fault(StrEnum):
    """What goes wrong in every batch, or in every preparation, until it is mended."""

    NONE = "none"
    RAISES = "raises"
    OUT_OF_MEMORY = "runs out of memory"
    NOT_FINITE = "gives NaN"
    TOO_FEW = "gives too few vectors"
    HANGS = "hangs"
    PANICS = "panics"
    PREPARING_PANICS = "panics while preparing"


class FaultyEncoder(FakeEncoder):
    """Fails by `fault`; what hangs does so until `mend`."""

    def __init__(self, dimension: int = 32) -> None:
        super().__init__(dimension)
        self._fault = Fault.NONE
        self._mended = threading.Event()

    def fail(self, fault: Fault) -> None:
        """From now on."""
        self._mended.clear()
        self._fault = fault

    def mend(self) -> None:
        """No longer."""
        self._fault = Fault.NONE
        self._mended.set()

    def prepare_text(self, text: str) -> TokenisedText:
        if self._fault is Fault.PREPARING_PANICS:
            raise Panic(SECRET)
        return super().prepare_text(text)

    def prepare_image(self, data: bytes) -> NDArray[np.float32]:
        if self._fault is Fault.PREPARING_PANICS:
            raise Panic(SECRET)
        return super().prepare_image(data)

    def encode_texts(self, tokens: Sequence[TokenisedText]) -> NDArray[np.float32]:
        return self._spoiled(super().encode_texts(tokens))

    def encode_images(self, pixels_nchw: NDArray[np.float32]) -> NDArray[np.float32]:
        return self._spoiled(super().encode_images(pixels_nchw))

    def _spoiled(self, vectors: NDArray[np.float32]) -> NDArray[np.float32]:
        match self._fault:
            case Fault.RAISES:
                raise RuntimeError(SECRET)
            case Fault.OUT_OF_MEMORY:
                raise MemoryError(SECRET)
            case Fault.NOT_FINITE:
                return np.full_like(vectors, np.nan)
            case Fault.TOO_FEW:
                return vectors[:-1]
            case Fault.HANGS:
                self._mended.wait()
            case Fault.PANICS:
                raise Panic(SECRET)
        return vectors
