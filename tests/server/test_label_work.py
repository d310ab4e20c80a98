"""Embedding of labels is work like any other: weighed, and ended with the last caller who waits for it."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.server.running import picture, refusal, run_server
from tests.server.watched import WatchedEncoder, until
from twinlens.v1 import classification_pb2 as pb

MANY = [f"label {i}" for i in range(3000)]


def one_picture(labels: list[str]) -> pb.ClassifyRequest:
    return pb.ClassifyRequest(images=[picture("red")], labels=labels, top_k=1)


@pytest.mark.parametrize("by", ["hanging up", "deadline"])
async def test_labels_that_nobody_waits_for_any_more_are_not_embedded(data: Path, by: str) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.hold()
        timeout_s = 0.2 if by == "deadline" else None
        calls = [served.classification.Classify(one_picture(MANY), timeout=timeout_s) for _ in range(2)]
        await encoder.entered()
        if by == "hanging up":
            for call in calls:
                call.cancel()
        for call in calls:
            with pytest.raises((grpc.aio.AioRpcError, asyncio.CancelledError)):
                await call
        await until(lambda: served.app.admission.items == 0)
        encoder.release()
        await served.embed("red")  # which overtakes bulk work, but for the batch that runs
        await until(lambda: len(served.app.engine.texts) == 0)
        assert sum(encoder.text_batches) <= 16 + 1


async def test_labels_that_one_caller_still_waits_for_are_embedded(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.hold()
        labels = MANY[:100]
        first, second = (served.classification.Classify(one_picture(labels)) for _ in range(2))
        await encoder.entered()
        await until(lambda: served.app.admission.items >= 2)
        first.cancel()
        await until(first.done)
        encoder.release()
        assert len((await second).results[0].scores) == 1
        assert sum(encoder.text_batches) == len(labels) + 1


async def test_labels_are_weighed_as_other_texts_are_a_few_batches_at_a_time(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.hold()
        kept = pb.LabelSet(id="many", labels=MANY)
        put = served.classification.PutLabelSet(pb.PutLabelSetRequest(label_set=kept))
        await encoder.entered()
        assert served.app.admission.items == 64
        assert len(served.app.engine.texts) <= 64
        put.cancel()
        await until(lambda: served.app.admission.items == 0)
        encoder.release()
        await served.classification.PutLabelSet(pb.PutLabelSetRequest(label_set=kept))
    assert max(encoder.text_batches) <= 16


async def test_labels_wait_for_no_room_where_the_server_is_full(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, max_items_in_flight=100) as served:
        encoder.hold()
        inside = asyncio.ensure_future(served.embed(*["red"] * 60))
        await encoder.entered()
        stream = served.classification.ClassifyStream()
        await stream.write(pb.ClassifyStreamRequest(setup=pb.ClassifyRequest(labels=MANY)))
        for call in (
            served.classification.PutLabelSet(pb.PutLabelSetRequest(label_set=pb.LabelSet(id="many", labels=MANY))),
            served.classification.Classify(one_picture(MANY)),
            stream.read(),
        ):
            code, message = await refusal(call)
            assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
            assert "try again in a moment" in message
        encoder.release()
        await inside
        assert len((await served.classification.Classify(one_picture(MANY))).results) == 1
        assert served.app.admission.items == 0


async def test_pictures_that_wait_for_their_labels_do_not_keep_these_out(data: Path) -> None:
    async with run_server(data, WatchedEncoder(), max_items_in_flight=130) as served:
        told = []
        admit = served.app.admission.admit

        def noted(items: int, size_bytes: int, **options: Any) -> Any:
            told.append((items, options.get("held", 0)))
            return admit(items, size_bytes, **options)

        served.app.admission.admit = noted  # type: ignore[method-assign]
        for pictures, labels in ((120, 40), (20, 300), (120, 301)):
            request = pb.ClassifyRequest(images=[picture("red", 2)] * pictures, labels=MANY[:labels], top_k=1)
            assert len((await served.classification.Classify(request)).results) == pictures
        examples = pb.ExampleSet(
            examples=[pb.Example(label=label, image=picture("red")) for label in MANY[400:470]], text_weight=0.5
        )
        await served.classification.Classify(pb.ClassifyRequest(images=[picture("red")], examples=examples))
    # What is worked on at a time is the larger of the two.
    assert told == [(120, 0), (20, 0), (44, 20), (120, 0), (71, 0)]


async def test_many_that_wait_for_the_same_labels_weigh_them_once(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.hold()
        calls = [asyncio.ensure_future(served.classification.Classify(one_picture(MANY[:100]))) for _ in range(10)]
        await encoder.entered()
        await until(lambda: served.app.admission.items >= 10 + 63)
        assert served.app.admission.items == 10 + 63
        encoder.release()
        await asyncio.gather(*calls)
        assert served.app.admission.items == 0
