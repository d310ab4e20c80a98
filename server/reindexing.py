"""Re-indexing a data folder from the command line: opens it, moves every collection, then makes the bundle active."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from twinlens.encoders.protocol import EncoderLike, variant_of
from twinlens.server.core.active import Active, StartError, load_encoder, open_catalog, write_active
from twinlens.server.core.app import Application
from twinlens.server.core.reindex import Progress, ReindexReport, drop_others, reindex
from twinlens.server.descriptors import allow_many_files
from twinlens.server.settings import Settings


def reindex_folder(
    data: Path,
    bundle: Path,
    settings: Settings,
    progress: Callable[[Progress], None],
    *,
    encoder: EncoderLike | None = None,
    drop_old: bool = False,
) -> ReindexReport:
    """Moves every collection of a data folder to a bundle; run it again after an interruption and it goes on.

    The folder must not be served meanwhile. active.json is rewritten last, so until then the old pair can be served.

    Args:
        data: The data folder.
        bundle: The new bundle.
        settings: Provider and threads.
        progress: Called as items are done.
        encoder: Use this encoder instead of loading the bundle.
        drop_old: Remove the vectors of all other encoders at the end; the way back is then to embed everything again.

    Raises:
        StartError: one line saying why it cannot be done.
    """
    if not data.is_dir():
        msg = f"there is no data folder {data}"
        raise StartError(msg)
    allow_many_files()
    bundle = bundle.expanduser().resolve()
    loaded = encoder if encoder is not None else load_encoder(bundle, settings, data)
    catalog = open_catalog(data, settings, variant_of(loaded))

    async def run() -> ReindexReport:
        app = Application(loaded, catalog, settings)
        try:
            report = await reindex(app, progress)
            write_active(data, Active(bundle, loaded.manifest.space_id))
            return replace(report, dropped=await drop_others(app)) if drop_old else report
        finally:
            await app.close()

    return asyncio.run(run())
