"""Whether a server is open to more than it should be."""

from __future__ import annotations

from ipaddress import ip_address

from twinlens.server.settings import Settings


def is_loopback(host: str) -> bool:
    """Whether an address to listen on can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False  # a name, which may mean anything


def warnings(settings: Settings) -> list[str]:
    """What to say of a server that can be reached from other machines."""
    if is_loopback(settings.host):
        return []
    said = []
    if settings.tokens is None and settings.tls_client_ca is None:
        said.append(
            f"whoever reaches {settings.host} may read and write everything: there are neither tokens "
            "(--tokens) nor certificates of clients (--tls-client-ca)"
        )
    if settings.tls_cert is None:
        said.append(
            f"what goes to and from {settings.host} can be read on the way"
            + (", tokens too" if settings.tokens is not None else "")
            + ": there is no TLS (--tls-cert, --tls-key)"
        )
    return said
