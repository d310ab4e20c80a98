"""The one error a client raises, and what turns a failed call into it."""

from __future__ import annotations

import math
import re
from urllib.parse import unquote

import grpc

from twinlens.client.retries import Trailing, asked_wait_s, is_not_taken

_REQUEST_ID = "x-request-id"

# What a failed handshake comes down to: part of what is written in gRPC's own text, and what to say and do.
_HANDSHAKES = (
    (
        "CERTIFICATE_VERIFY_FAILED",
        "its certificate is not signed by an authority that is trusted here; --tls-ca, or `tls`",
    ),
    ("is not in peer certificate", "its certificate is for another name; --tls-name, or `tls`, says for which"),
    ("Hostname Verification", "its certificate is for another name; --tls-name, or `tls`, says for which"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS; leave out --tls…, or `tls`"),
    ("CERTIFICATE_REQUIRED", "it asks for a client's certificate; --tls-cert and --tls-key, or `tls`"),
)
# How it looks to a client that a server hangs up on one without TLS, or without a certificate that it asks for.
_HUNG_UP = re.compile(r"failed to connect to all addresses;.*: Socket closed\.?$")
_LAST_ADDRESS = re.compile(r"last error: \w+: ipv[46]:(\S+): ")


class TwinlensError(Exception):
    """A call failed, or an input could not be used. The message is one line a person understands.

    Attributes:
        code: The gRPC status by name: "NOT_FOUND", "INVALID_ARGUMENT", "UNAVAILABLE", …
        message: What is wrong and, where it helps, what to do.
        request_id: What the server's log has the call under; empty where no server answered.
        retry_after_s: When the server asks to come back, in seconds; None where it does not say.

    Example:
        >>> try:
        ...     client.get_collection("nope")
        ... except TwinlensError as error:
        ...     print(error.code)
        NOT_FOUND
    """

    def __init__(self, code: str, message: str, *, request_id: str = "", retry_after_s: float | None = None) -> None:
        self.code = code
        self.message = " ".join(message.split()) or code
        self.request_id = request_id
        self.retry_after_s = retry_after_s
        super().__init__(code, self.message)  # both, so that it can be pickled

    def __str__(self) -> str:
        return self.message


def invalid(message: str) -> TwinlensError:
    """The error of an argument that cannot be used."""
    return TwinlensError("INVALID_ARGUMENT", message)


def closed() -> TwinlensError:
    """The error of a call on a client that is closed."""
    return TwinlensError("CANCELLED", "the client is closed")


def from_call(error: grpc.RpcError, target: str, timeout_s: float | None) -> TwinlensError:
    """What a failed call means to the caller.

    Args:
        error: What gRPC raised.
        target: The server that was called.
        timeout_s: The deadline of the call in seconds, None where there was none.
    """
    trailing = tuple(error.trailing_metadata() or ())
    request_id = _request_id(trailing)
    code = error.code()
    if not request_id and is_not_taken(code, error.details()):
        return TwinlensError("UNAVAILABLE", f"the server at {target} is stopping and took no more calls")
    text = _text(code, " ".join((error.details() or "").split()), target, timeout_s, answered=bool(request_id))
    asked_s = asked_wait_s(trailing)
    retry_after_s = None if asked_s is None or math.isinf(asked_s) else asked_s
    return TwinlensError(code.name, text, request_id=request_id, retry_after_s=retry_after_s)


def _text(code: grpc.StatusCode, text: str, target: str, timeout_s: float | None, *, answered: bool) -> str:
    if code is grpc.StatusCode.UNAVAILABLE and not answered:
        return f"no server answers at {target} ({why_not(text, target)})"
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and timeout_s is not None:
        return f"{target} did not answer within {timeout_s:g} s"
    if code is grpc.StatusCode.UNIMPLEMENTED and not answered:
        return f"the server at {target} does not offer this: {text or 'unknown method'}"
    if code is grpc.StatusCode.UNAUTHENTICATED:
        # A server can only say which header it looks for.
        text = text.partition("; send a token as")[0] or "the server asks for a token"
        return f"{text}; give one by `token`, --token-file or TWINLENS_TOKEN"
    return text or f"the call failed with {code.name}"


def why_not(details: str | None, target: str) -> str:
    """What gRPC has to say of a connection that could not be made, in a few words."""
    text = " ".join((details or "").split())
    for found, meaning in _HANDSHAKES:
        if found in text:
            return meaning
    if _HUNG_UP.search(text):
        return "it hangs up; does it ask for TLS, or for a client's certificate? --tls…, or `tls`"
    # A name may have several addresses, of which gRPC tells the last one's error only: say whose it is.
    address = _LAST_ADDRESS.search(text)
    where = "" if address is None or unquote(address[1]) == target else f" at {unquote(address[1])}"
    # gRPC's own text lists every address and repeats itself; its last part says why.
    for before_the_reason in ("last error: ", "remote host: ", "connect: "):
        text = text.rsplit(before_the_reason, 1)[-1]
    return (text.rstrip(".") or "no reason given") + where


def _request_id(trailing: Trailing) -> str:
    return next((value for key, value in trailing or () if key == _REQUEST_ID and isinstance(value, str)), "")
