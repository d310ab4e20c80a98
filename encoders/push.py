"""Publishing to object storage, where nothing can be renamed: files first, the manifest last."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import MANIFEST_NAME, FileEntry, Manifest
from twinlens.encoders.publish import refuse_another
from twinlens.encoders.stored_bundle import StoredBundle, one_line
from twinlens.encoders.transfer import OnBytes, ignore_bytes, sizes, upload

# Written before the first file: two pushes of different bundles to one place would mix their files.
_CLAIM: Final = ".pushing"
# No push takes a day: whoever claimed the place longer ago is gone.
_ABANDONED_S: Final = 24 * 3600.0


def push(folder: Path, manifest: Manifest, raw: bytes, to: StoredBundle, on_bytes: OnBytes = ignore_bytes) -> Manifest:
    """Publishes the sound bundle in `folder` to `to`.

    The appearance of the manifest is the moment it is published: until then no reader sees it. Pushing the same again
    uploads the files that are missing there or of another size, which is none as a rule.

    Args:
        folder: The bundle's folder.
        manifest: Its manifest.
        raw: The same as it is written.
        to: Where to.
        on_bytes: Told of progress.

    Returns:
        The manifest of the bundle there.

    Raises:
        BundleError: if another bundle is there or on its way, or the place cannot be written.
    """
    with one_line(f"cannot publish to {to.shown}"), _claimed(manifest, to):
        # Only now: whoever had the claim before us has published before letting go of it.
        found = _published(manifest, to)
        upload(folder, manifest.files if found is None else _to_mend(found, manifest, to), to, on_bytes)
        _check_arrived(found or manifest, to)
        if found is None:
            try:
                to.fs.pipe_file(f"{to.path}/{MANIFEST_NAME}", raw, mode="create")
            except FileExistsError:  # whoever pushed the same beside us was first
                found = _published(manifest, to)
    return found or manifest


@contextmanager
def _claimed(manifest: Manifest, to: StoredBundle) -> Iterator[None]:
    """Holds the place for bundles of the same contents, several at once, until one of them is published."""
    path = f"{to.path}/{_CLAIM}"
    ours = {"space_id": manifest.space_id, "files": sorted(entry.sha256 for entry in manifest.files)}
    claim = json.dumps({**ours, "time": time.time()}).encode()
    to.fs.makedirs(to.path, exist_ok=True)
    try:
        to.fs.pipe_file(path, claim, mode="create")
    except FileExistsError:
        theirs = _read_claim(path, to) or {**ours, "time": 0.0}  # let go of just now
        since = theirs.pop("time")
        if theirs != ours and time.time() - since < _ABANDONED_S:
            _published(manifest, to)  # if it is, that is what there is to say
            msg = (
                f"cannot publish to {to.shown}: a push of space {theirs['space_id'][:12]} is under way there or was "
                f"broken off; wait, choose another version, or remove {to.shown}/{_CLAIM}"
            )
            raise BundleError(msg) from None
        to.fs.pipe_file(path, claim)
    try:
        yield
    finally:
        with suppress(Exception):  # left behind it does no harm but to others, for a day
            # Broken off before anything is published: somebody who pushes the same beside us still needs the claim.
            if to.read() is not None:
                to.fs.rm_file(path)


def _read_claim(path: str, to: StoredBundle) -> dict[str, Any] | None:
    try:
        claim = json.loads(to.fs.cat_file(path))
        return {"space_id": str(claim["space_id"]), "files": claim["files"], "time": float(claim["time"])}
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        msg = f"cannot publish to {to.shown}: remove {to.shown}/{_CLAIM}, which no push has written"
        raise BundleError(msg) from error


def _published(manifest: Manifest, to: StoredBundle) -> Manifest | None:
    raw = to.read()
    if raw is None:
        return None
    try:
        found = to.parse(raw)
    except BundleError as error:
        msg = (
            f"cannot publish to {to.shown}: there is something else already ({error}); delete it, or choose another "
            "version"
        )
        raise BundleError(msg) from error
    refuse_another(found, manifest, to.shown)
    return found


def _to_mend(found: Manifest, manifest: Manifest, to: StoredBundle) -> tuple[FileEntry, ...]:
    wanted = {entry.path: entry.sha256 for entry in found.files}
    present = sizes(to)
    return tuple(
        entry
        for entry in manifest.files
        if wanted.get(entry.path) == entry.sha256 and present.get(entry.path) != entry.size
    )


def _check_arrived(manifest: Manifest, to: StoredBundle) -> None:
    present = sizes(to)
    for entry in manifest.files:
        if present.get(entry.path) != entry.size:
            msg = f"cannot publish to {to.shown}: {entry.path} is not whole there; push again"
            raise BundleError(msg)
