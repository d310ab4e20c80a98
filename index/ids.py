"""Which ids are allowed."""

from __future__ import annotations

import re
import unicodedata

from twinlens.index.errors import InvalidArgument

MAX_ITEM_ID_BYTES = 1024
_COLLECTION_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_BACKUP_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,127}")


def may_be_collection_id(name: str) -> bool:
    """Whether a collection may be called so: other folders beside collections are nobody's."""
    return _COLLECTION_ID.fullmatch(name) is not None


def check_collection_id(collection_id: str) -> str:
    """Returns the id of a collection if it may be one; it becomes a folder's name.

    Raises:
        InvalidArgument: not 1 to 64 of a-z, 0-9, "-", "_", or not starting with a letter or digit.
    """
    if not may_be_collection_id(collection_id):
        raise InvalidArgument(
            f"collection id {_shown(collection_id)}: use 1 to 64 of a-z, 0-9, '-' and '_', "
            "starting with a letter or digit",
        )
    return collection_id


def may_be_backup_id(name: str) -> bool:
    """Whether a backup may be called so."""
    return _BACKUP_ID.fullmatch(name) is not None


def check_backup_id(backup_id: str) -> str:
    """Returns the id of a backup if it may be one; it becomes a folder's name.

    Raises:
        InvalidArgument: not 1 to 128 of a-z, 0-9, "-", "_", or not starting with a letter or digit.
    """
    if not may_be_backup_id(backup_id):
        raise InvalidArgument(
            f"backup id {_shown(backup_id)}: use 1 to 128 of a-z, 0-9, '-' and '_', starting with a letter or digit",
        )
    return backup_id


def check_item_id(item_id: str) -> str:
    """Returns the id of an item if it may be one.

    Raises:
        InvalidArgument: empty, over 1,024 bytes of UTF-8, with control characters or lone surrogates.
    """
    if not item_id:
        raise InvalidArgument(f"item id {_shown(item_id)}: it must have at least one character")
    if any(unicodedata.category(character) in {"Cc", "Cs"} for character in item_id):
        raise InvalidArgument(f"item id {_shown(item_id)}: control characters and lone surrogates are not allowed")
    size = len(item_id.encode())
    if size > MAX_ITEM_ID_BYTES:
        raise InvalidArgument(f"item id {_shown(item_id)}: {size} bytes, at most {MAX_ITEM_ID_BYTES} are allowed")
    return item_id


def _shown(value: object) -> str:
    """Quotes a value on one short, printable line."""
    text = ascii(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
