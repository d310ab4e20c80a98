"""A bundle as people name it: a folder, an address, or a name in a repository."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import MANIFEST_NAME
from twinlens.encoders.repository import ModelRepository, version_key
from twinlens.encoders.transfer import OnBytes, ignore_bytes

DEFAULT_REPOSITORY: Final = "./models"


def find_bundle(which: str, repository: str = DEFAULT_REPOSITORY, *, on_bytes: OnBytes = ignore_bytes) -> Path:
    """The folder of a bundle, copied to the cache first where it lies on object storage.

    Args:
        which: A bundle's folder; its fsspec address (`s3://bucket/models/NAME/VERSION`, or without the version for the
            newest); or `NAME` or `NAME/VERSION` of the repository. A folder that holds a bundle comes first.
        repository: Where names are looked up.
        on_bytes: Told of progress while a copy is made.

    Raises:
        BundleError: if there is no such bundle, or it cannot be had.
    """
    if (Path(which) / MANIFEST_NAME).is_file():
        return Path(which)
    if "://" in which:
        return _at_address(which.rstrip("/"), on_bytes)
    name, _, version = which.partition("/")
    if Path(which).exists():
        msg = f"no bundle at {which}: it has no {MANIFEST_NAME}{_versions_in(Path(which))}"
        raise BundleError(msg)
    if not name or "/" in version:
        msg = f"no bundle at {which}: it does not exist"
        raise BundleError(msg)
    try:
        return ModelRepository(repository).fetch(name, version or None, on_bytes=on_bytes)
    except BundleError as error:
        msg = f"no bundle at {which}: there is no such folder, and as a name: {error}"
        raise BundleError(msg) from error


def _versions_in(folder: Path) -> str:
    found = (manifest.parent.name for manifest in folder.glob(f"*/{MANIFEST_NAME}"))
    versions = sorted((name for name in found if not name.startswith(".")), key=version_key)  # else on their way
    return f"; it holds versions {', '.join(versions)}: name one, as {folder / versions[-1]}" if versions else ""


def _at_address(address: str, on_bytes: OnBytes) -> Path:
    above, _, last = address.rpartition("/")
    top, _, name = above.rpartition("/")
    if top and not top.endswith(("/", ":")):
        models = ModelRepository(top)
        if models.holds(name, last):
            return models.fetch(name, last, on_bytes=on_bytes)
    if not above or above.endswith(("/", ":")):
        msg = f"{address} names no bundle: write its whole address, …/NAME/VERSION"
        raise BundleError(msg)
    try:
        return ModelRepository(above).fetch(last, on_bytes=on_bytes)
    except BundleError as error:
        msg = f"no bundle at {address}: {error}"
        raise BundleError(msg) from error
