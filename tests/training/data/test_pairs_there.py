from __future__ import annotations

from pathlib import Path

import pytest

from twinlens.training.data import pairs_there
from twinlens.training.data.errors import DataError
from twinlens.training.data.pairs_there import check_pairs_there
from twinlens.training.sections.data import CaptionsData, DataConfig, FolderData, ShardsData


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (CaptionsData(source="captions", path=Path("gone.jsonl")), "no captions file at gone.jsonl"),
        (FolderData(source="folder", path=Path("gone")), "no pictures at gone"),
        (ShardsData(source="shards", path="gone-*.tar"), r"no shards at gone-\*.tar"),
    ],
)
def test_what_is_not_there_is_told(data: DataConfig, message: str) -> None:
    with pytest.raises(DataError, match=message):
        check_pairs_there(data)


def test_what_lies_elsewhere_is_not_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(pairs_there, "shard_names")
    check_pairs_there(ShardsData(source="shards", path="s3://bucket/*.tar"))
