"""Whether a server answers at all: asked of its health service, whose answer may be anything."""

from __future__ import annotations

import grpc

from twinlens.client.errors import TwinlensError, why_not

# Called with and answered by bytes. The channel's own way of waiting leaves a thread behind that fails when the channel
# is closed.
HEALTH_CHECK = "/grpc.health.v1.Health/Check"

READY_PAUSE_S = 0.05
LAST_CALL_S = 0.2  # for one that only asks why there was no answer
_NO_ANSWERS = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


def has_answered(error: grpc.RpcError) -> bool:
    """Whether a call that failed reached a server; one that is about to stop counts as away."""
    return error.code() not in _NO_ANSWERS


def not_there(target: str, timeout_s: float, last: grpc.RpcError) -> TwinlensError:
    """The error where none did in time; `last` is how one more call failed that did not wait, for it says why."""
    why = f" ({why_not(last.details(), target)})" if last.code() is grpc.StatusCode.UNAVAILABLE else ""
    return TwinlensError("UNAVAILABLE", f"no server answers at {target} within {timeout_s:g} s{why}")
