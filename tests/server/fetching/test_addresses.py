"""Which addresses are read, and as what."""

from __future__ import annotations

from encodings import idna

import pytest
from hypothesis import given
from hypothesis import strategies as st

from twinlens.server.core.fetching.address import MAX_ADDRESS, Address, read_address
from twinlens.server.core.fetching.errors import NotFetched
from twinlens.server.core.fetching.hosts import HostList


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("https://images.example.com/a.jpg", Address("https", "images.example.com", 443, "/a.jpg")),
        ("HTTPS://Images.Example.COM.", Address("https", "images.example.com", 443, "/")),
        ("https://a.example:8443/x?y=%20z&w=1#part", Address("https", "a.example", 8443, "/x?y=%20z&w=1")),
        ("https://a.example?q", Address("https", "a.example", 443, "/?q")),
        ("http://a.example:443/", Address("http", "a.example", 443, "/")),
        ("https://bücher.example/ä.png", Address("https", "xn--bcher-kva.example", 443, "/%C3%A4.png")),
        ("https://ＥＸＡＭＰＬＥ.com/", Address("https", "example.com", 443, "/")),
        ("https://[2001:DB8::1]/a", Address("https", "2001:db8::1", 443, "/a")),
        ("https://127.1/a", Address("https", "127.1", 443, "/a")),
    ],
)
def test_an_address_is_read_as_what_it_names(url: str, expected: Address) -> None:
    assert read_address(url, http=True) == expected


@pytest.mark.parametrize(
    "url",
    [
        "",
        "images.example.com/a.jpg",
        "//images.example.com/a.jpg",
        "https:///a.jpg",
        "https:images.example.com/a.jpg",
        "file:///etc/passwd",
        "gopher://images.example.com/a",
        "ftp://images.example.com/a",
        "data:image/png;base64,AAAA",
        "https://user@images.example.com/a",
        "https://user:secret@images.example.com/a",
        "https://images.example.com@127.0.0.1/a",
        "https://images.example.com:80:90/a",
        "https://images.example.com:0/a",
        "https://images.example.com:65536/a",
        "https://images.example.com:١/a",
        "https://images.example.com\\@127.0.0.1/a",
        "https://images.example.com/a b",
        "https://images.example.com/a\r\nHost: other",
        "https://images.example.com/a\x00",
        "https://images.example.com\t/a",
        "https://-images.example.com/a",
        "https://images..example.com/a",
        "https://images.example.com../a",
        "https://[::1/a",
        "https://[fe80::1%25eth0]/a",
        "https://[::ffff:127.0.0.1]x/a",
        "https://%31%32%37.0.0.1/a",
        "https://" + "a" * 64 + ".example/a",
        "https://" + ".".join(["a" * 60] * 5) + "/a",
        "https://images.example.com/" + "a" * MAX_ADDRESS,
    ],
)
def test_what_parsers_could_differ_on_is_no_address(url: str) -> None:
    with pytest.raises(NotFetched) as caught:
        read_address(url, http=True)
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("label", ["é" * 60 + ".", "é.", "é。"], ids=["long", "short", "ideographic"])
def test_a_name_that_is_too_long_is_not_worked_on(label: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def work(label: str) -> bytes:
        pytest.fail("it takes a while, and there may be thousands")

    monkeypatch.setattr(idna, "ToASCII", work)
    with pytest.raises(NotFetched, match="names no host"):
        read_address(f"https://{label * (8000 // len(label))}/", http=False)


def test_http_has_to_be_allowed() -> None:
    with pytest.raises(NotFetched, match="by https:// only"):
        read_address("http://images.example.com/a", http=False)


@given(st.text(max_size=60))
def test_whatever_is_read_holds_nothing_that_could_end_a_line_or_a_header(rest: str) -> None:
    for url in (rest, f"https://{rest}", f"https://images.example.com/{rest}"):
        try:
            address = read_address(url, http=True)
        except NotFetched:
            continue
        assert address.target.isascii()
        assert address.target.isprintable()
        assert address.target.startswith("/")
        assert " " not in address.target
        assert address.host == address.host.lower()
        again = read_address(f"{address.scheme}://{address.authority}{address.target}", http=True)
        assert again == address


@pytest.mark.parametrize(
    ("pattern", "host", "port", "allowed"),
    [
        ("images.example.com", "images.example.com", 443, True),
        ("Images.Example.com.", "images.example.com", 443, True),
        ("images.example.com", "images.example.com", 8443, False),
        ("images.example.com:8443", "images.example.com", 8443, True),
        ("images.example.com:8443", "images.example.com", 443, False),
        ("images.example.com", "example.com", 443, False),
        ("images.example.com", "images.example.com.evil.example", 443, False),
        ("*.example.com", "images.example.com", 443, True),
        ("*.example.com", "a.b.example.com", 443, True),
        ("*.example.com", "example.com", 443, False),
        ("*.example.com", "evilexample.com", 443, False),
        ("bücher.example", "xn--bcher-kva.example", 443, True),
        ("[2606:4700::1111]", "2606:4700::1111", 443, True),
    ],
)
def test_a_host_is_allowed_by_its_whole_name(pattern: str, host: str, port: int, allowed: bool) -> None:
    assert HostList([pattern]).allows(host, port, 443) is allowed


@pytest.mark.parametrize(
    "pattern", ["", "*", "*.", "*.com", "https://a.example", "a.example/x", "a b", "*.[::1]", "a:"]
)
def test_an_entry_that_names_no_host_is_refused_by_name(pattern: str) -> None:
    with pytest.raises(ValueError, match="is not a host to fetch from") as caught:
        HostList(["images.example.com", pattern])
    assert repr(pattern) in str(caught.value)
