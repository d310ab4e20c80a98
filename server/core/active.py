"""Which bundle a data folder belongs to, and what may be started on it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from twinlens.encoders.errors import BundleError, RuntimeUnavailable
from twinlens.encoders.find_bundle import find_bundle
from twinlens.encoders.protocol import EncoderLike, variant_of
from twinlens.index.contract import CatalogLike
from twinlens.index.durable import replace_file
from twinlens.index.errors import CollectionError
from twinlens.server.core.catalogs import all_collections, make_catalog, name_damaged
from twinlens.server.core.not_tuned import NotTuned
from twinlens.server.core.thread_shares import thread_shares
from twinlens.server.settings import Settings

if TYPE_CHECKING:
    from twinlens.server.core.tuned import Tuned

ACTIVE_NAME = "active.json"


class StartError(Exception):
    """Nothing can be served from this folder with this bundle. The message is one line that says what to do."""


class _NotTheBundle(StartError):  # noqa: N818 - reads as what it is
    """The bundle is not to blame: a runtime or a measurement is missing."""


@dataclass(frozen=True, slots=True)
class Active:
    """The bundle a data folder is served with."""

    bundle: Path
    space_id: str


def read_active(data: Path) -> Active | None:
    """What active.json says; None where there is none.

    Raises:
        StartError: if it cannot be understood.
    """
    path = data / ACTIVE_NAME
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return Active(bundle=_path(content["bundle"]), space_id=str(content["space_id"]))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError, KeyError, TypeError):
        msg = f"{path} cannot be read; name the bundle with --bundle DIR"
        raise StartError(msg) from None


def write_active(data: Path, active: Active) -> None:
    """Replaces active.json in one durable step."""
    content = json.dumps({"bundle": str(active.bundle), "space_id": active.space_id}, indent=2) + "\n"
    replace_file(data / ACTIVE_NAME, content)


def bundle_folder(bundle: str) -> Path:
    """The folder of a bundle, named as `find_bundle` takes it; names are looked up in ./models.

    Raises:
        StartError: one line saying why it cannot be had.
    """
    try:
        return find_bundle(bundle if "://" in bundle else str(Path(bundle).expanduser()))
    except BundleError as error:
        raise StartError(str(error)) from None


def load_encoder(bundle: Path, settings: Settings, data: Path | None = None) -> EncoderLike:
    """Loads and verifies a bundle.

    Args:
        bundle: Its folder.
        settings: Provider, precision and threads.
        data: Where the choice of `--tune` is remembered.

    Raises:
        StartError: one line saying what is wrong with it.
    """
    from twinlens.encoders.encoder import Encoder  # noqa: PLC0415 - brings the runtime, which a fake does without

    threads = thread_shares(settings).encode
    try:
        if settings.precision != "tuned" and not settings.tune:
            return Encoder.load(bundle, provider=settings.provider, precision=settings.precision, threads=threads)
        choice = _tuned(bundle, threads, data, anew=settings.tune)
        return Encoder.load(bundle, provider=choice.providers, precision=choice.precisions, threads=threads)
    except BundleError as error:
        raise StartError(str(error)) from None
    except (RuntimeUnavailable, NotTuned) as error:
        raise _NotTheBundle(str(error)) from None


def _tuned(bundle: Path, threads: int, data: Path | None, *, anew: bool) -> Tuned:
    from twinlens.server.core.tuned import measure, recall  # noqa: PLC0415 - brings the runtime

    if data is None:
        raise NotTuned("there is no data folder to remember the choice in: name a precision")
    return measure(data, bundle, threads) if anew else recall(data, bundle, threads)


def open_catalog(data: Path, settings: Settings, variant: str) -> CatalogLike:
    """Opens the collections that belong to a data folder.

    Args:
        data: The folder; made if missing.
        settings: What searches, and how.
        variant: What will compute vectors for them (`Encoder.variant`); it is kept with these.

    Raises:
        StartError: if another process holds the folder or it cannot be used, or a setting names no place.
    """
    try:
        data.mkdir(parents=True, exist_ok=True)
        return make_catalog(data, settings, variant)
    except CollectionError as error:
        raise StartError(str(error)) from None
    except OSError as error:
        msg = f"the data folder {data} cannot be used: {error.strerror}"
        raise StartError(msg) from None


def check_spaces(catalog: CatalogLike, data: Path, bundle: str, space_id: str, active: Active | None) -> None:
    """Refuses to serve collections of one space with a bundle of another.

    Raises:
        StartError: naming both sides and the way out.
    """
    others = [collection for collection in all_collections(catalog) if collection.space_id != space_id]
    if not others:
        return
    names = ", ".join(collection.id for collection in others[:3]) + (", …" if len(others) > 3 else "")
    theirs = others[0].space_id
    owner = f" (bundle {active.bundle})" if active is not None and active.space_id == theirs else ""
    mixed = len({collection.space_id for collection in all_collections(catalog)}) > 1
    way_out = "finish moving all of them" if mixed else "start with their bundle, or move them"
    msg = (
        f"the collections in {data} ({names}) belong to space {theirs[:12]}{owner}, but bundle {bundle} is space "
        f"{space_id[:12]}; {way_out} with `twinlens reindex --local {data} --bundle DIR`"
    )
    raise StartError(msg)


def open_data(
    data: Path, bundle: Path | None, settings: Settings, encoder: EncoderLike | None = None
) -> tuple[EncoderLike, CatalogLike]:
    """Opens a data folder with a bundle, by default the one it was served with before.

    Args:
        data: The folder; made if missing.
        bundle: The bundle's folder.
        settings: Provider and threads.
        encoder: Serve with this one instead of loading a bundle; active.json is left alone.

    Returns:
        The encoder and the collections, which the caller closes.

    Raises:
        StartError: one line saying what is wrong and what to do.
    """
    try:
        active = read_active(data)
    except StartError:
        if bundle is None:
            raise
        active = None  # it is written anew below
    remembered = bundle is None and active is not None
    if bundle is None and active is not None:
        bundle = active.bundle
    if bundle is None and encoder is None:
        msg = f"{data} has not been served before: name the bundle with --bundle DIR"
        raise StartError(msg)
    if settings.tune and encoder is None:
        # Whoever serves this folder already must not feel a minute of measuring, nor find its choice replaced.
        open_catalog(data, settings, variant="").close()
    try:
        loaded = encoder if encoder is not None else load_encoder(_resolved(bundle), settings, data)
    except StartError as error:
        if not remembered or isinstance(error, _NotTheBundle):
            raise
        msg = f"{error} (named by {data / ACTIVE_NAME}; name another with --bundle DIR)"
        raise StartError(msg) from None
    catalog = open_catalog(data, settings, variant_of(loaded))
    try:
        space_id = loaded.manifest.space_id
        named = f"{loaded.manifest.name}/{loaded.manifest.version}"
        name_damaged(catalog)
        check_spaces(catalog, data, str(bundle) if bundle is not None else named, space_id, active)
        if encoder is None:
            now = Active(_resolved(bundle), space_id)
            if now != active:
                write_active(data, now)
    except StartError:
        catalog.close()
        raise
    except CollectionError as error:
        catalog.close()
        raise StartError(str(error)) from None
    except OSError as error:
        catalog.close()
        msg = f"the data folder {data} cannot be written: {error.strerror}"
        raise StartError(msg) from None
    return loaded, catalog


def _resolved(bundle: Path | None) -> Path:
    assert bundle is not None  # noqa: S101 - callers checked
    return bundle.expanduser().resolve()


def _path(text: str) -> Path:
    if "\0" in text:
        raise ValueError("a path cannot hold NUL")
    return Path(text)
