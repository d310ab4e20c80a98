"""`twinlens mine` behind its options: mines, writes the manifest, says what became of every candidate."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from rich.table import Table

from twinlens.client.client import Client
from twinlens.client.commands.output import print_json, print_table
from twinlens.training.mining.filters import Guards
from twinlens.training.mining.manifest import KINDS, Kind, MiningError, write_manifest
from twinlens.training.mining.mine import MineOptions, MiningReport
from twinlens.training.mining.mine import mine as run
from twinlens.training.progress import lines_or_bar


@dataclass(frozen=True)
class MineRequest:
    """A collection and what to look for in it."""

    collection: str
    options: MineOptions

    @classmethod
    def of(
        cls,
        collection: str,
        *,
        kind: str,
        top_k: int,
        per_anchor: int,
        margin: float | None,
        relative_margin: float | None,
        rank_min: int,
        rank_max: int | None,
        min_score: float | None,
        max_score: float | None,
        near_duplicate: float,
        group_key: str | None,
        random: bool,
        seed: int,
    ) -> Self:
        """Options as a person gives them.

        Raises:
            MiningError: if they contradict each other.
        """
        by_name: dict[str, tuple[Kind, ...]] = {"text": ("text",), "image": ("image",), "both": KINDS}
        if kind not in by_name:
            raise MiningError(f"--kind must be text, image or both, not {kind!r}")
        try:
            options = MineOptions(
                kinds=by_name[kind],
                top_k=top_k,
                per_anchor=per_anchor,
                guards=Guards(rank_min, rank_max, min_score, max_score, margin, relative_margin),
                near_duplicate=near_duplicate if near_duplicate <= 1 else None,
                group_key=group_key,
                strategy="random" if random else "nearest",
                seed=seed,
            )
        except ValueError as error:
            raise MiningError(str(error)) from error
        return cls(collection, options)


def check_out(out: Path) -> None:
    """Tells before the work what would stop the manifest from being written.

    Raises:
        MiningError: if the file is not named as Parquet, or its folder is missing.
    """
    if out.suffix.lower() != ".parquet":
        raise MiningError(f"the manifest is a Parquet file: name it FILE.parquet, not {out.name}")
    if not out.parent.is_dir():
        raise MiningError(f"no such folder: {out.parent}")


def run_mine(client: Client, request: MineRequest, out: Path, *, as_json: bool) -> None:
    """Mines from the collection and prints the report.

    Raises:
        MiningError: if nothing can be mined or written.
    """
    collection = client.get_collection(request.collection)
    served = client.model().info
    if not served.has_text_tower:
        raise MiningError(
            f"mining starts from captions, and the model {served.name}/{served.version} embeds pictures only: "
            "`twinlens train clip` gives its encoder a text tower, `twinlens reindex` moves the collection to it"
        )
    space_id = collection.space_id
    with lines_or_bar("mining", collection.item_count * len(request.options.kinds)) as progress:

        def tenths(done: int, of: int) -> None:
            if done == of or done % max(1, of // 10) == 0:
                progress(done, {})

        mined, report = run(client, request.collection, space_id, request.options, tenths)
    write_manifest(out, mined)
    if as_json:
        print_json({"manifest": str(out), "rows": len(mined), "space_id": space_id, **report.summary()})
    else:
        print_table(report_table(report, f"{len(mined):,} hard negatives in {out}"))


def report_table(report: MiningReport, title: str) -> Table:
    """What became of every candidate, a row each."""
    table = Table(title=title)
    table.add_column("")
    for kind in report.kinds:
        table.add_column(f"wrong {'captions' if kind == 'text' else 'pictures'}", justify="right")
    kinds = report.kinds.values()
    reasons = sorted({reason for counts in kinds for reason in counts.dropped})
    table.add_row("anchors", *(f"{counts.anchors:,}" for counts in kinds))
    table.add_row("candidates", *(f"{counts.candidates:,}" for counts in kinds), end_section=True)
    for reason in reasons:
        table.add_row(f"dropped: {reason}", *(f"{counts.dropped[reason]:,}" for counts in kinds))
    table.add_row("not needed", *(f"{counts.left:,}" for counts in kinds))
    table.add_row("taken", *(f"{counts.taken:,}" for counts in kinds), end_section=True)
    table.add_row("anchors with fewer than asked for", *(f"{len(counts.short):,}" for counts in kinds))
    return table
