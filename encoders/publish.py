"""Publishing a bundle: all of it appears at once under its final name, or nothing does."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import ValidationError

from twinlens.encoders.bundle import (
    first_problem,
    parse_manifest,
    read_beside,
    read_manifest,
    sha256_of,
    verify_digests,
)
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
    served_files,
)
from twinlens.encoders.placing import place, temporary_sibling

Tower = TypeVar("Tower", ImageTower, TextTower)


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
        draft: The manifest's contents. Which files the graphs read their weights from is found in the graphs.
        staging: A folder with `image.onnx`, `text.onnx`, `tokenizer.json`, `parity/`, and whatever lies beside a
            graph (`image.onnx.data`). Every file in it becomes part of the bundle.
        destination: The bundle's folder, `<repository>/<name>/<version>`; parents are created.

    Returns:
        The manifest as published. If the destination already is a sound bundle of the same space and the same files
        to serve, nothing is written and its manifest is returned.

    Raises:
        BundleError: if a file is missing, the manifest would be wrong, the destination holds something else, or the
            disk is full or read-only.
    """
    if not staging.is_dir():
        msg = f"nothing to publish: {staging} is not a folder"
        raise BundleError(msg)
    try:
        manifest = _manifest(draft, staging)
    except OSError as error:
        msg = f"cannot publish {staging}: {error.filename}: {error.strerror or error}"
        raise BundleError(msg) from error
    return copy_bundle(manifest, (manifest.model_dump_json(indent=2) + "\n").encode(), staging, destination)


def copy_bundle(manifest: Manifest, raw: bytes, source: Path, destination: Path) -> Manifest:
    """Places the files of a manifest, copied from `source`, at `destination`: as `publish`.

    Args:
        manifest: The manifest.
        raw: The same as it is written to `bundle.json`.
        source: Where the files are.
        destination: The bundle's folder.

    Raises:
        BundleError: as `publish`.
    """
    if parse_manifest(raw, MANIFEST_NAME) != manifest:
        msg = f"cannot publish {manifest.name}/{manifest.version}: its manifest would not be read as it was written"
        raise BundleError(msg)
    if (existing := _existing(destination, manifest)) is not None:
        return existing
    try:
        with temporary_sibling(destination) as sibling:
            sibling.mkdir()
            for entry in manifest.files:
                target = sibling / entry.path
                target.parent.mkdir(parents=True, exist_ok=True)
                # With the rights that new files get: staging folders are often private.
                shutil.copyfile(source / entry.path, target)
            (sibling / MANIFEST_NAME).write_bytes(raw)
            # The source was still while we copied.
            verify_digests(sibling, manifest, called=str(source))
            place(sibling, destination)
    except OSError as error:
        # Perhaps somebody else published here meanwhile.
        if (existing := _existing(destination, manifest)) is not None:
            return existing
        msg = f"cannot publish to {destination}: {error.strerror or error}"
        raise BundleError(msg) from error
    return manifest


def refuse_another(found: Manifest, wanted: Manifest, where: str) -> None:
    """Refuses to put a bundle where another one is.

    Raises:
        BundleError: if they are of different spaces, or serve different files.
    """
    holds = f"cannot publish to {where}: it holds {found.name}/{found.version}"
    if found.space_id != wanted.space_id:
        msg = (
            f"{holds} of space {found.space_id[:12]}, not {wanted.space_id[:12]}; "
            "bundles are immutable, choose another version"
        )
        raise BundleError(msg)
    if served_files(found) != served_files(wanted):
        different = sorted(dict(served_files(found).items() ^ served_files(wanted).items()))
        msg = (
            f"{holds} of the same space, but other {', '.join(different)}; "
            "bundles are immutable, choose another version"
        )
        raise BundleError(msg)


def _existing(destination: Path, wanted: Manifest) -> Manifest | None:
    try:
        if not destination.exists() or (destination.is_dir() and not any(destination.iterdir())):
            return None
    except OSError as error:
        msg = f"cannot publish to {destination}: {error.strerror or error}"
        raise BundleError(msg) from error
    there = "something else"
    try:
        found = read_manifest(destination)
        there = "a damaged copy"
        verify_digests(destination, found)
    except BundleError as error:
        msg = (
            f"cannot publish to {destination}: there is {there} already ({error}); delete it, or choose another version"
        )
        raise BundleError(msg) from error
    refuse_another(found, wanted, str(destination))
    return found


def _manifest(draft: BundleDraft, staging: Path) -> Manifest:
    try:
        files = _entries(staging)
        image = None if draft.image is None else _with_side_files(draft.image, staging, files)
        text = None if draft.text is None else _with_side_files(draft.text, staging, files)
        return Manifest(
            name=draft.name,
            version=draft.version,
            dimension=draft.dimension,
            image=image,
            text=text,
            scoring=draft.scoring,
            files=files,
            space_id=compute_space_id(draft.dimension, image, text, files),
            lineage=draft.lineage,
            metrics=dict(draft.metrics),
            licence=draft.licence,
            languages=draft.languages,
            description=draft.description,
        )
    except ValidationError as error:
        msg = f"cannot publish {draft.name}/{draft.version}: {first_problem(error)}"
        raise BundleError(msg) from error


def _entries(staging: Path) -> tuple[FileEntry, ...]:
    entries = []
    for file in sorted(staging.rglob("*")):
        path = file.relative_to(staging).as_posix()
        if (file.is_dir() and not file.is_symlink()) or path == MANIFEST_NAME:  # a stale manifest is made anew
            continue
        if not file.is_file():
            msg = f"cannot publish {file}: it is neither a file nor a folder, or links to something that is not a file"
            raise BundleError(msg)
        entries.append(FileEntry(path=path, sha256=sha256_of(file), size=file.stat().st_size))
    return tuple(entries)


def _with_side_files(tower: Tower, staging: Path, files: tuple[FileEntry, ...]) -> Tower:
    """The tower with the files its fp32 graph reads; every graph's files must be there."""
    listed = {entry.path for entry in files}
    read: dict[str, list[str]] = {}
    for precision, graph in tower.files.by_precision().items():
        if graph not in listed:
            continue  # the manifest will say so
        try:
            read[precision] = read_beside(staging, graph)
        except BundleError as error:
            msg = f"cannot publish {staging}: {error}"
            raise BundleError(msg) from error
        if missing := [path for path in read[precision] if path not in listed]:
            msg = f"cannot publish {staging}: {graph} reads weights from {missing[0]}, which is not there"
            raise BundleError(msg)
    found = tower.files.model_copy(update={"side_files": tuple(read.get("fp32", ()))})
    return tower.model_copy(update={"files": found})
