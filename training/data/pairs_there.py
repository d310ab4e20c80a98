"""Whether there is anything at all where pairs are said to be; told before torch is loaded, which takes seconds."""

from __future__ import annotations

from twinlens.training.data.errors import DataError
from twinlens.training.data.pictures_there import check_pictures_there
from twinlens.training.data.shard_names import is_address, shard_names
from twinlens.training.sections.data import CaptionsData, DataConfig, FolderData, ShardsData


def check_pairs_there(data: DataConfig) -> None:
    """Refuses a section whose path names nothing; what lies elsewhere is not asked for.

    Raises:
        DataError: saying what is missing.
    """
    match data:
        case CaptionsData() if not data.path.is_file():
            raise DataError(f"no captions file at {data.path}")
        case FolderData():
            check_pictures_there(data.path)
        case ShardsData() if not is_address(data.path):
            shard_names(data.path)
        case _:
            pass
