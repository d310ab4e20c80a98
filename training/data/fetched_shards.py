"""Brings shards from an address to this machine's disk, whole or not at all."""

from __future__ import annotations

import base64
import http.client
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import unquote, urlsplit, urlunsplit

from twinlens.training.data.errors import DataError
from twinlens.training.data.shard_names import public_name
from twinlens.training.errors import first_line

_TRIES = 3
_PART = 1 << 20
_SILENCE_S = 60.0
# The host asks to come again: it waited too long, or was asked too often.
_LATER = (408, 429)


def fetch_shard(address: str, to: Path, *, wait_s: float = 1.0) -> None:
    """Writes what lies at an address to a file; tries again where the connection breaks.

    Args:
        address: `http://…`, `https://…` (with `USER:PASSWORD@` where the host wants them), or of any file system that
            fsspec knows (`s3://…`).
        to: The file.
        wait_s: Before the second try; twice as long before the third.

    Raises:
        DataError: naming the address, if it cannot be had after three tries, or the disk has no room.
    """
    for attempt in range(_TRIES):
        if attempt:
            time.sleep(wait_s * 2 ** (attempt - 1))
        try:
            with _opened(address) as (source, size):
                written = _copy(source, to)
            if size is None or written == size:
                return
            reason = f"{written:,} of {size:,} bytes came"
        except urllib.error.HTTPError as error:
            error.close()
            reason = f"the host answered {error.code} {error.reason}"
            if error.code < 500 and error.code not in _LATER:
                break
        except FileNotFoundError:
            reason = "no such file"
            break
        except DataError:
            to.unlink(missing_ok=True)
            raise
        except Exception as error:  # whatever a connection or a file system raises
            reason = first_line(error).replace(address, public_name(address))
    to.unlink(missing_ok=True)
    raise DataError(f"{public_name(address)} cannot be fetched: {reason}")


@contextmanager
def _opened(address: str) -> Iterator[tuple[IO[bytes] | http.client.HTTPResponse, int | None]]:
    """What to read from, and how many bytes there are to be."""
    if address.startswith(("http://", "https://")):
        with closing(urllib.request.urlopen(_request(address), timeout=_SILENCE_S)) as response:  # noqa: S310
            size = response.headers.get("Content-Length")
            yield response, None if size is None else int(size)
        return
    import fsspec  # noqa: PLC0415 - for such addresses only

    fs, path = fsspec.url_to_fs(address)
    with fs.open(path, "rb") as file:
        yield file, getattr(file, "size", None)


def _request(address: str) -> urllib.request.Request:
    """User and password go into a header, which no other host is sent where this one points elsewhere."""
    parts = urlsplit(address)
    user, at, host = parts.netloc.rpartition("@")
    request = urllib.request.Request(urlunsplit(parts._replace(netloc=host)))  # noqa: S310 - http, or https
    if at:
        credentials = base64.b64encode(unquote(user).encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {credentials}")
    return request


def _copy(source: IO[bytes] | http.client.HTTPResponse, to: Path) -> int:
    """Gives how many bytes were written."""
    written = 0
    with _room_for(to):
        target = to.open("wb")
    with target:
        while part := source.read(_PART):
            with _room_for(to):
                written += target.write(part)
    return written


@contextmanager
def _room_for(to: Path) -> Iterator[None]:
    """A disk that takes no more is no reason to ask the host again."""
    try:
        yield
    except OSError as error:
        raise DataError(f"{to.parent} has no room for the shards: {error.strerror or error}") from None
