"""The tables, of made-up figures."""

from __future__ import annotations

from typing import Any

from bench.serving.sheets import sheets


def load(rate: float, **more: Any) -> dict[str, Any]:
    pipeline = {"items": 100.0, "batch": 8.0, "prepare_s": 0.012, "queue_s": 0.1, "encode_s": 0.03}
    return {
        "ok_per_s": rate,
        "p50_ms": 10.0,
        "p95_ms": 15.0,
        "p99_ms": 20.0,
        "cpu_ms_per_call": 40.0,
        "rss_mib": 800.0,
        "pipeline": pipeline,
        "server_cpu_s": 4.0,
        "outcomes": {"ok": 100},
        "due_per_s": rate,
        **more,
    }


def callers(rate: float) -> dict[str, Any]:
    return {str(n): load(rate) for n in (1, 16, 64)}


def figures(**more: Any) -> dict[str, Any]:
    bare = {"threads": {"prepare": 1, "encode": 2}, "decode_ms": 9.0, "per_s": {"8": 50.0}, "best_batch": 8}
    flood = load(47.0, outcomes={"ok": 470, "refused": 980}, refused_p50_ms=2.0, refused_p99_ms=9.0)
    return {
        "served": "bf16 on openvino",
        "image": {"bf16 on openvino": callers(48.0)},
        "bare": {"bf16 on openvino": {**bare, "best_per_s": 50.0, "cpu_ms": 38.0}},
        "infinity": {"version": "0.0.78", "image": callers(12.0), "text": callers(90.0)},
        "text": callers(900.0),
        "collection": {"rows": 100_000},
        "search": callers(800.0),
        "steady": load(560.0),
        "overload": {
            "before": load(24.0),
            "flood": flood,
            "after": load(24.0),
            "goodput": 0.97,
            "p99_times": 1.2,
            "recovery_s": 0.0,
        },
        "poison": {"share": 0.99},
        "soak": {"minutes": 1, "calls": 4000, "mib_per_1000_calls": 0.1},
        "start": {"starter": {"start_s": 2.0, "idle_cpu": 0.01}},
        **more,
    }


def goals(of: dict[str, Any]) -> dict[str, str]:
    (sheet,) = (sheet for sheet in sheets(of) if sheet.title == "Goals")
    return {row[0]: row[3] for row in sheet.rows}


def test_every_goal_is_judged() -> None:
    judged = goals(figures())
    assert len(judged) == 12
    assert set(judged.values()) == {"yes"}


def test_a_goal_that_is_missed_is_told() -> None:
    judged = goals(figures(poison={"share": 0.4}))
    assert [goal for goal, held in judged.items() if held == "no"] == [
        "a poisoned picture in ten: good ones of the clean run"
    ]


def test_parts_that_were_left_out_leave_no_gap() -> None:
    judged = goals({"served": "fp32 on cpu", "image": {}, "bare": {}})
    assert judged == {}
    tables = sheets(figures(infinity=None, overload=None, soak=None))
    assert all(len(row) == len(sheet.header) for sheet in tables for row in sheet.rows)


def test_the_share_of_decoding_is_of_the_servers_processor_time() -> None:
    def shown(of: dict[str, Any]) -> str:
        (first, *_) = sheets(of)
        return dict(zip(first.header, first.rows[0], strict=True))["decode share"]

    assert shown(figures()) == "22%"  # 9 ms of 40
    assert shown(figures(bare={})) == "30%"  # 12 ms by the server's own clock
