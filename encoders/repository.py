"""Where bundles are kept: `<url>/<name>/<version>/`, on this machine or on object storage with a local cache."""

from __future__ import annotations

import builtins
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.copies import Copies
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import MANIFEST_NAME, NAME_PATTERN, Manifest
from twinlens.encoders.publish import copy_bundle
from twinlens.encoders.push import push
from twinlens.encoders.stored_bundle import StoredBundle, one_line
from twinlens.encoders.transfer import OnBytes, download, ignore_bytes

_NAME = re.compile(NAME_PATTERN)
# Kinds of address -> the extra that brings their file system.
_EXTRAS = {"s3": "s3", "s3a": "s3", "gs": "gcs", "gcs": "gcs"}


@dataclass(frozen=True, slots=True)
class Listed:
    """One bundle of a repository: its manifest, or why it cannot be read."""

    name: str
    version: str
    manifest: Manifest | None
    problem: str = ""


class ModelRepository:
    """Bundles under an fsspec address (`./models`, `s3://bucket/models`, `gs://…`).

    Local folders are used in place. Others are copied to the cache on first use, checked, and used from there:
    published bundles never change, so a copy stays good.
    """

    def __init__(self, url: str, cache: Path | None = None) -> None:
        """Opens the address.

        Args:
            url: A local path or an fsspec address.
            cache: Where copies are kept; default `$XDG_CACHE_HOME/twinlens/models`.

        Raises:
            BundleError: if the address is empty, or of a kind for which no file system is installed.
        """
        import fsspec  # noqa: PLC0415 - servers with a plain --bundle never need it

        if url.strip() in {"", "file://", "local://"}:  # a variable that was not set: it would be the folder we are in
            msg = f"the address of the model repository is empty: {url!r}"
            raise BundleError(msg)
        self.url = url
        with one_line(f"cannot open the model repository {url}"):
            try:
                # Remembered listings would hide what others publish meanwhile.
                self._fs, root = fsspec.url_to_fs(url, use_listings_cache=False)
            except ImportError as error:
                extra = _EXTRAS.get(url.partition("://")[0])
                msg = f"cannot open the model repository {url}: " + (
                    f"pip install 'twinlens[{extra}]'" if extra else str(error)
                )
                raise BundleError(msg) from error
        self._root = root.rstrip("/")
        self._local = Path(root) if _is_local(self._fs) else None
        self._shown = self._root if self._local is not None else url.rstrip("/")
        self._copies = Copies(url, cache)

    def list(self) -> builtins.list[Manifest]:
        """The readable bundles, by name, then by version from oldest to newest.

        Raises:
            BundleError: if the repository does not exist or cannot be reached.
        """
        return [entry.manifest for entry in self.scan() if entry.manifest is not None]

    def scan(self) -> Iterator[Listed]:
        """As `list`, but a bundle that cannot be read is listed too, with its problem.

        A folder without a manifest is none: it may be on its way, since the manifest is written last.
        """
        for name in self._names():
            try:
                versions = self._versions(name)
            except BundleError as error:
                yield Listed(name, "", None, str(error))
                continue
            for version in versions:
                try:
                    stored = self._stored(name, version)
                    if (raw := stored.read()) is not None:
                        yield Listed(name, version, stored.parse(raw))
                except BundleError as error:
                    yield Listed(name, version, None, str(error))

    def manifest(self, name: str, version: str | None = None) -> Manifest:
        """The manifest of one bundle; the newest version if none is given.

        Raises:
            BundleError: if there is no such bundle, or it is another than its folder says.
        """
        stored, raw = self._found(name, version)
        return stored.parse(raw)

    def holds(self, name: str, version: str) -> bool:
        """Whether there is a bundle of this name and version, sound or not.

        Raises:
            BundleError: if the repository cannot be reached.
        """
        return bool(_NAME.match(name) and _NAME.match(version)) and self._stored(name, version).read() is not None

    def fetch(self, name: str, version: str | None = None, *, on_bytes: OnBytes = ignore_bytes) -> Path:
        """A local folder with the bundle: in place for a local repository, otherwise a checked copy in the cache.

        The digests of a copy are checked when it is made. When it is found later, its manifest is compared with the
        one in the repository and its files are looked at for presence and size; one that is not whole is made anew.

        Args:
            name: The model's name.
            version: Its version; the newest if None.
            on_bytes: Told of progress while a copy is made.

        Raises:
            BundleError: if there is no such bundle, it cannot be copied, or its copy does not match its digests.
        """
        try:
            stored, raw = self._found(name, version)
        except BundleError as error:
            named = version if version is not None and _NAME.match(name) and _NAME.match(version) else None
            if named is None or not (copies := self._copies.made(name, named)):
                raise
            msg = f"{error}; there is a copy in {copies[-1]}, which can be named itself"
            raise BundleError(msg) from error
        if self._local is not None:
            return self._local / name / stored.version
        manifest = stored.parse(raw)

        def fill(folder: Path) -> None:
            download(stored, manifest.files, folder, on_bytes)
            (folder / MANIFEST_NAME).write_bytes(raw)
            verify_digests(folder, manifest, called=stored.shown)

        with one_line(f"cannot copy {stored.shown}"):
            return self._copies.copy(manifest, raw, stored.shown, fill)

    def push(self, folder: Path, *, on_bytes: OnBytes = ignore_bytes) -> Manifest:
        """Publishes a bundle from a local folder here, under the name and version of its manifest.

        Args:
            folder: The bundle's folder.
            on_bytes: Told of progress.

        Returns:
            The manifest of the bundle here; where the same bundle already is here, nothing is written.

        Raises:
            BundleError: if the bundle is not sound, another one is here, or the repository cannot be written.
        """
        manifest = read_manifest(folder)
        verify_digests(folder, manifest)
        raw = (folder / MANIFEST_NAME).read_bytes()
        if self._local is not None:
            return copy_bundle(manifest, raw, folder, self._local / manifest.name / manifest.version)
        return push(folder, manifest, raw, self._stored(manifest.name, manifest.version), on_bytes)

    def _stored(self, name: str, version: str) -> StoredBundle:
        folder = f"{name}/{version}"
        return StoredBundle(self._fs, f"{self._root}/{folder}", f"{self._shown}/{folder}", name, version)

    def _found(self, name: str, version: str | None) -> tuple[StoredBundle, bytes]:
        """A bundle and its manifest as written, of the newest version if none is given."""
        versions = [version]
        if version is None:
            versions = list(reversed(self._versions(name))) if _NAME.match(name) else []
        for each in versions:
            if each is not None and _NAME.match(name) and _NAME.match(each):
                stored = self._stored(name, each)
                if (raw := stored.read()) is not None:
                    return stored, raw
        msg = f"no model {name}{'' if version is None else f'/{version}'} in {self.url}"
        raise BundleError(msg)

    def _names(self) -> Sequence[str]:
        names = self._folders(self._root)
        if names is None:
            msg = f"no model repository at {self.url}"
            raise BundleError(msg)
        return sorted(names)

    def _versions(self, name: str) -> Sequence[str]:
        """All folders of a model, also those without a manifest, oldest version first."""
        return sorted(self._folders(f"{self._root}/{name}") or (), key=version_key)

    def _folders(self, path: str) -> Sequence[str] | None:
        with one_line(f"the model repository {self.url} cannot be read"):
            try:
                entries: Sequence[Mapping[str, Any]] = self._fs.ls(path, detail=True)
            except FileNotFoundError:
                return None
            names = [entry["name"].rstrip("/").rsplit("/", 1)[-1] for entry in entries if entry["type"] == "directory"]
            return [name for name in names if _NAME.match(name)]


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts versions as people count: 2 before 10, 1.9 before 1.10."""
    parts = re.findall(r"\d+|[^\d.]+", version)
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)


def _is_local(fs: Any) -> bool:
    protocol = fs.protocol if isinstance(fs.protocol, tuple | list) else (fs.protocol,)
    return "file" in protocol or "local" in protocol
