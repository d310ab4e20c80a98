"""Examples by pictures of about one colour, and the calls that use them."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any

import grpc
import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from tests.server.running import Running
from twinlens.v1 import classification_pb2 as pb
from twinlens.v1 import embedding_pb2

KNN = pb.EXAMPLE_RULE_KNN
Shown = Mapping[str, Sequence[bytes]]


def noisy(red: int, green: int, blue: int, seed: int) -> bytes:
    """A small picture of about one colour."""
    rng = np.random.default_rng([red, green, blue, seed])
    pixels = np.clip(np.array([red, green, blue]) + rng.integers(-40, 41, (8, 8, 3)), 0, 255).astype(np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, format="PNG")
    return buffer.getvalue()


# Of unequal size, and overlapping in colour.
SHOWN: Shown = {
    "warm": [noisy(250, 60, 20, i) for i in range(5)] + [noisy(240, 230, 40, i) for i in range(2)],
    "cold": [noisy(30, 60, 240, i) for i in range(3)],
    "between": [noisy(120, 200, 120, 0)],
}
ASKED = [noisy(200, 90, 60, 7), noisy(60, 120, 200, 8), noisy(130, 130, 130, 9), noisy(245, 240, 90, 10)]


def example_set(shown: Shown = SHOWN, **options: Any) -> pb.ExampleSet:
    examples = [pb.Example(label=label, image=image) for label, images in shown.items() for image in images]
    return pb.ExampleSet(examples=examples, **options)


async def classify(served: Running, examples: pb.ExampleSet, *images: bytes, **options: Any) -> pb.ClassifyResponse:
    request = pb.ClassifyRequest(images=images or ASKED, examples=examples, **options)
    return await served.classification.Classify(request)


async def refusal(served: Running, examples: pb.ExampleSet, *images: bytes, **options: Any) -> tuple[Any, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await classify(served, examples, *images, **options)
    details = caught.value.details() or ""
    assert "\n" not in details
    return caught.value.code(), details


async def vectors_of(served: Running, pictures: Sequence[bytes]) -> NDArray[np.float64]:
    request = embedding_pb2.EmbedRequest(inputs=[embedding_pb2.EmbedInput(image=each) for each in pictures])
    reply = await served.embedding.Embed(request)
    return np.array([result.embedding.values for result in reply.results], dtype=np.float64)


async def embedded(served: Running, shown: Shown = SHOWN) -> dict[str, NDArray[np.float64]]:
    return {label: await vectors_of(served, images) for label, images in shown.items()}
