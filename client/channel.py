"""How a channel to a server is set up: message sizes, keepalive, retries, deadlines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TypeAlias

from twinlens.client.errors import invalid

ChannelOptions: TypeAlias = "Sequence[tuple[str, str | int]]"

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# Default deadlines of a call in seconds: of one that asks, and of one that stores or deletes.
TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 600.0

# Calls that change nothing may be sent again; UpsertItems, CreateCollection and the deletions never are.
_READS = (
    ("twinlens.v1.EmbeddingService", "Embed"),
    ("twinlens.v1.SearchService", "Search"),
    ("twinlens.v1.ClassificationService", "Classify"),
    ("twinlens.v1.CollectionService", "GetCollection"),
    ("twinlens.v1.CollectionService", "ListCollections"),
    ("twinlens.v1.CollectionService", "GetItem"),
    ("twinlens.v1.CollectionService", "ListItems"),
    ("twinlens.v1.CollectionService", "CountItems"),
    ("twinlens.v1.CollectionOperationsService", "CheckCollection"),
    ("twinlens.v1.CollectionOperationsService", "ListBackups"),
    ("twinlens.v1.CollectionOperationsService", "FindDuplicates"),
    ("twinlens.v1.CollectionOperationsService", "ExportItems"),
    ("twinlens.v1.ModelService", "ListModels"),
    ("twinlens.v1.ModelService", "GetModel"),
)

# gRPC draws each wait at random between 0.8 and 1.2 of the backoff, and obeys a server's `grpc-retry-pushback-ms`.
_RETRY_POLICY = {
    "maxAttempts": 4,  # about a second in all, so that a server that is not there is reported soon
    "initialBackoff": "0.1s",
    "maxBackoff": "2s",
    "backoffMultiplier": 2.5,
    "retryableStatusCodes": ["UNAVAILABLE", "RESOURCE_EXHAUSTED"],
}


def channel_options(target: str, extra: ChannelOptions = ()) -> list[tuple[str, str | int]]:
    """Channel options for a target; `extra` comes last and wins."""
    config = {
        "methodConfig": [
            {
                "name": [{"service": service, "method": method} for service, method in _READS],
                "retryPolicy": _RETRY_POLICY,
            }
        ]
    }
    options: list[tuple[str, str | int]] = [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        # A bigger request than this buffer is never sent again; the default of 256 KiB is less than a photo.
        ("grpc.per_rpc_retry_buffer_size", MAX_MESSAGE_BYTES),
        ("grpc.enable_retries", 1),
        ("grpc.service_config", json.dumps(config)),
        # A server that restarts is found again soon, and one that never answers is given up after 5 s a try.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.max_reconnect_backoff_ms", 5_000),
        # Only while calls are running: servers end connections that ping more often or without a call.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 0),
    ]
    if _is_local(target):
        options.append(("grpc.enable_http_proxy", 0))
    given = {name for name, _ in extra}
    return [option for option in options if option[0] not in given] + list(extra)


def check_target(target: str) -> str:
    """The target, if it has the form of one.

    Raises:
        TwinlensError: INVALID_ARGUMENT where it is neither HOST:PORT nor a gRPC name such as unix:/path or dns:///host:port.
    """
    text = target.strip()
    if text.startswith(("unix:", "dns:", "ipv4:", "ipv6:", "xds:")):
        return text
    host, _, port = text.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536 or "/" in host:
        raise invalid(f"{target!r} is not the address of a server: give HOST:PORT, such as 127.0.0.1:50051")
    return text


def _is_local(target: str) -> bool:
    return target.startswith(("unix:", "localhost:", "127.", "[::1]:"))
