"""Which machines may be asked."""

from __future__ import annotations

from ipaddress import ip_address

import pytest

from twinlens.server.core.fetching.public_network import is_public


@pytest.mark.parametrize(
    "address",
    ["8.8.8.8", "1.1.1.1", "172.15.255.255", "172.32.0.0", "100.63.255.255", "2606:4700:4700::1111", "2a00:1450::1"],
)
def test_what_is_somebodys_on_the_internet_is_public(address: str) -> None:
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.1", "10.0.0.1", "127.0.0.1", "127.255.255.254", "169.254.169.254", "172.16.0.1", "172.31.255.255"),
        *("192.168.1.1", "100.64.0.1", "100.100.100.200", "192.0.0.192", "168.63.129.16", "198.18.0.1"),
        *("192.0.2.1", "198.51.100.1", "203.0.113.1", "224.0.0.1", "239.255.255.255", "240.0.0.1", "255.255.255.255"),
        *("::", "::1", "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "100::1", "2001:db8::1"),
        *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:10.0.0.1", "::127.0.0.1", "::ffff:0:127.0.0.1"),
        *("2002:7f00:1::", "2002:a9fe:a9fe::", "2001:0:7f00:1::", "64:ff9b::7f00:1", "64:ff9b::169.254.169.254"),
        *("64:ff9b:1::1", "3fff::1", "4000::1"),
    ],
)
def test_what_is_inside_or_nobodys_is_not_public(address: str) -> None:
    assert not is_public(ip_address(address))


def test_what_a_translator_makes_of_a_public_address_is_public() -> None:
    assert is_public(ip_address("64:ff9b::8.8.8.8"))
    assert is_public(ip_address("::ffff:8.8.8.8"))
