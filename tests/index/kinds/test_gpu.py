"""Every kind on a GPU: a real one where there is one, and a stand-in that is as strict about threads and limits."""

from __future__ import annotations

import gc
import logging
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.support.fake_gpu import MOST, FakeGpuFaiss
from tests.support.oracle import TOLERANCE, assert_exact
from twinlens.index.catalog import Catalog
from twinlens.index.errors import EngineUnavailable
from twinlens.index.item import Modality, NewItem
from twinlens.index.kinds import device as device_module
from twinlens.index.kinds import gpu_indexes
from twinlens.index.kinds.device import Device, sees_gpu
from twinlens.index.kinds.gpu_thread import GpuThread
from twinlens.index.kinds.kind import Kind
from twinlens.index.kinds.main_index import MainIndex
from twinlens.index.kinds.segment import open_segment, write_segment
from twinlens.index.options import IndexOptions
from twinlens.index.search_threads import SearchThreads
from twinlens.index.vectors import unit_vectors

DIMENSION, COUNT = 32, 4000
THREADS = SearchThreads(1)
KINDS = [kind for kind in Kind if kind is not Kind.AUTO]
Open = Callable[..., MainIndex]


@cache
def clustered() -> tuple[np.ndarray, np.ndarray]:
    """Vectors around 20 centres, and queries of the same distribution."""
    rng = np.random.default_rng(0)
    centres = rng.standard_normal((20, DIMENSION))
    points = centres[rng.integers(20, size=COUNT + 40)] + 0.7 * rng.standard_normal((COUNT + 40, DIMENSION))
    units = unit_vectors(points * np.arange(1, DIMENSION + 1) ** -0.5, DIMENSION)
    return units[:COUNT], units[COUNT:]


@pytest.fixture(scope="module")
def segments(tmp_path_factory: pytest.TempPathFactory) -> dict[Kind, Path]:
    """One of each kind; the key of a row is twice its number."""
    folder = tmp_path_factory.mktemp("segments")
    for kind in KINDS:
        chunks = [(2 * np.arange(COUNT), clustered()[0])]
        write_segment(folder / kind, chunks, dimension=DIMENSION, kind=kind, threads=THREADS)
    return {kind: folder / kind for kind in KINDS}


@pytest.fixture(scope="module", params=["stand-in", "stand-in with cagra", pytest.param("real", marks=pytest.mark.gpu)])
def faiss_gpu(request: pytest.FixtureRequest) -> Iterator[FakeGpuFaiss | None]:
    """What plays the GPU; None: a real one."""
    if request.param == "real":
        if not sees_gpu():
            pytest.skip("FAISS sees no GPU")
        yield None
        return
    with pytest.MonkeyPatch.context() as monkeypatch:
        yield act(monkeypatch, FakeGpuFaiss(cagra="cagra" in request.param))


@pytest.fixture(scope="module")
def mains(faiss_gpu: FakeGpuFaiss | None, segments: dict[Kind, Path]) -> Iterator[dict[Kind, MainIndex]]:
    opened = {kind: open_segment(folder, threads=THREADS, device=Device.CUDA) for kind, folder in segments.items()}
    yield opened
    for main in opened.values():
        main.close()


def act(monkeypatch: pytest.MonkeyPatch, faiss: FakeGpuFaiss) -> FakeGpuFaiss:
    monkeypatch.setattr(device_module, "import_faiss", lambda: faiss)
    monkeypatch.setattr(gpu_indexes, "import_faiss", lambda: faiss)
    return faiss


@pytest.fixture
def stand_in(monkeypatch: pytest.MonkeyPatch) -> FakeGpuFaiss:
    return act(monkeypatch, FakeGpuFaiss())


@pytest.fixture
def opened() -> Iterator[Open]:
    made: list[MainIndex] = []

    def open_one(folder: Path, device: Device = Device.CUDA) -> MainIndex:
        made.append(open_segment(folder, threads=THREADS, device=device))
        return made[-1]

    yield open_one
    for main in made:
        main.close()


def recall(main: MainIndex, top_k: int, shown: np.ndarray | None = None) -> float:
    """Against brute force; what must hold for any hit is checked on the way."""
    vectors, queries = clustered()
    rows = np.arange(COUNT) if shown is None else np.flatnonzero(shown)
    right = 0
    for query, scores, keys in zip(queries, *main.search(queries, top_k, shown=shown), strict=True):
        assert len(keys) == len(set(keys.tolist())) == min(top_k, len(rows))
        assert np.isin(keys // 2, rows).all()
        assert (np.diff(scores) <= 0).all()
        np.testing.assert_allclose(scores, vectors[keys // 2] @ query, atol=TOLERANCE)
        if len(keys):  # of those that tie with the last, any will do
            best = np.sort(vectors[rows] @ query)[-len(keys)]
            right += int((scores >= best - TOLERANCE).sum())
    return right / max(len(queries) * min(top_k, len(rows)), 1)


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_finds_on_a_gpu_what_brute_force_does(
    kind: Kind, mains: dict[Kind, MainIndex], faiss_gpu: FakeGpuFaiss | None
) -> None:
    main = mains[kind]
    asked = len(faiss_gpu.searches) if faiss_gpu is not None else 0
    assert main.kind is kind
    assert recall(main, 10) >= (1 if kind is Kind.FLAT else 0.95)
    if faiss_gpu is not None:
        assert len(faiss_gpu.searches) > asked, "the GPU was not asked"


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("share", [0.5, 0.05, 0.002, 0.0])
def test_filters_leave_no_hit_out(
    kind: Kind, share: float, mains: dict[Kind, MainIndex], faiss_gpu: FakeGpuFaiss | None
) -> None:
    shown = np.random.default_rng(1).random(COUNT) < share
    assert recall(mains[kind], 10, shown) >= (0.99 if shown.any() else 0)


@pytest.mark.parametrize("kind", KINDS)
def test_more_than_a_gpu_can_select_comes_from_the_cpu(
    kind: Kind, mains: dict[Kind, MainIndex], faiss_gpu: FakeGpuFaiss | None
) -> None:
    main = mains[kind]
    asked = len(faiss_gpu.searches) if faiss_gpu is not None else 0
    assert recall(main, MOST + 1) == 1
    if faiss_gpu is not None:
        assert len(faiss_gpu.searches) == asked
        assert max(faiss_gpu.wanted, default=0) <= MOST


@pytest.mark.parametrize("kind", KINDS)
def test_one_thread_owns_an_index_however_many_search(
    kind: Kind, mains: dict[Kind, MainIndex], faiss_gpu: FakeGpuFaiss | None
) -> None:
    main = mains[kind]
    queries = clustered()[1]
    alone = [main.search(query[None], 5) for query in queries]
    with ThreadPoolExecutor(8) as pool:
        together = list(pool.map(lambda query: main.search(query[None], 5), queries))
    for (_, keys), (_, keys_then) in zip(alone, together, strict=True):
        np.testing.assert_array_equal(keys[0], keys_then[0])


def test_ties_come_by_lower_key_even_where_they_are_cut(
    tmp_path: Path, opened: Open, faiss_gpu: FakeGpuFaiss | None
) -> None:
    vector = clustered()[0][:1]
    chunks = [(np.arange(4000), np.repeat(vector, 4000, axis=0)), (np.array([5000]), clustered()[0][1:2])]
    write_segment(tmp_path / "s", chunks, dimension=DIMENSION, kind=Kind.FLAT, threads=THREADS)
    _, keys = opened(tmp_path / "s").search(vector, 3)
    assert keys[0].tolist() == [0, 1, 2]


def test_an_exact_search_compares_with_the_stored_vectors_on_the_cpu(
    segments: dict[Kind, Path], opened: Open, stand_in: FakeGpuFaiss
) -> None:
    vectors, queries = clustered()
    main = opened(segments[Kind.HNSW])
    stand_in.searches.clear()
    scores, keys = main.search(queries[:1], 10, exact=True)
    found = list(zip((keys[0] // 2).tolist(), scores[0].tolist(), strict=True))
    assert_exact(queries[0], dict(enumerate(vectors)), 10, found)
    assert not stand_in.searches


def test_what_is_saved_is_read_on_a_machine_without_a_gpu(
    segments: dict[Kind, Path], opened: Open, stand_in: FakeGpuFaiss
) -> None:
    before = {path: path.read_bytes() for path in segments[Kind.HNSW].iterdir()}
    opened(segments[Kind.HNSW])
    assert {path: path.read_bytes() for path in segments[Kind.HNSW].iterdir()} == before
    stand_in.gpus = 0
    assert recall(opened(segments[Kind.HNSW], Device.AUTO), 10) >= 0.95
    with pytest.raises(EngineUnavailable, match="no CUDA device"):
        opened(segments[Kind.HNSW], Device.CUDA)


def test_auto_stays_on_the_cpu_where_the_gpu_has_no_room_and_says_so(
    segments: dict[Kind, Path], opened: Open, stand_in: FakeGpuFaiss, caplog: pytest.LogCaptureFixture
) -> None:
    stand_in.failing = "cudaMalloc error out of memory [2]"
    with caplog.at_level(logging.WARNING):
        main = opened(segments[Kind.IVF_FLAT], Device.AUTO)
    assert "4,000 vectors stay on the CPU" in caplog.text
    assert recall(main, 10) >= 0.95
    with pytest.raises(EngineUnavailable, match="4,000 vectors of dimension 32 did not fit the GPU"):
        opened(segments[Kind.IVF_FLAT], Device.CUDA)


def test_auto_compares_on_the_cpu_once_the_gpu_fails_and_says_so_once(
    segments: dict[Kind, Path], opened: Open, stand_in: FakeGpuFaiss, caplog: pytest.LogCaptureFixture
) -> None:
    main = opened(segments[Kind.IVF_FLAT], Device.AUTO)
    stand_in.failing = "CUDA error 700 an illegal memory access was encountered"
    with caplog.at_level(logging.WARNING):
        assert recall(main, 10) == recall(main, 10) == 1
    assert caplog.text.count("the GPU failed in a search") == 1


def test_where_a_gpu_is_required_its_failure_is_an_error(
    segments: dict[Kind, Path], opened: Open, stand_in: FakeGpuFaiss
) -> None:
    main = opened(segments[Kind.FLAT])
    stand_in.failing = "CUDA error 700 an illegal memory access was encountered"
    with pytest.raises(EngineUnavailable, match="the GPU failed in a search; restart"):
        main.search(clustered()[1], 10)


def test_a_collection_is_searched_on_a_gpu_before_and_after_a_restart(tmp_path: Path, stand_in: FakeGpuFaiss) -> None:
    options = IndexOptions(threads=1, device=Device.CUDA)
    vectors, queries = clustered()
    for restarted in (False, True):
        with closing(Catalog(tmp_path, options=options)) as catalog:
            if not restarted:
                made = catalog.create("photos", space_id="s", dimension=DIMENSION, kind=Kind.FLAT)
                for start in range(0, 3000, 500):
                    rows = range(start, start + 500)
                    items = [NewItem(id=str(row), vectors={Modality.IMAGE: vectors[row]}) for row in rows]
                    made.upsert(items, space_id="s")
                made.merge()
            stand_in.searches.clear()
            (hits,) = catalog.get("photos").search(queries[:1], modality=Modality.IMAGE, top_k=5, space_id="s")
            found = [(int(hit.item.id), hit.score) for hit in hits]
            assert_exact(queries[0], dict(enumerate(vectors[:3000])), 5, found)
            assert stand_in.searches


def test_a_data_folder_is_not_opened_without_the_gpu_that_is_required(tmp_path: Path, stand_in: FakeGpuFaiss) -> None:
    stand_in.gpus = 0
    with pytest.raises(EngineUnavailable, match="no CUDA device"):
        Catalog(tmp_path, options=IndexOptions(device=Device.CUDA))
    Catalog(tmp_path, options=IndexOptions(device=Device.AUTO)).close()


def test_what_is_asked_while_a_search_runs_is_answered_by_the_next_one_together() -> None:
    entered, go_on = threading.Event(), threading.Event()
    sizes: list[int] = []

    def search(queries: np.ndarray, wanted: int, effort: int) -> tuple[np.ndarray, np.ndarray]:
        sizes.append(len(queries))
        entered.set()
        assert go_on.wait(30)
        return queries[:, :wanted], np.arange(len(queries) * wanted).reshape(-1, wanted)

    owner = GpuThread(lambda: search)
    with ThreadPoolExecutor(6) as pool:
        first = pool.submit(owner.search, np.full((1, 4), 0, np.float32), 2, 1)
        assert entered.wait(30)
        others = [pool.submit(owner.search, np.full((1, 4), i, np.float32), 2, 1) for i in range(1, 5)]
        while owner._inbox.qsize() < 4:
            threading.Event().wait(0.001)
        go_on.set()
        assert first.result()[0].tolist() == [[0, 0]]
        assert [other.result()[0].tolist() for other in others] == [[[i, i]] for i in range(1, 5)]
    assert sizes == [1, 4]


def test_what_was_copied_to_a_gpu_leaves_the_memory_of_the_process(
    segments: dict[Kind, Path], opened: Open, stand_in: FakeGpuFaiss
) -> None:
    main = opened(segments[Kind.IVF_FLAT])
    gc.collect()
    assert [copied() for copied in stand_in.copied] == [None]
    assert main.memory_bytes == main.keys.nbytes


def test_the_thread_of_an_index_ends_with_it(segments: dict[Kind, Path], opened: Open, stand_in: FakeGpuFaiss) -> None:
    before = set(threading.enumerate())
    main = opened(segments[Kind.FLAT])
    (thread,) = set(threading.enumerate()) - before
    main.close()
    gc.collect()
    thread.join(30)
    assert not thread.is_alive()
