"""Lists the pictures in a folder; a folder of folders gives each picture its class."""

from __future__ import annotations

from pathlib import Path

from twinlens.encoders.embed_sources import FolderSource
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pictures import ListedPicture, PictureListing

# Names that data sets give to their parts; no one calls a class so.
_SPLITS = frozenset({"train", "training", "val", "valid", "validation", "test", "testing", "dev", "extra", "unlabeled"})


def list_folder(folder: Path) -> PictureListing:
    """The pictures under a folder, by the rule of `twinlens embed` and `twinlens ingest`.

    A picture in a folder of the folder has that one's name as its class, unless all pictures lie in the same.

    Raises:
        DataError: if the folder holds parts of a data set instead (train, test), or one in it cannot be read.
    """
    _refuse_splits(folder)
    pictures = []
    for item in FolderSource(folder):
        if item.image is None:
            raise DataError(f"{folder / item.id}: {item.problem}")
        first, slash, _ = item.id.partition("/")
        pictures.append(ListedPicture(item.id, first if slash else None, item.image))
    if len({picture.label for picture in pictures}) == 1:
        pictures = [ListedPicture(picture.name, None, picture.file) for picture in pictures]
    return PictureListing(pictures, labels_from="the names of its folders")


def _refuse_splits(folder: Path) -> None:
    names = sorted(each.name for each in folder.iterdir() if each.is_dir() and not each.name.startswith("."))
    if len(names) > 1 and all(name.lower() in _SPLITS for name in names):
        one = next((name for name in names if name.lower().startswith("train")), names[0])
        raise DataError(f"{folder} holds the parts {', '.join(names)}: name one of them, such as {folder / one}")
