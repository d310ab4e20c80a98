"""Reads shards again each epoch, in an order that is a function of the seed, a part of the samples for each rank."""

from __future__ import annotations

import shutil
import weakref
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np

from twinlens.training.data.bounded_map import bounded_map
from twinlens.training.data.errors import DataError
from twinlens.training.data.fetched_shards import fetch_shard
from twinlens.training.data.listed_pairs import pair_pictures
from twinlens.training.data.listed_pictures import Picture
from twinlens.training.data.pair_shards import ShardFields, list_pair_shard
from twinlens.training.data.shard_names import is_address, shard_titles

_NUMBERS = count()


class ShardFile:
    """A shard on this machine's disk; one that was brought there goes when nobody holds it any more."""

    def __init__(self, path: Path, *, temporary: bool = False) -> None:
        """Takes the file."""
        self.path = path
        if temporary:
            weakref.finalize(self, path.unlink, missing_ok=True)


@dataclass(frozen=True, slots=True)
class StreamedSample:
    """A picture that is yet to be read, and the caption that this epoch shows it with.

    Attributes:
        picture: Where its bytes are.
        caption: As written.
        weight: How much it counts in the loss.
        file: Keeps the shard on the disk.
    """

    picture: Picture
    caption: str
    weight: float
    file: ShardFile


@dataclass(frozen=True, slots=True)
class ShardPart:
    """Every `of`-th sample of a shard, from sample `index` on."""

    shard: str
    index: int
    of: int


class ShardStream:
    """The samples of one rank, epoch after epoch; each sample belongs to exactly one rank in an epoch.

    Shards come in a new order each epoch, and the next sample is drawn from among those that wait in a buffer, which is
    empty between epochs: so an epoch is a function of seed, rank and number. Where there are fewer shards than ranks,
    several ranks take turns with the samples of one.

    Attributes:
        known: How many samples those parts of shards have that were read so far.
        problems: What of them cannot be used, and why.
    """

    def __init__(
        self,
        names: Sequence[str],
        fields: ShardFields,
        *,
        seed: int,
        buffer: int,
        folder: Path,
        rank: int = 0,
        world_size: int = 1,
    ) -> None:
        """Takes what to read; nothing is read yet.

        Args:
            names: Of the shards.
            fields: Where the captions are.
            seed: Of the order.
            buffer: How many samples wait.
            folder: Shards from elsewhere are put there while they are read; it is removed in the end.
            rank: Whose samples are given.
            world_size: How many ranks share them.
        """
        self._names = names
        self._titles = dict(zip(names, shard_titles(names), strict=True))
        self._fields = fields
        self._seed = seed
        self._buffer = buffer
        self._folder = folder
        self._rank = rank
        self._world_size = world_size
        self._of = -(-world_size // len(names))
        self._counts: dict[ShardPart, int] = {}
        self.known = 0
        self.problems: dict[str, str] = {}
        weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)

    def epoch(self, number: int, *, skip: int = 0) -> Iterator[StreamedSample]:
        """The samples of an epoch in its order, without the first `skip`.

        Raises:
            DataError: if a shard cannot be fetched, or has other pairs than when it was first read.
        """
        rng = np.random.default_rng((self._seed, number, self._rank, 1))
        waiting: list[StreamedSample] = []
        given = 0
        for sample in self._samples(number):
            waiting.append(sample)
            if len(waiting) <= self._buffer:
                continue
            place = int(rng.integers(len(waiting)))
            waiting[place], waiting[-1] = waiting[-1], waiting[place]
            drawn = waiting.pop()
            given += 1
            if given > skip:
                yield drawn
        for place in rng.permutation(len(waiting)):
            given += 1
            if given > skip:
                yield waiting[place]

    def count(self, number: int) -> int:
        """How many samples an epoch has; reads the shards of it that were not read yet."""
        parts = self.parts(number)
        if any(part not in self._counts for part in parts):
            for _ in self._samples(number):
                pass
        return sum(self._counts[part] for part in parts)

    @property
    def total(self) -> int | None:
        """How many samples all shards have; None before each of them was read."""
        return self.known if len(self._counts) == len(self._names) * self._of else None

    def parts(self, number: int) -> list[ShardPart]:
        """What this rank reads in an epoch, in order."""
        parts = [ShardPart(name, index, self._of) for name in self._names for index in range(self._of)]
        order = np.random.default_rng((self._seed, number, 0)).permutation(len(parts))
        return [parts[place] for place in order[self._rank :: self._world_size]]

    def _samples(self, number: int) -> Iterator[StreamedSample]:
        """In the order of the shards; the next of them are brought here meanwhile."""
        for part, file in bounded_map(self._at_hand, self.parts(number), threads=1):
            found = list_pair_shard(file.path, self._fields, name=self._titles[part.shard])
            # A new one, as other threads may be reading the old.
            self.problems = {**self.problems, **found.problems}
            pairs = pair_pictures(found.rows)
            rows = range(part.index, len(pairs.ids), part.of)
            self.known += len(rows) - self._counts.get(part, 0)
            if self._counts.setdefault(part, len(rows)) != len(rows):
                reason = next(iter(found.problems.values()), "it has other pairs than before")
                raise DataError(f"{self._titles[part.shard]} changed while it is trained on: {reason}")
            for row in rows:
                # Another caption each epoch, and each as often as the others.
                offset = zlib.crc32(pairs.ids[row].encode("utf-8", "surrogatepass")) + number
                caption = pairs.captions[pairs.first_captions[row] + offset % pairs.caption_counts[row]]
                weight = 1.0 if pairs.weights is None else float(pairs.weights[row])
                yield StreamedSample(pairs.pictures[row], caption, weight, file)

    def _at_hand(self, part: ShardPart) -> ShardFile:
        if not is_address(part.shard):
            return ShardFile(Path(part.shard))
        self._folder.mkdir(parents=True, exist_ok=True)
        # The same shard may still be read when it is wanted again.
        path = self._folder / f"{next(_NUMBERS)}.tar"
        fetch_shard(part.shard, path)
        return ShardFile(path, temporary=True)
