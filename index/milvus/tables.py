"""Milvus collections that hold rows rather than vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from twinlens.index.milvus.connection import CALL_S, MilvusConnection
from twinlens.index.milvus.vectors import milvus_types

TEXT_BYTES = 65_535  # the longest text of one field, in UTF-8


def create_table(
    connection: MilvusConnection,
    client: Any,
    name: str,
    fields: Mapping[str, tuple[Any, int]],
    *,
    indexed: Sequence[str] = (),
) -> None:
    """Makes a table and readies it.

    Args:
        connection: Where the client comes from.
        client: An open one.
        name: Of the Milvus collection.
        fields: Types, and longest texts, by name; the first is the primary key.
        indexed: Fields by which rows are found as well.
    """
    types = milvus_types()
    with connection.clear_errors():
        schema = client.create_schema(auto_id=False, enable_dynamic_field=False)
        for position, (field, (kind, longest)) in enumerate(fields.items()):
            options = {"max_length": longest} if longest else {}
            schema.add_field(field, kind, is_primary=position == 0, **options)
        # Milvus wants a vector in every collection.
        schema.add_field("vector", types.FLOAT_VECTOR, dim=2)
        indexes = client.prepare_index_params()
        indexes.add_index("vector", index_type="FLAT", metric_type="IP")
        for field in indexed:
            indexes.add_index(field, index_type="INVERTED" if connection.address.local else "STL_SORT")
        client.create_collection(name, schema=schema, consistency_level="Strong", timeout=CALL_S)
        client.create_index(name, indexes, sync=False, timeout=CALL_S)
        client.load_collection(name, timeout=CALL_S)
