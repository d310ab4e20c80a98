from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.file_host import file_host
from twinlens.training.data import fetched_shards
from twinlens.training.data.errors import DataError
from twinlens.training.data.fetched_shards import fetch_shard


def test_a_shard_comes_whole(tmp_path: Path) -> None:
    content = bytes(range(256)) * 9000
    (tmp_path / "x.tar").write_bytes(content)
    with file_host(tmp_path) as host:
        fetch_shard(f"{host.address}/x.tar", tmp_path / "here")
    assert (tmp_path / "here").read_bytes() == content
    fetch_shard(f"file://{tmp_path}/x.tar", tmp_path / "there")
    assert (tmp_path / "there").read_bytes() == content


def test_what_broke_off_is_asked_for_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "x.tar").write_bytes(b"12345678")
    opened, tries = fetched_shards._opened, [0]

    @contextmanager
    def breaks_off(address: str) -> Iterator[tuple[Any, int | None]]:
        with opened(address) as (source, size):
            tries[0] += 1
            if tries[0] == 1:
                source.read(5)
            yield source, size

    monkeypatch.setattr(fetched_shards, "_opened", breaks_off)
    with file_host(tmp_path) as host:
        fetch_shard(f"{host.address}/x.tar", tmp_path / "here", wait_s=0)
        assert (tmp_path / "here").read_bytes() == b"12345678"
        assert tries == [2]
        monkeypatch.setattr(fetched_shards, "_TRIES", 1)
        tries[0] = 0
        with pytest.raises(DataError, match=r"x.tar cannot be fetched: 3 of 8 bytes came"):
            fetch_shard(f"{host.address}/x.tar", tmp_path / "half", wait_s=0)
    assert not (tmp_path / "half").exists()


def test_a_host_that_asks_to_come_again_later_is_asked_again(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"12345678")
    with file_host(tmp_path) as host:
        host.answers["/x.tar"], host.busy = 1, 429
        fetch_shard(f"{host.address}/x.tar", tmp_path / "here", wait_s=0)
    assert (tmp_path / "here").read_bytes() == b"12345678"


def test_user_and_password_of_an_address_are_sent_as_a_header(tmp_path: Path) -> None:
    (tmp_path / "x.tar").write_bytes(b"12345678")
    with file_host(tmp_path) as host:
        fetch_shard(host.address.replace("//", "//me:a%40b@") + "/x.tar", tmp_path / "here")
        assert host.authorised == ["Basic bWU6YUBi"]  # me:a@b


@pytest.mark.parametrize("where", ["{host}/gone.tar?s=KEY", "http://me:KEY@127.0.0.1:9/x.tar", "http://x:y:KEY@[/x"])
def test_keys_in_addresses_are_in_no_message(tmp_path: Path, where: str) -> None:
    with (
        file_host(tmp_path) as host,
        pytest.raises(DataError, match="cannot be fetched") as raised,
    ):
        fetch_shard(where.format(host=host.address), tmp_path / "here", wait_s=0)
    assert "KEY" not in str(raised.value)


def test_a_disk_without_room_is_no_reason_to_ask_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, *_: Any, **__: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    (tmp_path / "x.tar").write_bytes(b"12345678")
    with file_host(tmp_path) as host:
        with monkeypatch.context() as patch:
            patch.setattr(Path, "open", full)
            with pytest.raises(DataError, match=r"has no room for the shards: No space left on device"):
                fetch_shard(f"{host.address}/x.tar", tmp_path / "here")
        assert host.asked["/x.tar"] == 1
