"""The canary: a picture and a text that go the whole way, to know that the server works and not only runs."""

from __future__ import annotations

import asyncio
import io
import logging
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import CollectionNotFound, CorruptCollection
from twinlens.index.item import Modality
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Input, Picture, Text
from twinlens.server.core.lanes import Priority

if TYPE_CHECKING:
    from twinlens.server.core.app import Application

log = logging.getLogger(__name__)

_TRIED = 16  # collections, until one is whole


def canary_picture() -> bytes:
    """A small PNG with a gradient; some towers give degenerate vectors for one flat colour."""
    from PIL import Image  # noqa: PLC0415 - only where a canary flies

    rows, columns = np.mgrid[0:32, 0:32].astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(np.stack([rows * 8, columns * 8, rows + columns], axis=-1)).save(buffer, format="PNG")
    return buffer.getvalue()


async def fly(app: Application, picture: bytes, timeout_s: float) -> None:
    """Embeds through the towers there are and asks the index.

    Raises:
        RuntimeError: if a tower failed.
        TimeoutError: if it took longer than `timeout_s`.
    """
    engine = app.engine
    inputs: list[Input] = []
    if engine.has_image_tower:
        inputs.append(Picture(picture))
    if engine.has_text_tower:
        inputs.append(Text("canary"))
    async with asyncio.timeout(timeout_s):
        deadline_s = asyncio.get_running_loop().time() + timeout_s
        call = Call(request_id="canary", deadline_s=deadline_s, priority=Priority.URGENT)
        outcomes = await engine.embed(inputs, call)
        for outcome in outcomes:
            if outcome.vector is None:
                reason = outcome.failure.message if outcome.failure else "no vector"
                msg = f"the canary did not come through the encoder: {reason}"
                raise RuntimeError(msg)
        await _ask_index(app, np.stack([np.asarray(outcome.vector) for outcome in outcomes]), call)


async def _ask_index(app: Application, vectors: NDArray[np.float32], call: Call) -> None:
    """Searches the first collection that is whole: one that is damaged must not stop the others."""
    space_id = app.engine.manifest.space_id
    modality = Modality.IMAGE if app.engine.has_image_tower else Modality.TEXT
    for collection in await app.io.submit(call.priority, app.catalog.list, limit=_TRIED):
        try:
            if collection.space_id != space_id:
                continue
            await app.io.submit(
                call.priority,
                collection.search,
                vectors,
                modality=modality,
                top_k=1,
                space_id=space_id,
                sample=False,
            )
        except (CorruptCollection, CollectionNotFound) as error:  # the latter: deleted meanwhile
            log.warning("%s", error)
        else:
            return
