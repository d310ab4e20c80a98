"""Which network addresses belong to the public internet.

By the special-purpose registries of IANA (RFC 6890 and its updates) rather than by `ipaddress.is_global`, whose answers
differ between patch versions of Python.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network

_NOT_PUBLIC_4 = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",
        "100.64.0.0/10",  # carriers' own; the metadata service of Alibaba Cloud
        "127.0.0.0/8",
        "168.63.129.16/32",  # Azure's host, public by its number only
        "169.254.0.0/16",  # link-local; the metadata services of most clouds
        "172.16.0.0/12",
        "192.0.0.0/24",  # protocol assignments; the metadata service of Oracle Cloud
        "192.0.2.0/24",  # documentation
        "192.88.99.0/24",  # relays of 6to4
        "192.168.0.0/16",
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)
# Everything else is loopback, link-local, private, multicast or not given out.
_GIVEN_OUT_6 = IPv6Network("2000::/3")
_NOT_PUBLIC_6 = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments; Teredo, which holds an IPv4 address
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4, which holds an IPv4 address
        "3fff::/20",
    )
)
# What a translator makes of an IPv4 address (RFC 6052): how IPv6-only machines reach the rest.
_TRANSLATED = IPv6Network("64:ff9b::/96")


def is_public(address: IPv4Address | IPv6Address) -> bool:
    """Whether an address is somebody's on the public internet, and no machine's inside."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address.ipv4_mapped is not None:
        return is_public(address.ipv4_mapped)
    if address in _TRANSLATED:
        return is_public(IPv4Address(int(address) & 0xFFFFFFFF))
    return address in _GIVEN_OUT_6 and not any(address in network for network in _NOT_PUBLIC_6)
