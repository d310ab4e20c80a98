"""The token that a client shows with every call."""

from __future__ import annotations

import logging
from typing import TypeAlias

from twinlens.client.channel import is_local
from twinlens.client.errors import invalid

log = logging.getLogger(__name__)

CallMetadata: TypeAlias = "tuple[tuple[str, str], ...]"


def call_metadata(token: str | None, target: str, *, encrypted: bool) -> CallMetadata:
    """What goes with every call; says in the log where a token would be sent for everyone on the way to read.

    Raises:
        TwinlensError: INVALID_ARGUMENT where the token is empty or holds what no header carries.
    """
    if token is None:
        return ()
    if not token:
        raise invalid("the token is empty")
    if not all("!" <= character <= "~" for character in token):
        raise invalid("the token holds spaces, line breaks or characters that are not ASCII: is it the right file?")
    if not encrypted and not is_local(target):
        log.warning("the token travels unencrypted to %s: give the client `tls`, or a command --tls", target)
    return (("authorization", f"Bearer {token}"),)
