"""The one error a client raises, and what turns a failed call into it."""

from __future__ import annotations

import grpc


class TwinlensError(Exception):
    """A call failed, or an input could not be used. The message is one line a person understands.

    Attributes:
        code: The gRPC status by name: "NOT_FOUND", "INVALID_ARGUMENT", "UNAVAILABLE", …
        message: What is wrong and, where it helps, what to do.

    Example:
        >>> try:
        ...     client.get_collection("nope")
        ... except TwinlensError as error:
        ...     print(error.code)
        NOT_FOUND
    """

    def __init__(self, code: str, message: str) -> None:
        self.code = code
        self.message = " ".join(message.split()) or code
        super().__init__(code, self.message)  # both, so that it can be pickled

    def __str__(self) -> str:
        return self.message


def invalid(message: str) -> TwinlensError:
    """The error of an argument that cannot be used."""
    return TwinlensError("INVALID_ARGUMENT", message)


def from_status(code: grpc.StatusCode, details: str | None, target: str, timeout_s: float | None) -> TwinlensError:
    """What a failed call means to the caller.

    Args:
        code: The status of the call.
        details: The text that came with it.
        target: The server that was called.
        timeout_s: The deadline of the call in seconds, None where there was none.
    """
    text = " ".join((details or "").split())
    if code is grpc.StatusCode.UNAVAILABLE:
        # gRPC's own text lists every address and repeats itself; its last part says why.
        for before_the_reason in ("last error: ", "remote host: ", "connect: "):
            text = text.rsplit(before_the_reason, 1)[-1]
        return TwinlensError(code.name, f"no server answers at {target} ({text.rstrip('.') or 'no reason given'})")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED and timeout_s is not None:
        return TwinlensError(code.name, f"{target} did not answer within {timeout_s:g} s")
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return TwinlensError(code.name, f"the server at {target} does not offer this: {text or 'unknown method'}")
    return TwinlensError(code.name, text or f"the call failed with {code.name}")
