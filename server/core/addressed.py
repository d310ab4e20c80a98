"""Pictures named by their address, among inputs to embed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from twinlens.server.core.call import Call
from twinlens.server.core.errors import as_item_failure
from twinlens.server.core.fetch import Fetcher
from twinlens.server.core.fetching.errors import NotFetched

if TYPE_CHECKING:
    from twinlens.server.core.engine import Input, Outcome

Embed = Callable[[Sequence["Input"], Call], Awaitable[list["Outcome"]]]


async def embed_addressed(inputs: Sequence[Input], call: Call, fetcher: Fetcher, embed: Embed) -> list[Outcome]:
    """Embeds inputs of which some are addresses, each fetched and embedded on its own beside the others.

    Args:
        inputs: What to embed.
        call: The call this is for; its priority is the one to fetch with.
        fetcher: Fetches.
        embed: Embeds inputs none of which is an address.

    Returns:
        Outcomes in the order of the inputs.
    """
    from twinlens.server.core.engine import Outcome, Picture, PictureAt  # noqa: PLC0415 - which calls this

    outcomes: list[Outcome | None] = [None] * len(inputs)
    lost = fetcher.lost_time()
    here = [position for position, entry in enumerate(inputs) if not isinstance(entry, PictureAt)]

    async def rest() -> None:
        for position, outcome in zip(here, await embed([inputs[i] for i in here], call), strict=True):
            outcomes[position] = outcome

    async def one(position: int, url: str) -> None:
        try:
            # Its place is kept until it is embedded: so many fetched pictures lie in memory at a time.
            async with fetcher.held(url, call, lost) as data:
                (outcomes[position],) = await embed([Picture(data)], call)
        except NotFetched as error:
            outcomes[position] = Outcome(failure=as_item_failure(error))

    tasks = [
        asyncio.create_task(one(position, entry.url))
        for position, entry in enumerate(inputs)
        if isinstance(entry, PictureAt)
    ]
    if here:
        tasks.append(asyncio.create_task(rest()))
    try:
        await asyncio.gather(*tasks)
    finally:
        for task in tasks:  # where one ended the call, nobody waits for the others
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    return [outcome for outcome in outcomes if outcome is not None]
