"""Where a Milvus is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from twinlens.index.errors import InvalidArgument

PREFIX = "milvus:"
_LITE_SUFFIX = ".db"  # by which pymilvus knows that a file is meant


@dataclass(frozen=True, slots=True)
class MilvusAddress:
    """A server, or a folder of Milvus Lite.

    Attributes:
        uri: As pymilvus takes it.
        local: Whether Milvus Lite opens it in this process.
    """

    uri: str
    local: bool

    def __str__(self) -> str:
        """The address without a password: safe to show."""
        if self.local:
            return self.uri
        parts = urlsplit(self.uri)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def parse_address(text: str) -> MilvusAddress:
    """Reads `milvus:URI`: http(s)://HOST:PORT of a server, or the path of a file that ends in .db.

    Raises:
        InvalidArgument: it is neither.
    """
    uri = text.removeprefix(PREFIX)
    if text != uri and "://" not in uri and uri.endswith(_LITE_SUFFIX):
        return MilvusAddress(str(Path(uri).expanduser()), local=True)
    try:
        parts = urlsplit(uri)
        server = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:  # as for a port that is no number
        server = False
    if text == uri or not server:
        raise InvalidArgument(
            f"{PREFIX}URI must name a server, as in {PREFIX}http://localhost:19530, "
            f"or a file of Milvus Lite, as in {PREFIX}./vectors{_LITE_SUFFIX}",
        )
    return MilvusAddress(uri, local=False)
