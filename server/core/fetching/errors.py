"""What ends the fetching of a picture."""

from __future__ import annotations

from enum import StrEnum


class Fetched(StrEnum):
    """What became of an address, for counting."""

    OK = "ok"
    REFUSED = "refused"
    UNREACHABLE = "unreachable"
    ANSWER = "answer"
    TOO_LARGE = "too_large"
    TIMEOUT = "timeout"


class NotFetched(Exception):  # noqa: N818 - reads as what it is
    """A picture was not fetched.

    The message is one line and safe to send: it holds nothing that a server on the way said, and no address beyond the
    host that the caller named.

    Attributes:
        outcome: What to count it as.
    """

    def __init__(self, message: str, outcome: Fetched = Fetched.REFUSED) -> None:
        super().__init__(message)
        self.outcome = outcome
