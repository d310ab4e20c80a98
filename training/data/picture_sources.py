"""Reads the pictures of a run, whatever they lie in."""

from __future__ import annotations

import glob
from pathlib import Path

from twinlens.client.example_files import LIST_IN_FOLDER
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.data.class_names import number_labels
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pictures import ListedPicture, PictureListing
from twinlens.training.data.picture_cache import decode_each
from twinlens.training.data.picture_folders import list_folder
from twinlens.training.data.picture_set import PictureSet
from twinlens.training.data.picture_shards import list_shards
from twinlens.training.data.picture_tables import LIST_KINDS, PictureColumns, list_table
from twinlens.training.data.unusable import refuse_too_many


def load_pictures(
    path: Path,
    *,
    side: int,
    smallest: int,
    limit: int | None = None,
    max_unreadable_share: float = 0.01,
    share_key: str | None = None,
    columns: PictureColumns | None = None,
    images: Path | None = None,
    labels: bool = True,
    spill: Path | None = None,
) -> PictureSet:
    """Decodes every picture once.

    Args:
        path: See `list_pictures`.
        side: Pictures are stored as squares of this side: resized to it by the shorter side, then cut at the centre.
        smallest: A picture with a shorter side below this is left out as unusable: a crop would only enlarge it.
        limit: Take at most so many, spread evenly over all, so that sorted classes stay mixed.
        max_unreadable_share: See `refuse_too_many`.
        share_key: The setting of it that a person may change.
        columns: Of a list.
        images: The folder that relative paths of a list start from.
        labels: False: take no notice of classes.
        spill: Folder of a nameless file that holds the decoded pictures where they are many; None: in memory.

    Raises:
        DataError: if there is nothing, a label is no class, or too many pictures cannot be used.
    """
    listing = list_pictures(path, columns=columns, images=images)
    listed = listing.pictures
    if not listed:
        raise DataError(f"there are no pictures in {path}")
    if limit is not None and limit < len(listed):
        listed = [listed[row * len(listed) // limit] for row in range(limit)]
    # Before the pictures: a wrong label should not wait for all of them.
    found = [each.label if labels else None for each in listed]
    classes, numbers = number_labels(found, listing.class_names)
    spec = PreprocessSpec(size=side, resize_size=side, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    decoded = decode_each(listed, ListedPicture.read, spec, smallest=smallest, spill=spill)
    kept = list(decoded.rows)
    unreadable = {listed[row].name: reason for row, reason in decoded.unreadable.items()}
    in_all = len(listing.pictures)
    refuse_too_many(unreadable, len(listed), max_share=max_unreadable_share, key=share_key, in_all=in_all)
    shown = tuple(listed[row].name for row in kept)
    return PictureSet(
        decoded.pixels_nhwc, numbers[kept], classes, shown, decoded.digests, unreadable, listing.labels_from
    )


def list_pictures(path: Path, *, columns: PictureColumns | None = None, images: Path | None = None) -> PictureListing:
    """Finds the pictures without reading them.

    Args:
        path: A folder of pictures; a folder with a folder per class, or with a `labels.jsonl`; a list (`.jsonl`,
            `.csv`, `.tsv`, `.parquet`); a folder of webdataset shards (`.tar`); one shard, or several by a pattern
            such as `train-*.tar`.
        columns: Of a list.
        images: The folder that relative paths of a list start from.

    Raises:
        DataError: if there is no such thing, or it cannot be read.
    """
    kind = path.suffix.lower()
    try:
        if path.is_dir():
            return _list_dir(path, columns, images)
        if kind in LIST_KINDS:
            return list_table(path, columns, images=images)
        if path.is_file() and kind == ".tar":
            return list_shards([path])
        found = sorted(Path(each) for each in glob.glob(str(path)))  # noqa: PTH207 - the pattern is a whole path
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from None
    if found and not path.is_file() and all(each.suffix.lower() == ".tar" for each in found):
        return list_shards(found)
    kinds = ", ".join(sorted(LIST_KINDS))
    raise DataError(f"no pictures at {path}: name a folder, a list ({kinds}) or .tar shards")


def _list_dir(folder: Path, columns: PictureColumns | None, images: Path | None) -> PictureListing:
    if (folder / LIST_IN_FOLDER).is_file():
        return list_table(folder / LIST_IN_FOLDER, columns, images=images)
    shards = sorted(folder.glob("*.tar"))
    if shards:
        return list_shards(shards)
    return list_folder(folder)
