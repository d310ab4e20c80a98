"""How much a server takes at once, and batches cut to it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

import grpc

from twinlens.client.channel import MAX_MESSAGE_BYTES
from twinlens.client.retries import is_of_size
from twinlens.client.split import split
from twinlens.client.types import ItemError
from twinlens.v1 import model_pb2

T = TypeVar("T")

# What a server tells of itself: its model and its limits.
Told: TypeAlias = model_pb2.GetModelResponse

# Every server takes this much, whatever it is set to: it need not be asked first.
SURE_BYTES = 960 * 1024
SURE_COUNT = 32

# Servers that do not tell are taken for ones with the usual limits.
NOT_TOLD = model_pb2.GetModelResponse()
NOT_TOLD_CODES = frozenset({"UNIMPLEMENTED", "PERMISSION_DENIED"})

_TAG_BYTES = 16  # around each item of a message, at most
_RESULT_BYTES = 64  # of each result, beside its vector or scores
# A server works on so many items at a time, of all its callers: one batch leaves room for others, or it would have to
# wait until there are none.
_SHARE_IN_FLIGHT = 4


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """What a server takes at once; 0 where it does not tell. The client cuts batches to it by itself.

    Attributes:
        max_message_bytes: Of one message in either direction.
        max_image_bytes: Of one encoded picture.
        max_image_pixels: Of one decoded picture.
        max_inputs: Inputs to embed, or pictures to label, of one call.
        max_queries: Queries of one call.
        max_items_in_flight: Inputs, pictures and queries worked on at a time, of all callers together.
    """

    max_message_bytes: int = 0
    max_image_bytes: int = 0
    max_image_pixels: int = 0
    max_inputs: int = 0
    max_queries: int = 0
    max_items_in_flight: int = 0


@dataclass(frozen=True, slots=True)
class AskLimits:
    """A step of a plan, answered with what the server tells: from memory where the client has asked before."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What a batch is made of.

    Attributes:
        most: How many the server takes in one call; 0 where they are not counted.
        reason: Why one fails that is too large to be sent.
        answer_bytes: What the answer to each takes at most, given the model's dimension.
        fixed_bytes: What the message holds beside them.
    """

    most: Callable[[ServerLimits], int]
    reason: str
    answer_bytes: Callable[[int], int] = lambda _: 0
    fixed_bytes: int = 0


def fitting(
    batch: Sequence[T], size: Callable[[T | ItemError], int], kind: Kind
) -> Generator[AskLimits, Any, list[list[T | ItemError]]]:
    """The batch, in as many pieces as the server makes necessary; it is asked for its limits only where they matter.

    One that is too large even alone is an error in its place.

    Args:
        batch: What is to be sent, at least one, in order; small enough for a server with the usual limits.
        size: How many bytes one takes.
        kind: What they are.
    """
    total = kind.fixed_bytes + sum(size(each) + _TAG_BYTES for each in batch)
    if total <= SURE_BYTES and len(batch) <= SURE_COUNT:
        return [list(batch)]
    told: Told = yield AskLimits()
    if not told.limits.max_message_bytes:
        return [list(batch)]
    limits = server_limits(told)
    most_bytes = min(limits.max_message_bytes, MAX_MESSAGE_BYTES)
    room = max(1, most_bytes - kind.fixed_bytes - _TAG_BYTES)
    sendable = [
        each
        if isinstance(each, ItemError) or size(each) + _TAG_BYTES <= room
        else ItemError(kind.reason, f"{_mib(size(each))} are more than the {_mib(room)} that the server takes at once")
        for each in batch
    ]
    answers = most_bytes // (_RESULT_BYTES + kind.answer_bytes(told.model.info.dimension))
    max_count = max(1, min(_most(kind.most(limits), limits.max_items_in_flight), answers))
    return list(split(sendable, lambda each: size(each) + _TAG_BYTES, max_count=max_count, max_bytes=room))


def _most(at_once: int, in_flight: int) -> int:
    """How many of what is counted go into one call."""
    share = in_flight // _SHARE_IN_FLIGHT or in_flight
    return min((count for count in (at_once, share) if count > 0), default=SURE_COUNT) if at_once else sys.maxsize


def server_limits(told: Told) -> ServerLimits:
    """What a server takes at once; 0 where it does not tell."""
    limits = told.limits
    return ServerLimits(
        max_message_bytes=limits.max_message_bytes,
        max_image_bytes=limits.max_image_bytes,
        max_image_pixels=limits.max_image_pixels,
        max_inputs=limits.max_inputs,
        max_queries=limits.max_queries,
        max_items_in_flight=limits.max_items_in_flight,
    )


def are_outdated(error: grpc.RpcError) -> bool:
    """Whether what a server told may hold no longer: it was away, or took less than it had told."""
    return error.code() is grpc.StatusCode.UNAVAILABLE or is_of_size(error.details())


def _mib(size: int) -> str:
    return f"{size / 2**20:.1f} MiB"
