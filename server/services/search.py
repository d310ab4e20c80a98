"""SearchService."""

from __future__ import annotations

import math

import numpy as np

from twinlens.index.item import Modality
from twinlens.server.core.app import Application
from twinlens.server.core.call import current_call
from twinlens.server.core.engine import Text
from twinlens.server.core.errors import invalid_argument
from twinlens.server.core.joined_search import SearchOptions
from twinlens.server.core.lookup import RawVector, StoredItem
from twinlens.server.core.search import Answer, Part
from twinlens.server.services import convert
from twinlens.server.services.interceptor import Context
from twinlens.server.services.reply_making import HIT_SIZE, made
from twinlens.server.services.reply_room import ReplyRoom
from twinlens.v1 import search_pb2, search_pb2_grpc

MAX_QUERIES = 256
MAX_TOP_K = 10_000
MAX_HITS = 100_000


class SearchService(search_pb2_grpc.SearchServiceServicer):
    """Finds the items of a collection that are nearest to a query."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def Search(  # noqa: N802 - the wire's name
        self, request: search_pb2.SearchRequest, context: Context
    ) -> search_pb2.SearchResponse:
        """Answers a batch of queries; one bad query fails alone."""
        del context
        if not 1 <= len(request.queries) <= MAX_QUERIES:
            raise invalid_argument(f"a request has 1 to {MAX_QUERIES} queries, not {len(request.queries)}")
        if not 1 <= request.top_k <= MAX_TOP_K:
            raise invalid_argument(f"top_k is from 1 to {MAX_TOP_K}, not {request.top_k}")
        if len(request.queries) * request.top_k > MAX_HITS:
            raise invalid_argument(
                f"{len(request.queries)} queries with top_k {request.top_k} are more than {MAX_HITS} hits; "
                "send fewer queries or lower top_k"
            )
        min_score = request.min_score if request.HasField("min_score") else None
        if min_score is not None and math.isnan(min_score):
            raise invalid_argument("min_score is not a number")
        options = SearchOptions(
            modality=convert.modality_or_none(request.modality) or Modality.IMAGE,
            top_k=request.top_k,
            min_score=min_score,
            exact=request.exact,
            filter=request.filter,
        )
        queries = [[_part(part) for part in query.parts] for query in request.queries]
        call = current_call()
        collection = await self._app.collection(request.collection, call)
        answers = await self._app.searcher.search(collection, queries, options, call)

        def reply() -> search_pb2.SearchResponse:
            room = ReplyRoom(self._app.settings.max_message_bytes)
            return search_pb2.SearchResponse(
                model=convert.model_info(self._app.engine.manifest),
                results=[_result(answer, room) for answer in answers],
            )

        hits = sum(len(answer.hits) for answer in answers)
        return await made(reply, HIT_SIZE * hits, self._app.io, call)


def _part(part: search_pb2.QueryPart) -> Part:
    weight = part.weight if part.HasField("weight") else 1.0
    match part.WhichOneof("content"):
        case "image" | "image_url":
            return Part(convert.picture(part.image, part.image_url), weight)
        case "text":
            return Part(Text(part.text), weight)
        case "vector":
            return Part(RawVector(np.asarray(part.vector.values, dtype=np.float32)), weight)
        case "item_id":
            return Part(StoredItem(part.item_id, convert.modality_or_none(part.item_modality)), weight)
        case _:
            return Part(None, weight)


def _result(answer: Answer, room: ReplyRoom) -> search_pb2.QueryResult:
    return search_pb2.QueryResult(
        hits=[room.take(convert.hit(found)) for found in answer.hits],
        error=None if answer.failure is None else convert.item_error(answer.failure),
        truncated=answer.truncated,
    )
