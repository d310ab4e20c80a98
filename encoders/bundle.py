"""Reading a bundle: its manifest and the digests of its files. Every failure is one line that names the place."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from pydantic import ValidationError

from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import MANIFEST_NAME, SCHEMA_VERSION, Manifest

_BLOCK = 1024 * 1024


def read_manifest(path: str | Path) -> Manifest:
    """Reads and checks `bundle.json` of the bundle at `path`, without touching its other files.

    Raises:
        BundleError: if the folder or manifest is missing, is not JSON, is of another schema, or has a wrong field.
    """
    folder = Path(path)
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        msg = f"no bundle at {folder}: it {what}"
        raise BundleError(msg)
    try:
        raw = (folder / MANIFEST_NAME).read_bytes()
    except FileNotFoundError:
        msg = f"no bundle at {folder}: it has no {MANIFEST_NAME}"
        raise BundleError(msg) from None
    except OSError as error:
        msg = f"{folder / MANIFEST_NAME} cannot be read: {error.strerror}"
        raise BundleError(msg) from error
    return parse_manifest(raw, str(folder / MANIFEST_NAME))


def parse_manifest(raw: bytes, where: str) -> Manifest:
    """Parses the contents of a `bundle.json`.

    Args:
        raw: The file's bytes.
        where: Its path or address, for messages.

    Raises:
        BundleError: if it is not JSON, is of another schema, or has a wrong field.
    """
    try:
        content = json.loads(raw)
    except (ValueError, RecursionError) as error:
        msg = f"{where} is not JSON: {(str(error).splitlines() or [''])[0]}"
        raise BundleError(msg) from error
    if not isinstance(content, dict):
        msg = f"{where} is not a manifest: an object is wanted"
        raise BundleError(msg)
    schema = content.get("schema_version", SCHEMA_VERSION)
    if schema != SCHEMA_VERSION:
        msg = f"{where} has schema_version {schema!r}; this program reads {SCHEMA_VERSION}"
        raise BundleError(msg)
    try:
        return Manifest.model_validate_json(raw)
    except ValidationError as error:
        msg = f"{where} is wrong: {first_problem(error)}"
        raise BundleError(msg) from error


def verify_digests(path: str | Path, manifest: Manifest) -> None:
    """Checks that every listed file is there with the listed size and SHA-256.

    Raises:
        BundleError: naming the first file that is not.
    """
    folder = Path(path)
    for entry in manifest.files:
        file = folder / entry.path
        if not file.is_file():
            msg = f"bundle {folder} is incomplete: {entry.path} is missing"
            raise BundleError(msg)
        size = file.stat().st_size
        if size != entry.size:
            msg = f"bundle {folder} is corrupt: {entry.path} has {size} bytes, {entry.size} expected"
            raise BundleError(msg)
        found = sha256_of(file)
        if found != entry.sha256:
            msg = f"bundle {folder} is corrupt: {entry.path} has SHA-256 {found[:12]}…, {entry.sha256[:12]}… expected"
            raise BundleError(msg)


def sha256_of(file: Path) -> str:
    """The digest of a file, read block by block."""
    digest = hashlib.sha256()
    with file.open("rb") as stream:
        while block := stream.read(_BLOCK):
            digest.update(block)
    return digest.hexdigest()


def first_problem(error: ValidationError) -> str:
    """The first of pydantic's complaints as `field: reason`, on one line."""
    problem = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in problem["loc"])
    reason = problem["msg"].removeprefix("Value error, ").splitlines()[0]
    return f"{where}: {reason}" if where else reason
