"""How many results a reply holds, and which of them failed alone: a call that succeeds may still hold failures."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from twinlens.v1 import classification_pb2, collection_pb2, content_pb2, embedding_pb2, search_pb2

_NAMES = {number: name.removeprefix("ERROR_REASON_").lower() for name, number in content_pb2.ErrorReason.items()}
_WITH_RESULTS = (
    embedding_pb2.EmbedResponse,
    embedding_pb2.EmbedStreamResponse,
    search_pb2.SearchResponse,
    classification_pb2.ClassifyResponse,
    classification_pb2.ClassifyStreamResponse,
)


def count_results(reply: Any) -> tuple[int, list[str]]:
    """Counts results.

    Args:
        reply: Any message of ours.

    Returns:
        How many there are, and of each that failed the reason as metrics name it ("invalid_image"). 0 and none where
        the message holds nothing that could fail alone.
    """
    if isinstance(reply, _WITH_RESULTS):
        return len(reply.results), _reasons(result.error for result in reply.results if result.HasField("error"))
    if isinstance(reply, collection_pb2.UpsertItemsResponse):
        failed = _reasons(failure.error for failure in reply.failures)
        return reply.stored_count + len(failed), failed
    return 0, []


def _reasons(errors: Iterable[content_pb2.ItemError]) -> list[str]:
    return [_NAMES.get(error.reason, "unspecified") for error in errors]
