"""Reading a bundle: its manifest and the digests of its files. Every failure is one line that names the place."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path, PurePosixPath

from pydantic import ValidationError

from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import (
    MANIFEST_NAME,
    SCHEMA_VERSION,
    TRAINING_FILE,
    FileEntry,
    ImageTower,
    Manifest,
    TextTower,
    weights_beside,
)
from twinlens.encoders.onnx_side_files import side_files

# A manifest has some kilobytes; what is longer is not one, and is not read into memory to find out.
MAX_MANIFEST_BYTES = 16 * 1024 * 1024
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
        if (folder / MANIFEST_NAME).exists() and not (folder / MANIFEST_NAME).is_file():  # a pipe would make us wait
            msg = f"no bundle at {folder}: its {MANIFEST_NAME} is not a file"
            raise BundleError(msg)
        with (folder / MANIFEST_NAME).open("rb") as stream:
            raw = stream.read(MAX_MANIFEST_BYTES + 1)
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
    if len(raw) > MAX_MANIFEST_BYTES:
        msg = f"{where} is not a manifest: it has more than {MAX_MANIFEST_BYTES >> 20} MiB"
        raise BundleError(msg)
    try:
        text = raw.decode("utf-8-sig")  # some editors put a byte-order mark first
        content = json.loads(text)
    except UnicodeDecodeError as error:
        msg = f"{where} is not JSON: byte {error.start} is not UTF-8"
        raise BundleError(msg) from error
    except (ValueError, RecursionError) as error:
        msg = f"{where} is not JSON: {(str(error).splitlines() or [''])[0]}"
        raise BundleError(msg) from error
    if not isinstance(content, dict):
        msg = f"{where} is not a manifest: an object is wanted"
        raise BundleError(msg)
    schema = content.get("schema_version", SCHEMA_VERSION)
    if type(schema) is not int or schema != SCHEMA_VERSION:
        newer = isinstance(schema, int) and schema > SCHEMA_VERSION
        way_out = "update twinlens" if newer else "make the bundle anew"
        msg = f"{where} has schema_version {schema!r}; this program reads {SCHEMA_VERSION}: {way_out}"
        raise BundleError(msg)
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        msg = f"{where} is wrong: {first_problem(error)}"
        raise BundleError(msg) from error


def verify_digests(path: str | Path, manifest: Manifest, *, called: str = "", without_training: bool = False) -> None:
    """Checks that every listed file is there with the listed size and SHA-256, and that the graphs read no other.

    Args:
        path: The bundle's folder.
        manifest: Its manifest.
        called: What to call the bundle in messages where the folder says nothing to people.
        without_training: Leave out what only training reads, as serving does: it may even be missing.

    Raises:
        BundleError: naming the first file that is not as it should be.
    """
    folder = Path(path)
    entries = [entry for entry in manifest.files if not (without_training and entry.path == TRAINING_FILE)]
    try:
        for entry in entries:
            check_present(folder, entry)
        for entry in entries:
            _check_digest(folder, entry)
        for tower in (manifest.image, manifest.text):
            if tower is not None:
                _check_side_files(folder, manifest, tower)
    except BundleError as error:
        msg = f"bundle {called or folder} {error}{_way_out(folder)}"
        raise BundleError(msg) from error


def source_mark(folder: Path) -> Path:
    """The file beside a copied bundle that holds the address it was copied from."""
    return folder.parent / f".{folder.name}.source"


def _way_out(folder: Path) -> str:
    try:
        source = source_mark(folder).read_text(encoding="utf-8").strip()
    except (OSError, ValueError):
        return ""
    return f" (a copy of {source}; delete the folder {folder} and it is fetched anew)"


def _check_digest(folder: Path, entry: FileEntry) -> None:
    try:
        found = sha256_of(folder / entry.path)
    except OSError as error:
        msg = f"cannot be read: {entry.path}: {error.strerror or error}"
        raise BundleError(msg) from error
    if found != entry.sha256:
        msg = f"is corrupt: {entry.path} has SHA-256 {found[:12]}…, {entry.sha256[:12]}… expected"
        raise BundleError(msg)


def check_present(folder: Path, entry: FileEntry) -> None:
    """Checks that a file is there, inside the bundle and of the listed size, without reading it.

    Raises:
        BundleError: naming the file; the bundle is for the caller to name.
    """
    file = folder / entry.path
    try:
        size = file.stat().st_size if file.is_file() else None
        stays = file.resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError) as error:  # RuntimeError: links that go in a circle
        msg = f"cannot be read: {entry.path}: {getattr(error, 'strerror', None) or error}"
        raise BundleError(msg) from error
    if size is None:
        msg = f"is incomplete: {entry.path} is missing"
        raise BundleError(msg)
    if not stays:
        msg = f"is not whole: {entry.path} is a link that leads outside; copy the file itself"
        raise BundleError(msg)
    if size != entry.size:
        msg = f"is corrupt: {entry.path} has {size} bytes, {entry.size} expected"
        raise BundleError(msg)


def read_beside(folder: Path, graph: str) -> list[str]:
    """The files that a graph of a bundle reads its weights from, relative to the bundle.

    Raises:
        BundleError: if it is no ONNX graph, or names a file that is not below its own folder.
    """
    return [str(PurePosixPath(graph).parent / name) for name in side_files(folder / graph)]


def _check_side_files(folder: Path, manifest: Manifest, tower: ImageTower | TextTower) -> None:
    listed = {entry.path for entry in manifest.files}
    for precision, graph in tower.files.by_precision().items():
        try:
            read = read_beside(folder, graph)
        except BundleError as error:
            msg = f"is not sound: {error}"
            raise BundleError(msg) from error
        if missing := [path for path in read if path not in listed]:
            msg = f"is not sound: {graph} reads weights from {missing[0]}, which the manifest does not list"
            raise BundleError(msg)
        if precision != "fp32":  # outside the space
            continue
        if uncounted := sorted(set(read).difference(weights_beside(tower.files, manifest.files))):
            msg = f"is not sound: {graph} reads weights from {uncounted[0]}, which space_id does not cover"
            raise BundleError(msg)
        if idle := sorted(set(tower.files.side_files).difference(read)):
            msg = f"is not sound: {graph} does not read {idle[0]}, which the manifest counts as its weights"
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
