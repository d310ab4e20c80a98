"""A bundle on an fsspec file system, seen through its manifest."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from twinlens.encoders.bundle import MAX_MANIFEST_BYTES, parse_manifest
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import MANIFEST_NAME, Manifest


@dataclass(frozen=True, slots=True)
class StoredBundle:
    """Where a bundle is, or would be.

    Attributes:
        fs: The fsspec file system.
        path: The bundle's folder in it.
        shown: The same as people write it.
        name: What its manifest has to say.
        version: What its manifest has to say.
    """

    fs: Any
    path: str
    shown: str
    name: str
    version: str

    def read(self) -> bytes | None:
        """The manifest as it is written; None if there is none, and so no bundle.

        Raises:
            BundleError: if the file system cannot be read, or the file is too long for a manifest.
        """
        where = f"{self.path}/{MANIFEST_NAME}"
        with one_line(f"{self.shown}/{MANIFEST_NAME} cannot be read"):
            try:
                size = self.fs.info(where)["size"] or 0
                if size <= MAX_MANIFEST_BYTES:
                    return bytes(self.fs.cat_file(where))
            except (FileNotFoundError, NotADirectoryError):
                return None
        msg = f"{self.shown}/{MANIFEST_NAME} is not a manifest: it has {size} bytes"
        raise BundleError(msg)

    def parse(self, raw: bytes) -> Manifest:
        """The manifest of what `read` gave.

        Raises:
            BundleError: if it is wrong, or of another bundle than its folder says.
        """
        where = f"{self.shown}/{MANIFEST_NAME}"
        manifest = parse_manifest(raw, where)
        if (manifest.name, manifest.version) != (self.name, self.version):
            msg = f"{where} is the manifest of {manifest.name}/{manifest.version}"
            raise BundleError(msg)
        return manifest


@contextmanager
def one_line(what: str) -> Iterator[None]:
    """Makes one line, which begins with `what`, of whatever a file system raises: each has its own exceptions.

    Raises:
        BundleError: instead of any other exception; one raised inside stays as it is.
    """
    try:
        yield
    except BundleError:
        raise
    except Exception as error:
        said = str(getattr(error, "strerror", None) or error).strip().splitlines()
        hint = " (check the credentials)" if isinstance(error, PermissionError) else ""
        msg = f"{what}: {said[0] if said else type(error).__name__}{hint}"
        raise BundleError(msg) from error
