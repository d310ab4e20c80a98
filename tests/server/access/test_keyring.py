"""Which tokens are good now, and how often they may be used."""

from __future__ import annotations

import hmac
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.server.access.secured import token_in
from twinlens.server.access.keyring import LOOK_EVERY_S, Keyring
from twinlens.server.access.token import new_token
from twinlens.server.access.token_bucket import TokenBucket
from twinlens.server.access.token_file import TokenFileError, remove_token


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.toml"


def test_a_good_token_is_found_and_no_other(path: Path) -> None:
    token = token_in(path, "search", "read")
    token_in(path, "ingest", "write")
    keyring = Keyring(path)
    holder = keyring.find(token)
    assert holder is not None
    assert holder.caller.name == "search"
    for wrong in (
        "",
        token[:-1],
        token + "0",
        new_token("search"),
        new_token("nobody"),
        token.replace("search", "ingest"),
    ):
        assert keyring.find(wrong) is None


def test_tokens_are_compared_in_constant_time_also_where_nobody_has_the_name(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    token = token_in(path, "search", "read")
    keyring = Keyring(path)
    compared: list[tuple[int, int]] = []
    real = hmac.compare_digest

    def compare(ours: bytes, theirs: bytes) -> bool:
        compared.append((len(ours), len(theirs)))
        return real(ours, theirs)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for given_token in (token, new_token("search"), new_token("nobody"), "nonsense"):
        keyring.find(given_token)
    assert compared == [(32, 32)] * 4


def test_a_changed_file_counts_within_a_second_and_at_once_when_told(path: Path) -> None:
    clock = Clock()
    first = token_in(path, "first", "read")
    keyring = Keyring(path, clock)
    second = token_in(path, "second", "read")
    remove_token(path, "first")
    assert keyring.find(first) is not None
    clock.now_s += LOOK_EVERY_S
    assert keyring.find(first) is None
    assert keyring.find(second) is not None
    third = token_in(path, "third", "read")
    keyring.look()
    assert keyring.find(third) is not None


def test_a_broken_file_leaves_the_tokens_before_it_good_and_says_so_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock()
    token = token_in(path, "search", "read")
    keyring = Keyring(path, clock)
    good = path.read_text()
    for broken in ("[[tokens", ""):
        if broken:
            path.write_text(broken)
        else:
            path.unlink()
        caplog.clear()
        for _ in range(3):
            clock.now_s += LOOK_EVERY_S
            assert keyring.find(token) is not None
        (said,) = [record for record in caplog.records if record.levelno >= logging.ERROR]
        assert "stay good" in said.getMessage()
        assert token not in caplog.text
    path.write_text(good)
    clock.now_s += LOOK_EVERY_S
    assert keyring.find(token) is not None


def test_a_file_that_is_broken_to_begin_with_is_an_error(path: Path) -> None:
    with pytest.raises(TokenFileError):
        Keyring(path)


def test_an_empty_file_and_one_that_others_may_write_are_warned_of(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.write_text("")
    path.chmod(0o666)
    assert len(Keyring(path)) == 0
    assert "nobody may call" in caplog.text
    assert "chmod go-w" in caplog.text


def test_a_token_ends_when_it_says(path: Path) -> None:
    now = datetime.now(UTC)
    over = token_in(path, "over", "read", expires=now - timedelta(seconds=2))
    lasting = token_in(path, "lasting", "read", expires=now + timedelta(days=1))
    keyring = Keyring(path)
    assert keyring.find(over) is None
    assert keyring.find(lasting) is not None


def test_a_file_that_is_written_again_fills_no_bucket(path: Path) -> None:
    clock = Clock()
    token = token_in(path, "search", "read", rate=2)

    def bucket() -> TokenBucket:
        holder = keyring.find(token)
        assert holder is not None
        assert holder.bucket is not None
        return holder.bucket

    keyring = Keyring(path, clock)
    assert [bucket().take() == 0 for _ in range(3)] == [True, True, False]
    token_in(path, "other", "read")
    keyring.look()
    assert bucket().take() > 0


def test_a_bucket_allows_a_second_of_calls_at_once_and_then_its_rate() -> None:
    clock = Clock()
    bucket = TokenBucket(4, clock)
    assert [bucket.take() for _ in range(4)] == [0, 0, 0, 0]
    assert bucket.take() == pytest.approx(0.25)
    clock.now_s += 0.25
    assert bucket.take() == 0
    assert bucket.take() > 0
    clock.now_s += 3600
    assert [bucket.take() == 0 for _ in range(5)] == [True] * 4 + [False]


@given(st.floats(0.01, 1000), st.lists(st.floats(0, 10), max_size=60))
def test_no_bucket_lets_more_through_than_its_rate_and_one_second_more(rate: float, pauses_s: list[float]) -> None:
    clock = Clock()
    bucket = TokenBucket(rate, clock)
    taken = 0
    for pause_s in pauses_s:
        clock.now_s += pause_s
        wait_s = bucket.take()
        taken += wait_s == 0
        if wait_s:
            clock.now_s += wait_s * (1 + 1e-6) + 1e-6
            assert bucket.take() == 0  # as it was told
            taken += 1
    assert taken <= max(1.0, rate) + rate * (clock.now_s - 1000.0) + 1e-3


def test_what_is_owed_is_waited_for() -> None:
    clock = Clock()
    bucket = TokenBucket(2, clock)
    assert [bucket.owe() for _ in range(4)] == [0, 0, 0.5, 1.0]
    clock.now_s += 1.0
    assert bucket.owe() == pytest.approx(0.5)
