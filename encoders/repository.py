"""Where bundles are kept: `<url>/<name>/<version>/`, on this machine or on object storage with a local cache."""

from __future__ import annotations

import builtins
import hashlib
import os
import re
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from twinlens.encoders.bundle import parse_manifest, read_manifest, verify_digests
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import MANIFEST_NAME, NAME_PATTERN, Manifest

_NAME = re.compile(NAME_PATTERN)


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
            BundleError: if the address is of a kind for which no file system is installed.
        """
        import fsspec  # noqa: PLC0415 - servers with a plain --bundle never need it

        self.url = url
        try:
            self._fs, self._root = fsspec.url_to_fs(url)
        except (ImportError, ValueError) as error:
            msg = f"cannot open the model repository {url}: {(str(error).splitlines() or [''])[0]}"
            raise BundleError(msg) from error
        self._local = Path(self._root) if _is_local(self._fs) else None
        self._cache = cache or _default_cache()

    def list(self) -> builtins.list[Manifest]:
        """The readable bundles, by name, then by version from oldest to newest.

        Raises:
            BundleError: if the repository does not exist or cannot be reached.
        """
        return [entry.manifest for entry in self.scan() if entry.manifest is not None]

    def scan(self) -> Iterator[Listed]:
        """As `list`, but a bundle that cannot be read is listed too, with its problem."""
        for name in self._names():
            for version in self._versions(name):
                try:
                    yield Listed(name, version, self.manifest(name, version))
                except BundleError as error:
                    yield Listed(name, version, None, str(error))

    def manifest(self, name: str, version: str | None = None) -> Manifest:
        """The manifest of one bundle; the newest version if none is given.

        Raises:
            BundleError: if there is no such bundle, or it is another than its folder says.
        """
        version = version or self._newest(name)
        where = f"{self._root}/{name}/{version}/{MANIFEST_NAME}"
        try:
            raw = self._fs.cat_file(where)
        except FileNotFoundError:
            msg = f"no model {name}/{version} in {self.url}"
            raise BundleError(msg) from None
        except Exception as error:  # each file system raises its own
            msg = f"{where} cannot be read: {(str(error).splitlines() or [''])[0]}"
            raise BundleError(msg) from error
        manifest = parse_manifest(raw, where)
        if (manifest.name, manifest.version) != (name, version):
            msg = f"{where} is the manifest of {manifest.name}/{manifest.version}"
            raise BundleError(msg)
        return manifest

    def fetch(self, name: str, version: str | None = None) -> Path:
        """A local folder with the bundle: in place for a local repository, otherwise a checked copy in the cache.

        Raises:
            BundleError: if there is no such bundle, or its copy does not match its digests.
        """
        version = version or self._newest(name)
        if self._local is not None:
            folder = self._local / name / version
            if not folder.is_dir():
                msg = f"no model {name}/{version} in {self.url}"
                raise BundleError(msg)
            return folder
        manifest = self.manifest(name, version)
        home = self._cache / hashlib.sha256(self.url.encode()).hexdigest()[:16]
        folder = home / name / version
        if folder.is_dir():
            if read_manifest(folder) == manifest:
                return folder
            shutil.rmtree(folder)  # the address was filled anew
        self._copy(manifest, folder)
        return folder

    def _copy(self, manifest: Manifest, folder: Path) -> None:
        source = f"{self._root}/{manifest.name}/{manifest.version}"
        folder.parent.mkdir(parents=True, exist_ok=True)
        sibling = folder.parent / f".{folder.name}.{secrets.token_hex(6)}.tmp"
        try:
            for path in (*(entry.path for entry in manifest.files), MANIFEST_NAME):
                target = sibling / path
                target.parent.mkdir(parents=True, exist_ok=True)
                self._fs.get_file(f"{source}/{path}", str(target))
            verify_digests(sibling, manifest)
            try:
                sibling.rename(folder)
            except OSError:
                if not (folder / MANIFEST_NAME).is_file():  # otherwise another process was first
                    raise
        except BundleError:
            raise
        except Exception as error:  # each file system raises its own
            msg = f"cannot copy {source}: {(str(error).splitlines() or [type(error).__name__])[0]}"
            raise BundleError(msg) from error
        finally:
            shutil.rmtree(sibling, ignore_errors=True)

    def _newest(self, name: str) -> str:
        versions = self._versions(name) if _NAME.match(name) else []
        if not versions:
            msg = f"no model {name} in {self.url}"
            raise BundleError(msg)
        return versions[-1]

    def _names(self) -> Sequence[str]:
        try:
            return sorted(self._folders(self._root))
        except FileNotFoundError:
            msg = f"no model repository at {self.url}"
            raise BundleError(msg) from None
        except Exception as error:  # each file system raises its own
            msg = f"the model repository {self.url} cannot be read: {(str(error).splitlines() or [''])[0]}"
            raise BundleError(msg) from error

    def _versions(self, name: str) -> Sequence[str]:
        try:
            found = self._folders(f"{self._root}/{name}")
        except FileNotFoundError:
            return []
        with_manifest = [v for v in found if self._fs.exists(f"{self._root}/{name}/{v}/{MANIFEST_NAME}")]
        return sorted(with_manifest, key=version_key)

    def _folders(self, path: str) -> Sequence[str]:
        entries: Sequence[Mapping[str, Any]] = self._fs.ls(path, detail=True)
        names = [entry["name"].rstrip("/").rsplit("/", 1)[-1] for entry in entries if entry["type"] == "directory"]
        return [name for name in names if _NAME.match(name)]


def version_key(version: str) -> tuple[tuple[int, int, str], ...]:
    """Sorts versions as people count: 2 before 10, 1.9 before 1.10."""
    parts = re.findall(r"\d+|[^\d.]+", version)
    return tuple((1, int(part), "") if part.isdigit() else (0, 0, part) for part in parts)


def _is_local(fs: Any) -> bool:
    protocol = fs.protocol if isinstance(fs.protocol, tuple | list) else (fs.protocol,)
    return "file" in protocol or "local" in protocol


def _default_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(base) / "twinlens" / "models"
