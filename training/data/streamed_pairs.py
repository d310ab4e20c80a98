"""Batches from shards that are read while training goes on: for more pictures than a disk can hold decoded."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import IterableDataset

from twinlens.encoders.cpus import allowed_cpus
from twinlens.encoders.errors import InvalidText
from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.encoders.tokenise import TextTokenizer, TokenisedText, collate
from twinlens.training.data.background import in_background
from twinlens.training.data.batch_size import check_batch_size
from twinlens.training.data.batches import Batch
from twinlens.training.data.bounded_map import bounded_map
from twinlens.training.data.caption_key import caption_key
from twinlens.training.data.equal_pairs import EqualPairs
from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_cache import read_picture
from twinlens.training.data.shard_stream import ShardStream, StreamedSample
from twinlens.training.data.unusable import refuse_too_many

# Gives the rows of all ranks, in their order, for those of this one; shape (n, 3) to (N, 3).
Gather: TypeAlias = Callable[[Tensor], Tensor]

# Of a batch, how many samples are looked through for one that can be read.
_PATIENCE = 1000


class StreamedPairs(IterableDataset[Batch]):
    """Batches of constant size, endless; batch i is a function of the seed and the shards.

    Each rank reads its own samples, of which it gives the same number to each batch; where its epoch is short, it goes
    on with the next one. A sample that cannot be read is counted and named once, and the next one that can takes its
    place (and comes in its own place again). Which pairs are equals is known within the batch of all ranks: those of
    equal pictures, equal captions, and those that a third one of the batch connects.
    """

    def __init__(
        self,
        stream: ShardStream,
        preprocess: PreprocessSpec,
        tokenizer_json: str,
        text: TextSpec,
        batch_size: int,
        *,
        max_unreadable_share: float,
        start: int = 0,
        rank: int = 0,
        world_size: int = 1,
        gather: Gather = lambda own: own,
        weighted: bool = False,
    ) -> None:
        """Checks that the batches can teach something; nothing is read yet.

        Args:
            stream: The samples of this rank.
            preprocess: The image tower's; everything but normalisation happens here.
            tokenizer_json: The tokenizer.
            text: How it is used.
            batch_size: In pairs, of all ranks together.
            max_unreadable_share: See `refuse_too_many`; of what the shards hold that were opened until then.
            start: The number of the first batch to give, from 0.
            rank: Whose part of each batch is given.
            world_size: How many ranks share a batch.
            gather: How ranks tell each other what their pairs are equal to.
            weighted: Whether batches tell the weights of their pairs.

        Raises:
            DataError: if the batch has fewer than 2 pairs, or the ranks cannot share it.
        """
        check_batch_size(batch_size, world_size)
        self._stream = stream
        self._preprocess = preprocess
        self._tokenizer = TextTokenizer(tokenizer_json.encode(), text)
        self._text = text if text.attention_mask else text.model_copy(update={"pad_to_context": True})
        self._own = batch_size // world_size
        self._batch_size = batch_size
        self._max_unreadable_share = max_unreadable_share
        self._start = start
        self._rank = rank
        self._gather = gather
        self._weighted = weighted
        self._unreadable: dict[str, str] = {}
        self._allowed = 0  # so many unreadable ones were looked at and allowed, of fewer samples
        self._ahead: Generator[_Decoded | _Broken, None, None] | None = None

    @property
    def unreadable(self) -> dict[str, str]:
        """What could not be read so far, and why."""
        return {**self._stream.problems, **self._unreadable}

    def __iter__(self) -> Iterator[Batch]:
        """Reads and decodes in other threads, some two batches ahead."""
        decoded = (result for _, result in bounded_map(self._decode, self._samples(), threads=allowed_cpus()))
        waiting: deque[_Decoded | _Broken] = deque()
        self._ahead = in_background(decoded, ahead=2 * self._own)
        results = self._counted(self._ahead)
        number = self._start
        while True:
            waiting.extend(islice(results, max(0, self._own - len(waiting))))
            samples = [sample for sample in islice(waiting, self._own) if isinstance(sample, _Decoded)]
            self._refuse_too_many()
            looked = self._own
            while len(samples) < self._own:
                if looked == len(waiting):
                    waiting.append(next(results))
                if isinstance(spare := waiting[looked], _Decoded):
                    samples.append(spare)
                looked += 1
                if looked > _PATIENCE + 10 * self._own:
                    self._refuse_too_many(whatever=True)
            for _ in range(self._own):
                waiting.popleft()
            yield self._batch(samples, number)
            number += 1

    def close(self) -> None:
        """Ends reading ahead; the batches that were begun end."""
        if self._ahead is not None:
            self._ahead.close()

    def _counted(self, results: Iterator[_Decoded | _Broken]) -> Iterator[_Decoded | _Broken]:
        for result in results:
            if isinstance(result, _Broken):
                self._unreadable[result.name] = result.reason
            yield result

    def _samples(self) -> Iterator[StreamedSample]:
        """From the first of the batch to start with."""
        number, skip = 0, self._start * self._own
        while skip and skip >= (count := self._enough(number)):
            number, skip = number + 1, skip - count
        while True:
            yield from self._stream.epoch(number, skip=skip)
            self._enough(number)
            number, skip = number + 1, 0

    def _enough(self, epoch: int) -> int:
        """How many samples an epoch of this rank has; those of all ranks together fill a batch."""
        count, total = self._stream.count(epoch), self._stream.total
        if total is not None and total < self._batch_size:
            problems = self._stream.problems
            refuse_too_many(problems, len(problems) + total, max_share=self._max_unreadable_share, key=_KEY)
            raise DataError(f"batch_size {self._batch_size} is larger than the data: an epoch has {total} pairs")
        return count

    def _decode(self, sample: StreamedSample) -> _Decoded | _Broken:
        result = read_picture(sample.picture.read, self._preprocess)
        if isinstance(result, str):
            return _Broken(sample.picture.name, result)
        try:
            tokens = self._tokenizer(sample.caption)
        except InvalidText as error:
            return _Broken(sample.picture.name, f"its caption cannot be used: {error}")
        pixels, _ = result
        keys = (
            _digest(pixels.tobytes()),
            _digest(repr(tokens.ids).encode()),
            _digest(caption_key(sample.caption).encode("utf-8", "surrogatepass")),
        )
        return _Decoded(pixels, tokens, keys, sample.weight)

    def _refuse_too_many(self, *, whatever: bool = False) -> None:
        count = len(self._stream.problems) + len(self._unreadable)
        if count == self._allowed and not whatever:
            return
        unreadable = self.unreadable
        of = len(unreadable) if whatever else self._stream.known + len(self._stream.problems)
        refuse_too_many(unreadable, of, max_share=self._max_unreadable_share, key=_KEY)
        self._allowed = count

    def _batch(self, samples: Sequence[_Decoded], number: int) -> Batch:
        own = torch.tensor([sample.keys for sample in samples])
        everyone = self._gather(own).numpy()
        first = self._rank * self._own
        equal = torch.from_numpy(_equals(everyone, first, self._own))
        ids, _ = collate([sample.tokens for sample in samples], self._text)
        return Batch(
            pixels_nhwc=torch.from_numpy(np.stack([sample.pixels for sample in samples])),
            token_ids_nl=torch.from_numpy(ids),
            equal_texts=equal,
            equal_images=equal,
            pairs=len(samples),
            first=first,
            weights=torch.tensor([sample.weight for sample in samples]) if self._weighted else None,
            number=number,
        )


_KEY = "data.max_unreadable_share"


@dataclass(frozen=True, slots=True)
class _Decoded:
    """A sample as a batch takes it.

    Attributes:
        pixels: uint8, shape (size, size, 3).
        tokens: Of its caption.
        keys: Digests of the pixels, of the tokens, and of what the caption says.
        weight: How much it counts.
    """

    pixels: NDArray[np.uint8]
    tokens: TokenisedText
    keys: tuple[int, int, int]
    weight: float


@dataclass(frozen=True, slots=True)
class _Broken:
    """Stands in the place of a sample that cannot be read."""

    name: str
    reason: str


def _digest(content: bytes) -> int:
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "big", signed=True)


def _equals(keys: NDArray[np.int64], first: int, own: int) -> NDArray[np.bool_]:
    """Which pairs of all are equals of the own ones, shape (own, all): by the rule of `tokenise`.

    Args:
        keys: Of all pairs: digests of pixels, tokens and what the caption says, shape (all, 3).
        first: The place of the first own pair.
        own: How many are.
    """
    said: dict[int, int] = {}
    texts = [said.setdefault(tokens, says) for tokens, says in keys[:, 1:].tolist()]
    image_keys, text_keys = (np.unique(each, return_inverse=True)[1] for each in (keys[:, 0], np.array(texts)))
    everyone = np.arange(len(keys))
    rows = everyone[first : first + own]
    return EqualPairs(image_keys, text_keys)(rows, rows, everyone, everyone)
