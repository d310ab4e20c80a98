"""The end of a server, as streams see it that run when it comes."""

from __future__ import annotations

from twinlens.server.core.errors import Code, ServiceError

_RETRY_AFTER_S = 1.0


def stopping() -> ServiceError:
    """How a stream ends whose caller has more to send: everything that was read has been answered."""
    return ServiceError(
        Code.UNAVAILABLE,
        "the server is stopping: what it read it has answered; send the rest again, to it or to another",
        retry_after_s=_RETRY_AFTER_S,
    )
