"""What a segment says of itself."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twinlens.index.durable import replace_file
from twinlens.index.errors import DamagedSegment
from twinlens.index.kinds.kind import Kind

_NAME = "segment.json"
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class SegmentManifest:
    """Written last, so that whatever it lists is complete.

    Attributes:
        name: Of the segment's folder: files that a mix-up brought into another one are sound, but not its own.
        kind: Never `auto`.
        count: How many vectors.
        dimension: Of the vectors.
        parameters: Of the structure over them.
        files: Bytes and CRC-32 of every other file, by name.
    """

    name: str
    kind: Kind
    count: int
    dimension: int
    parameters: Mapping[str, int]
    files: Mapping[str, tuple[int, int]]


def write_manifest(folder: Path, manifest: SegmentManifest) -> None:
    """Writes it into a segment's folder, durably."""
    document = {"format": _FORMAT, **asdict(manifest)}
    replace_file(folder / _NAME, json.dumps({**document, "checksum": _checksum(document)}, indent=1) + "\n")


def read_manifest(folder: Path) -> SegmentManifest:
    """Reads it.

    Raises:
        DamagedSegment: it is missing, damaged, of another format or of another segment.
    """
    where = f"{folder.name}/{_NAME}"
    try:
        document = json.loads((folder / _NAME).read_text(encoding="utf-8"))
        if document.pop("checksum") != _checksum(document):
            raise DamagedSegment(f"{where}: its content has changed")
        if document["format"] != _FORMAT:
            raise DamagedSegment(f"{where}: format {document['format']}, but {_FORMAT} is wanted")
        manifest = SegmentManifest(
            name=str(document["name"]),
            kind=Kind(document["kind"]),
            count=int(document["count"]),
            dimension=int(document["dimension"]),
            parameters={str(name): int(value) for name, value in document["parameters"].items()},
            files={str(name): (int(size), int(checksum)) for name, (size, checksum) in document["files"].items()},
        )
    except OSError as error:
        raise DamagedSegment(f"{where}: {(error.strerror or 'unreadable').lower()}") from error
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedSegment(f"{where}: not what was written") from error
    if manifest.name != folder.name:
        raise DamagedSegment(f"{where}: belongs to the segment {manifest.name!r}")
    if manifest.kind is Kind.AUTO or manifest.count < 0 or manifest.dimension < 1:
        raise DamagedSegment(f"{where}: {manifest.count} vectors of dimension {manifest.dimension} as {manifest.kind}")
    return manifest


def _checksum(document: Mapping[str, Any]) -> int:
    return zlib.crc32(json.dumps(document, sort_keys=True).encode())
