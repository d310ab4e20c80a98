"""Whether a server answers at all: asked of its health service, whose answer may be anything."""

from __future__ import annotations

import grpc

from twinlens.client.errors import TwinlensError

# Called with and answered by bytes. The channel's own way of waiting leaves a thread behind that fails when the channel
# is closed.
HEALTH_CHECK = "/grpc.health.v1.Health/Check"

READY_PAUSE_S = 0.05
_NO_ANSWERS = {grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED}


def has_answered(error: grpc.RpcError) -> bool:
    """Whether a call that failed reached a server; one that is about to stop counts as away."""
    return error.code() not in _NO_ANSWERS


def not_there(target: str, timeout_s: float) -> TwinlensError:
    """The error where none did in time."""
    return TwinlensError("UNAVAILABLE", f"no server answers at {target} within {timeout_s:g} s")
