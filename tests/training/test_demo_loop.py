from __future__ import annotations

import io
import json
import signal
from collections.abc import Sequence
from pathlib import Path
from types import FrameType

import numpy as np
import pytest
from rich.console import Console

from twinlens.client.types import EmbedBatch, Hit, ItemError, NewItem, QueryResult, UpsertFailure, UpsertReport
from twinlens.training import train
from twinlens.training.data.scenes import KINDS, Scene, SceneStyle, generate
from twinlens.training.demo.failed import DemoFailed
from twinlens.training.demo.loop import LoopScript, _family, run_loop
from twinlens.training.demo.loop_measure import Measured, measure_served, measure_vectors, store
from twinlens.training.demo.loop_tables import Row, results_table
from twinlens.training.demo.own_folder import make_anew
from twinlens.training.interruption import RunInterrupted
from twinlens.training.mining.manifest import read_manifest


@pytest.mark.slow
def test_the_loop_walks_to_its_end(tmp_path: Path) -> None:
    screen = io.StringIO()
    out = tmp_path / "loop"
    script = LoopScript(scenes=256, held_out=24, steps=4, more_steps=4, batch_size=32)
    rows = run_loop(script, out, Console(file=screen, width=200))
    assert [row.path for row in rows] == ["served", "in process", "served"]
    assert rows[0].space_id != rows[2].space_id
    assert all(0 <= row.measured.recall_at_1 <= row.measured.recall_at_5 <= 1 for row in rows)
    assert read_manifest(out / "mined.parquet").space_id == rows[0].space_id
    assert (out / "contact_sheet.png").stat().st_size > 1000
    assert json.loads((out / "data/active.json").read_text())["space_id"] == rows[2].space_id
    assert "word order" in screen.getvalue()


@pytest.mark.parametrize("asked", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_during_a_run_of_the_loop_ends_it_as_any_other_command(
    asked: signal.Signals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ended(*_: object) -> None:
        raise RunInterrupted(asked, 1, method="clip", out=tmp_path)

    def own(number: int, _: FrameType | None) -> None:
        raise SystemExit(number)

    monkeypatch.setattr(train, "train", ended)
    before = signal.signal(asked, own)
    try:
        with pytest.raises(SystemExit) as caught:
            run_loop(LoopScript(scenes=16, held_out=8), tmp_path / "loop", Console(file=io.StringIO()))
    finally:
        signal.signal(asked, before)
    assert caught.value.code == asked


class FakeClient:
    """Answers with what it was given."""

    def __init__(self, results: list[QueryResult], failures: tuple[UpsertFailure, ...] = ()) -> None:
        self._results = results
        self._failures = failures
        self.stored: list[NewItem] = []

    def create_collection(self, collection: str) -> None:
        self.collection = collection

    def upsert(self, collection: str, items: Sequence[NewItem]) -> UpsertReport:
        del collection
        self.stored = list(items)
        return UpsertReport(len(self.stored) - len(self._failures), self._failures)

    def search_batch(self, collection: str, queries: Sequence[str], *, top_k: int) -> list[QueryResult]:
        del collection, queries, top_k
        return self._results

    def embed_images(self, images: Sequence[bytes]) -> EmbedBatch:
        return EmbedBatch(np.eye(len(images), dtype=np.float32), {}, (), None)

    def embed_texts(self, texts: Sequence[str]) -> EmbedBatch:
        return EmbedBatch(np.eye(len(texts), dtype=np.float32), {}, (), None)


@pytest.fixture
def four() -> list[Scene]:
    return list(generate(4, seed=1, size=16))


def hits(*scored: tuple[Scene, float]) -> QueryResult:
    return QueryResult(tuple(Hit(scene.id, score) for scene, score in scored))


def test_served_recall_counts_ties_and_misses_against_the_model(four: list[Scene]) -> None:
    a, b, c, d = four
    client = FakeClient(
        [
            hits((a, 0.9), (b, 0.5)),  # first
            hits((b, 0.7), (a, 0.7)),  # tied with a wrong one: second
            hits((a, 0.9), (b, 0.8), (d, 0.8), (c, 0.1)),  # fourth
            hits((a, 0.9), (b, 0.8), (c, 0.7)),  # out of sight
        ]
    )
    measured = measure_served(client, "c", four)  # type: ignore[arg-type]
    assert measured.recall_at_1 == 0.25
    assert measured.recall_at_5 == 1.0
    assert measured.word_order["mean"] == 0.0  # wrong captions have the very vectors of the right ones


def test_a_failed_search_or_upsert_ends_the_loop(four: list[Scene]) -> None:
    broken = QueryResult((), ItemError("INVALID_TEXT", "no"))
    with pytest.raises(DemoFailed, match=r"search for .* failed: no"):
        measure_served(FakeClient([broken] * 4), "c", four)  # type: ignore[arg-type]
    failing = FakeClient([], (UpsertFailure(1, "x", "INVALID_IMAGE", "no picture"),))
    with pytest.raises(DemoFailed, match="1 scenes were not stored; the first, x: no picture"):
        store(failing, "c", four)  # type: ignore[arg-type]


def test_scenes_are_stored_with_captions_under_their_ids(four: list[Scene]) -> None:
    client = FakeClient([])
    store(client, "c", four)  # type: ignore[arg-type]
    assert [(item.id, item.caption) for item in client.stored] == [(scene.id, scene.caption) for scene in four]


def test_vectors_alone_are_measured_the_same_way() -> None:
    eye = np.eye(3, dtype=np.float32)
    measured = measure_vectors(eye, eye, {kind: np.roll(eye, 1, axis=0) for kind in KINDS})
    assert measured == Measured(1.0, 1.0, {**dict.fromkeys(KINDS, 1.0), "mean": 1.0})


def test_the_table_shows_every_model() -> None:
    measured = Measured(0.5, 0.9, {**dict.fromkeys(KINDS, 0.75), "mean": 0.75})
    screen = io.StringIO()
    Console(file=screen, width=200).print(results_table([Row("first", "served", "ab" * 32, measured)], 200))
    assert all(
        text in screen.getvalue() for text in ("first", "0.500", "0.900", "0.750", "0.005", "through the server")
    )


def test_the_family_on_the_contact_sheet_shares_its_words() -> None:
    scenes = list(generate(40, seed=1, size=16, style=SceneStyle(sibling_share=0.5)))
    assert len({" ".join(sorted(scene.caption.split())) for scene in _family(scenes)}) == 1
    alone = list(generate(8, seed=1, size=16, style=SceneStyle(sibling_share=0.0)))
    assert list(_family(alone)) == alone[:4]


def test_only_an_earlier_runs_folder_is_replaced(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.txt").touch()
    for taken in (mine, mine / "thesis.txt"):
        with pytest.raises(DemoFailed, match="name another folder"):
            make_anew(taken, ".mark")
    assert (mine / "thesis.txt").exists()
    earlier = tmp_path / "earlier"
    make_anew(earlier, ".mark")
    (earlier / "old").touch()
    make_anew(earlier, ".mark")
    assert not (earlier / "old").exists()
    with pytest.raises(DemoFailed):
        make_anew(earlier, ".other-mark")


def test_the_script_can_be_made_shorter() -> None:
    assert LoopScript.of(steps=20, scenes=256, seed=3) == LoopScript(scenes=256, steps=20, more_steps=20, seed=3)
    assert LoopScript.of(steps=None, scenes=None, seed=0) == LoopScript()
