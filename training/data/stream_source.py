"""Shards as a run reads them while it trains, in the place of pairs that were decoded before."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.training.data.errors import DataError
from twinlens.training.data.pair_shards import ShardFields
from twinlens.training.data.shard_names import public_name, shard_names
from twinlens.training.data.shard_stream import ShardStream
from twinlens.training.data.streamed_pairs import StreamedPairs
from twinlens.training.data.unusable import refuse_too_many
from twinlens.training.modules.gather import gather_numbers
from twinlens.training.ranks import Ranks
from twinlens.training.sections.data import ShardsData

# Enough to learn a vocabulary from.
_CAPTIONS = 100_000


class StreamSource:
    """The shards of `[data]` with `streaming`."""

    def __init__(self, data: ShardsData, preprocess: PreprocessSpec, *, seed: int, out: Path, ranks: Ranks) -> None:
        """Finds the shards; none is read yet.

        Args:
            data: The section.
            preprocess: The image tower's; everything but normalisation happens here.
            seed: Of the order.
            out: The run folder; shards from elsewhere are put there while they are read.
            ranks: The processes that share the samples.

        Raises:
            DataError: if there are no shards.
        """
        self._data = data
        self._preprocess = preprocess
        self._ranks = ranks
        self.names = shard_names(data.path)
        self._folder = out / f"shards-{ranks.rank}"
        shutil.rmtree(self._folder, ignore_errors=True)  # of a run that was killed
        fields = ShardFields(data.caption_field, None, data.weight_field)
        self._stream = ShardStream(
            self.names,
            fields,
            seed=seed,
            buffer=data.shuffle_buffer,
            folder=self._folder,
            rank=ranks.rank,
            world_size=ranks.world_size,
        )
        # All ranks learn one vocabulary.
        self._first = ShardStream(self.names, fields, seed=seed, buffer=0, folder=self._folder / "first")
        self._batches: StreamedPairs | None = None

    @property
    def captions(self) -> Sequence[str]:
        """To learn a vocabulary from; reads as many shards as it takes.

        Raises:
            DataError: if there are none.
        """
        captions = [sample.caption for sample in islice(self._first.epoch(0), _CAPTIONS)]
        if not captions:
            refuse_too_many(self._first.problems, len(self._first.problems), max_share=0)
            raise DataError(f"no sample in {public_name(self._data.path)} has a picture and a caption")
        return captions

    @property
    def unreadable(self) -> dict[str, str]:
        """What this process could not read so far, and why."""
        return {} if self._batches is None else self._batches.unreadable

    def __len__(self) -> int:
        """How many pairs there are in the shards that this process has read so far."""
        return self._stream.known

    @property
    def shards(self) -> list[str]:
        """What the shards are called in the record of a run."""
        return [public_name(name) for name in self.names]

    def told(self) -> str:
        """What it is, in a person's words."""
        return f"{len(self.names):,} shard{'' if len(self.names) == 1 else 's'}, read while training"

    def digest(self) -> str:
        """SHA-256 of what the shards are called, and of the sizes of those that are on this machine."""
        content = hashlib.sha256()
        for name in self.names:
            path = Path(name)
            size = path.stat().st_size if path.is_file() else ""
            content.update(f"{public_name(name)}\0{size}\n".encode("utf-8", "surrogatepass"))
        return content.hexdigest()

    def batches(self, tokenizer_json: str, text: TextSpec, batch_size: int, *, start: int) -> StreamedPairs:
        """The batches from number `start` on.

        Raises:
            DataError: if the batch has fewer than 2 pairs, or the ranks cannot share it.
        """
        self._batches = StreamedPairs(
            self._stream,
            self._preprocess,
            tokenizer_json,
            text,
            batch_size,
            max_unreadable_share=self._data.max_unreadable_share,
            start=start,
            rank=self._ranks.rank,
            world_size=self._ranks.world_size,
            gather=gather_numbers,
            weighted=self._data.weight_field is not None,
        )
        return self._batches

    def close(self) -> None:
        """Ends reading, and removes what was brought to the run folder."""
        if self._batches is not None:
            self._batches.close()
        shutil.rmtree(self._folder, ignore_errors=True)
