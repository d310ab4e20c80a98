"""Reading what a server counted."""

from __future__ import annotations

from prometheus_client import generate_latest

from bench.serving.prometheus_page import of_towers, parse, read_counts
from twinlens.server.core.telemetry import Telemetry


def test_what_the_pipeline_did_is_the_difference_of_two_pages() -> None:
    telemetry = Telemetry()

    def work(batches: int) -> dict[str, float]:
        for _ in range(batches):
            telemetry.batch_items.labels("image").observe(8)
            telemetry.encode_seconds.labels("image").observe(0.16)
            for _ in range(8):
                telemetry.prepare_seconds.labels("image").observe(0.01)
                telemetry.queue_seconds.labels("image").observe(0.002)
        return parse(generate_latest(telemetry.registry).decode())

    before, after = work(3), work(2)
    found = {name: round(value, 6) for name, value in of_towers(before, after, "image").items()}
    assert found == {"items": 16, "batch": 8, "prepare_s": 0.01, "queue_s": 0.002, "encode_s": 0.02}
    assert of_towers(after, after, "image") == {}
    assert of_towers({}, {}, "text") == {}


def test_a_server_without_such_a_page_counts_nothing() -> None:
    assert read_counts("http://127.0.0.1:9/metrics") == {}
