"""Pages of lists: sizes and opaque tokens."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from typing import TypeVar

from twinlens.server.core.errors import invalid_argument

T = TypeVar("T")

DEFAULT_PAGE = 100
MAX_PAGE = 1000


def page_size(asked: int) -> int:
    """0 means the default; more than the most is cut to it.

    Raises:
        ServiceError: INVALID_ARGUMENT if negative.
    """
    if asked < 0:
        raise invalid_argument(f"page_size must not be negative; it is {asked}")
    return min(asked, MAX_PAGE) if asked else DEFAULT_PAGE


def encode_token(last: str) -> str:
    """A token for the page that comes after an id."""
    return base64.urlsafe_b64encode(last.encode("utf-8", "surrogatepass")).decode("ascii")


def decode_token(token: str) -> str:
    """The id a page comes after; empty for the first page.

    Raises:
        ServiceError: INVALID_ARGUMENT for a token this server did not make.
    """
    try:
        return base64.b64decode(token.encode("ascii"), altchars=b"-_", validate=True).decode("utf-8", "surrogatepass")
    except (UnicodeError, binascii.Error):
        raise invalid_argument("page_token is not one of this server's") from None


def cut(rows: Sequence[T], size: int, key: Callable[[T], str]) -> tuple[Sequence[T], str]:
    """From up to size + 1 rows: the page and the token of the next one (empty on the last page)."""
    if len(rows) <= size:
        return rows, ""
    page = rows[:size]
    return page, encode_token(key(page[-1]))
