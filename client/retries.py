"""Which calls are made again after a failure, when, and how often."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc
from google.protobuf.message import DecodeError
from google.rpc import error_details_pb2, status_pb2

if TYPE_CHECKING:
    from twinlens.client.calls import Call, Service

# Pairs of a key and a value, text or bytes, as gRPC gives them; None where there is none.
Trailing: TypeAlias = "Iterable[Any] | None"

# In all, so that a server that is not there is reported within about a second.
ATTEMPTS = 4

_FIRST_S = 0.1
_FACTOR = 2.5
_LONGEST_S = 2.0
# A server that asks for more patience is reported instead: whoever called wants to know.
_MOST_ASKED_S = 30.0

# How long a stream that has got on waits for its server to come back, in seconds: as long as a restart takes.
AWAY_S = 60.0

# Calls that change nothing: made twice they do no harm. What stores, deletes or starts something is not among them.
SAFE: frozenset[tuple[Service, str]] = frozenset(
    {
        ("embedding", "Embed"),
        ("embedding", "EmbedStream"),
        ("search", "Search"),
        ("classification", "Classify"),
        ("classification", "ClassifyStream"),
        ("classification", "GetLabelSet"),
        ("classification", "ListLabelSets"),
        ("collection", "GetCollection"),
        ("collection", "ListCollections"),
        ("collection", "GetItem"),
        ("collection", "ListItems"),
        ("collection", "CountItems"),
        ("collection_operations", "CheckCollection"),
        ("collection_operations", "ListBackups"),
        ("collection_operations", "FindDuplicates"),
        ("collection_operations", "ExportItems"),
        ("model", "ListModels"),
        ("model", "GetModel"),
    }
)

_PUSHBACK = "grpc-retry-pushback-ms"
_DETAILS = "grpc-status-details-bin"


class Attempts:
    """The attempts at one call: how much time they have, and whether there is another one.

    Args:
        call: What is asked.
        timeout_s: What all attempts and the waits between may take together, in seconds; None: as long as they take.
        most: How many attempts, at least 1.
    """

    def __init__(self, call: Call, timeout_s: float | None, most: int) -> None:
        self._call = call
        self._most = most
        self._made = 0
        self._end_s = None if timeout_s is None else time.monotonic() + timeout_s
        self._answered = False
        self.has_got_on = False

    def begin(self) -> float | None:
        """Counts an attempt and says how many seconds it has; None: as long as it takes."""
        self._made += 1
        return self._left_s()

    def answered(self) -> None:
        """Something of the answer arrived: from now on it cannot be asked for again."""
        self._answered = True

    def got_on(self) -> None:
        """Something arrived that need not be asked for again: attempts are counted anew from this one."""
        self._made = 1
        self.has_got_on = True

    def pause_s(self, error: grpc.RpcError) -> float | None:
        """How long to wait before the call is made again, in seconds; None where it is not."""
        if self._answered or self._made >= self._most:
            return None
        safe = (self._call.service, self._call.method) in SAFE
        pause_s = wait_s(error.code(), error.details(), error.trailing_metadata(), safe=safe, made=self._made)
        left_s = self._left_s()
        return None if pause_s is None or (left_s is not None and pause_s >= left_s) else pause_s

    def _left_s(self) -> float | None:
        return None if self._end_s is None else max(0.0, self._end_s - time.monotonic())


def wait_s(
    code: grpc.StatusCode,
    details: str | None,
    trailing: Trailing,
    *,
    safe: bool,
    made: int,
    drawn: float | None = None,
) -> float | None:
    """How long to wait after a failure before the next attempt, in seconds; None where there is none.

    A safe call is made again where the server is away or full; any other only where the server was full and said when
    to come back: it says so before it does anything.

    Args:
        code: The status of the attempt.
        details: The text that came with it.
        trailing: The metadata that came with it.
        safe: Whether the call changes nothing.
        made: How many attempts there were.
        drawn: A number from 0 to 1 that spreads callers who failed together; None: a random one.
    """
    asked_s = asked_wait_s(trailing)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        again = asked_s is not None or (safe and not is_of_size(details))
    else:
        away = code is grpc.StatusCode.UNAVAILABLE or is_not_taken(code, details)
        again = safe and (away or is_of_writing(code, details))
    if not again or (asked_s is not None and asked_s > _MOST_ASKED_S):
        return None
    spread = 0.5 + (random.random() if drawn is None else drawn)  # noqa: S311 - nothing is guarded by it
    # On top of what a server asks for: it says the same to all whom it refuses.
    return (asked_s or 0.0) + spread * min(_LONGEST_S, _FIRST_S * _FACTOR ** (made - 1))


def asked_wait_s(trailing: Trailing) -> float | None:
    """How long a server asks to wait, by google.rpc.RetryInfo or gRPC's own pushback; infinite where for ever.

    Args:
        trailing: The metadata that came with a status.
    """
    asked: list[float] = []
    for key, value in trailing or ():
        if key == _PUSHBACK:
            asked.append(_pushback_s(value))
        elif key == _DETAILS and isinstance(value, bytes):
            asked += _retry_info_s(value)
    return max(asked, default=None)


def _pushback_s(value: str | bytes) -> float:
    try:
        milliseconds = int(value)
    except ValueError:
        return math.inf
    # Less than nothing, or what is no number, forbids another attempt: gRPC's proposal A6.
    return milliseconds / 1000 if milliseconds >= 0 else math.inf


def _retry_info_s(value: bytes) -> list[float]:
    try:
        details = status_pb2.Status.FromString(value).details
        hints = [
            error_details_pb2.RetryInfo.FromString(each.value) for each in details if _is_retry_info(each.TypeName())
        ]
    except DecodeError:
        return []
    return [max(0.0, hint.retry_delay.seconds + hint.retry_delay.nanos * 1e-9) for hint in hints]


def _is_retry_info(name: str) -> bool:
    return name == str(error_details_pb2.RetryInfo.DESCRIPTOR.full_name)


def is_of_size(details: str | None) -> bool:
    """Whether a message was too large, which gRPC gives the same status as overload."""
    return "larger than max" in (details or "")


def is_not_taken(code: grpc.StatusCode, details: str | None) -> bool:
    """Whether a call came just as the server stopped and was never begun, of which gRPC tells nothing else.

    Calls that are cancelled on this side say so in other words.
    """
    return code is grpc.StatusCode.CANCELLED and details == "CANCELLED"


def is_of_writing(code: grpc.StatusCode, details: str | None) -> bool:
    """Whether a call ended while it was sent something, of which grpc.aio tells nothing else (grpc issue 36066)."""
    return code is grpc.StatusCode.INTERNAL and details == "Internal error from Core"
