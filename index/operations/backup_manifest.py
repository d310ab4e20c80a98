"""What backup.json says: written last, it makes the files around it a backup."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from twinlens.index.errors import DamagedBackup
from twinlens.index.operations.steps import Backup

FORMAT = 1


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """A backup's description.

    Attributes:
        backup: What callers are told.
        database_bytes: Size of its database.
        database_sha256: Digest of its database.
        pictures: How many different ones its database names, without those missing.
        missing_pictures: Digests of those that were lost or damaged already when it was made, in order.
    """

    backup: Backup
    database_bytes: int
    database_sha256: str
    pictures: int
    missing_pictures: tuple[str, ...]

    def encode(self) -> bytes:
        """As JSON, with a digest of the rest of it."""
        content = {"format": FORMAT, **asdict(self)}
        return json.dumps({**content, "sha256": _digest(content)}, indent=2).encode() + b"\n"


def decode_manifest(data: bytes, named: str) -> BackupManifest:
    """Reads a manifest.

    Args:
        data: The content of backup.json.
        named: What to call the backup in an error.

    Raises:
        DamagedBackup: it was changed, or is of a format that this version does not know.
    """
    try:
        content: dict[str, Any] = json.loads(data)
        unchanged = content.pop("sha256") == _digest(content)
        found = content.pop("format")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        unchanged, found = False, FORMAT
    if not unchanged:
        raise DamagedBackup(f"{named} is damaged: its backup.json was changed")
    if found != FORMAT:
        raise DamagedBackup(f"{named} has format {found}, but this version of twinlens reads {FORMAT}: use a newer one")
    try:
        missing = tuple(content.pop("missing_pictures"))
        return BackupManifest(**{**content, "backup": Backup(**content["backup"])}, missing_pictures=missing)
    except (KeyError, TypeError):
        raise DamagedBackup(f"{named} is damaged: its backup.json does not describe a backup") from None


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
