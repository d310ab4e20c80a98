"""What can be wrong with an input or a bundle. The server maps these to statuses, the commands to exit codes."""

from __future__ import annotations


class InvalidImage(ValueError):  # noqa: N818 - reads as what it is in `InvalidImage | picture`
    """The bytes are not a picture we read, or break a limit. The message is one line a person understands."""


class InvalidText(ValueError):  # noqa: N818
    """The text is empty or holds characters no tokenizer can take. The message is one line."""


class BundleError(Exception):
    """A bundle is missing, corrupt, of another schema, or does not reproduce its parity vectors."""


class RuntimeUnavailable(RuntimeError):  # noqa: N818
    """A runtime or provider was asked for that this machine does not have."""


def first_line(error: BaseException) -> str:
    """What an error of another library says, cut to one line of at most 200 characters."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:200]
