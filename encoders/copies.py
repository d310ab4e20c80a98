"""Local copies of bundles that lie on object storage."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from twinlens.encoders.bundle import check_present, source_mark
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import MANIFEST_NAME, Manifest
from twinlens.encoders.placing import place, temporary_sibling

# Of the manifest's hash in a copy's name.
_DIGITS = 12


class Copies:
    """The copies of one repository's bundles: `<cache>/<hash of the address>/<name>/<version>-<hash of the manifest>`.

    A manifest holds the digests of all files, so copies of different contents never share a folder, and whoever reads
    one is not disturbed when the address is filled anew. Processes that make the same copy at once do not share
    anything until it is whole; the first one's stays.
    """

    def __init__(self, url: str, cache: Path | None = None) -> None:
        """Names the place.

        Args:
            url: The repository's address.
            cache: Default `$XDG_CACHE_HOME/twinlens/models`.
        """
        self._home = (cache or _default_cache()) / hashlib.sha256(url.encode()).hexdigest()[:16]

    def made(self, name: str, version: str) -> list[Path]:
        """The copies of a version, of whatever contents, whole or not; the latest last."""
        found = (self._home / name).glob(f"{version}-{'?' * _DIGITS}")
        return sorted(found, key=lambda folder: folder.stat().st_mtime)

    def copy(self, manifest: Manifest, raw: bytes, source: str, fill: Callable[[Path], None]) -> Path:
        """The folder with the copy, made now if it is not there or not whole.

        Args:
            manifest: The bundle's manifest.
            raw: The same as it is written.
            source: The bundle's address, for people.
            fill: Makes the folder it is given, with all files of the bundle, and checks them.

        Raises:
            BundleError: whatever `fill` raises.
            OSError: if the cache cannot be written.
        """
        folder = self._home / manifest.name / f"{manifest.version}-{hashlib.sha256(raw).hexdigest()[:_DIGITS]}"
        if _is_whole(folder, manifest, raw):
            return folder
        with temporary_sibling(folder) as sibling:
            fill(sibling)
            if folder.exists() and not _is_whole(folder, manifest, raw):
                # Another process may have taken it away just now.
                with temporary_sibling(folder) as aside, suppress(FileNotFoundError):
                    folder.rename(aside)
            source_mark(folder).write_text(f"{source}\n", encoding="utf-8")
            try:
                place(sibling, folder)
            except OSError:
                if not _is_whole(folder, manifest, raw):  # otherwise another process was first
                    raise
        return folder


def _is_whole(folder: Path, manifest: Manifest, raw: bytes) -> bool:
    try:
        if (folder / MANIFEST_NAME).read_bytes() != raw:
            return False
        for entry in manifest.files:
            check_present(folder, entry)
    except (OSError, BundleError):
        return False
    return True


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "twinlens" / "models"
