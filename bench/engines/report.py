"""The figures as tables, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console
from rich.table import Table

from bench.engines.growth import FIGURES, PowerLaw, fit, per_row
from twinlens.index.kinds.auto import estimate
from twinlens.index.kinds.kind import Kind

Run = Mapping[str, Any]
_FAR = (10_000_000, 100_000_000)


@dataclass(frozen=True, slots=True)
class Sheet:
    """A table of text."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]

    def show(self) -> None:
        """Prints it."""
        table = Table(title=self.title)
        for i, name in enumerate(self.header):
            table.add_column(name, justify="left" if i == 0 else "right")
        for row in self.rows:
            table.add_row(*row)
        Console(width=max(Console().width, 170)).print(table)

    def markdown(self) -> str:
        """As a table of a page."""
        lines = [f"**{self.title}**", "", f"| {' | '.join(self.header)} |"]
        lines.append(f"|---|{'---:|' * (len(self.header) - 1)}")
        lines += [f"| {' | '.join(row)} |" for row in self.rows]
        return "\n".join(lines)


def sheets(figures: Mapping[str, Any]) -> list[Sheet]:
    """All tables of a run."""
    largest = [run for run in figures["runs"] if run["rows"] == figures["rows"]]
    made = [_speed(largest), _keeping(largest, figures["stored"])]
    if figures["filtered"]:
        made.append(_filtered(figures["filtered"]))
    sizes, curves = growth_curves(figures["runs"])
    if len(sizes) > 1:
        made += [_slopes(sizes, curves), _far(sizes, curves, figures["dimension"])]
    return made


def growth_curves(runs: Sequence[Run]) -> tuple[list[int], dict[str, dict[str, list[float]]]]:
    """Numbers of vectors, and kind → figure → a value for each of them, of twinlens."""
    ours = [run for run in runs if run["contender"] == "twinlens"]
    sizes = sorted({run["rows"] for run in ours})
    curves: dict[str, dict[str, list[float]]] = {}
    for run in sorted(ours, key=lambda run: int(run["rows"])):
        of_kind = curves.setdefault(run["kind"], {figure: [] for figure in FIGURES})
        load = run["by"]["engine"]  # what reading items adds does not grow
        most = max(name for name in load if name.startswith("callers_"))
        values = {
            "p50_ms": load["callers_1"]["p50_ms"],
            "per_s": load[most]["per_s"],
            "own_mib": run["memory_mib_per_million"]["own"] * run["rows"] / 1e6,
            **{name: run[name] for name in ("disk_mib", "build_s", "restart_s")},
        }
        for figure, value in values.items():
            of_kind[figure].append(max(float(value), 1e-3))
    return sizes, curves


def _speed(runs: Sequence[Run]) -> Sheet:
    header = ["kind", "who", "recall@10", "1 caller, /s", "p50 ms", "p99 ms"]
    header += ["8 callers, /s", "p50 ms", "p99 ms", "batches of 64, /s", "of bare FAISS, 1", "8"]
    bare = {run["kind"]: run["by"]["engine"] for run in runs if run["contender"] == "faiss"}
    rows = []
    for run in sorted(runs, key=lambda run: str(run["kind"])):
        for level, load in run["by"].items():
            who = f"{run['contender']} {level}" if run["contender"] == "twinlens" else run["contender"]
            one, eight = load["callers_1"], load["callers_8"]
            row = [run["kind"], who, f"{load['recall']:.3f}"]
            row += [f"{one['per_s']:,.0f}", f"{one['p50_ms']:.2f}", f"{one['p99_ms']:.2f}"]
            row += [f"{eight['per_s']:,.0f}", f"{eight['p50_ms']:.2f}", f"{eight['p99_ms']:.2f}"]
            row.append(f"{load['batch_per_s']:,.0f}")
            beside = bare.get(run["kind"])
            row += [f"{load[of]['per_s'] / beside[of]['per_s']:.2f}" if beside else "" for of in _CALLERS]
            rows.append(row)
    return Sheet("Speed beside recall", header, rows)


_CALLERS = ("callers_1", "callers_8")


def _keeping(runs: Sequence[Run], stored: Mapping[str, Mapping[str, float]]) -> Sheet:
    header = ["kind", "who", "durable upserts/s", "build s", "restart s"]
    header += ["MiB a million", "mapped MiB a million", "disk MiB"]
    rows = []
    for run in sorted(runs, key=lambda run: str(run["kind"])):
        of_contender = stored.get(run["contender"], {})
        upserts = f"{of_contender['upsert_per_s']:,.0f}" if of_contender else "not durable"
        memory = run["memory_mib_per_million"]
        row = [run["kind"], run["contender"], upserts, f"{run['build_s']:.1f}", f"{run['restart_s']:.2f}"]
        row += [f"{memory['own']:,.0f}", f"{memory['mapped']:,.0f}", f"{run['disk_mib']:,.0f}"]
        rows.append(row)
    return Sheet("Storing, building, restarting, keeping", header, rows)


def _filtered(runs: Sequence[Run]) -> Sheet:
    header = ["filter lets through", "who", "kind", "rows", "recall@10", "hits missing", "p50 ms", "brute force ms"]
    rows = []
    for condition in runs[0]["conditions"]:
        for run in runs:
            of = run["conditions"][condition]
            row = [condition, run["contender"], run["kind"], f"{of['matching']:,.0f}", f"{of['recall']:.3f}"]
            rows.append([*row, str(of["missing"]), f"{of['p50_ms']:.2f}", f"{of['brute_ms']:.2f}"])
    return Sheet("Under filters", header, rows)


def _slopes(sizes: Sequence[int], curves: Mapping[str, Mapping[str, Sequence[float]]]) -> Sheet:
    rows = []
    for kind, of_kind in curves.items():
        laws = [fit(sizes, of_kind[figure]) for figure in FIGURES]
        rows.append([kind, *("" if law is None else f"{law.slope:.2f}" for law in laws)])
    span = f"{sizes[0]:,} to {sizes[-1]:,}"
    return Sheet(f"Exponents of growth, {span} vectors", ["kind", *FIGURES.values()], rows)


def _far(sizes: Sequence[int], curves: Mapping[str, Mapping[str, Sequence[float]]], dimension: int) -> Sheet:
    """Bytes grow along a straight line, times by their exponent."""
    header = ["vectors", "kind", "memory GiB", "by `estimate` GiB", "vectors, mapped GiB", "disk GiB"]
    header += ["search p50 ms", "build hours", "restart minutes"]
    rows = []
    for far in _FAR:
        for kind, of_kind in curves.items():
            own, disk = (per_row(sizes, of_kind[figure]) * far / 1024 for figure in ("own_mib", "disk_mib"))
            by_estimate = estimate(Kind(kind), far, dimension) / 2**30
            gib = [f"{value:,.1f}" for value in (own, by_estimate, far * dimension * 4 / 2**30, disk)]
            times = {"p50_ms": 1, "build_s": 3600, "restart_s": 60}
            laws = [_at(fit(sizes, of_kind[figure]), far, unit) for figure, unit in times.items()]
            rows.append([f"{far:,}", kind, *gib, *laws])
    return Sheet("Estimated from these slopes", header, rows)


def _at(law: PowerLaw | None, n: int, unit: float = 1) -> str:
    return "" if law is None else f"{law.at(n) / unit:,.1f}"
