"""Reads the pairs of a run, whatever they lie in."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TypeAlias

from twinlens.client.access import AccessOptions, access
from twinlens.client.client import Client
from twinlens.client.connect import SERVER_VARIABLE
from twinlens.client.errors import TwinlensError
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.data.bounded_map import bounded_map
from twinlens.training.data.captions import CaptionColumns, read_captions
from twinlens.training.data.class_pairs import list_class_pairs
from twinlens.training.data.collection_pairs import list_collection
from twinlens.training.data.errors import DataError
from twinlens.training.data.fetched_shards import fetch_shard
from twinlens.training.data.listed_pairs import CaptionedPicture, ListedPairs, pair_each, pair_pictures
from twinlens.training.data.pair_shards import ShardFields, list_pair_shard
from twinlens.training.data.pairs import RawPairs, decode_pairs, from_scenes
from twinlens.training.data.picture_tables import PictureColumns
from twinlens.training.data.scenes import SMALLEST, generate
from twinlens.training.data.shard_names import is_address, public_name, shard_names, shard_titles
from twinlens.training.data.unusable import refuse_too_many
from twinlens.training.errors import ConfigError
from twinlens.training.evaluation.prompt_templates import TEMPLATE_SETS, checked, template_set
from twinlens.training.sections.data import CaptionsData, CollectionData, DataConfig, FolderData, ScenesData, ShardsData

_CONNECTIONS = 4

_Read: TypeAlias = CaptionsData | FolderData | ShardsData | CollectionData


def load_pairs(data: DataConfig, preprocess: PreprocessSpec, *, spill: Path | None = None) -> RawPairs:
    """All pairs of a source, their pictures decoded once.

    Args:
        data: The section `[data]`.
        preprocess: The image tower's; everything but normalisation happens here.
        spill: See `decode_pairs`; shards from elsewhere are put there, too, until they are decoded.

    Raises:
        ConfigError: if the section cannot be followed.
        DataError: if there is nothing, or it cannot be trained on.
    """
    if isinstance(data, ScenesData):
        if preprocess.size < SMALLEST:
            raise ConfigError(f"scenes need an image_size of at least {SMALLEST}, not {preprocess.size}")
        return from_scenes(list(generate(data.count, data.seed, preprocess.size, start=data.start)))
    with _listed(data, spill) as listed:
        some = _some(listed, data)
        return decode_pairs(some, preprocess, max_unreadable_share=data.max_unreadable_share, spill=spill)


def _some(listed: ListedPairs, data: _Read) -> ListedPairs:
    count = len(listed.ids)
    if data.limit is None or data.limit >= count:
        return listed
    # Those of a class lie side by side, so the first ones would be of a few classes only.
    spread = isinstance(data, FolderData)
    return listed.of([row * count // data.limit if spread else row for row in range(data.limit)])


@contextmanager
def _listed(data: _Read, spill: Path | None) -> Iterator[ListedPairs]:
    """The pairs, whose pictures can be read while the block lasts."""
    match data:
        case CaptionsData():
            yield _pairs(_captions(data), data.captions_per_picture)
        case FolderData():
            columns = PictureColumns(data.image_column, data.label_column)
            templates = _templates(data.templates)
            yield list_class_pairs(data.path, templates, columns=columns, images=data.images)
        case ShardsData():
            with TemporaryDirectory(dir=spill, prefix="shards-") as folder:
                yield _shards(data, Path(folder))
        case CollectionData():
            with _client(data) as client:
                yield list_collection(client, data.name, label_key=data.label_key)


def _pairs(rows: Sequence[CaptionedPicture], captions_per_picture: str) -> ListedPairs:
    return pair_each(rows) if captions_per_picture == "all" else pair_pictures(rows)


def _captions(data: CaptionsData) -> list[CaptionedPicture]:
    columns = CaptionColumns(
        data.image_column,
        data.caption_column,
        data.id_column,
        data.wrong_caption_column,
        data.weight_column,
        data.label_column,
    )
    # Where a picture has all its captions, how many rows make a pair is not known before they are read.
    limit = data.limit if data.captions_per_picture == "all" else None
    return read_captions(data.path, columns, images=data.images, limit=limit)


def _templates(given: str | tuple[str, ...]) -> tuple[str, ...]:
    if not isinstance(given, str):
        return checked(given, "data.templates")
    if given not in TEMPLATE_SETS:
        raise ConfigError(
            f"data.templates: no set is called {given!r}: {', '.join(TEMPLATE_SETS)}, or a list of texts with {{}}"
        )
    return template_set(given).templates


def _shards(data: ShardsData, folder: Path) -> ListedPairs:
    """All pairs of all shards; those from elsewhere are brought to the folder first."""
    fields = ShardFields(data.caption_field, data.wrong_caption_field, data.weight_field)
    rows: list[CaptionedPicture] = []
    problems: dict[str, str] = {}
    names = shard_names(data.path)
    titles = dict(zip(names, shard_titles(names), strict=True))
    for shard, path in bounded_map(lambda name: _at_hand(name, folder), names, threads=_CONNECTIONS):
        found = list_pair_shard(path, fields, name=titles[shard])
        rows += found.rows
        problems |= found.problems
    if not rows:
        refuse_too_many(problems, len(problems), max_share=0)
        raise DataError(f"no sample in {public_name(data.path)} has a picture and a caption")
    return replace(_pairs(rows, data.captions_per_picture), problems=tuple(problems.items()))


def _at_hand(name: str, folder: Path) -> Path:
    if not is_address(name):
        return Path(name)
    path = folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.tar"
    fetch_shard(name, path)
    return path


@contextmanager
def _client(data: CollectionData) -> Iterator[Client]:
    target = data.server or os.environ.get(SERVER_VARIABLE)
    if not target:
        raise ConfigError(f"data.server names no server: give HOST:PORT, or set {SERVER_VARIABLE}")
    try:
        shown = access(AccessOptions())
        client = Client(target, token=shown.token, tls=shown.tls)
    except TwinlensError as error:
        raise ConfigError(f"data.server: {error}") from None
    with client:
        yield client
