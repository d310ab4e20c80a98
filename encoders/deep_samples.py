"""Grey samples of more than 8 bits: 12 and 16 bit, 32-bit integers, floats. Scaled to 0–255, never clipped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray
from PIL import Image

DEEP_MODES: Final = frozenset({"I;16", "I;16L", "I;16B", "I;16N", "I", "F"})

_TIFF_BITS_PER_SAMPLE = 258
_TIFF_PHOTOMETRIC = 262
_TIFF_MAX_SAMPLE = 281
_TIFF_SAMPLE_FORMAT = 339
_SIGNED = 2
_WHITE_IS_ZERO = 0
_ROWS_PIXELS = 4_000_000


@dataclass(frozen=True, slots=True)
class DeepScale:
    """The straight line from samples to levels: `low` becomes 0 (or 255 if inverted), `high` the other end."""

    low: float
    high: float
    inverted: bool = False
    unsigned: bool = False  # integers of 32 bits that Pillow takes for signed ones

    @classmethod
    def of(cls, picture: Image.Image) -> Self:
        """Reads the range from the file where it tells, otherwise from the values.

        Samples of 12 and 16 bits use their full range, but a PNG or TIFF of 16 bits with no value above 4095 is taken
        for what 12-bit cameras and microscopes write, and one that names its greatest possible value is believed.
        Integers of 32 bits and floats carry no range, so it is the smallest of 0–1 (floats), 0–255 and 0–65535 that
        holds all values, and otherwise from the least value to the greatest.
        """
        if picture.format == "HEIF":  # its bits are known, and the plug-in has made 16 of them
            return cls(0.0, 65535.0)
        tags: Any = getattr(picture, "tag_v2", {})
        inverted = tags.get(_TIFF_PHOTOMETRIC) == _WHITE_IS_ZERO
        bits, signed = _first(tags, _TIFF_BITS_PER_SAMPLE, 16), _first(tags, _TIFF_SAMPLE_FORMAT, 1) == _SIGNED
        unsigned = picture.mode == "I" and bits == 32 and not signed
        if picture.mode.startswith("I;16") and bits == 12:
            return cls(0.0, 4095.0, inverted)
        low, high = _finite_range(picture, unsigned=unsigned)
        if picture.mode.startswith("I;16"):
            ceilings: tuple[float, ...] = (_first(tags, _TIFF_MAX_SAMPLE, 4095), 4095.0, 65535.0)
        elif picture.mode == "F":
            ceilings = (1.0, 255.0, 65535.0)
        else:
            ceilings = (255.0, 32767.0 if bits == 16 else 65535.0)
        if low >= 0.0:
            for ceiling in ceilings:
                if high <= ceiling:
                    return cls(0.0, ceiling, inverted, unsigned)
        return cls(low, high, inverted, unsigned)

    def to_8_bit(self, samples: NDArray[Any]) -> NDArray[np.uint8]:
        """Scales samples; what is not a number becomes the low end, infinities the end on their side."""
        if self.unsigned:
            samples = samples.view(np.uint32)
        if samples.dtype.itemsize == 2 and samples.dtype.kind == "u":
            # Looking each of the possible values up is ten times as fast as scaling millions of samples.
            return np.take(self._scaled(np.arange(1 << 16)), samples)
        return self._scaled(samples)

    def _scaled(self, samples: NDArray[Any]) -> NDArray[np.uint8]:
        with np.errstate(invalid="ignore"):  # a signalling NaN in the file would warn here
            values = samples.astype(np.float64)
        if samples.dtype.kind == "f":
            np.nan_to_num(values, copy=False, nan=self.low, posinf=self.high, neginf=self.low)
        span = self.high - self.low
        values -= self.low
        values *= 255.0 / span if span > 0 else 0.0
        np.rint(values, out=values)
        levels = np.clip(values, 0, 255, out=values).astype(np.uint8)
        return np.asarray(255 - levels if self.inverted else levels, dtype=np.uint8)


def _first(tags: Any, tag: int, default: int) -> int:
    """A tag's first value, where it is a number."""
    value = tags.get(tag, default)
    first = value[0] if isinstance(value, tuple) and value else value
    return int(first) if isinstance(first, int) else default


def _finite_range(picture: Image.Image, *, unsigned: bool = False) -> tuple[float, float]:
    """The least and greatest finite value; (0, 0) where there is none."""
    low, high = np.inf, -np.inf
    rows = max(1, _ROWS_PIXELS // picture.width)
    for top in range(0, picture.height, rows):
        strip = np.asarray(picture.crop((0, top, picture.width, min(picture.height, top + rows))))
        if unsigned:
            strip = strip.view(np.uint32)
        finite = strip[np.isfinite(strip)] if strip.dtype.kind == "f" else strip
        if finite.size:
            low, high = min(low, float(finite.min())), max(high, float(finite.max()))
    return (low, high) if low <= high else (0.0, 0.0)
