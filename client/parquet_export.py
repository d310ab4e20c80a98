"""A collection as a Parquet file."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from twinlens.client.aside import written_aside
from twinlens.client.collection_types import Collection, ExportedItem
from twinlens.client.types import Modality

SPACE_KEY = b"twinlens.space_id"
_VALUES_A_GROUP = 4 * 2**20  # numbers of vectors in memory before they are written
_MOST_ROWS_A_GROUP = 8192


class ParquetExport:
    """Writes exported items as rows: id, uri, caption, metadata (JSON), content_hash, times, and vectors."""

    def __init__(self, path: Path, collection: Collection, vectors: Sequence[Modality]) -> None:
        """Begins a file.

        Args:
            path: Where to write.
            collection: What is exported.
            vectors: Which vectors get a column, a list of fixed size.
        """
        import pyarrow as pa  # noqa: PLC0415 - takes a while to load, and few commands need it
        import pyarrow.parquet as pq  # noqa: PLC0415

        self._arrow = pa
        self._modalities = tuple(vectors)
        self._dimension = collection.dimension
        text, stamp = pa.string(), pa.timestamp("us", tz="UTC")
        fields = [(name, text) for name in ("id", "uri", "caption", "metadata", "content_hash")]
        fields += [("create_time", stamp), ("update_time", stamp)]
        fields += [(f"{modality}_vector", pa.list_(pa.float32(), self._dimension)) for modality in self._modalities]
        about = {SPACE_KEY: collection.space_id.encode(), b"twinlens.collection": collection.id.encode()}
        self._schema = pa.schema(fields, metadata=about)
        # Vectors do not compress, and dictionaries of them only cost time.
        compression = {field.name: "none" if field.name.endswith("_vector") else "zstd" for field in self._schema}
        repeating = ["uri", "caption", "metadata"]
        self._writer = pq.ParquetWriter(str(path), self._schema, compression=compression, use_dictionary=repeating)
        values = max(1, self._dimension * len(self._modalities))
        self._rows_a_group = max(1, min(_MOST_ROWS_A_GROUP, _VALUES_A_GROUP // values))
        self._rows: list[ExportedItem] = []

    def write(self, row: ExportedItem) -> None:
        """Writes one item."""
        self._rows.append(row)
        if len(self._rows) >= self._rows_a_group:
            self._flush()

    def close(self) -> None:
        """Writes what is left and the end of the file."""
        if self._rows:
            self._flush()
        self._writer.close()

    def _flush(self) -> None:
        items = [row.item for row in self._rows]
        columns: dict[str, Any] = {
            name: [getattr(item, name) for item in items]
            for name in ("id", "uri", "caption", "content_hash", "create_time", "update_time")
        }
        columns["metadata"] = [json.dumps(item.metadata, ensure_ascii=False) for item in items]
        for modality in self._modalities:
            columns[f"{modality}_vector"] = self._vectors(modality)
        self._writer.write_table(self._arrow.table(columns, schema=self._schema))
        self._rows = []

    def _vectors(self, modality: Modality) -> Any:
        import numpy as np  # noqa: PLC0415

        given = [row.image_vector if modality == "image" else row.text_vector for row in self._rows]
        absent = np.array([vector is None for vector in given])
        values = np.zeros((len(given), self._dimension), dtype=np.float32)
        for place, vector in enumerate(given):
            if vector is not None:
                values[place] = vector
        pa = self._arrow
        return pa.FixedSizeListArray.from_arrays(
            pa.array(values.ravel()), type=pa.list_(pa.float32(), self._dimension), mask=pa.array(absent)
        )


@contextmanager
def parquet_export(path: Path, collection: Collection, vectors: Sequence[Modality]) -> Iterator[ParquetExport]:
    """A file that appears, complete, when the block ends without an error.

    Raises:
        TwinlensError: where the file cannot be written.
    """
    with written_aside(path) as part:
        export = ParquetExport(part, collection, vectors)
        try:
            yield export
        finally:
            export.close()
