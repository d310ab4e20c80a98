from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

pytest.importorskip("opentelemetry.sdk")

from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

from tests.server.running import Running, embed_request, picture, refusal, run_server
from tests.server.span_collector import collecting
from tests.server.watched import PATIENCE_S, WatchedEncoder, until
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.active import StartError
from twinlens.server.core.call import Call
from twinlens.server.core.trace_batch import trace_batch
from twinlens.server.spans import Spans, exported_spans
from twinlens.v1 import embedding_pb2, search_pb2

METHOD = "twinlens.v1.EmbeddingService/Embed"
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Traced:
    """A server and the spans it has made."""

    def __init__(self, served: Running, exporter: InMemorySpanExporter) -> None:
        self.served = served
        self._exporter = exporter

    async def spans(self, calls: int) -> list[ReadableSpan]:
        """All spans, once so many calls have ended: a caller hears of the end a moment before its span is done."""

        def ended() -> bool:
            return sum(span.name.startswith("twinlens.v1.") for span in self._exporter.get_finished_spans()) >= calls

        await until(ended)
        return list(self._exporter.get_finished_spans())


@asynccontextmanager
async def traced(data: Path, encoder: FakeEncoder, ratio: float = 1.0) -> AsyncIterator[Traced]:
    exporter = InMemorySpanExporter()
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(ratio)), shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    async with run_server(data, encoder, spans=Spans(provider)) as served:
        yield Traced(served, exporter)


def of_parent(flags: str = "01") -> tuple[tuple[str, str], ...]:
    return (("traceparent", f"00-{TRACE}-{PARENT}-{flags}"),)


def facts(span: ReadableSpan) -> dict[str, object]:
    return dict(span.attributes or {})


async def test_a_search_is_a_span_with_a_span_for_each_stage_below_it(data: Path) -> None:
    async with traced(data, FakeEncoder()) as running:
        await running.served.fill_with_colours()
        before = len(await running.spans(2))
        await running.served.find(search_pb2.QueryPart(text="red"), search_pb2.QueryPart(image=picture("red")))
        *stages, call = (await running.spans(3))[before:]
    assert call.name == "twinlens.v1.SearchService/Search"
    assert {stage.name for stage in stages} == {"prepare", "queue", "encode", "search"}
    for stage in stages:
        assert stage.parent is not None
        assert call.context is not None
        assert (stage.parent.span_id, stage.parent.trace_id) == (call.context.span_id, call.context.trace_id)
        assert (call.start_time or 0) <= (stage.start_time or 0) <= (stage.end_time or 0) <= (call.end_time or 0)
    towers = {facts(stage)["twinlens.tower"] for stage in stages if stage.name == "encode"}
    assert towers == {"image", "text"}


async def test_a_call_belongs_to_the_trace_its_caller_names(data: Path) -> None:
    async with traced(data, FakeEncoder(), ratio=0.0) as running:
        await running.served.embedding.Embed(embed_request("a text"), metadata=of_parent())
        call = (await running.spans(1))[-1]
    assert call.context is not None
    assert f"{call.context.trace_id:032x}" == TRACE
    assert call.parent is not None
    assert f"{call.parent.span_id:016x}" == PARENT
    assert facts(call)["twinlens.items"] == 1
    assert facts(call)["rpc.method"] == METHOD


async def test_what_is_not_sampled_leaves_no_spans(data: Path) -> None:
    async with traced(data, FakeEncoder()) as running:
        await running.served.embedding.Embed(embed_request("a text"), metadata=of_parent("00"))
        await running.served.embed("another")
        spans = await running.spans(1)
    assert TRACE not in {f"{span.context.trace_id:032x}" for span in spans if span.context}
    async with traced(data, FakeEncoder(), ratio=0.0) as running:
        await running.served.embed("a text")
        assert not await running.spans(0)


@pytest.mark.parametrize(
    "header", ["", "nonsense", f"00-{'0' * 32}-{PARENT}-01", f"ff-{TRACE}-{PARENT}-01", "9" * 4000]
)
async def test_a_trace_that_cannot_be_read_is_none(header: str, data: Path) -> None:
    async with traced(data, FakeEncoder()) as running:
        await running.served.embedding.Embed(embed_request("a text"), metadata=(("traceparent", header),))
        call = (await running.spans(1))[-1]
    assert call.parent is None


async def test_only_what_is_the_servers_fault_is_marked_as_failed(data: Path) -> None:
    encoder = WatchedEncoder()
    async with traced(data, encoder) as running:
        assert (await refusal(running.served.embed()))[0] is grpc.StatusCode.INVALID_ARGUMENT
        refused = (await running.spans(1))[-1]
        encoder.hold()
        late = refusal(running.served.embedding.Embed(embed_request("late"), timeout=0.5))
        assert (await late)[0] is grpc.StatusCode.DEADLINE_EXCEEDED
        failed = next(span for span in await running.spans(2) if span.name == METHOD and span is not refused)
        encoder.release()
    assert facts(refused)["rpc.response.status_code"] == "INVALID_ARGUMENT"
    assert refused.status.is_unset
    assert facts(failed)["error.type"] == "DEADLINE_EXCEEDED"
    assert not failed.status.is_ok


async def test_a_call_of_very_many_items_is_told_by_its_first_stages(data: Path) -> None:
    async with traced(data, FakeEncoder()) as running:
        await running.served.embed(*(picture("red", size) for size in range(8, 108)))
        *stages, call = await running.spans(1)
    assert len(stages) == 64
    assert int(str(facts(call)["twinlens.stages_left_out"])) >= 100 - 64


async def test_calls_of_a_stream_are_traced_to_its_end(data: Path) -> None:
    async with traced(data, FakeEncoder()) as running:
        sent = [embedding_pb2.EmbedStreamRequest(inputs=embed_request("a", "b").inputs) for _ in range(3)]
        answered = [reply async for reply in running.served.embedding.EmbedStream(iter(sent))]
        *stages, call = await running.spans(1)
    assert len(answered) == 3
    assert call.name.endswith("EmbedStream")
    assert facts(call)["twinlens.items"] == 6
    assert {stage.name for stage in stages} == {"prepare", "queue", "encode"}


class Noted:
    def __init__(self) -> None:
        self.stages: list[tuple[str, float, float, dict[str, str | int]]] = []

    def add(self, stage: str, began_s: float, ended_s: float, **facts: str | int) -> None:
        self.stages.append((stage, began_s, ended_s, facts))


def test_a_batch_is_told_once_to_each_call_with_its_longest_wait() -> None:
    one, other = Noted(), Noted()
    waiting = [(Call(trace=one), 2.0), (Call(), 0.5), (Call(trace=one), 1.0), (Call(trace=other), 3.0)]
    trace_batch(waiting, tower="image", items=4, began_s=5.0, ended_s=7.0)
    ran = ("encode", 5.0, 7.0, {"tower": "image", "batch_items": 4})
    assert one.stages == [("queue", 1.0, 5.0, {"tower": "image"}), ran]
    assert other.stages == [("queue", 3.0, 5.0, {"tower": "image"}), ran]


async def test_spans_are_sent_by_otlp_the_last_ones_at_the_end(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=tests")
    with collecting() as (collector, endpoint):
        spans = exported_spans(endpoint, ratio=1.0)
        async with run_server(data, FakeEncoder(), spans=spans) as served:
            await served.embed("a text")
        await asyncio.to_thread(spans.close, PATIENCE_S)
        (sent,) = collector.requests.get(timeout=PATIENCE_S).resource_spans
    resource = {each.key: each.value.string_value for each in sent.resource.attributes}
    assert resource["service.name"] == "twinlens"
    assert resource["deployment.environment.name"] == "tests"
    found = {span.name: span for scope in sent.scope_spans for span in scope.spans}
    assert set(found) == {METHOD, "prepare", "queue", "encode"}
    assert found[METHOD].kind == Span.SPAN_KIND_SERVER
    assert found["encode"].parent_span_id == found[METHOD].span_id


async def test_a_collector_that_is_gone_costs_a_line_in_the_log(
    data: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("twinlens.server.spans._EXPORT_TIMEOUT_S", 0.2)
    spans = exported_spans("http://127.0.0.1:1", ratio=1.0)
    async with run_server(data, FakeEncoder(), spans=spans) as served:
        assert (await served.embed("a text")).results[0].WhichOneof("outcome") == "embedding"
    await asyncio.to_thread(spans.close, PATIENCE_S)
    (line,) = (record.getMessage() for record in caplog.records if record.levelname == "ERROR")
    assert line.startswith("Failed to export traces to 127.0.0.1:1")


def test_the_last_spans_are_not_waited_for_without_end(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    provider = TracerProvider(shutdown_on_exit=False)
    hanging = threading.Event()
    monkeypatch.setattr(provider, "shutdown", lambda: hanging.wait(PATIENCE_S))
    Spans(provider).close(0.01)
    hanging.set()
    assert "the last spans could not be sent within 0.01 s" in caplog.text


def test_without_the_extra_it_says_which_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.grpc.trace_exporter", None)
    with pytest.raises(StartError, match=r"pip install 'twinlens\[otel\]'"):
        exported_spans("http://127.0.0.1:4317", ratio=1.0)


def test_an_endpoint_that_is_no_address_is_one_clear_line() -> None:
    with pytest.raises(StartError, match="not 'collector:4317'"):
        exported_spans("collector:4317", ratio=1.0)
