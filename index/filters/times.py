"""Moments in text, as RFC 3339 writes them."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_DATE = r"(\d{4})-(\d\d)-(\d\d)"
_FORM = re.compile(_DATE + r"(?:[Tt ](\d\d):(\d\d):(\d\d)(?:\.(\d+))?(?:([Zz])|([+-])(\d\d):(\d\d)))?", re.ASCII)


def microseconds(text: object, *, date_alone: bool = True) -> int | None:
    """The moment in microseconds since the epoch; finer parts are cut off. None for what is no moment.

    Args:
        text: Such as "2024-05-01T09:30:00+02:00".
        date_alone: Also take "2024-05-01", as its midnight in UTC.
    """
    found = _FORM.fullmatch(text) if isinstance(text, str) else None
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction, _, sign, off_hours, off_minutes = found.groups()
    if hour is None and not date_alone:
        return None
    try:
        offset = timedelta(hours=int(off_hours or 0), minutes=int(off_minutes or 0))
        moment = datetime(
            int(year),
            int(month),
            int(day),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "")[:6].ljust(6, "0")),
            tzinfo=timezone(-offset if sign == "-" else offset),
        )
    except ValueError:  # the 31st of February
        return None
    return (moment - _EPOCH) // _MICROSECOND
