"""The asynchronous client with the habits of the blocking one."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, Self

from twinlens.client import AsyncClient


class Blocking:
    """An AsyncClient with the calling habits of a Client, so that one test body covers both."""

    def __init__(self, target: str, **options: Any) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        try:
            self._client = self._wait(self._make(target, options))
        except BaseException:
            self._end()
            raise

    @staticmethod
    async def _make(target: str, options: dict[str, Any]) -> AsyncClient:
        return AsyncClient(target, **options)

    def _wait(self, awaitable: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(awaitable, self._loop).result()

    def __getattr__(self, name: str) -> Callable[..., Any]:
        method = getattr(self._client, name)

        def call(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            return self._wait(result if inspect.iscoroutine(result) else _collect(result))

        return call

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._wait(self._client.close())
        self._end()

    def _end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _collect(values: AsyncIterator[Any]) -> list[Any]:
    return [value async for value in values]
