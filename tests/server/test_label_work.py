"""Embedding of labels is work like any other: it ends with the last caller who waits for it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import grpc
import pytest

from tests.server.running import picture, run_server
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
