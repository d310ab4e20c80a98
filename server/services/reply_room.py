"""What a reply may hold, watched while it is built."""

from __future__ import annotations

from typing import TypeVar

from google.protobuf.message import Message

from twinlens.server.core.errors import ServiceError, invalid_argument

M = TypeVar("M", bound=Message)


def too_large(max_bytes: int) -> ServiceError:
    """The reply to a request of which nothing is wrong but how much it asks for.

    Not gRPC's own refusal, RESOURCE_EXHAUSTED, which clients take for overload and try again.
    """
    return invalid_argument(f"the reply would have more than the {max_bytes} bytes that can be sent; ask for less")


class ReplyRoom:
    """Counts the messages a reply is made of, for a small request may ask for what fits no memory.

    Args:
        max_bytes: What can be sent.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._left = max_bytes

    def take(self, part: M) -> M:
        """The part, if there is room for it.

        Raises:
            ServiceError: INVALID_ARGUMENT where there is none.
        """
        self._left -= part.ByteSize()
        if self._left < 0:
            raise too_large(self._max_bytes)
        return part
