"""Pairs of picture and caption, ready for the towers."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.errors import InvalidText
from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.encoders.tokenise import TextTokenizer, TokenisedText, collate
from twinlens.training.data.caption_key import caption_key
from twinlens.training.data.equal_pairs import NO_PAIR, ranges
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pairs import CaptionedPicture, ListedPairs, pair_each
from twinlens.training.data.listed_pictures import ListedPicture
from twinlens.training.data.picture_cache import decode_each
from twinlens.training.data.scenes import Scene
from twinlens.training.data.unusable import refuse_too_many

# Of pictures that are decoded, or never were files: nothing is read from there.
_READ = Path()


@dataclass(frozen=True)
class RawPairs:
    """Pairs with decoded pictures, and their captions before tokenising.

    Attributes:
        listed: The n pairs and their captions.
        slots: Row of `pixels_nhwc` that belongs to the pair, shape (n,); pairs of one picture share it.
        image_digests: Equal digests name equal pictures; one a pair.
        pixels_nhwc: uint8, shape (pictures, size, size, 3).
        unreadable: What was left out, and why.
    """

    listed: ListedPairs
    slots: NDArray[np.int64]
    image_digests: tuple[str, ...]
    pixels_nhwc: NDArray[np.uint8]
    unreadable: dict[str, str]

    def __len__(self) -> int:
        """How many pairs."""
        return len(self.ids)

    def told(self) -> str:
        """What it is, in a person's words."""
        return f"{len(self):,} pairs"

    @property
    def ids(self) -> tuple[str, ...]:
        """Unique names of the pairs."""
        return self.listed.ids

    @property
    def captions(self) -> tuple[str, ...]:
        """As written; pair i is shown with caption i, where no picture has a choice of several."""
        return self.listed.captions

    def digest(self) -> str:
        """SHA-256 over ids, captions and pictures in their order, and whatever else of the data a run depends on."""
        listed = self.listed
        content = hashlib.sha256()
        for i, (identity, digest) in enumerate(zip(self.ids, self.image_digests, strict=True)):
            first = listed.first_captions[i]
            captions = self.captions[first : first + listed.caption_counts[i]]
            row = (identity, *captions, digest, *(listed.wrong[i] if listed.wrong else ()))
            content.update("\0".join(row).encode("utf-8", "surrogatepass") + b"\n")
        for values in (listed.weights, listed.classes):
            if values is not None:
                content.update(values.tobytes())
        return content.hexdigest()


@dataclass(frozen=True)
class Pairs:
    """What a batch is cut from: n pairs, and m captions that they are shown with or that are false of them.

    Attributes:
        ids: Unique names of the pairs.
        pixels_nhwc: uint8, shape (pictures, size, size, 3); or what a locked tower makes of them, see `with_features`.
        slots: Row of `pixels_nhwc` that belongs to the pair, shape (n,).
        token_ids_ml: Padded ids, int64, shape (m, length); or what a locked tower makes of them.
        first_captions: Pair i is shown with one of the captions from this row of `token_ids_ml` on, shape (n,).
        caption_counts: How many it has, shape (n,).
        image_keys: Equal numbers, from 0, name pictures that are equal to the tower, shape (n,).
        text_keys: Equal numbers, from 0, name captions that say the same or are the same to the tower, shape (m,).
        truncated: How many captions of pairs were longer than the context.
        caption_ids: Names of the captions, the first of the m; empty where they have none of their own.
        wrong_texts: Rows of `token_ids_ml` that are false of pair i, -1 fills up; shape (n, most of a pair).
        weights: How much each pair counts, float32, shape (n,); None: all alike.
        classes: Of the pairs, shape (n,), from 0; where the data has none, equal captions make a class.
    """

    ids: tuple[str, ...]
    pixels_nhwc: NDArray[np.uint8] | NDArray[np.float32]
    slots: NDArray[np.int64]
    token_ids_ml: NDArray[np.int64] | NDArray[np.float32]
    first_captions: NDArray[np.int64]
    caption_counts: NDArray[np.int64]
    image_keys: NDArray[np.int64]
    text_keys: NDArray[np.int64]
    truncated: int
    caption_ids: tuple[str, ...]
    wrong_texts: NDArray[np.int64]
    weights: NDArray[np.float32] | None
    classes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.ids)


def from_captions(
    rows: Sequence[CaptionedPicture], spec: PreprocessSpec, *, max_unreadable_share: float, spill: Path | None = None
) -> RawPairs:
    """Every row is a pair; see `decode_pairs`."""
    return decode_pairs(pair_each(rows), spec, max_unreadable_share=max_unreadable_share, spill=spill)


def decode_pairs(
    listed: ListedPairs, spec: PreprocessSpec, *, max_unreadable_share: float, spill: Path | None = None
) -> RawPairs:
    """Decodes every picture once; pairs whose picture cannot be read are left out before any batch is formed.

    Args:
        listed: The pairs.
        spec: The image tower's preprocessing; everything but normalisation happens here.
        max_unreadable_share: See `refuse_too_many`.
        spill: Folder of a file that holds the pictures where they are many, as long as it is in use; None: in memory.

    Raises:
        DataError: if there are no pictures, too many cannot be read, or `spill` has no room.
    """
    pictures = list(dict.fromkeys(listed.pictures))
    if not pictures:
        raise DataError("there are no pictures to train on")
    decoded = decode_each(pictures, lambda picture: picture.read(), spec, spill=spill)
    unreadable = dict(listed.problems) | {pictures[k].name: reason for k, reason in decoded.unreadable.items()}
    refuse_too_many(
        unreadable,
        len(pictures) + len(listed.problems),
        max_share=max_unreadable_share,
        key="data.max_unreadable_share",
    )
    slot_of = {pictures[k]: slot for slot, k in enumerate(decoded.rows)}
    kept = [row for row, picture in enumerate(listed.pictures) if picture in slot_of]
    slots = np.array([slot_of[listed.pictures[row]] for row in kept], dtype=np.int64)
    usable = listed if len(kept) == len(listed.ids) else listed.of(kept)
    # Encoded pictures that came with a list, and what others are read through, are not needed any more.
    named = [ListedPicture(picture.name, None, _READ) for picture in pictures]
    of = dict(zip(pictures, named, strict=True))
    return RawPairs(
        listed=replace(usable, pictures=tuple(of[picture] for picture in usable.pictures)),
        slots=slots,
        image_digests=tuple(decoded.digests[slot] for slot in slots),
        pixels_nhwc=decoded.pixels_nhwc,
        unreadable=unreadable,
    )


def from_scenes(scenes: Sequence[Scene]) -> RawPairs:
    """Takes scenes as they are, with what is false of them; they must have the size that the image tower takes."""
    pixels = np.stack([np.asarray(scene.image, dtype=np.uint8) for scene in scenes])
    rows = [
        CaptionedPicture(each.id, ListedPicture(each.id, None, _READ), each.caption, tuple(each.negatives.values()))
        for each in scenes
    ]
    return RawPairs(
        listed=pair_each(rows),
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
    listed = raw.listed
    numbers, wrong_texts = _wrong_texts(listed)
    texts = (*raw.captions, *numbers)
    tokens = _tokenised(texts, listed, TextTokenizer(tokenizer_json.encode(), spec))
    # The towers of open_clip take rows of the full context only; others learn from the padding where a text ends.
    ids, _ = collate(tokens, spec if spec.attention_mask else spec.model_copy(update={"pad_to_context": True}))
    looks = [hashlib.sha256(picture.tobytes()).digest() for picture in raw.pixels_nhwc]
    said: dict[tuple[int, ...], str] = {}
    text_keys = _keys([said.setdefault(t.ids, caption_key(text)) for t, text in zip(tokens, texts, strict=True)])
    text_keys = _as_one(text_keys, listed)
    return Pairs(
        ids=raw.ids,
        pixels_nhwc=raw.pixels_nhwc,
        slots=raw.slots,
        token_ids_ml=ids,
        first_captions=listed.first_captions,
        caption_counts=listed.caption_counts,
        image_keys=_keys([looks[slot] for slot in raw.slots]),
        text_keys=text_keys,
        truncated=sum(token.truncated for token in tokens[: len(raw.captions)]),
        caption_ids=listed.caption_ids,
        wrong_texts=wrong_texts,
        weights=listed.weights,
        classes=_classes(listed, text_keys),
    )


def _wrong_texts(listed: ListedPairs) -> tuple[tuple[str, ...], NDArray[np.int64]]:
    """The texts that are false of any pair, and for each pair which rows behind the true captions they are."""
    rows: dict[str, int] = {}
    table = np.full((len(listed.ids), max(map(len, listed.wrong), default=0)), -1, dtype=np.int64)
    for i, wrong in enumerate(listed.wrong):
        for k, text in enumerate(wrong):
            table[i, k] = len(listed.captions) + rows.setdefault(text, len(rows))
    return tuple(rows), table


def _tokenised(texts: Sequence[str], listed: ListedPairs, tokenizer: TextTokenizer) -> list[TokenisedText]:
    tokens = []
    for row, text in enumerate(texts):
        try:
            tokens.append(tokenizer(text))
        except InvalidText as error:
            raise DataError(f"{_whose(row, text, listed)} cannot be used: {error}") from None
    return tokens


def _whose(row: int, text: str, listed: ListedPairs) -> str:
    if row < len(listed.caption_ids):
        return f"the caption of {listed.caption_ids[row]!r}"
    if row < len(listed.captions):
        return f"the caption {text!r}"
    return f"the wrong caption of {next(i for i, w in zip(listed.ids, listed.wrong, strict=True) if text in w)!r}"


def _as_one(text_keys: NDArray[np.int64], listed: ListedPairs) -> NDArray[np.int64]:
    """Captions that several pairs share as a choice are right for the same pictures: they need but one key.

    So what is known of 80 templates of a class does not grow with its pictures.
    """
    shared, sharers = np.unique(listed.first_captions, return_counts=True)
    counts = dict(zip(listed.first_captions.tolist(), listed.caption_counts.tolist(), strict=True))
    joined = np.arange(text_keys.max(initial=-1) + 1)
    for first in shared[sharers > 1].tolist():
        keys = joined[text_keys[first : first + counts[first]]]
        if len(keys) > 1:
            joined[np.isin(joined, keys)] = keys.min()
    return np.asarray(np.unique(joined[text_keys], return_inverse=True)[1])


def _classes(listed: ListedPairs, text_keys: NDArray[np.int64]) -> NDArray[np.int64]:
    if listed.classes is None:
        found = text_keys[listed.first_captions]
    else:
        # What has no class is not a class of its own.
        unknown = listed.classes < 0
        found = np.where(unknown, listed.classes.max(initial=-1) + np.cumsum(unknown), listed.classes)
    return np.asarray(np.unique(found, return_inverse=True)[1])


def refuse_without_negatives(pairs: Pairs) -> None:
    """Refuses pairs that are all equals of each other: the loss is 0 at once and teaches nothing.

    Raises:
        DataError: if all have one picture, or one caption.
    """
    _, captions = ranges(pairs.first_captions, pairs.caption_counts)
    for what, keys in (("picture", pairs.image_keys), ("caption", pairs.text_keys[captions])):
        if len(keys) and (keys == keys[0]).all():
            raise DataError(
                f"all {len(pairs):,} pairs have the same {what}, so none is wrong for another: the loss is 0 and "
                "teaches nothing"
            )


def pairs_of_captions(pairs: Pairs) -> NDArray[np.int64]:
    """For each of the m captions a pair that is shown with it, `NO_PAIR` where there is none; shape (m,)."""
    of = np.full(len(pairs.text_keys), NO_PAIR, dtype=np.int64)
    numbers, captions = ranges(pairs.first_captions, pairs.caption_counts)
    of[captions] = numbers
    return of


def _keys(values: Sequence[object]) -> NDArray[np.int64]:
    numbers: dict[object, int] = {}
    return np.array([numbers.setdefault(value, len(numbers)) for value in values], dtype=np.int64)
