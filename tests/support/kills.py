"""Kills a writer at random moments, restarts, and compares what is there with what was acknowledged.

python -m tests.support.kills --kills 50      prints the log and a summary of what was interrupted
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.support import write_until_killed as writer
from tests.support.few_rows import structures_from
from tests.support.oracle import assert_exact
from twinlens.index.blobs import content_hash
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality
from twinlens.index.operations.backup import list_backups
from twinlens.index.operations.steps import Finding

State = tuple[writer.Model, str]
BETWEEN = "between steps"
# What a kill is aimed at, in turn.
AIMS = (
    "upsert",
    "merge",
    "delete",
    "activate",
    "backup",
    "merge",
    "fill",
    "restore",
    "upsert",
    "merge",
    "reopen",
    "drop",
)


@dataclass(frozen=True, slots=True)
class Kill:
    """One kill and what was found afterwards.

    Attributes:
        number: From 1.
        acknowledged: Steps that were, since the writer started.
        inside: The step that had been announced and not acknowledged, or `BETWEEN`.
        after_ms: How long after the announcement the kill came.
        outcome: "done" or "undone": what the restart made of that step; "–" where it changes no item.
        items: How many there were after the restart.
        left: What lay about: half a segment, half a picture.
        open_ms: How long the restart took.
    """

    number: int
    acknowledged: int
    inside: str
    after_ms: float
    outcome: str
    items: int
    left: str
    open_ms: float


class Durations:
    """How long each kind of step usually takes, so that a kill can fall anywhere inside."""

    def __init__(self) -> None:
        self._seen: dict[str, list[float]] = defaultdict(list)

    def note(self, kind: str, seconds: float) -> None:
        """Takes one duration."""
        self._seen[kind].append(seconds)

    def usual_s(self, kind: str) -> float:
        """Seconds."""
        return statistics.median(self._seen[kind]) if self._seen[kind] else 0.005


@dataclass(frozen=True, slots=True)
class Run:
    """What a writer said until it was killed.

    Attributes:
        state: What is there by all that was acknowledged.
        pending: The step announced and not acknowledged, if any.
        acknowledged: How many steps were.
        after_s: Seconds from the last announcement to the kill.
        backups: Those acknowledged, and what is in them.
    """

    state: State
    pending: writer.Step | None
    acknowledged: int
    after_s: float
    backups: dict[str, State]


def run_until_killed(
    root: Path, seed: int, state: State, aim: str, rng: np.random.Generator, durations: Durations
) -> Run:
    """Runs the writer and kills it within a step of a kind."""
    command = [sys.executable, writer.__file__, str(root), str(seed)]
    least = int(rng.integers(3, 25))
    acknowledged = 0
    pending: writer.Step | None = None
    backups: dict[str, State] = {}
    announced_s = killed_s = 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if not line.endswith(b"\n"):
                break
            said = json.loads(line)
            if "step" in said:
                pending, announced_s = said["step"], said["at_s"]
                if not killed_s and acknowledged >= least and (said["step"]["kind"] == aim or acknowledged > 200):
                    # A kill needs no precision, so this is no wait for something to have happened.
                    time.sleep(rng.uniform(0, 1.5) * durations.usual_s(said["step"]["kind"]))
                    process.kill()
                    killed_s = time.monotonic()
            elif pending is not None:
                durations.note(pending["kind"], said["done"])
                if pending["kind"] == "backup":
                    backups[pending["backup"]] = state
                state, pending = writer.applied(*state, pending), None
                acknowledged += 1
    assert killed_s, f"the writer ended by itself after {acknowledged} steps, in {pending}"
    return Run(state, pending, acknowledged, max(killed_s - announced_s, 0.0), backups)


def found_in(collection: Collection) -> State:
    """Which items, in which version, and which space."""
    return {item.id: int(item.caption) for item in collection.list(limit=10**6)}, collection.space_id


def assert_whole(collection: Collection, root: Path, state: State, rng: np.random.Generator) -> None:
    """Checks it, and compares everything with a state: vectors, searches by brute force, pictures, files."""
    model, space_id = state
    assert [finding for finding in collection.check() if isinstance(finding, Finding)] == []
    stats = collection.stats()
    assert stats.items == len(model)
    for modality, counted in ((Modality.IMAGE, stats.image_vectors), (Modality.TEXT, stats.text_vectors)):
        of_items = {item_id: writer.vectors(item_id, version, space_id) for item_id, version in model.items()}
        expected = {item_id: made[modality] for item_id, made in of_items.items() if modality in made}
        assert counted == len(expected)
        stored = dict(pair for ids, array in collection.iter_vectors(modality) for pair in zip(ids, array, strict=True))
        assert stored.keys() == expected.keys()
        for item_id, vector in stored.items():
            np.testing.assert_allclose(vector, expected[item_id], atol=1e-6)
        for query in rng.standard_normal((2, writer.SPACES[space_id])):
            for exact, top_k in ((True, 10), (False, len(expected) + 5)):
                hits = collection.search(
                    query[np.newaxis], modality=modality, top_k=top_k, space_id=space_id, exact=exact
                )[0]
                assert_exact(query, expected, top_k, [(hit.item.id, hit.score) for hit in hits])
    pictures = {item_id: writer.picture(version) for item_id, version in model.items()}
    for item_id, picture in pictures.items():
        assert collection.get(item_id).has_image == (picture is not None)
        if picture is not None:
            assert collection.get_image(item_id) == picture
    on_disk = {path.name for path in (root / "collections" / collection.id / "blobs").rglob("*") if path.is_file()}
    assert on_disk == {content_hash(picture) for picture in pictures.values() if picture is not None}


def _segments(root: Path) -> set[str]:
    folder = root / "collections" / writer.COLLECTION / "indexes"
    return {path.name for path in folder.iterdir()} if folder.is_dir() else set()


def _left(root: Path, kept: set[str], before: set[str]) -> str:
    blobs = root / "collections" / writer.COLLECTION / "blobs"
    found = {
        "half a segment": any(name.startswith(".") for name in before - kept),
        "a segment not in use": any(not name.startswith(".") for name in before - kept),
        "half a picture": any(blobs.rglob(".writing-*")),
    }
    return ", ".join(what for what, there in found.items() if there)


def kill_rounds(root: Path, rounds: int, *, seed: int, aims: Sequence[str] = AIMS) -> Iterator[Kill]:
    """Goes on in one data folder, kill after kill.

    Raises:
        AssertionError: something acknowledged is gone, something is half there, or a search is wrong.
    """
    with closing(Catalog(root, options=writer.OPTIONS)) as catalog:
        first = next(iter(writer.SPACES))
        catalog.create(writer.COLLECTION, space_id=first, dimension=writer.SPACES[first])
    rng = np.random.default_rng(seed)
    durations = Durations()
    state: State = ({}, first)
    for number in range(1, rounds + 1):
        run = run_until_killed(root, seed * 1000 + number, state, aims[(number - 1) % len(aims)], rng, durations)
        possible = [run.state] if run.pending is None else [run.state, writer.applied(*run.state, run.pending)]
        before = _segments(root)
        half = _left(root, set(), set())
        start = time.perf_counter()
        with structures_from(writer.LEAST_ROWS), closing(Catalog(root, options=writer.OPTIONS)) as catalog:
            collection = catalog.get(writer.COLLECTION)
            open_ms = 1000 * (time.perf_counter() - start)
            left = _left(root, _segments(root), before) or half
            found = found_in(collection)
            assert found in possible, f"kill {number} in {run.pending}: {_difference(found, possible)}"
            assert_whole(collection, root, found, rng)
        assert_backups_whole(root, run, rng)
        changes = run.pending is not None and possible[0] != possible[-1]
        yield Kill(
            number,
            run.acknowledged,
            BETWEEN if run.pending is None else run.pending["kind"],
            1000 * run.after_s,
            ("undone" if found == possible[0] else "done") if changes else "–",
            len(found[0]),
            left,
            open_ms,
        )
        state = found


def assert_backups_whole(root: Path, run: Run, rng: np.random.Generator) -> None:
    """Checks that every acknowledged backup is listed, and that the latest that is listed restores to what it was."""
    place = root / writer.BACKUPS
    if not place.is_dir():
        return
    listed = {backup.id for backup in list_backups(str(place), limit=10**6)}
    assert run.backups.keys() <= listed, "an acknowledged backup is gone"
    expected = dict(run.backups)
    if run.pending is not None and run.pending["kind"] == "backup" and run.pending["backup"] in listed:
        expected[run.pending["backup"]] = run.state
    with tempfile.TemporaryDirectory() as folder, closing(Catalog(folder)) as catalog:
        for backup, state in list(expected.items())[-1:]:
            for _ in catalog.restore(str(place), backup, id="restored"):
                pass
            assert found_in(catalog.get("restored")) == state
            assert_whole(catalog.get("restored"), Path(folder), state, rng)


def _difference(found: State, possible: Sequence[State]) -> str:
    told = []
    for model, space_id in possible:
        wrong = sorted(set(found[0].items()) ^ set(model.items()))
        told.append(f"{found[1]} where {space_id} and {len(wrong)} items otherwise, as {wrong[:4]}")
    return "; ".join(told)


def log(kills: Sequence[Kill]) -> str:
    """A line for every kill and a summary by what it interrupted."""
    lines = [f"{'kill':>4} {'acks':>5} {'inside':<14}{'after':>9}  {'step':<7}{'items':>5}{'restart':>10}  left behind"]
    lines += [
        f"{kill.number:>4} {kill.acknowledged:>5} {kill.inside:<14}{kill.after_ms:>6.1f} ms  {kill.outcome:<7}"
        f"{kill.items:>5}{kill.open_ms:>7.0f} ms  {kill.left}".rstrip()
        for kill in kills
    ]
    inside = ", ".join(f"{count} in {what}" for what, count in Counter(kill.inside for kill in kills).most_common())
    left = Counter(what for kill in kills for what in kill.left.split(", ") if what)
    outcomes = Counter(kill.outcome for kill in kills)
    acknowledged = sum(kill.acknowledged for kill in kills)
    lines += [
        "",
        f"{len(kills)} kills: {inside}",
        f"{acknowledged} acknowledged steps, none lost",
        f"steps cut off: {outcomes['done']} there in full, {outcomes['undone']} not at all, none by halves",
        f"lying about and cleared: {', '.join(f'{what} {count}×' for what, count in left.items()) or 'nothing'}",
    ]
    return "\n".join(lines)


def main() -> None:
    """Prints the log."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        kills = list(kill_rounds(Path(folder), options.kills, seed=options.seed))
    sys.stdout.write(log(kills) + "\n")


if __name__ == "__main__":
    main()
