"""Items as they come in, and the groups they are worked on in."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.index.errors import InvalidArgument
from twinlens.index.ids import check_item_id
from twinlens.index.item import Modality
from twinlens.server.core.errors import ItemFailure, Reason

GROUP_ITEMS = 64
# Of items that bring their vectors: a transaction costs the same for more of them, and nobody waits for a tower.
BROUGHT_GROUP_ITEMS = 256
GROUP_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True)
class Incoming:
    """An item as it came in; `fault` is set if it could not even be read.

    Attributes:
        position: Its place in the stream, from 0.
        image: The encoded picture; empty means none.
        image_url: Where to fetch it instead.
        vectors: Brought instead of being embedded, each of shape (d,).
        size_bytes: What all of it took on the wire.
    """

    position: int
    id: str = ""
    uri: str = ""
    caption: str = ""
    image: bytes = b""
    image_url: str = ""
    vectors: Mapping[Modality, NDArray[np.float32]] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)
    size_bytes: int = 0
    fault: ItemFailure | None = None


def fault_of(item: Incoming) -> ItemFailure | None:
    """What keeps an item from being stored, whatever else may; None: nothing so far."""
    if not item.image and not item.caption:
        if not item.vectors:
            return ItemFailure(Reason.INVALID_INPUT, "the item has neither image nor caption")
        if not item.id:
            return ItemFailure(Reason.INVALID_INPUT, "an item of vectors alone needs an id")
    try:
        if item.id:  # refused before the item is embedded for nothing
            check_item_id(item.id)
    except InvalidArgument as error:
        return ItemFailure(Reason.INVALID_INPUT, str(error))
    return None


async def in_groups(items: AsyncIterator[Incoming]) -> AsyncGenerator[list[Incoming], None]:
    """Items in their order, as many at a time as are embedded and written together."""
    group: list[Incoming] = []
    size_bytes = 0
    async for item in items:
        group.append(item)
        size_bytes += item.size_bytes
        most = BROUGHT_GROUP_ITEMS if item.vectors else GROUP_ITEMS
        if len(group) >= most or size_bytes >= GROUP_BYTES:
            yield group
            group, size_bytes = [], 0
    if group:
        yield group
