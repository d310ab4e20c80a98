"""Which status a caller gets for what a collection refuses."""

from __future__ import annotations

import inspect

import pytest

from twinlens.index import errors
from twinlens.server.core.errors import Code, as_service_error

CODES: dict[type[errors.CollectionError], Code] = {
    errors.CollectionNotFound: Code.NOT_FOUND,
    errors.ItemNotFound: Code.NOT_FOUND,
    errors.BackupNotFound: Code.NOT_FOUND,
    errors.CollectionExists: Code.ALREADY_EXISTS,
    errors.BackupExists: Code.ALREADY_EXISTS,
    errors.BackupBusy: Code.FAILED_PRECONDITION,
    errors.InvalidVector: Code.INVALID_ARGUMENT,
    errors.InvalidArgument: Code.INVALID_ARGUMENT,
    errors.SpaceMismatch: Code.FAILED_PRECONDITION,
    errors.EngineUnavailable: Code.FAILED_PRECONDITION,
    errors.DamagedBackup: Code.FAILED_PRECONDITION,
    errors.CorruptCollection: Code.DATA_LOSS,
    errors.CollectionBusy: Code.UNAVAILABLE,
    errors.EngineUnreachable: Code.UNAVAILABLE,
    errors.MergeStopped: Code.UNAVAILABLE,
    errors.NotOffered: Code.UNIMPLEMENTED,
}
# A full disk, say, or a file that is rebuilt by itself: the log has more to say than a caller may read.
UNTOLD = [
    errors.CollectionError("cannot write /srv/data"),
    errors.DamagedSegment("/srv/data is damaged"),
    errors.Abandoned("/srv/data"),
    errors.PlaceUnavailable("cannot write /srv/data", "backups"),
]


def test_every_error_of_collections_has_a_code_on_purpose() -> None:
    kinds = {kind for _, kind in inspect.getmembers(errors, inspect.isclass)}
    assert kinds == {type(error) for error in UNTOLD} | set(CODES)


@pytest.mark.parametrize(("kind", "code"), list(CODES.items()))
def test_what_a_caller_can_mend_is_told_as_it_is(kind: type[errors.CollectionError], code: Code) -> None:
    told = as_service_error(kind("what is wrong"))
    assert told is not None
    assert (told.code, told.message) == (code, "what is wrong")


@pytest.mark.parametrize("error", UNTOLD)
def test_what_he_cannot_mend_names_no_files(error: errors.CollectionError) -> None:
    told = as_service_error(error)
    assert told is not None
    assert told.code is Code.INTERNAL
    assert "/srv" not in told.message
