"""The dashboard, the alert rules and the page that explains them speak of metrics that there are."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]  # read here only
from prometheus_client.metrics import MetricWrapperBase

from tests.server.running import run_server
from tests.support.fake_encoder import FakeEncoder
from tests.support.scraped import Scraped
from twinlens.server.core.collection_gauges import CollectionGauges
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.monitored import serve_metrics

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
# What Prometheus itself adds to a series.
ADDED = {"job", "instance"}
OF_OTHERS = {"up": set[str]()}


def declared(metric: MetricWrapperBase) -> Iterator[tuple[str, set[str]]]:
    name, labels = metric._name, set(metric._labelnames)
    if metric._type == "counter":
        yield f"{name}_total", labels
    elif metric._type == "histogram":
        yield f"{name}_bucket", labels | {"le"}
        yield f"{name}_sum", labels
        yield f"{name}_count", labels
    else:
        yield name, labels


@pytest.fixture
async def series(data: Path) -> dict[str, set[str]]:
    """Every name of a series that a server has, with its labels."""
    async with run_server(data, FakeEncoder()) as served:
        serve_metrics(served.app, "127.0.0.1", 0).close()
        # Not on the event loop, whose delay is measured.
        found = (await asyncio.to_thread(Scraped.of, served.app.telemetry.registry)).labels()
        for family in CollectionGauges(served.app.catalog).collect():
            found.setdefault(family.name, set()).update(getattr(family, "_labelnames", ()))
    for metric in vars(Telemetry()).values():
        if isinstance(metric, MetricWrapperBase):
            for name, labels in declared(metric):
                found.setdefault(name, set()).update(labels)
    return found | OF_OTHERS


def panels(board: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in board["panels"]:
        yield panel
        yield from panel.get("panels", [])


def board() -> dict[str, Any]:
    read: dict[str, Any] = json.loads((DEPLOY / "grafana.json").read_text(encoding="utf-8"))
    return read


def rules() -> list[dict[str, Any]]:
    (group,) = yaml.safe_load((DEPLOY / "alerts.yml").read_text(encoding="utf-8"))["groups"]
    return list(group["rules"])


def wrong(expression: str, series: dict[str, set[str]]) -> list[str]:
    """Names of series, and labels in selectors and groupings, that there are not."""
    bare = re.sub(r'"(?:[^"\\]|\\.)*"', '""', expression)
    named = re.findall(r"\b(?:twinlens|grpc_server|process|up)(?:_[a-z0-9_]+)?\b(?!\s*=)", bare)
    found = [f"no series {name}" for name in named if name not in series]
    for name, selector in re.findall(r"\b([a-z][a-z0-9_]*)\{([^}]*)\}", bare):
        asked = set(re.findall(r"([a-zA-Z_]+)\s*(?:=~|!~|!=|=)", selector))
        found += [f"{name} has no label {label}" for label in asked - series.get(name, asked) - ADDED]
    labels = set[str]().union(*(series[name] for name in named if name in series)) | ADDED
    for grouping in re.findall(r"\bby\s*\(([^)]*)\)", bare):
        asked = {label.strip() for label in grouping.split(",")}
        found += [f"nothing in it has a label {label}" for label in asked - labels]
    if bare.count("(") != bare.count(")") or bare.count("{") != bare.count("}"):
        found.append("brackets do not match")
    return found


@pytest.mark.parametrize(
    "expression",
    [
        "sum(twinlens_nonsense_total)",
        'twinlens_items_total{tower="x"}',
        "sum by (tower) (twinlens_items_total)",
        "sum(up",
    ],
)
async def test_a_query_of_what_is_not_there_is_found(expression: str, series: dict[str, set[str]]) -> None:
    assert wrong(expression, series)


async def test_every_query_of_the_dashboard_names_series_and_labels_that_there_are(series: dict[str, set[str]]) -> None:
    found = {
        f"{panel['title']}: {fault}"
        for panel in panels(board())
        for target in panel.get("targets", [])
        for fault in wrong(target["expr"], series)
    }
    assert not found
    asked = "\n".join(target["expr"] for panel in panels(board()) for target in panel.get("targets", []))
    counted = {name for name in series if name.startswith(("twinlens_", "grpc_server_"))}
    shown = {name for name in counted if name in asked or re.sub("_(sum|count|bucket)$", "", name) in asked}
    # Told by what is shown beside them.
    told_elsewhere = {
        *("twinlens_collection_generations", "twinlens_index_hidden_vectors", "twinlens_index_last_merge_seconds"),
        *("twinlens_index_merged_vectors", "twinlens_index_recall_queries", "twinlens_index_vectors"),
        "twinlens_build_info",
    }
    assert counted - shown == told_elsewhere


def test_panels_lie_beside_each_other_and_have_ids_of_their_own() -> None:
    places: set[tuple[int, int]] = set()
    ids: set[int] = set()
    for panel in panels(board()):
        grid = panel["gridPos"]
        cells = {
            (x, y) for x in range(grid["x"], grid["x"] + grid["w"]) for y in range(grid["y"], grid["y"] + grid["h"])
        }
        assert grid["x"] + grid["w"] <= 24
        assert not cells & places, panel["title"]
        assert panel["id"] not in ids
        places |= cells
        ids.add(panel["id"])


async def test_every_alert_names_series_that_there_are_and_says_what_it_means(series: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    for rule in rules():
        assert not wrong(rule["expr"], series), rule["alert"]
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["summary"]
        assert f"| `{rule['alert']}` |" in page
    assert page.count("| `Twinlens") == len(rules())


def test_every_alert_is_tested_by_what_it_fires_at_and_what_it_leaves_alone() -> None:
    tests = yaml.safe_load((DEPLOY / "alerts.test.yml").read_text(encoding="utf-8"))
    assert tests["rule_files"] == ["alerts.yml"]
    cases = [case for test in tests["tests"] for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case["exp_alerts"]} == {rule["alert"] for rule in rules()}
    # At the very first reading, one that is slow says nothing of what comes.
    assert {rule["alert"] for rule in rules() if "for" not in rule} == {
        *("TwinlensWorkerReplaced", "TwinlensBatchesRetried", "TwinlensCollectionDamaged"),
    }


def test_alerts_fire_as_their_tests_say() -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("promtool is not installed")
    command = [promtool, "test", "rules", str(DEPLOY / "alerts.test.yml")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_a_token_over_its_rate_is_not_told_as_a_server_that_is_full() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    (full,) = (rule["expr"] for rule in rules() if rule["alert"] == "TwinlensFull")
    (row,) = (line for line in page.splitlines() if line.startswith("| `twinlens_refused_calls_total`"))
    of_fullness = row[row.index("before any work:") : row.index("(the server is full)")]
    (selected,) = re.findall(r'twinlens_refused_calls_total\{why=~"([a-z|]+)"\}', full)
    assert selected.split("|") == re.findall("`([a-z]+)`", of_fullness)
    assert "ResourceExhausted" not in full
    (panel,) = (panel for panel in panels(board()) if panel["title"] == "Refused as full")
    assert f'{{job="$job",instance=~"$instance",why=~"{selected}"}}' in panel["targets"][0]["expr"]
    assert "ResourceExhausted" not in json.dumps(board())


def test_methods_that_nobody_calls_are_no_lines_of_a_panel() -> None:
    # Their rates are 0, and quantiles and shares of these NaN: most of thirty methods stood in the legends.
    by_method = [
        target["expr"]
        for panel in panels(board())
        for target in panel.get("targets", [])
        if re.search(r"by \([^)]*grpc_method", target["expr"])
    ]
    assert by_method
    assert all(re.search(" (> 0|>= 0)$", expression) for expression in by_method)


def test_the_time_of_a_canary_is_shown_where_it_flies_once_a_minute() -> None:
    (panel,) = (panel for panel in panels(board()) if panel["title"] == "Canary")
    assert "[5m]" in panel["targets"][0]["expr"]


def test_every_reason_to_refuse_a_call_is_at_zero_before_the_first_refusal_and_on_the_page() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    (row,) = (line for line in page.splitlines() if line.startswith("| `twinlens_refused_calls_total`"))
    samples = list(Scraped.of(Telemetry().registry).samples("twinlens_refused_calls_total"))
    told = re.findall("`([a-z]+)`", row[row.index("before any work") :])
    assert {sample.labels["why"] for sample in samples} == set(told)
    assert {sample.value for sample in samples} == {0.0}


async def test_the_page_tells_of_every_metric_and_of_no_other(series: dict[str, set[str]]) -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text(encoding="utf-8")
    there = {re.sub("_(sum|count|bucket)$", "", name) for name in series} - set(OF_OTHERS)
    rows = page[page.index("| metric |") : page.index("Where the time of slow calls goes")]
    told = {
        name
        for line in rows.splitlines()[2:]
        if line.startswith("|")
        for name in re.findall(r"`([a-z_]+)`", line.split("|")[1])
    }
    assert told == there


def test_the_log_of_every_call_does_not_fill_the_disk_of_a_container() -> None:
    server = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))["services"]["twinlens"]
    assert server["logging"]["driver"] == "local"


def test_prometheus_and_the_compose_file_agree_on_port_and_files() -> None:
    prometheus = yaml.safe_load((DEPLOY / "prometheus.yml").read_text(encoding="utf-8"))
    compose = yaml.safe_load((DEPLOY / "compose.yml").read_text(encoding="utf-8"))
    (scraped,) = prometheus["scrape_configs"]
    assert scraped["job_name"] == "twinlens"  # what the alert rules ask for
    server = compose["services"]["twinlens"]
    port = server["command"][server["command"].index("--metrics-port") + 1]
    assert scraped["static_configs"] == [{"targets": [f"twinlens:{port}"]}]
    assert all(
        mapping.startswith("127.0.0.1:") for service in compose["services"].values() for mapping in service["ports"]
    )
    mounted = [
        volume.split(":")[0]
        for service in compose["services"].values()
        for volume in service["volumes"]
        if volume.startswith("./")
    ]
    assert all((DEPLOY / path).is_file() for path in mounted)
    assert set(prometheus["rule_files"]) == {"alerts.yml"}
