"""Pairs of picture and caption, ready for the towers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.errors import InvalidText
from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.encoders.tokenise import TextTokenizer, TokenisedText, collate
from twinlens.training.data.caption_key import caption_key
from twinlens.training.data.captions import CaptionRow
from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_cache import decode_all
from twinlens.training.data.scenes import Scene


@dataclass(frozen=True)
class RawPairs:
    """Decoded pictures and captions before tokenising; row i of every field but `pixels_nhwc` is pair i.

    Attributes:
        ids: Unique names.
        captions: As written.
        slots: Row of `pixels_nhwc` that belongs to the pair, shape (n,); captions of one picture share it.
        image_digests: Equal digests name equal pictures.
        pixels_nhwc: uint8, shape (m, size, size, 3).
        unreadable: What was left out, and why.
    """

    ids: tuple[str, ...]
    captions: tuple[str, ...]
    slots: NDArray[np.int64]
    image_digests: tuple[str, ...]
    pixels_nhwc: NDArray[np.uint8]
    unreadable: dict[str, str]

    def digest(self) -> str:
        """SHA-256 over ids, captions and pictures in their order."""
        content = hashlib.sha256()
        for row in zip(self.ids, self.captions, self.image_digests, strict=True):
            content.update("\0".join(row).encode("utf-8", "surrogatepass") + b"\n")
        return content.hexdigest()


@dataclass(frozen=True)
class Pairs:
    """What a batch is cut from; row i of `ids`, `slots`, `token_ids_nl` and the keys is pair i.

    Attributes:
        pixels_nhwc: uint8, shape (m, size, size, 3).
        slots: Row of `pixels_nhwc` that belongs to the pair, shape (n,).
        token_ids_nl: Padded ids, int64, shape (n, context length).
        image_keys: Equal numbers, from 0, name pictures that are equal to the tower, shape (n,).
        text_keys: Equal numbers, from 0, name captions that say the same or are the same to the tower, shape (n,).
        truncated: How many captions were longer than the context.
    """

    ids: tuple[str, ...]
    pixels_nhwc: NDArray[np.uint8]
    slots: NDArray[np.int64]
    token_ids_nl: NDArray[np.int64]
    image_keys: NDArray[np.int64]
    text_keys: NDArray[np.int64]
    truncated: int

    def __len__(self) -> int:
        return len(self.ids)


def from_captions(
    rows: Sequence[CaptionRow],
    spec: PreprocessSpec,
    *,
    max_unreadable_share: float,
    root: Path | None = None,
    spill: Path | None = None,
) -> RawPairs:
    """Decodes every picture once; pairs whose picture cannot be read are left out before any batch is formed.

    Args:
        rows: Pairs of file and caption.
        spec: The image tower's preprocessing.
        max_unreadable_share: See `decode_all`.
        root: Unreadable files are named relative to it where they lie below.
        spill: See `decode_all`.

    Raises:
        DataError: see `decode_all`.
    """
    files = list(dict.fromkeys(row.image for row in rows))
    cache = decode_all(files, spec, max_unreadable_share=max_unreadable_share, spill=spill)
    kept = [row for row in rows if row.image in cache.slots]
    slots = np.array([cache.slots[row.image] for row in kept], dtype=np.int64)
    return RawPairs(
        ids=tuple(row.id for row in kept),
        captions=tuple(row.caption for row in kept),
        slots=slots,
        image_digests=tuple(cache.digests[slot] for slot in slots),
        pixels_nhwc=cache.pixels_nhwc,
        unreadable={_named(file, root): reason for file, reason in cache.unreadable.items()},
    )


def from_scenes(scenes: Sequence[Scene]) -> RawPairs:
    """Takes scenes as they are; they must have the size that the image tower takes."""
    pixels = np.stack([np.asarray(scene.image, dtype=np.uint8) for scene in scenes])
    return RawPairs(
        ids=tuple(scene.id for scene in scenes),
        captions=tuple(scene.caption for scene in scenes),
        slots=np.arange(len(scenes), dtype=np.int64),
        image_digests=tuple(hashlib.sha256(picture.tobytes()).hexdigest() for picture in pixels),
        pixels_nhwc=pixels,
        unreadable={},
    )


def tokenise(raw: RawPairs, tokenizer_json: str, spec: TextSpec) -> Pairs:
    """Adds token ids and the keys that name duplicates.

    Raises:
        DataError: naming the pair, if a caption cannot be tokenised.
    """
    tokenizer = TextTokenizer(tokenizer_json.encode(), spec)
    tokens: list[TokenisedText] = []
    said: dict[tuple[int, ...], str] = {}
    for identity, caption in zip(raw.ids, raw.captions, strict=True):
        try:
            tokens.append(tokenizer(caption))
        except InvalidText as error:
            raise DataError(f"the caption of {identity!r} cannot be used: {error}") from None
    # The towers of open_clip take rows of the full context only.
    ids, _ = collate(tokens, spec.model_copy(update={"pad_to_context": True}))
    looks = [hashlib.sha256(picture.tobytes()).digest() for picture in raw.pixels_nhwc]
    return Pairs(
        ids=raw.ids,
        pixels_nhwc=raw.pixels_nhwc,
        slots=raw.slots,
        token_ids_nl=ids,
        image_keys=_keys([looks[slot] for slot in raw.slots]),
        text_keys=_keys([said.setdefault(t.ids, caption_key(c)) for t, c in zip(tokens, raw.captions, strict=True)]),
        truncated=sum(token.truncated for token in tokens),
    )


def _keys(values: Sequence[object]) -> NDArray[np.int64]:
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)


def _named(file: Path, root: Path | None) -> str:
    return str(file.relative_to(root)) if root is not None and file.is_relative_to(root) else str(file)
