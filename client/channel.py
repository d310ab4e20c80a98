"""How a channel to a server is set up: message sizes, keepalive, reconnecting, deadlines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeAlias

import grpc
import grpc.aio

from twinlens.client.errors import invalid
from twinlens.client.tls import TlsFiles, credentials

ChannelOptions: TypeAlias = "Sequence[tuple[str, str | int]]"

MAX_MESSAGE_BYTES = 64 * 1024 * 1024

# Default deadlines of a call in seconds: of one that asks, and of one that stores or deletes.
TIMEOUT_S = 60.0
WRITE_TIMEOUT_S = 600.0


def open_channel(target: str, tls: TlsFiles | None = None, options: ChannelOptions = ()) -> grpc.Channel:
    """A blocking channel; it connects with the first call.

    Raises:
        TwinlensError: INVALID_ARGUMENT where a file of `tls` cannot be used.
    """
    if tls is None:
        return grpc.insecure_channel(target, options=channel_options(target, options))
    return grpc.secure_channel(target, credentials(tls), options=channel_options(target, [*tls.options(), *options]))


def open_aio_channel(target: str, tls: TlsFiles | None = None, options: ChannelOptions = ()) -> grpc.aio.Channel:
    """The same for the running event loop."""
    if tls is None:
        return grpc.aio.insecure_channel(target, options=channel_options(target, options))
    chosen = channel_options(target, [*tls.options(), *options])
    return grpc.aio.secure_channel(target, credentials(tls), options=chosen)


def channel_options(target: str, extra: ChannelOptions = ()) -> list[tuple[str, str | int]]:
    """Channel options for a target; `extra` comes last and wins."""
    options: list[tuple[str, str | int]] = [
        ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
        ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
        # gRPC by itself sends again only what never reached a server; the rest is decided in `retries`, by what a
        # server says and by whether the call changes anything. What a resolver may say about it is not for us.
        ("grpc.enable_retries", 1),
        ("grpc.service_config_disable_resolution", 1),
        # A server that restarts is found again within a second, and one that never answers is given up after 5 s a try.
        ("grpc.initial_reconnect_backoff_ms", 200),
        ("grpc.min_reconnect_backoff_ms", 5_000),
        ("grpc.max_reconnect_backoff_ms", 1_000),
        # Only while calls are running: servers end connections that ping more often or without a call.
        ("grpc.keepalive_time_ms", 60_000),
        ("grpc.keepalive_timeout_ms", 20_000),
        ("grpc.keepalive_permit_without_calls", 0),
    ]
    if is_local(target):
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


def is_local(target: str) -> bool:
    """Whether what is sent to a target stays on this machine."""
    return target.startswith(("unix:", "localhost:", "127.", "[::1]:"))
