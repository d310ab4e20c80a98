"""A token: what a caller shows, and what the server keeps of it."""

from __future__ import annotations

import hashlib
import re
import secrets

_PREFIX = "twl_"  # so that scanners for leaked secrets can know one
_SECRET_BYTES = 32
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_TOKEN = re.compile(rf"{_PREFIX}({_NAME.pattern})_([0-9a-f]{{{2 * _SECRET_BYTES}}})")


def is_name(name: str) -> bool:
    """Whether a token may have that name: 1 to 63 of a-z, 0-9 and "-", starting with a letter or digit."""
    return _NAME.fullmatch(name) is not None


def new_token(name: str) -> str:
    """A token that nobody can guess: 256 bits of it are drawn."""
    return f"{_PREFIX}{name}_{secrets.token_hex(_SECRET_BYTES)}"


def name_in(token: str) -> str | None:
    """The name that a token claims; None for what is none."""
    found = _TOKEN.fullmatch(token)
    return None if found is None else found[1]


def digest(token: str) -> bytes:
    """What is kept of a token. Plain SHA-256: slow hashes are for secrets that can be guessed."""
    return hashlib.sha256(token.encode()).digest()
