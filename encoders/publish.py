"""Publishing a bundle: all of it appears at once under its final name, or nothing does."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationError

from twinlens.encoders.bundle import first_problem, read_manifest, sha256_of, verify_digests
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import (
    MANIFEST_NAME,
    FileEntry,
    ImageTower,
    Lineage,
    Manifest,
    ScoringRule,
    TextTower,
    compute_space_id,
)


@dataclass(frozen=True, slots=True)
class BundleDraft:
    """What the maker of a bundle knows; digests and `space_id` are computed on publishing."""

    name: str
    version: str
    dimension: int
    image: ImageTower | None = None
    text: TextTower | None = None
    scoring: ScoringRule = field(default_factory=ScoringRule)
    lineage: Lineage = field(default_factory=Lineage)
    metrics: Mapping[str, float] = field(default_factory=dict)
    licence: str = ""
    languages: tuple[str, ...] = ()
    description: str = ""


def publish(draft: BundleDraft, staging: Path, destination: Path) -> Manifest:
    """Publishes the files in `staging` as the bundle `destination`.

    The files are copied to a temporary sibling of the destination, made durable (fsync) and renamed, so a reader sees
    the whole bundle or none, also after a crash. `staging` is left as it is.

    Args:
        draft: The manifest's contents.
        staging: A folder with `image.onnx`, `text.onnx`, `tokenizer.json`, `parity/`, and whatever lies beside a
            graph (`image.onnx.data`). Every file in it becomes part of the bundle.
        destination: The bundle's folder, `<repository>/<name>/<version>`; parents are created.

    Returns:
        The manifest as published. If the destination already is a sound bundle of the same space, nothing is written
        and its manifest is returned.

    Raises:
        BundleError: if a file is missing, the manifest would be wrong, or the destination holds something else.
    """
    if not staging.is_dir():
        msg = f"nothing to publish: {staging} is not a folder"
        raise BundleError(msg)
    manifest = _manifest(draft, _entries(staging))
    if (existing := _existing(destination, manifest)) is not None:
        return existing
    destination.parent.mkdir(parents=True, exist_ok=True)
    sibling = destination.parent / f".{destination.name}.{secrets.token_hex(6)}.tmp"
    try:
        _copy(staging, sibling)
        (sibling / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=2) + "\n", encoding="utf-8")
        verify_digests(sibling, manifest)  # the staging folder was still while we copied
        _sync_tree(sibling)
        try:
            sibling.rename(destination)
        except OSError as error:
            # Somebody else published here meanwhile.
            if (existing := _existing(destination, manifest)) is not None:
                return existing
            msg = f"cannot publish to {destination}: {error.strerror}"
            raise BundleError(msg) from error
        _sync(destination.parent)
    finally:
        shutil.rmtree(sibling, ignore_errors=True)
    return manifest


def _copy(staging: Path, sibling: Path) -> None:
    """Copies all but a stale manifest, with the rights that new files get: staging folders are often private."""
    for path in (staging, *sorted(staging.rglob("*"))):
        target = sibling / path.relative_to(staging)
        if path.is_dir():
            target.mkdir()
        elif path != staging / MANIFEST_NAME:
            shutil.copyfile(path, target)


def _entries(staging: Path) -> tuple[FileEntry, ...]:
    entries = []
    for file in sorted(staging.rglob("*")):
        path = file.relative_to(staging).as_posix()
        if not file.is_file() or path == MANIFEST_NAME:
            continue
        entries.append(FileEntry(path=path, sha256=sha256_of(file), size=file.stat().st_size))
    return tuple(entries)


def _manifest(draft: BundleDraft, files: tuple[FileEntry, ...]) -> Manifest:
    try:
        return Manifest(
            name=draft.name,
            version=draft.version,
            dimension=draft.dimension,
            image=draft.image,
            text=draft.text,
            scoring=draft.scoring,
            files=files,
            space_id=compute_space_id(draft.dimension, draft.image, draft.text, files),
            lineage=draft.lineage,
            metrics=dict(draft.metrics),
            licence=draft.licence,
            languages=draft.languages,
            description=draft.description,
        )
    except ValidationError as error:
        msg = f"cannot publish {draft.name}/{draft.version}: {first_problem(error)}"
        raise BundleError(msg) from error


def _existing(destination: Path, wanted: Manifest) -> Manifest | None:
    if not destination.exists() or (destination.is_dir() and not any(destination.iterdir())):
        return None
    try:
        found = read_manifest(destination)
        verify_digests(destination, found)
    except BundleError as error:
        msg = f"cannot publish to {destination}: there is something else already ({error})"
        raise BundleError(msg) from error
    if found.space_id != wanted.space_id:
        msg = (
            f"cannot publish to {destination}: it holds {found.name}/{found.version} of space {found.space_id[:12]}, "
            f"not {wanted.space_id[:12]}; bundles are immutable, choose another version"
        )
        raise BundleError(msg)
    return found


def _sync_tree(folder: Path) -> None:
    for path in folder.rglob("*"):
        _sync(path)
    _sync(folder)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
