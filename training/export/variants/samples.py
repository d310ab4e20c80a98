"""Splitting the data: what is calibrated on never judges."""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.lib.format import open_memmap
from numpy.typing import NDArray

from twinlens.encoders.cpus import allowed_cpus
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.errors import InvalidImage, InvalidText
from twinlens.encoders.tokenise import TokenisedText
from twinlens.training.export.variants.calibration import CalibrationData, LabelledSet, Photo
from twinlens.training.export.variants.enough import (
    MIN_CALIBRATION_ITEMS,
    MIN_GATE_ITEMS,
    MIN_ITEMS,
    too_few,
    too_few_labelled,
)
from twinlens.training.export.variants.sentences import varied_sentences
from twinlens.training.export.variants.watch import Watch, unwatched

# What a tower is calibrated on, at most: more changes nothing in the figures of the starter.
CALIBRATION_PHOTOS = 128
CALIBRATION_TEXTS = 256
# What judges, at most, from one set.
_GATE_ITEMS = 1000
_BUILT_IN_TEXTS = 512
# Beside the user's own, so that ranges hold for other texts, too.
_MORE_TEXTS = 64
# So many texts are joined to longer ones: what is short only says nothing about what fills the window.
_JOINED = (4, 4, 4, 40, 40, 40)
# Pictures looked at, at most; of more, those with captions and then those whose names' digests come first.
_MOST_PHOTOS = 2000
# So many of 64 bits may differ between copies: bits at the mean flip when a picture is saved again.
_SAME_BITS = 4
# While calibrating, every tensor inside a tower is held at once: 5 GB in the starter's for 32 texts of 256 tokens.
_TOKENS_A_BATCH = 1024
_PROMPT = "a photo of a {}."
_SIDE = 8


@dataclass(frozen=True)
class Pixels:
    """Some rows of a file of prepared pictures, shape (n, 3, s, s); only what is asked for is in memory."""

    file: NDArray[np.float32]
    rows: NDArray[np.int64]

    def __len__(self) -> int:
        """How many there are."""
        return len(self.rows)

    def __getitem__(self, part: slice) -> NDArray[np.float32]:
        """Pictures in memory."""
        return np.asarray(self.file[self.rows[part]])


@dataclass(frozen=True)
class Labelled:
    """Held-out pictures of known classes."""

    name: str
    pixels: Pixels
    labels: NDArray[np.int64]
    prompts: list[TokenisedText]


@dataclass(frozen=True)
class Samples:
    """The data, prepared for the towers of one bundle and split.

    Attributes:
        calibration_pixels: Prepared pictures; none without an image tower.
        gate_pixels: The same.
        calibration_texts: Tokenised.
        gate_texts: Tokenised; the captions of the gate's pictures come first, in the order of `caption_of`.
        caption_of: For each caption, which of the gate's pictures it describes.
        labelled: Sets that judge by their labels.
        unreadable: How many pictures could not be read.
    """

    calibration_pixels: Pixels
    gate_pixels: Pixels
    calibration_texts: list[TokenisedText]
    gate_texts: list[TokenisedText]
    caption_of: NDArray[np.int64]
    labelled: tuple[Labelled, ...]
    unreadable: int


def prepare_samples(encoder: Encoder, data: CalibrationData, folder: Path, watch: Watch = unwatched) -> Samples:
    """Decodes, tokenises and splits.

    The split depends on the contents alone: pictures that look alike (nearly the same 8 x 8 pattern of light and dark,
    as re-encoded copies have) and texts of the same words go to one side together, and a labelled picture that looks
    like one that is calibrated on is left out.

    Args:
        encoder: The bundle's, for its decode contract, preprocessing and tokenizer.
        data: What the user named.
        folder: Where prepared pixels are kept while this runs.
        watch: Told how far reading pictures is.

    Raises:
        ExportError: if there is too little of anything, naming how much is wanted.
    """
    manifest = encoder.manifest
    pictures = _Pictures(encoder, folder, watch)
    calibration_pixels = gate_pixels = Pixels(np.zeros((0, 3, 1, 1), np.float32), np.zeros(0, np.int64))
    captions: list[tuple[str, int]] = []
    labelled: list[Labelled] = []
    texts = list(data.texts)
    if manifest.image is not None:
        photos = _some(data.photos)
        pixels, kept = pictures.read("photos", [photo.path for photo in photos])
        marks = _marks(pixels)
        first, rest = _split(_alike(marks), CALIBRATION_PHOTOS)
        _require(len(first), len(rest), len(pixels), "pictures that can be read", "--photos")
        calibration_pixels, gate_pixels = (Pixels(pixels, np.array(of)) for of in (first, rest[:_GATE_ITEMS]))
        for place, row in enumerate(rest[:_GATE_ITEMS]):
            captions += [(caption, place) for caption in photos[kept[row]].captions]
        texts += [caption for row in first for caption in photos[kept[row]].captions]
        if len(captions) < MIN_GATE_ITEMS:
            # Recall over a handful of captions says nothing: they are texts like others.
            texts += [caption for caption, _ in captions]
            captions = []
        if manifest.text is not None:
            labelled = [_label(encoder, pictures, labels, marks[first]) for labels in data.labelled]
    calibration_texts: list[TokenisedText] = []
    gate_texts: list[TokenisedText] = []
    caption_of: list[int] = []
    if manifest.text is not None:
        judging = {_words(caption) for caption, _ in captions}
        judging |= {_words(_PROMPT.format(name)) for labels in data.labelled for name in labels.names}
        for caption, place in captions:
            if (tokens := _tokens(encoder, caption)) is not None:
                gate_texts.append(tokens)
                caption_of.append(place)
        free = list(dict.fromkeys(text for text in texts if _words(text) not in judging))
        own = bool(data.texts) or len(free) >= (MIN_CALIBRATION_ITEMS if captions else MIN_ITEMS)
        if not own:
            free += varied_sentences(_BUILT_IN_TEXTS)
        # Captions judge already where there are enough; otherwise the texts are split as the pictures are.
        first, rest = _split([_words(text) for text in free], CALIBRATION_TEXTS, all_of_it=bool(captions))
        chosen = [free[i] for i in first]
        every = [*chosen, *_joined(chosen), *(varied_sentences(_MORE_TEXTS) if own else ())]
        calibration_texts = [
            tokens for text in every if _words(text) not in judging and (tokens := _tokens(encoder, text)) is not None
        ]
        gate_texts += [tokens for i in rest[:_GATE_ITEMS] if (tokens := _tokens(encoder, free[i])) is not None]
        _require(len(chosen), len(gate_texts), len(free) + len(captions), "texts", "--texts")
    return Samples(
        calibration_pixels,
        gate_pixels,
        calibration_texts,
        gate_texts,
        np.array(caption_of, np.int64),
        tuple(labelled),
        pictures.unreadable,
    )


class _Pictures:
    """Decodes pictures into files of prepared pixels, so that they need not fit the memory."""

    def __init__(self, encoder: Encoder, folder: Path, watch: Watch) -> None:
        self.unreadable = 0
        self._encoder = encoder
        self._folder = folder
        self._watch = watch

    def read(self, name: str, paths: Sequence[Path]) -> tuple[NDArray[np.float32], list[int]]:
        """The pixels of those that can be read, and which those are."""
        image = self._encoder.manifest.image
        assert image is not None  # noqa: S101 - the caller asked
        shape = (max(1, len(paths)), 3, image.preprocess.size, image.preprocess.size)
        file = self._folder / f"{name}.npy"
        pixels = open_memmap(file, mode="w+", dtype=np.float32, shape=shape)
        if hasattr(os, "posix_fallocate"):
            # On a full disk, writing to a page without a place ends the process with a bus error.
            with file.open("r+b") as stream:
                os.posix_fallocate(stream.fileno(), 0, file.stat().st_size)
        kept: list[int] = []
        with ThreadPoolExecutor(allowed_cpus()) as pool, self._watch(f"reading {name}", len(paths)) as progress:
            for i, prepared in enumerate(pool.map(self._one, paths)):
                progress.advance(failed=prepared is None)
                if prepared is None:
                    self.unreadable += 1
                else:
                    pixels[len(kept)] = prepared
                    kept.append(i)
        return pixels[: len(kept)], kept

    def _one(self, path: Path) -> NDArray[np.float32] | None:
        try:
            content = path.read_bytes()
        except (OSError, ValueError):  # a row may name what no file system can
            return None
        try:
            return self._encoder.prepare_image(content)
        except InvalidImage:
            return None


def _label(encoder: Encoder, pictures: _Pictures, labels: LabelledSet, marks: NDArray[np.uint64]) -> Labelled:
    chosen = sorted(range(len(labels.photos)), key=lambda i: _name_digest(labels.photos[i]))
    chosen = sorted(chosen[:_GATE_ITEMS])
    pixels, kept = pictures.read(f"labels-{labels.name}", [labels.photos[i] for i in chosen])
    apart = np.bitwise_count(_marks(pixels)[:, None] ^ marks[None, :]).min(axis=1, initial=64) > _SAME_BITS
    free = np.flatnonzero(apart)
    if len(free) < MIN_GATE_ITEMS:
        raise too_few_labelled(labels.name, len(free))
    return Labelled(
        labels.name,
        Pixels(pixels, free),
        np.array([labels.labels[chosen[kept[row]]] for row in free]),
        [encoder.prepare_text(_PROMPT.format(name)) for name in labels.names],
    )


def _split(marks: Sequence[bytes], most: int, *, all_of_it: bool = False) -> tuple[list[int], list[int]]:
    """Indices for calibration (a third, at most `most`) and for the gate; equal marks stay together."""
    groups: dict[bytes, list[int]] = {}
    for i, mark in enumerate(marks):
        groups.setdefault(mark, []).append(i)
    wanted = min(most, len(marks) if all_of_it else len(marks) // 3)
    first: list[int] = []
    rest: list[int] = []
    for mark in sorted(groups, key=lambda mark: hashlib.sha256(mark).digest()):
        (first if len(first) < wanted else rest).extend(groups[mark])
    return first, [] if all_of_it else rest


def _some(photos: Sequence[Photo]) -> list[Photo]:
    if len(photos) <= _MOST_PHOTOS:
        return list(photos)
    return sorted(photos, key=lambda photo: (not photo.captions, _name_digest(photo.path)))[:_MOST_PHOTOS]


def _name_digest(path: Path) -> bytes:
    return hashlib.sha256(path.name.encode("utf-8", "surrogatepass")).digest()


def _marks(pixels: NDArray[np.float32]) -> NDArray[np.uint64]:
    """The pattern of light and dark of each picture: 64 bits that nearly survive re-encoding and resizing."""
    height, width = pixels.shape[2:]
    rows, columns = np.arange(height) * _SIDE // height, np.arange(width) * _SIDE // width
    marks = np.zeros(len(pixels), np.uint64)
    for i, picture in enumerate(pixels):
        grey = np.zeros((_SIDE, _SIDE))
        np.add.at(grey, (rows[:, None], columns[None, :]), picture.mean(axis=0))
        marks[i] = np.packbits(grey > grey.mean()).view(np.uint64)[0]
    return marks


def _alike(marks: NDArray[np.uint64]) -> list[bytes]:
    """One mark for all pictures that are joined by steps of a few bits: the least of theirs."""
    group = np.arange(len(marks))
    for i, mark in enumerate(marks):
        near = np.flatnonzero(np.bitwise_count(marks ^ mark) <= _SAME_BITS)
        group[np.isin(group, group[near])] = group[i]
    return [int(marks[group == of].min()).to_bytes(8, "big") for of in group]


def _joined(texts: Sequence[str]) -> list[str]:
    """Paragraphs of the texts, some of which fill the window."""
    chance = random.Random(0)  # noqa: S311 - not for secrets
    return [" ".join(chance.choices(texts, k=count)) for count in _JOINED if texts]


def _words(text: str) -> bytes:
    return " ".join(text.casefold().split()).encode("utf-8", "replace")


def _tokens(encoder: Encoder, text: str) -> TokenisedText | None:
    try:
        return encoder.prepare_text(text)
    except InvalidText:
        return None


def _require(calibration: int, gate: int, total: int, what: str, option: str) -> None:
    if calibration < MIN_CALIBRATION_ITEMS or gate < MIN_GATE_ITEMS:
        if total < MIN_ITEMS:
            raise too_few(f"{total} {what}", option)
        useless = f"{calibration} can calibrate and {gate} judge, for others are alike or no use"
        raise too_few(f"of {total} {what},", option, useless)


def by_length(tokens: Iterable[TokenisedText], most: int = 32) -> Iterator[list[TokenisedText]]:
    """Batches of texts of the same length, so that none holds padding; of long texts fewer."""
    lengths: dict[int, list[TokenisedText]] = {}
    for text in tokens:
        lengths.setdefault(len(text.ids), []).append(text)
    for length in sorted(lengths):
        step = max(1, min(most, _TOKENS_A_BATCH // length))
        for start in range(0, len(lengths[length]), step):
            yield lengths[length][start : start + step]
