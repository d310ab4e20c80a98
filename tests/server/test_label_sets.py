"""Label sets: kept on disk under a name, embedded once an encoder, used by requests that only name them."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from tests.server.running import Running, picture, refusal, run_server
from tests.server.shown_examples import example_set
from tests.server.watched import WatchedEncoder
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.label_set_files import LabelSet, LabelSetFiles
from twinlens.server.core.label_sets import LabelSets
from twinlens.v1 import classification_pb2 as pb

COLOURS = ["red", "green", "blue"]
NONE = pb.NoneOfThese(min_cosine=0.5, background_prompts=["a yellow wall"])


async def put(served: Running, name: str = "colours", **fields: Any) -> pb.LabelSet:
    wire = pb.LabelSet(id=name, **{"labels": COLOURS, **fields})
    return (await served.classification.PutLabelSet(pb.PutLabelSetRequest(label_set=wire))).label_set


async def get(served: Running, name: str = "colours") -> pb.LabelSet:
    return (await served.classification.GetLabelSet(pb.GetLabelSetRequest(label_set=name))).label_set


async def delete(served: Running, name: str = "colours") -> None:
    await served.classification.DeleteLabelSet(pb.DeleteLabelSetRequest(label_set=name))


async def ids(served: Running, **page: Any) -> tuple[list[str], str]:
    reply = await served.classification.ListLabelSets(pb.ListLabelSetsRequest(**page))
    return [each.id for each in reply.label_sets], reply.next_page_token


def by_set(name: str = "colours", *images: bytes, **options: Any) -> pb.ClassifyRequest:
    return pb.ClassifyRequest(images=images or [picture("blue"), picture("yellow")], label_set=name, **options)


async def test_a_request_that_names_a_label_set_is_answered_as_one_that_says_all_of_it(served: Running) -> None:
    for fields in (
        {},
        {"templates": ["{} on a {wall}", "the {}"]},
        {"multi_label": True},
        {"none_of_these": NONE},
        {"templates": ["{}"], "multi_label": True, "none_of_these": NONE},
    ):
        await put(served, **fields)
        named = await served.classification.Classify(by_set(top_k=2))
        said = pb.ClassifyRequest(images=[picture("blue"), picture("yellow")], labels=COLOURS, top_k=2, **fields)
        assert named == await served.classification.Classify(said)


async def test_what_was_put_comes_back_with_its_times(served: Running) -> None:
    made = await put(served, templates=["a {}"], multi_label=True, none_of_these=NONE)
    assert (list(made.labels), list(made.templates), made.multi_label) == (COLOURS, ["a {}"], True)
    assert made.none_of_these == NONE
    assert made.create_time == made.update_time
    assert made.create_time.ToSeconds() > 1_600_000_000
    assert await get(served) == made
    again = await put(served, labels=["cyan"])
    assert again.create_time == made.create_time
    assert again.update_time.ToNanoseconds() >= made.update_time.ToNanoseconds()
    assert await get(served) == again
    assert list(again.labels) == ["cyan"]
    assert not again.HasField("none_of_these")


async def test_label_sets_are_listed_by_id_a_page_at_a_time(served: Running) -> None:
    assert await ids(served) == ([], "")
    for name in ("b", "a-2", "c", "a"):
        await put(served, name)
    first, token = await ids(served, page_size=3)
    assert first == ["a", "a-2", "b"]
    assert await ids(served, page_size=3, page_token=token) == (["c"], "")
    assert await ids(served) == (["a", "a-2", "b", "c"], "")
    code, _ = await refusal(served.classification.ListLabelSets(pb.ListLabelSetsRequest(page_size=-1)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT


async def test_a_page_holds_no_more_than_a_message_can(data: Path) -> None:
    async with run_server(data, FakeEncoder(), max_message_bytes=2**20) as served:
        labels = [f"{i:04d}" * 250 for i in range(300)]  # 300 kB
        for name in ("a", "b", "c"):
            await put(served, name, labels=labels)
        first, token = await ids(served)
        assert first == ["a"]
        second, token = await ids(served, page_token=token)
        assert second == ["b"]
        assert await ids(served, page_token=token) == (["c"], "")


async def test_a_deleted_label_set_is_gone_with_all_its_files(served: Running, data: Path) -> None:
    await put(served)
    await put(served, "other")
    await delete(served)
    assert {path.name.partition(".")[0] for path in (data / "label_sets").iterdir()} == {"other"}
    calls = (
        served.classification.GetLabelSet(pb.GetLabelSetRequest(label_set="colours")),
        served.classification.Classify(by_set()),
        served.classification.DeleteLabelSet(pb.DeleteLabelSetRequest(label_set="colours")),
    )
    for call in calls:
        assert await refusal(call) == (grpc.StatusCode.NOT_FOUND, "there is no label set colours")


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"id": ""}, "label set id ''"),
        ({"id": "No Good"}, "use 1 to 64"),
        ({"id": "../../etc/passwd"}, "use 1 to 64"),
        ({"id": "a" * 65}, "use 1 to 64"),
        ({"labels": []}, "1 to 10000 labels"),
        ({"labels": ["a", "a"]}, "two labels are the same"),
        ({"templates": ["no place"]}, "for the label"),
        ({"none_of_these": pb.NoneOfThese(min_cosine=2)}, "min_cosine"),
        ({"none_of_these": pb.NoneOfThese(background_prompts=[""])}, "background prompt"),
    ],
)
async def test_label_sets_that_cannot_be_meant_are_refused(
    served: Running, data: Path, fields: dict[str, Any], said: str
) -> None:
    wire = pb.LabelSet(**{"id": "colours", "labels": COLOURS, **fields})
    code, message = await refusal(served.classification.PutLabelSet(pb.PutLabelSetRequest(label_set=wire)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert said in message
    assert not (data / "label_sets").exists()


async def test_a_label_that_cannot_be_embedded_is_found_when_it_is_put(served: Running, data: Path) -> None:
    bad: list[dict[str, Any]] = [
        {"labels": ["red", ".,"], "templates": ["{}"]},
        {"none_of_these": pb.NoneOfThese(background_prompts=[".,"])},
    ]
    for fields in bad:
        wire = pb.LabelSet(id="colours", **{"labels": COLOURS, **fields})
        code, message = await refusal(served.classification.PutLabelSet(pb.PutLabelSetRequest(label_set=wire)))
        assert code is grpc.StatusCode.INVALID_ARGUMENT
        assert "'.,': the text is empty" in message
    assert message.startswith("background prompt")
    assert not (data / "label_sets").exists()


@pytest.mark.parametrize(
    "beside",
    [
        {"labels": ["red"]},
        {"templates": ["{}"]},
        {"multi_label": True},
        {"none_of_these": pb.NoneOfThese()},
        {"examples": example_set()},
    ],
)
async def test_a_request_that_names_a_label_set_says_nothing_else(served: Running, beside: dict[str, Any]) -> None:
    await put(served)
    code, message = await refusal(served.classification.Classify(by_set(**beside)))
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "label_set" in message


async def test_a_model_without_a_text_tower_keeps_none(data: Path) -> None:
    async with run_server(data, FakeEncoder(text=False)) as served:
        wire = pb.LabelSet(id="colours", labels=COLOURS)
        code, message = await refusal(served.classification.PutLabelSet(pb.PutLabelSetRequest(label_set=wire)))
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "no text tower" in message


async def test_labels_are_embedded_when_they_are_put_and_never_again_by_this_encoder(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder) as served:
        encoder.text_batches.clear()
        await put(served, none_of_these=NONE)
        embedded = sum(encoder.text_batches)
        assert embedded == len(COLOURS) + 1 + 2  # and the neutral prompt, of labels and background
        before = await served.classification.Classify(by_set())
        assert sum(encoder.text_batches) == embedded
    again = WatchedEncoder()
    async with run_server(data, again) as served:
        again.text_batches.clear()
        assert await served.classification.Classify(by_set()) == before
        await put(served, none_of_these=NONE)
        assert not again.text_batches


async def test_another_encoder_embeds_them_once_and_the_one_before_finds_its_own_again(data: Path) -> None:
    answers = {}
    for seed in (0, 1):
        async with run_server(data, FakeEncoder(seed=seed)) as served:
            if seed == 0:
                await put(served)
            answers[seed] = await served.classification.Classify(by_set())
    assert answers[0] != answers[1]
    for seed in (0, 1):
        encoder = WatchedEncoder(seed=seed)
        async with run_server(data, encoder) as served:
            encoder.text_batches.clear()
            assert await served.classification.Classify(by_set()) == answers[seed]
            assert not encoder.text_batches
    for seed in range(2, 6):
        async with run_server(data, FakeEncoder(seed=seed)) as served:
            await served.classification.Classify(by_set())
    assert len(list((data / "label_sets").glob("*.npz"))) == 4  # not one for every encoder there ever was


@pytest.mark.parametrize("damage", ["torn", "empty", "other numbers"])
async def test_vectors_that_cannot_be_read_are_made_again(
    data: Path, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with run_server(data, FakeEncoder()) as served:
        await put(served)
        before = await served.classification.Classify(by_set())
    (file,) = (data / "label_sets").glob("*.npz")
    content = file.read_bytes()
    if damage == "other numbers":  # a checksum in it tells
        content = content.replace(content[400:404], bytes(4))
    file.write_bytes({"torn": content[:300], "empty": b"", "other numbers": content}[damage])
    async with run_server(data, FakeEncoder()) as served:
        assert await served.classification.Classify(by_set()) == before
    assert damage == "other numbers" or "are made again" in caplog.text
    assert len(file.read_bytes()) == len(content) or damage != "other numbers"


async def test_a_damaged_label_set_is_named_and_can_be_put_again(data: Path) -> None:
    async with run_server(data, FakeEncoder()) as served:
        await put(served)
        await put(served, "other")
    (data / "label_sets" / "colours.json").write_text('{"format": 1, "labels": [')
    async with run_server(data, FakeEncoder()) as served:
        code, message = await refusal(served.classification.Classify(by_set()))
        assert code is grpc.StatusCode.DATA_LOSS
        assert "put it again" in message
        assert await ids(served) == (["other"], "")
        await put(served)
        assert await ids(served) == (["colours", "other"], "")
        await served.classification.Classify(by_set())


async def test_what_cannot_be_written_is_not_acknowledged_and_replaces_nothing(
    served: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await put(served)

    def full(path: Path, content: object) -> None:
        if path.suffix == ".json":
            raise OSError(errno.ENOSPC, "No space left on device", str(path))

    with monkeypatch.context() as patched:
        patched.setattr("twinlens.server.core.label_set_files.replace_file", full)
        wire = pb.LabelSet(id="colours", labels=["cyan"])
        code, message = await refusal(served.classification.PutLabelSet(pb.PutLabelSetRequest(label_set=wire)))
    assert code is grpc.StatusCode.INTERNAL
    assert message == "label set colours cannot be written; the server's log says why"
    assert await get(served) == made
    reply = await served.classification.Classify(by_set())
    assert {score.label for score in reply.results[0].scores} == set(COLOURS)


async def test_a_server_without_a_data_folder_keeps_none_and_says_so(served: Running) -> None:
    served.app.label_sets = LabelSets(served.app.classifier, served.app.io, None)
    calls = (
        served.classification.PutLabelSet(pb.PutLabelSetRequest(label_set=pb.LabelSet(id="a", labels=COLOURS))),
        served.classification.ListLabelSets(pb.ListLabelSetsRequest()),
        served.classification.Classify(by_set()),
    )
    for call in calls:
        code, message = await refusal(call)
        assert code is grpc.StatusCode.FAILED_PRECONDITION
        assert "no data folder" in message


NAMES = st.sampled_from(["a", "b", "c-1"])
TEXTS = st.lists(st.text(min_size=1, max_size=5), min_size=1, max_size=3, unique=True)


class LabelSetFilesMachine(RuleBasedStateMachine):
    """The files of label sets are a dict that survives whoever holds it."""

    folder: Path

    @initialize()
    def begin(self) -> None:
        import tempfile

        self._place = tempfile.TemporaryDirectory()
        self.folder = Path(self._place.name) / "label_sets"
        self.files = LabelSetFiles(self.folder)
        self.model: dict[str, LabelSet] = {}

    @rule(name=NAMES, labels=TEXTS, templates=TEXTS, multi_label=st.booleans())
    def put(self, name: str, labels: list[str], templates: list[str], multi_label: bool) -> None:
        given = LabelSet(name, tuple(labels), tuple(templates), multi_label)
        made = self.files.write(given, {})
        before = self.model.get(name)
        assert made.created_s == (before.created_s if before is not None else made.updated_s)
        self.model[name] = made

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        if self.model.pop(name, None) is not None:
            self.files.delete(name)
            return
        with pytest.raises(ServiceError) as refused:
            self.files.delete(name)
        assert refused.value.code is Code.NOT_FOUND

    @rule()
    def restart(self) -> None:
        (self.folder.parent / "label_sets").mkdir(exist_ok=True)
        (self.folder / ".a.json.new").write_text("what a crash left")
        self.files = LabelSetFiles(self.folder)

    @invariant()
    def holds_what_the_model_holds(self) -> None:
        if not hasattr(self, "model"):
            return
        assert self.files.ids("") == sorted(self.model)
        for name, label_set in self.model.items():
            assert self.files.read(name) == label_set

    def teardown(self) -> None:
        if hasattr(self, "_place"):
            self._place.cleanup()


LabelSetFilesMachine.TestCase.settings = settings(
    max_examples=12, stateful_step_count=12, deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
test_label_sets_are_a_dict_on_disk = LabelSetFilesMachine.TestCase
