"""ClassifyStream: as Classify, for any number of pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.server.running import Running, picture, refusal, run_server
from tests.server.shown_examples import ASKED, KNN, example_set
from tests.server.test_embed_stream import CountingEncoder, ended, resident_bytes
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.call import Call
from twinlens.server.core.lanes import Priority
from twinlens.v1 import classification_pb2 as pb
from twinlens.v1 import content_pb2

COLOURS = ["red", "green", "blue"]


def setup(**options: Any) -> pb.ClassifyStreamRequest:
    return pb.ClassifyStreamRequest(setup=pb.ClassifyRequest(**options))


def images(*data: bytes) -> pb.ClassifyStreamRequest:
    return pb.ClassifyStreamRequest(images=data)


async def answers(served: Running, *messages: pb.ClassifyStreamRequest) -> list[pb.ClassifyStreamResponse]:
    return [reply async for reply in served.classification.ClassifyStream(iter(messages))]


@pytest.mark.parametrize(
    "options",
    [
        {"labels": COLOURS},
        {"labels": COLOURS, "templates": ["{} {here}", "a {}"], "top_k": 2},
        {"labels": COLOURS, "multi_label": True},
        {"labels": COLOURS, "none_of_these": pb.NoneOfThese(min_cosine=0.5, background_prompts=["a yellow wall"])},
        {"examples": example_set()},
        {"examples": example_set(rule=KNN, k=3), "top_k": 1},
        {"label_set": "colours"},
    ],
)
async def test_a_stream_is_answered_as_one_call_with_all_its_pictures(served: Running, options: dict[str, Any]) -> None:
    kept = pb.LabelSet(id="colours", labels=COLOURS, templates=["{}"], none_of_these=pb.NoneOfThese(min_cosine=0.6))
    await served.classification.PutLabelSet(pb.PutLabelSetRequest(label_set=kept))
    batches = [[picture("red"), b"no picture"], [picture("yellow")], ASKED]
    first, *others = await answers(served, setup(**options), *(images(*batch) for batch in batches))
    everything = [data for batch in batches for data in batch]
    whole = await served.classification.Classify(pb.ClassifyRequest(images=everything, **options))
    assert not first.results
    assert (first.model, first.examples) == (whole.model, whole.examples)
    assert [reply.first_position for reply in others] == [0, 2, 3]
    results = [result for reply in others for result in reply.results]
    assert len(results) == len(whole.results)
    for one, other in zip(results, whole.results, strict=True):
        assert [score.label for score in one.scores] == [score.label for score in other.scores]
        for mine, theirs in zip(one.scores, other.scores, strict=True):
            assert mine.cosine == pytest.approx(theirs.cosine, abs=1e-5)
            assert mine.probability == pytest.approx(theirs.probability, abs=1e-4)
        assert one.none_of_these == other.none_of_these
        assert one.error == other.error
    assert results[1].error.reason == content_pb2.ERROR_REASON_INVALID_IMAGE
    assert all(not reply.HasField("examples") for reply in others)


async def test_examples_that_cannot_be_used_are_named_in_the_first_answer(served: Running) -> None:
    examples = example_set()
    examples.examples.append(pb.Example(label="warm", image=b"no picture"))
    first, _ = await answers(served, setup(examples=examples), images(picture("red")))
    assert [failure.position for failure in first.examples.failures] == [11]


@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([], "the first message of a stream has the setup"),
        ([images(b"x")], "the first message of a stream has the setup"),
        ([setup(labels=[])], "1 to 10000 labels"),
        ([setup(labels=["a", "a"])], "two labels are the same"),
        ([setup(labels=["a"], images=[b"x"])], "has no pictures"),
        ([setup(labels=["a"], image_urls=["https://x"])], "has no pictures"),
        ([pb.ClassifyStreamRequest(setup=pb.ClassifyRequest(labels=["a"]), images=[b"x"])], "has no pictures"),
        ([setup(labels=["a"], top_k=-1)], "top_k"),
        ([setup(labels=["a"], label_set="b")], "label_set"),
    ],
)
async def test_a_stream_that_does_not_say_what_to_choose_from_is_refused(
    served: Running, messages: list[pb.ClassifyStreamRequest], said: str
) -> None:
    code, message = await refusal(served.classification.ClassifyStream(iter(messages)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert said in message


@pytest.mark.parametrize(
    ("broken", "said"),
    [
        (images(), "a message has 1 to 1024 images, not 0"),
        (images(*[b""] * 1025), "not 1025"),
        (setup(labels=["other"]), "only the first message"),
    ],
)
async def test_a_message_that_cannot_be_meant_ends_the_stream_behind_the_answers_before(
    served: Running, broken: pb.ClassifyStreamRequest, said: str
) -> None:
    good = images(picture("red"))
    replies, failed = await ended(
        served.classification.ClassifyStream(iter([setup(labels=COLOURS), good, broken, good]))
    )
    assert [len(reply.results) for reply in replies] == [0, 1]
    assert failed.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert said in (failed.details() or "")


async def test_a_message_whose_answer_no_message_could_hold_is_refused(data: Path) -> None:
    async with run_server(data, FakeEncoder(), max_message_bytes=2**20) as served:
        labels = [f"{i:04d}" * 256 for i in range(50)]
        messages = [setup(labels=labels), images(picture("red", 2)), images(*[picture("red", 2)] * 21)]
        replies, failed = await ended(served.classification.ClassifyStream(iter(messages)))
        assert len(replies) == 2
        assert failed.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "set top_k" in (failed.details() or "")


async def test_a_label_set_that_is_not_there_is_not_found(served: Running) -> None:
    code, message = await refusal(served.classification.ClassifyStream(iter([setup(label_set="nowhere")])))
    assert (code, message) == (grpc.StatusCode.NOT_FOUND, "there is no label set nowhere")


async def test_a_model_that_cannot_label_says_so_at_once(data: Path) -> None:
    async with run_server(data, FakeEncoder(image=False)) as served:
        code, message = await refusal(served.classification.ClassifyStream(iter([setup(labels=COLOURS)])))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "cannot label pictures" in message


async def test_what_was_chosen_from_stays_though_the_label_set_is_put_again(served: Running) -> None:
    async def put(*labels: str) -> None:
        wire = pb.LabelSet(id="colours", labels=labels)
        await served.classification.PutLabelSet(pb.PutLabelSetRequest(label_set=wire))

    await put("red", "green")
    stream = served.classification.ClassifyStream()
    await stream.write(setup(label_set="colours"))
    await stream.read()
    await put("cyan", "black")
    await stream.write(images(picture("red")))
    reply: Any = await stream.read()
    assert {score.label for score in reply.results[0].scores} == {"red", "green"}
    await stream.done_writing()


async def test_all_that_a_stream_asks_for_is_bulk_work(served: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Priority] = []
    embed = served.app.engine.embed

    async def noted(inputs: Any, call: Call) -> Any:
        asked.append(call.priority)
        return await embed(inputs, call)

    monkeypatch.setattr(served.app.engine, "embed", noted)
    await answers(served, setup(labels=COLOURS), images(picture("red")), images(picture("blue")))
    assert asked == [Priority.BULK] * 3


def _pictures(count: int) -> Iterator[pb.ClassifyStreamRequest]:
    yield setup(labels=COLOURS, top_k=1)
    for number in range(count):
        yield images(*[number.to_bytes(2048, "big")] * 32)


async def _label(served: Running, messages: int) -> list[int]:
    """The memory of the process along a stream of 32 pictures a message, which must come back whole and in order."""
    memory, position = [], 0
    async for reply in served.classification.ClassifyStream(_pictures(messages)):
        assert reply.first_position == position
        position += len(reply.results)
        if reply.results and position % 10_240 == 0:
            memory.append(resident_bytes())
    assert position == 32 * messages
    return memory


async def test_thousands_of_pictures_come_back_whole_and_in_order(data: Path) -> None:
    encoder = CountingEncoder()
    async with run_server(data, encoder) as served:
        encoder.prepared = 0
        await _label(served, 100)
        assert encoder.prepared == 3_200


@pytest.mark.slow
async def test_the_memory_of_a_hundred_thousand_pictures_is_that_of_a_few(data: Path) -> None:
    encoder = CountingEncoder()
    async with run_server(data, encoder) as served:
        encoder.prepared = 0
        memory = await _label(served, 3_520)
        assert encoder.prepared == 3_520 * 32 >= 100_000
    # 230 MB of pictures went through; what the allocator keeps settles in the first tenth.
    assert max(memory) - memory[0] < 24 * 2**20
