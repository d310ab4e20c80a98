"""The figures as tables, for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from bench.engines.report import Sheet

Figures = Mapping[str, Any]

_LOAD = ("callers", "a second", "p50 ms", "p95 ms", "p99 ms", "CPU ms each", "decode share", "batch", "RSS MiB")


def sheets(figures: Figures) -> list[Sheet]:
    """All tables of a run."""
    made = [_load(figures)]
    if figures.get("bare"):
        made.append(_bare(figures))
    if figures.get("infinity"):
        made.append(_infinity(figures))
    if figures.get("overload"):
        made.append(_overload(figures["overload"]))
    goals = list(_goals(figures))
    made.append(Sheet("Goals", ("goal", "wanted", "measured", "held"), [list(goal) for goal in goals]))
    return made


def _load(figures: Figures) -> Sheet:
    rows = []
    for variant, of_variant in figures["image"].items():
        bare = (figures.get("bare") or {}).get(variant, {})
        rows += _load_rows(f"JPEG 640x480 → vector, {variant}", of_variant, bare.get("decode_ms"))
    for work, title in (("text", "text → vector"), ("search", "text → top 10 of {rows:,}")):
        if of_work := figures.get(work):
            rows += _load_rows(f"{title.format(**figures.get('collection', {}))}, {figures['served']}", of_work)
    if steady := figures.get("steady"):
        rows.append(["the same, at 70 % of that", "", *_load_cells(steady)])
    return Sheet("Load", ("what", *_LOAD), rows)


def _load_rows(title: str, by_callers: Figures, decode_ms: float | None = None) -> list[list[str]]:
    return [[title, callers, *_load_cells(of, decode_ms)] for callers, of in by_callers.items()]


def _load_cells(of: Figures, decode_ms: float | None = None) -> list[str]:
    pipeline = of["pipeline"]
    share = decode_share(of, decode_ms)
    return [
        _rate(of["ok_per_s"]),
        *(f"{of[name]:,.0f}" if of[name] >= 100 else f"{of[name]:.1f}" for name in ("p50_ms", "p95_ms", "p99_ms")),
        f"{of['cpu_ms_per_call']:.2f}",
        "" if share is None else f"{share:.0%}",
        f"{pipeline['batch']:.1f}" if pipeline else "",
        f"{of['rss_mib']:,.0f}",
    ]


def decode_share(of: Figures, decode_ms: float | None = None) -> float | None:
    """Which part of the server's CPU time for a call goes into decoding or tokenising.

    Args:
        of: One measurement.
        decode_ms: CPU time of a picture's decoding, measured alone. Otherwise the server's own times count, which are
            too long where its threads wait for a processor.

    Returns:
        From 0 to 1; None where neither is known.
    """
    if decode_ms is None and of["pipeline"]:
        decode_ms = 1000 * of["pipeline"]["prepare_s"]
    return None if decode_ms is None else min(1.0, decode_ms / of["cpu_ms_per_call"])


def _bare(figures: Figures) -> Sheet:
    header = ["variant", "threads: decode + encode", "decode ms", *(f"batch {n}" for n in _batches(figures["bare"]))]
    header += ["CPU ms each", "server, 64 callers", "CPU ms each", "of the bare loop"]
    rows = []
    for variant, bare in figures["bare"].items():
        server = figures["image"][variant]["64"]
        row = [variant, f"{bare['threads']['prepare']} + {bare['threads']['encode']}", f"{bare['decode_ms']:.1f}"]
        row += [_rate(rate) for rate in bare["per_s"].values()]
        row += [f"{bare['cpu_ms']:.1f}", _rate(server["ok_per_s"]), f"{server['cpu_ms_per_call']:.1f}"]
        rows.append([*row, f"{server['ok_per_s'] / bare['best_per_s']:.2f}"])
    return Sheet("Beside a loop without a server, pictures a second", header, rows)


def _batches(bare: Figures) -> list[str]:
    return list(next(iter(bare.values()))["per_s"])


def _infinity(figures: Figures) -> Sheet:
    theirs = figures["infinity"]
    rows = []
    for callers, of in theirs["image"].items():
        for variant, ours in figures["image"].items():
            rows.append(_beside(f"pictures, {variant}", callers, ours[callers], of))
    for callers, of in theirs["text"].items():
        if figures.get("text"):
            rows.append(_beside(f"texts, {figures['served']}", callers, figures["text"][callers], of))
        if figures.get("search"):
            rows.append(_beside("searches beside its texts", callers, figures["search"][callers], of))
    header = ["what", "callers", "twinlens, a second", "p50 ms", "p99 ms"]
    header += ["infinity, a second", "p50 ms", "p99 ms", "times"]
    return Sheet(f"Beside infinity-emb {theirs.get('version', '')}".rstrip(), header, rows)


def _beside(title: str, callers: str, ours: Figures, theirs: Figures) -> list[str]:
    row = [title, callers]
    for of in (ours, theirs):
        row += [_rate(of["ok_per_s"]), f"{of['p50_ms']:,.0f}", f"{of['p99_ms']:,.0f}"]
    return [*row, f"{ours['ok_per_s'] / theirs['ok_per_s']:.1f}"]


def _overload(found: Figures) -> Sheet:
    header = ["phase", "due a second", "answered well", "refused", "other", "p50 ms", "p99 ms", "refused in, p50 ms"]
    header += ["p99 ms", "generator late by, p99 ms"]
    rows = []
    for phase in ("before", "flood", "after"):
        of = found[phase]
        outcomes = dict(of["outcomes"])
        good, refused = outcomes.pop("ok", 0), outcomes.pop("refused", 0)
        row = [phase, _rate(of["due_per_s"]), f"{good:,}", f"{refused:,}", str(outcomes or "")]
        row += [f"{of[name]:,.0f}" if name in of else "" for name in ("p50_ms", "p99_ms")]
        row += [f"{of[name]:.1f}" if name in of else "" for name in ("refused_p50_ms", "refused_p99_ms")]
        rows.append([*row, f"{of.get('late_p99_ms', 0):.1f}"])
    return Sheet("Overload with pictures: half of capacity, three times capacity, half again", header, rows)


def _goals(figures: Figures) -> Iterator[tuple[str, str, str, str]]:
    """Goal, what is wanted, what was measured, and whether it holds."""

    def goal(name: str, value: float, wanted: str, *, least: float | None = None, most: float | None = None) -> Any:
        held = (least is None or value >= least) and (most is None or value <= most)
        return name, wanted, f"{value:.2f}", "yes" if held else "no"

    image = figures["image"]
    for variant, bare in (figures.get("bare") or {}).items():
        share = image[variant]["64"]["ok_per_s"] / bare["best_per_s"]
        yield goal(f"pictures, 64 callers, of the bare loop, {variant}", share, "≥ 0.9", least=0.9)
    if theirs := figures.get("infinity"):
        for variant, of in image.items():
            times = of["64"]["ok_per_s"] / theirs["image"]["64"]["ok_per_s"]
            yield goal(f"pictures, 64 callers, times infinity, {variant}", times, "≥ 4", least=4)
        if search := figures.get("search"):
            times = search["64"]["ok_per_s"] / theirs["text"]["64"]["ok_per_s"]
            yield goal("text → top 10, times infinity's texts", times, "≥ 8", least=8)
    if steady := figures.get("steady"):
        yield goal("text → top 10 at 70 % load: p99 over p50", steady["p99_ms"] / steady["p50_ms"], "< 3", most=3)
    if found := figures.get("overload"):
        yield goal("overload: goodput of capacity", found["goodput"], "≥ 0.9", least=0.9)
        if "refused_p99_ms" in found["flood"]:
            yield goal("overload: refused within, p99 ms", found["flood"]["refused_p99_ms"], "< 50", most=50)
        yield goal("overload: p99 of the accepted, times p99 at capacity", found["p99_times"], "≤ 2", most=2)
        yield goal("overload: recovered after, s", found["recovery_s"], "≤ 2", most=2)
    if found := figures.get("poison"):
        yield goal("a poisoned picture in ten: good ones of the clean run", found["share"], "≥ 0.9", least=0.9)
    if found := figures.get("soak"):
        name = f"soak of {found['minutes']:g} minutes, {found['calls']:,} calls: MiB a thousand calls"
        yield goal(name, found["mib_per_1000_calls"], "< 1", most=1)
    for name, of in (figures.get("start") or {}).items():
        if name == "starter":
            yield goal("cold start to healthy, starter, s", of["start_s"], "< 3", most=3)
        yield goal(f"idle CPU, {name}, %", of["idle_cpu"] * 100, "< 2", most=2)


def _rate(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"
