"""Which catalog the settings mean, and going through it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

from twinlens.index.catalog import Catalog, DamagedCollection
from twinlens.index.contract import CatalogLike, CollectionLike
from twinlens.index.errors import InvalidArgument
from twinlens.index.kinds.device import Device
from twinlens.index.kinds.kind import Kind
from twinlens.index.operations.backup_place import BackupPlace
from twinlens.index.options import IndexOptions
from twinlens.server.core.thread_shares import thread_shares
from twinlens.server.settings import MIB, Settings

log = logging.getLogger(__name__)

_FAISS = "faiss"
_MILVUS = "milvus:"


def make_catalog(data: Path, settings: Settings, variant: str) -> CatalogLike:
    """Opens collections where the settings say: in the data folder, or in a Milvus server that others share.

    Args:
        data: The data folder.
        settings: What searches, and how.
        variant: What will compute vectors, such as "image int8 on cpu"; a data folder keeps it with them.

    Raises:
        CollectionError: another process holds the folder, a setting names no place, or there is no such device.
    """
    if settings.backups is not None:
        _check_backups(BackupPlace(settings.backups), data)  # which says what is wrong with the address
    kind = Kind(settings.index_kind)
    options = IndexOptions(
        threads=thread_shares(settings).search,
        kind=kind,
        memory_bytes=settings.index_memory_mib * MIB or None,
        device=Device(settings.index_device),
    )
    if settings.index == _FAISS:
        return Catalog(data, options=options, variant=variant)
    if not settings.index.startswith(_MILVUS):
        raise InvalidArgument(f"setting index: it is {_FAISS} or {_MILVUS}URI, not {settings.index!r}")
    from twinlens.index.milvus.address import parse_address  # noqa: PLC0415 - most do without Milvus

    token = settings.milvus_token.get_secret_value()
    if parse_address(settings.index).local:
        from twinlens.index.milvus.engine import MilvusEngine  # noqa: PLC0415

        engine = MilvusEngine(settings.index, token=token, kind=kind)
        return Catalog(data, options=options, engine=engine, variant=variant)
    from twinlens.index.milvus.catalog import MilvusCatalog  # noqa: PLC0415

    if settings.pictures is None:
        raise InvalidArgument(
            "setting pictures: with a Milvus server, name the folder or address (s3://…) where pictures lie for all "
            "servers that share it"
        )
    return MilvusCatalog(settings.index, pictures=settings.pictures, token=token, kind=kind)


def _check_backups(place: BackupPlace, data: Path) -> None:
    """Refuses to keep backups among collections: they would be listed as such, and deleted with them."""
    collections = (data / "collections").resolve()  # where Catalog keeps them
    if place.local is not None and place.local.resolve().is_relative_to(collections):
        raise InvalidArgument(
            f"the place for backups is {place.local}, inside {collections}, which keeps nothing but collections: name "
            "another folder, best on another disk"
        )


def all_collections(catalog: CatalogLike) -> Iterator[CollectionLike]:
    """Every collection, by id, but for damaged ones."""
    after = ""
    while page := catalog.list(after=after, limit=100):
        yield from page
        after = page[-1].id


def damaged_collections(catalog: CatalogLike) -> dict[str, str]:
    """Those that cannot be opened, by id, and why."""
    damaged: dict[str, str] = {}
    after = ""
    while page := catalog.entries(after=after, limit=100):
        damaged.update({entry.id: entry.reason for entry in page if isinstance(entry, DamagedCollection)})
        after = page[-1].id
    return damaged


def name_damaged(catalog: CatalogLike) -> None:
    """Logs which collections cannot be used: the others are served all the same."""
    for reason in damaged_collections(catalog).values():
        log.error(
            "%s; it is left out: check the disk, then restore it from a backup "
            "(`twinlens collections restore BACKUP --replace`) or delete it",
            reason,
        )
