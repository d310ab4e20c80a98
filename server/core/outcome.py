"""What became of an input that was to be embedded."""

from __future__ import annotations

import logging
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.server.core.call import Call
from twinlens.server.core.errors import ItemFailure, Reason, ServiceError, as_item_failure, internal_failure

log = logging.getLogger(__name__)

UnitVector = NDArray[np.float32]

_UNIT_TOLERANCE = 1e-3


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one input: a unit vector of shape (d,), or why there is none."""

    vector: UnitVector | None = None
    failure: ItemFailure | None = None
    truncated: bool = False


NOT_FETCHED = Outcome(failure=ItemFailure(Reason.NOT_FETCHED, "pictures are not fetched by their address here"))


def failed(error: Exception, call: Call) -> Outcome | ServiceError:
    """What an error means: for one item, or for the whole call."""
    if isinstance(error, ServiceError):
        return error
    failure = as_item_failure(error)
    if failure is None:
        log.error("request %s: an item could not be embedded", call.request_id, exc_info=error)
        failure = internal_failure(call.request_id)
    return Outcome(failure=failure)


def embedded(vector: UnitVector, call: Call, *, truncated: bool = False) -> Outcome:
    """An encoder that overflows gives NaN for one row only; such a vector must not reach an index."""
    norm = float(np.linalg.norm(vector))
    if not abs(norm - 1.0) <= _UNIT_TOLERANCE:
        log.error("request %s: the encoder gave a vector of norm %s", call.request_id, norm)
        return Outcome(failure=internal_failure(call.request_id))
    return Outcome(vector=vector, truncated=truncated)
