"""Reads the pairs of a run, whatever they lie in."""

from __future__ import annotations

from pathlib import Path

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.data.captions import CaptionColumns, read_captions
from twinlens.training.data.listed_pairs import ListedPairs, pair_each, pair_pictures
from twinlens.training.data.pairs import RawPairs, decode_pairs, from_scenes
from twinlens.training.data.scenes import SMALLEST, generate
from twinlens.training.errors import ConfigError
from twinlens.training.sections.data import CaptionsData, DataConfig, ScenesData


def load_pairs(data: DataConfig, preprocess: PreprocessSpec, *, spill: Path | None = None) -> RawPairs:
    """All pairs of a source, their pictures decoded once.

    Args:
        data: The section `[data]`.
        preprocess: The image tower's; everything but normalisation happens here.
        spill: See `decode_pairs`.

    Raises:
        ConfigError: if scenes cannot be drawn so small.
        DataError: if there is nothing, or it cannot be trained on.
    """
    if isinstance(data, ScenesData):
        if preprocess.size < SMALLEST:
            raise ConfigError(f"scenes need an image_size of at least {SMALLEST}, not {preprocess.size}")
        return from_scenes(list(generate(data.count, data.seed, preprocess.size, start=data.start)))
    return decode_pairs(_list(data), preprocess, max_unreadable_share=data.max_unreadable_share, spill=spill)


def _list(data: CaptionsData) -> ListedPairs:
    columns = CaptionColumns(
        data.image_column, data.caption_column, data.id_column, data.wrong_caption_column, data.weight_column
    )
    rows = read_captions(data.path, columns, images=data.images, limit=data.limit)
    return pair_each(rows) if data.captions_per_picture == "all" else pair_pictures(rows)
