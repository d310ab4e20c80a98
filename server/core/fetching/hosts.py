"""Which hosts pictures may be fetched from, by name."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address

_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_MOST_HOST = 253
_AUTHORITY = re.compile(r"(\[[^\[\]]*\]|[^:\[\]]*)(?::([0-9]{1,5}))?")


def normal_host(text: str) -> str:
    """A host's name as it is looked up: lower case, in ASCII (IDNA), no final dot; of an IPv6 address no brackets.

    Raises:
        ValueError: for what can be neither a name nor an address.
    """
    if text.startswith("["):
        if not text.endswith("]") or "%" in text:  # a scope names an interface of this machine
            raise ValueError("not an IPv6 address")
        return IPv6Address(text[1:-1]).compressed
    if len(text) > _MOST_HOST + 1:  # asked first: IDNA takes a tenth of a second for the longest that may be sent
        raise ValueError("too long for the name of a host")
    host = (text if text.isascii() else text.encode("idna").decode("ascii")).lower().removesuffix(".")
    if len(host) > _MOST_HOST or not all(_LABEL.fullmatch(label) for label in host.split(".")):
        raise ValueError("not the name of a host")
    return host


def split_authority(text: str) -> tuple[str, int | None]:
    """The host, normalised, and the port of "HOST" or "HOST:PORT".

    Raises:
        ValueError: for anything else.
    """
    found = _AUTHORITY.fullmatch(text)
    if found is None:
        raise ValueError("not a host with or without a port")
    port = None if found[2] is None else int(found[2])
    if port is not None and not 0 < port < 65536:
        raise ValueError("not a port")
    return normal_host(found[1]), port


@dataclass(frozen=True, slots=True)
class _Pattern:
    host: str
    port: int | None
    below: bool

    def allows(self, host: str, port: int, usual_port: int) -> bool:
        if port != (usual_port if self.port is None else self.port):
            return False
        return host.endswith(f".{self.host}") if self.below else host == self.host


class HostList:
    """An allow-list.

    Args:
        patterns: "HOST", or "*.DOMAIN" for every host below a domain (not the domain itself); either with ":PORT",
            where the port is another than the scheme's own.

    Raises:
        ValueError: naming an entry that is neither.
    """

    def __init__(self, patterns: Iterable[str]) -> None:
        self._patterns = [_read(pattern) for pattern in patterns]

    def __bool__(self) -> bool:
        return bool(self._patterns)

    def allows(self, host: str, port: int, usual_port: int) -> bool:
        """Whether a host may be asked.

        Args:
            host: As `normal_host` gives it.
            port: The port to connect to.
            usual_port: The scheme's own.
        """
        return any(pattern.allows(host, port, usual_port) for pattern in self._patterns)


def _read(pattern: str) -> _Pattern:
    below = pattern.startswith("*.")
    try:
        host, port = split_authority(pattern.removeprefix("*."))
    except ValueError:
        host, port = "", None
    # "*.com" would allow almost everything, and is hardly ever meant.
    if not host or (below and ("." not in host or ":" in host)):
        raise ValueError(
            f"{pattern!r} is not a host to fetch from: write images.example.com, *.example.com or HOST:PORT"
        )
    return _Pattern(host, port, below)
