"""A channel whose connection is its own and is gone when it is closed; gRPC would share and keep one."""

from __future__ import annotations

from collections.abc import Sequence

import grpc

_ALONE = (
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
    # A server that comes back is found at once.
    ("grpc.initial_reconnect_backoff_ms", 50),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 100),
)


def own_channel(address: str, options: Sequence[tuple[str, int]] = ()) -> grpc.aio.Channel:
    """A channel that shares nothing, and does not try again by itself."""
    return grpc.aio.insecure_channel(address, options=[*_ALONE, *options])
