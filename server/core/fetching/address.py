"""Reading the address of a picture: once, and strictly, so that what was checked is what is asked for."""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import quote

from twinlens.server.core.fetching.errors import NotFetched
from twinlens.server.core.fetching.hosts import split_authority

MAX_ADDRESS = 8192
USUAL_PORTS = {"https": 443, "http": 80}

# RFC 3986, appendix B, for addresses that name a host.
_PARTS = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?")
# What stays as it is in a path and a query; "%" too, for what is escaped already.
_KEPT = "/?%:@!$&'()*+,;=-._~[]"


@dataclass(frozen=True, slots=True)
class Address:
    """Where a picture lies.

    Attributes:
        scheme: "https" or "http".
        host: As `normal_host` gives it.
        port: Given or the scheme's own.
        target: Path and query in ASCII, as they are sent.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def usual_port(self) -> int:
        """The scheme's own port."""
        return USUAL_PORTS[self.scheme]

    @property
    def authority(self) -> str:
        """Host and port as the Host header has them."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == self.usual_port else f"{host}:{self.port}"


def read_address(url: str, *, http: bool) -> Address:
    """Takes an address apart.

    Args:
        url: What a caller or a redirection gave.
        http: Whether http:// will do.

    Raises:
        NotFetched: if it is not one this server would ask for, whatever the host.
    """
    if len(url) > MAX_ADDRESS:
        raise NotFetched(f"the address has {len(url)} characters, at most {MAX_ADDRESS} are allowed")
    # Parsers differ in what they make of these, and drop some of them without a word.
    if not url.isprintable() or " " in url or "\\" in url:
        raise NotFetched("the address holds spaces, backslashes or control characters; escape them as %20 and so on")
    found = _PARTS.fullmatch(url)
    if found is None:
        raise NotFetched("the address is not of the form https://HOST/PATH")
    scheme, authority, path, query, _ = found.groups()
    scheme = scheme.lower()
    if scheme not in USUAL_PORTS or (scheme == "http" and not http):
        allowed = "https:// and http://" if http else "https://"
        raise NotFetched(f"pictures are fetched by {allowed} only")
    if "@" in authority:
        raise NotFetched("the address holds a user's name or password; leave them out")
    try:
        host, port = split_authority(authority)
    except ValueError:
        raise NotFetched("the address names no host that could be looked up") from None
    target = quote(f"{path or '/'}{query or ''}", safe=_KEPT)
    return Address(scheme, host, USUAL_PORTS[scheme] if port is None else port, target)
