"""Examples that cannot be meant or used together are refused, and the reply says what would do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
from google.protobuf.struct_pb2 import Struct

from tests.server.running import Running, picture, run_server
from tests.server.shown_examples import (
    KNN,
    classify,
    embedded,
    example_set,
    refusal,
)
from tests.server.watched import WatchedEncoder
from tests.support.fake_encoder import FakeEncoder
from twinlens.v1 import classification_pb2 as pb
from twinlens.v1 import collection_pb2, content_pb2


@pytest.mark.parametrize(
    ("examples", "options", "said"),
    [
        (pb.ExampleSet(), {}, "no examples"),
        (pb.ExampleSet(collection="photos"), {}, "no examples"),
        (pb.ExampleSet(label_key="kind"), {}, "needs the collection"),
        (pb.ExampleSet(collection="photos", label_key="kind"), {}, "no item of the collection has a picture"),
        (example_set({" ": [picture("red")]}), {}, "empty label"),
        (example_set({"ä" * 513: [picture("red")]}), {}, "has 1026 bytes, at most 1024 are allowed"),
        (example_set(rule=7), {}, "rule 7"),
        (example_set(collection="photos"), {}, "the collection is of no use"),
        (example_set(rule=KNN, k=-1), {}, "k is from 1"),
        (example_set(rule=KNN, k=10_001), {}, "k is from 1"),
        (example_set(k=3), {}, "k is for rule KNN"),
        (example_set(temperature=0.0), {}, "temperature"),
        (example_set(temperature=-1.0), {}, "temperature"),
        (example_set(temperature=101.0), {}, "temperature"),
        (example_set(temperature=float("nan")), {}, "temperature"),
        (example_set(text_weight=-0.1), {}, "text_weight"),
        (example_set(text_weight=1.1), {}, "text_weight"),
        (example_set(text_weight=float("nan")), {}, "text_weight"),
        (example_set(text_weight=0.5, rule=KNN), {}, "text_weight"),
        (example_set(), {"templates": ["a {}"]}, "text_weight above 0"),
        (example_set(text_weight=0.5), {"templates": ["no place"]}, "no place"),
        (example_set(), {"labels": ["a"]}, "not both"),
        (example_set(), {"multi_label": True}, "multi_label"),
        (example_set(), {"top_k": -1}, "top_k"),
        (pb.ExampleSet(examples=[pb.Example(label="a")] * 10_001), {}, "at most 10000 examples"),
    ],
)
async def test_examples_that_cannot_be_meant_are_refused(
    served: Running, examples: pb.ExampleSet, options: dict[str, Any], said: str
) -> None:
    await served.create()
    code, details = await refusal(served, examples, **options)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert said in details


async def test_a_collection_that_is_missing_is_not_found(served: Running) -> None:
    code, details = await refusal(served, pb.ExampleSet(collection="nowhere", label_key="kind"))
    assert code is grpc.StatusCode.NOT_FOUND
    assert "nowhere" in details


async def test_a_label_in_metadata_that_is_too_long_is_refused_and_named(served: Running) -> None:
    await served.create()
    story = Struct()
    story.update({"story": "once " * 300})
    assert (await served.upsert(collection_pb2.NewItem(id="1", image=picture("red"), metadata=story))).stored_count == 1
    code, details = await refusal(served, pb.ExampleSet(collection="photos", label_key="story"))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "the metadata's label 'once once" in details
    assert "1500 bytes" in details


async def test_labels_that_no_reply_could_hold_are_refused_before_any_picture_is_embedded(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, max_message_bytes=2**20) as served:
        rng = np.random.default_rng(0)
        shown = [(f"{i:04d}" * 256, content_pb2.Vector(values=rng.normal(size=32).tolist())) for i in range(50)]
        examples = pb.ExampleSet(examples=[pb.Example(label=label, vector=vector) for label, vector in shown])
        encoder.image_batches.clear()
        code, details = await refusal(served, examples, *[picture("red")] * 21)
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "set top_k or shorten the labels" in details
        assert not encoder.image_batches
        for pictures, top_k in ((20, 0), (100, 10)):
            reply = await classify(served, examples, *[picture("red")] * pictures, top_k=top_k)
            assert reply.ByteSize() < 2**20


async def test_vectors_of_another_space_are_never_compared(served: Running, data: Path) -> None:
    own = served.app.engine.manifest.space_id
    vectors = (await embedded(served))["warm"]
    examples = pb.ExampleSet(examples=[pb.Example(label="warm", vector=content_pb2.Vector(values=vectors[0].tolist()))])
    examples.space_id = own
    await classify(served, examples)
    async with run_server(data.with_name("other"), FakeEncoder(seed=1)) as other:
        code, details = await refusal(other, examples)
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert own[:12] in details
    assert "embed the examples again" in details


async def test_examples_that_cancel_each_other_out_name_their_label(served: Running) -> None:
    vector = [1.0, 2.0, *[0.0] * 30]
    pair = [content_pb2.Vector(values=vector), content_pb2.Vector(values=[-value for value in vector])]
    examples = pb.ExampleSet(examples=[pb.Example(label="nothing", vector=each) for each in pair])
    code, details = await refusal(served, examples)
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "'nothing' cancel" in details
    examples.rule = KNN  # neighbours need no mean
    assert (await classify(served, examples)).examples.used_count == 2


async def test_text_and_examples_that_cancel_each_other_out_name_their_label(served: Running) -> None:
    (text,) = (await served.embed("red")).results
    against = content_pb2.Vector(values=[-value for value in text.embedding.values])
    examples = pb.ExampleSet(examples=[pb.Example(label="red", vector=against)], text_weight=0.5)
    code, details = await refusal(served, examples, templates=["{}"])
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "text and examples of label 'red' cancel" in details


async def test_too_much_to_compare_with_is_refused_with_the_way_out(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlens.server.core.example_pile.MAX_KEPT_VALUES", 10 * 32)
    code, details = await refusal(served, example_set(rule=KNN))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "PROTOTYPE takes any number" in details
    await classify(served, example_set())
    monkeypatch.setattr("twinlens.server.core.example_pile.MAX_LABELS", 2)
    _, details = await refusal(served, example_set(rule=KNN))
    assert "more than 2 different labels" in details
    monkeypatch.setattr("twinlens.server.core.label_scorer.MAX_SCORES", 11)
    _, details = await refusal(served, example_set())
    assert "top_k" in details
