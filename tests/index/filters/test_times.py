from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.index.filters.times import microseconds


@given(
    st.integers(-(62 * 10**15), 253 * 10**15),  # from the year 5 to 9987
    st.integers(-23 * 60, 23 * 60),
)
def test_python_s_own_times_are_read_in_any_zone(moment: int, offset: int) -> None:
    there = (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=moment)).astimezone(
        timezone(timedelta(minutes=offset))
    )
    assert microseconds(there.isoformat()) == moment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1970-01-01T00:00:00Z", 0),
        ("1970-01-01t00:00:00z", 0),
        ("1970-01-01 00:00:00+00:00", 0),
        ("1970-01-01", 0),
        ("1970-01-01T01:00:00+01:00", 0),
        ("1969-12-31T23:30:00-00:30", 0),
        ("1970-01-01T00:00:00.1234569Z", 123_456),
        ("2024-02-29T12:00:00Z", 1_709_208_000_000_000),
    ],
)
def test_rfc_3339_is_read(text: str, expected: int) -> None:
    assert microseconds(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "now",
        "12:00",
        "2023-02-29T12:00:00Z",
        "2024-13-01",
        "2024-01-01T24:00:00Z",
        "2024-01-01T00:00:00",
        "2024-01-01T00:00Z",
        "2024-01-01T00:00:00+1:00",
        "2024-01-01T00:00:00+24:00",
        " 2024-01-01",
        "2024-01-01\n",
        "0000-01-01",
        "٢٠٢٤-٠١-٠١",
        None,
        20240101,
    ],
)
def test_nothing_else_is_a_time(text: object) -> None:
    assert microseconds(text) is None


def test_dates_alone_can_be_left_out() -> None:
    assert microseconds("2024-01-01", date_alone=False) is None
