"""Health as a load balancer sees it: by a stream of changes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from grpc_health.v1 import health_pb2, health_pb2_grpc

from tests.support.chaos.channels import own_channel


@asynccontextmanager
async def health_changes(address: str) -> AsyncIterator[list[int]]:
    """Statuses that a server tells of after the first, which is SERVING, as they come in within the block."""
    changes: list[int] = []
    async with own_channel(address) as channel:
        watch: Any = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
        assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING

        async def note() -> None:
            async for reply in watch:
                changes.append(reply.status)  # noqa: PERF401 - they are looked at while more come

        noting = asyncio.create_task(note())
        try:
            yield changes
        finally:
            watch.cancel()
            await asyncio.gather(noting, return_exceptions=True)
