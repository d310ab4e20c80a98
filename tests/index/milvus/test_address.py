from __future__ import annotations

import pytest

from twinlens.index.errors import InvalidArgument
from twinlens.index.milvus.address import parse_address


def test_a_file_is_opened_in_this_process() -> None:
    address = parse_address("milvus:./data/vectors.db")
    assert address.local
    assert str(address) == address.uri == "data/vectors.db"


def test_a_server_is_shown_without_its_password() -> None:
    address = parse_address("milvus:https://someone:secret@milvus.example:19530/photos")
    assert not address.local
    assert "secret" in address.uri
    assert str(address) == "https://milvus.example:19530/photos"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "faiss",
        "milvus",
        "milvus:",
        "milvus:vectors",
        "milvus:http://",
        "milvus:http://host:port",
        "milvus:ftp://h/a",
    ],
)
def test_anything_else_is_refused_with_an_example_of_each(text: str) -> None:
    with pytest.raises(InvalidArgument, match=r"milvus:http://localhost:19530.*milvus:\./vectors\.db"):
        parse_address(text)
