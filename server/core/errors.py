"""The closed list of what can go wrong for a caller, and the one place that maps other rooms' exceptions to it.

Messages of `ServiceError` and `ItemFailure` are one line and safe to send: they never hold paths of the server,
payload bytes or the text of an unexpected exception.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from twinlens.encoders.errors import InvalidImage, InvalidText
from twinlens.index.errors import (
    BackupBusy,
    BackupExists,
    BackupNotFound,
    CollectionBusy,
    CollectionError,
    CollectionExists,
    CollectionNotFound,
    CorruptCollection,
    DamagedBackup,
    EngineUnavailable,
    EngineUnreachable,
    InvalidArgument,
    InvalidVector,
    ItemNotFound,
    MergeStopped,
    NotOffered,
    PlaceUnavailable,
    SpaceMismatch,
)
from twinlens.server.core.fetching.errors import NotFetched


class Code(StrEnum):
    """Why a whole call failed. One gRPC status code each, of the same name."""

    INVALID_ARGUMENT = "invalid_argument"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    FAILED_PRECONDITION = "failed_precondition"
    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    UNAVAILABLE = "unavailable"
    UNIMPLEMENTED = "unimplemented"
    DATA_LOSS = "data_loss"
    INTERNAL = "internal"


class Reason(StrEnum):
    """Why one item of a batch failed; `twinlens.v1.ErrorReason` without its prefix."""

    INVALID_IMAGE = "invalid_image"
    INVALID_TEXT = "invalid_text"
    INVALID_VECTOR = "invalid_vector"
    NOT_FOUND = "not_found"
    INVALID_INPUT = "invalid_input"
    UNSUPPORTED = "unsupported"
    NOT_FETCHED = "not_fetched"
    INTERNAL = "internal"


@dataclass(frozen=True, slots=True)
class ItemFailure:
    """Why one item of a batch failed; the others are not affected."""

    reason: Reason
    message: str


class ServiceError(Exception):
    """A whole call fails with this code and message.

    Attributes:
        code: The status.
        message: One line, safe to send.
        retry_after_s: A hint for RESOURCE_EXHAUSTED: when to try again.
    """

    def __init__(self, code: Code, message: str, *, retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.retry_after_s = retry_after_s


def invalid_argument(message: str) -> ServiceError:
    """The request as a whole breaks its contract."""
    return ServiceError(Code.INVALID_ARGUMENT, message)


def internal(request_id: str) -> ServiceError:
    """What a caller learns of an unexpected failure: where to look, nothing else."""
    return ServiceError(Code.INTERNAL, f"internal error; the server's log has the cause under request {request_id}")


_CODES: tuple[tuple[type[Exception], Code], ...] = (
    (CollectionNotFound, Code.NOT_FOUND),
    (ItemNotFound, Code.NOT_FOUND),
    (BackupNotFound, Code.NOT_FOUND),
    (CollectionExists, Code.ALREADY_EXISTS),
    (BackupBusy, Code.FAILED_PRECONDITION),  # before what it is one of
    (BackupExists, Code.ALREADY_EXISTS),
    (InvalidVector, Code.INVALID_ARGUMENT),
    (InvalidArgument, Code.INVALID_ARGUMENT),
    (InvalidImage, Code.INVALID_ARGUMENT),
    (InvalidText, Code.INVALID_ARGUMENT),
    (SpaceMismatch, Code.FAILED_PRECONDITION),
    (EngineUnreachable, Code.UNAVAILABLE),
    (EngineUnavailable, Code.FAILED_PRECONDITION),
    (DamagedBackup, Code.FAILED_PRECONDITION),
    (CorruptCollection, Code.DATA_LOSS),
    (CollectionBusy, Code.UNAVAILABLE),
    (MergeStopped, Code.UNAVAILABLE),
    (NotOffered, Code.UNIMPLEMENTED),
)

_REASONS: tuple[tuple[type[Exception], Reason], ...] = (
    (InvalidImage, Reason.INVALID_IMAGE),
    (InvalidText, Reason.INVALID_TEXT),
    (InvalidVector, Reason.INVALID_VECTOR),
    (ItemNotFound, Reason.NOT_FOUND),
    (InvalidArgument, Reason.INVALID_INPUT),
    (NotFetched, Reason.NOT_FETCHED),
)


def as_service_error(error: Exception) -> ServiceError | None:
    """Maps an exception of encoders/ or index/ to a call's failure; None for what nobody expected."""
    if isinstance(error, ServiceError):
        return error
    for kind, code in _CODES:
        if isinstance(error, kind):
            return ServiceError(code, str(error))
    if isinstance(error, PlaceUnavailable):
        return ServiceError(Code.INTERNAL, f"the place for {error.holds} cannot be used; the server's log says why")
    if isinstance(error, CollectionError):
        # A full disk, say: what exactly is for the log, which may name files.
        return ServiceError(Code.INTERNAL, "the collection cannot be read or written; the server's log says why")
    return None


def as_item_failure(error: Exception) -> ItemFailure | None:
    """Maps an exception of encoders/ or index/ to an item's failure; None for what nobody expected."""
    for kind, reason in _REASONS:
        if isinstance(error, kind):
            return ItemFailure(reason, str(error))
    return None


def internal_failure(request_id: str) -> ItemFailure:
    """What a caller learns of an item on which the server failed."""
    return ItemFailure(Reason.INTERNAL, internal(request_id).message)
