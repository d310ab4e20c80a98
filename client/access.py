"""How a command shows a server who it is: its token and its TLS files, by options or by the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field, fields
from pathlib import Path

from twinlens.client.errors import invalid
from twinlens.client.tls import TlsFiles

_YES = {"1", "true", "yes", "on"}
_NO = {"", "0", "false", "no", "off"}


@dataclass(frozen=True, slots=True)
class AccessOptions:
    """What the options of a command said; see `commands.access_options`."""

    token_file: Path | None = None
    tls: bool = False
    tls_ca: Path | None = None
    tls_cert: Path | None = None
    tls_key: Path | None = None
    tls_name: str | None = None

    @property
    def given(self) -> bool:
        """Whether there were any."""
        return any(getattr(self, each.name) for each in fields(self))


@dataclass(frozen=True, slots=True)
class Access:
    """What a client is given: see `Client`."""

    token: str | None = field(default=None, repr=False)
    tls: TlsFiles | None = None


_NONE = AccessOptions()

# Set by whoever runs a command, while it runs.
current_options: ContextVar[AccessOptions] = ContextVar("twinlens_access", default=_NONE)


def access(options: AccessOptions, environ: Mapping[str, str] = os.environ) -> Access:
    """What the options say, and where they do not, the environment: TWINLENS_TOKEN, TWINLENS_TLS, TWINLENS_TLS_CA, ….

    Raises:
        TwinlensError: INVALID_ARGUMENT where the file of the token cannot be read, or a variable makes no sense.
    """
    named = {
        "ca": options.tls_ca or environ.get("TWINLENS_TLS_CA"),
        "cert": options.tls_cert or environ.get("TWINLENS_TLS_CERT"),
        "key": options.tls_key or environ.get("TWINLENS_TLS_KEY"),
    }
    name = options.tls_name or environ.get("TWINLENS_TLS_NAME") or ""
    files = {what: path for what, path in named.items() if path}
    encrypted = options.tls or bool(files or name) or _is_on("TWINLENS_TLS", environ)
    token = environ.get("TWINLENS_TOKEN") or None if options.token_file is None else _read_token(options.token_file)
    return Access(token, TlsFiles(**files, name=name) if encrypted else None)


def _read_token(file: Path) -> str:
    try:
        return file.read_text("utf-8").strip()
    except (OSError, ValueError) as error:  # ValueError: what is no text
        raise invalid(f"the file of the token, {file}, cannot be read: {_why(error)}") from None


def _why(error: Exception) -> str:
    return getattr(error, "strerror", None) or "it is not text"


def _is_on(variable: str, environ: Mapping[str, str]) -> bool:
    value = environ.get(variable, "").strip().lower()
    if value not in _YES | _NO:
        raise invalid(f"{variable} is 1 or 0, not {value!r}")
    return value in _YES
