from __future__ import annotations

import math
import struct
from pathlib import Path

import grpc

from tests.server.running import Running, picture, refusal
from tests.support.image_files import PNG_SIGNATURE, chunk
from twinlens.encoders.decode import DEFAULT_LIMITS
from twinlens.server import grpc_server
from twinlens.server.core import classify, labels
from twinlens.server.services import classification, collection, embedding, search
from twinlens.server.services.limits import server_limits
from twinlens.server.settings import MIB, Settings
from twinlens.v1 import classification_pb2, content_pb2, embedding_pb2, model_pb2, search_pb2

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "serving.md"


async def limits_of(served: Running) -> model_pb2.ServerLimits:
    return (await served.models.GetModel(model_pb2.GetModelRequest())).limits


async def test_a_client_can_ask_what_a_call_may_bring(served: Running) -> None:
    limits = await limits_of(served)
    assert limits == (await served.models.ListModels(model_pb2.ListModelsRequest())).limits
    settings = served.app.settings
    assert limits.max_message_bytes == settings.max_message_bytes
    assert limits.max_items_in_flight == settings.max_items_in_flight
    assert limits.max_image_bytes == min(DEFAULT_LIMITS.max_bytes, settings.max_message_bytes)
    assert limits.max_image_pixels == DEFAULT_LIMITS.max_pixels


def test_a_picture_is_no_larger_than_the_message_that_brings_it() -> None:
    assert server_limits(Settings(max_message_bytes=MIB)).max_image_bytes == MIB


async def test_a_call_of_as_much_as_is_told_is_answered_and_one_more_is_refused(served: Running) -> None:
    limits = await limits_of(served)
    await served.create()
    words = [embedding_pb2.EmbedInput(text="words")] * limits.max_inputs
    assert len((await served.embedding.Embed(embedding_pb2.EmbedRequest(inputs=words))).results) == limits.max_inputs
    query = search_pb2.Query(parts=[search_pb2.QueryPart(text="words")])
    queries = [query] * limits.max_queries
    request = search_pb2.SearchRequest(collection="photos", queries=queries, top_k=1)
    assert len((await served.search.Search(request)).results) == limits.max_queries

    images = [picture("red")] * (limits.max_inputs + 1)
    for call in (
        served.embedding.Embed(embedding_pb2.EmbedRequest(inputs=[*words, words[0]])),
        served.classification.Classify(classification_pb2.ClassifyRequest(images=images, labels=["a"])),
        served.search.Search(search_pb2.SearchRequest(collection="photos", queries=[*queries, query], top_k=1)),
    ):
        assert (await refusal(call))[0] is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_picture_of_more_pixels_than_are_told_fails_alone_and_undecoded(served: Running) -> None:
    limits = await limits_of(served)
    side = math.isqrt(limits.max_image_pixels) + 1
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0))
    reply = await served.embed(PNG_SIGNATURE + header + chunk(b"IDAT", b"") + chunk(b"IEND", b""), picture("red"))
    refused, fine = reply.results
    assert refused.error.reason == content_pb2.ERROR_REASON_INVALID_IMAGE
    assert f"too many pixels: {side} x {side}, the limit is {limits.max_image_pixels:,}" in refused.error.message
    assert fine.WhichOneof("outcome") == "embedding"


def test_the_limits_are_documented_as_they_are() -> None:
    _, _, after = DOCUMENT.read_text(encoding="utf-8").partition("\n## Limits\n")
    section = after.partition("\n## ")[0]
    defaults = Settings()
    told = {
        "message": f"{defaults.max_message_bytes // MIB} MiB",
        "picture": f"{DEFAULT_LIMITS.max_bytes // MIB} MiB",
        "pixels": f"{DEFAULT_LIMITS.max_pixels:,} pixels",
        "side": f"{DEFAULT_LIMITS.max_side:,}",
        "inputs": f"{min(embedding.MAX_INPUTS, classification.MAX_IMAGES):,}",
        "queries": f"{search.MAX_QUERIES}",
        "top_k": f"{search.MAX_TOP_K:,}",
        "hits": f"{search.MAX_HITS:,}",
        "labels": f"{classify.MAX_LABELS:,}",
        "templates": f"{classify.MAX_TEMPLATES}",
        "prompts": f"{classify.MAX_PROMPTS:,}",
        "label bytes": f"{labels.MAX_TEXT_BYTES:,}",
        "ids": f"{collection.MAX_IDS:,}",
        "items in flight": f"{defaults.max_items_in_flight:,}",
        "bytes in flight": f"{defaults.max_bytes_in_flight // MIB} MiB",
        "calls": f"{defaults.max_items_in_flight + grpc_server._CALLS_WITHOUT_ITEMS:,}",
    }
    assert [what for what, words in told.items() if words not in section] == []
