"""FAISS as it is on a machine with a GPU, acted by indexes on the CPU that are as strict as those on a GPU."""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np

from twinlens.index.faiss_library import import_faiss

faiss = import_faiss()

MOST = 2048


class FakeGpuFaiss:
    """Stands in for the module `faiss`; what it lacks comes from the real one.

    Every index remembers the thread that made it, refuses all others, and selects no more than `MOST`.
    """

    def __init__(self, *, gpus: int = 1, cagra: bool = False) -> None:
        self.gpus = gpus
        self.failing = ""  # what the GPU says to everything from now on
        self.made: list[FakeGpuIndex] = []
        self.searches: list[int] = []  # how many queries at once
        self.wanted: list[int] = []
        self.copied: list[weakref.ref[Any]] = []  # indexes on the CPU that were copied
        if cagra:
            self.GpuIndexCagra = self._cagra
            self.GpuIndexCagraConfig = object
            self.SearchParametersCagra = _CagraSettings

    def __getattr__(self, name: str) -> Any:
        if name.startswith("GpuIndexCagra"):
            raise AttributeError(name)
        return getattr(faiss, name)

    def get_num_gpus(self) -> int:
        return self.gpus

    def StandardGpuResources(self) -> _Resources:  # noqa: N802 - as FAISS has it
        if self.failing:
            raise RuntimeError(self.failing)
        return _Resources()

    def GpuIndexFlatIP(self, resources: _Resources, dimension: int) -> FakeGpuIndex:  # noqa: N802
        return self._index("flat", resources, faiss.IndexFlatIP(dimension))

    def index_cpu_to_gpu(self, resources: _Resources, device: int, index: Any) -> FakeGpuIndex:
        assert device == 0
        assert isinstance(index, faiss.IndexIVFScalarQuantizer), "no such index on a GPU"
        self.copied.append(weakref.ref(index))
        return self._index("ivf", resources, faiss.clone_index(index))

    def GpuIndexIVFPQConfig(self) -> _PqSettings:  # noqa: N802
        return _PqSettings()

    def GpuIndexIVFPQ(  # noqa: N802
        self, resources: _Resources, dimension: int, lists: int, codes: int, bits: int, metric: int, given: _PqSettings
    ) -> FakeGpuIndex:
        assert bits == 8
        assert metric == faiss.METRIC_INNER_PRODUCT
        assert given.useFloat16LookupTables
        assert dimension % codes == 0
        index = faiss.index_factory(dimension, f"IVF{lists},SQ4", metric)  # codes that need no long training
        return self._index("ivf_pq", resources, index)

    def _cagra(self, resources: _Resources, dimension: int, metric: int, _: object) -> FakeGpuIndex:
        assert metric == faiss.METRIC_L2
        return self._index("cagra", resources, faiss.IndexHNSWFlat(dimension, 16))

    def _index(self, what: str, resources: _Resources, index: Any) -> FakeGpuIndex:
        assert resources.temporary_bytes > 0
        self.made.append(FakeGpuIndex(self, what, index))
        return self.made[-1]


class FakeGpuIndex:
    def __init__(self, module: FakeGpuFaiss, what: str, index: Any) -> None:
        self.what = what
        self._module = module
        self._index = index
        self._owner = threading.get_ident()
        self.nlist = getattr(index, "nlist", 0)

    def train(self, vectors: np.ndarray) -> None:
        self._check(vectors)
        if self.what == "cagra":
            self._index.add(vectors)
        else:
            self._index.train(vectors)

    def add(self, vectors: np.ndarray) -> None:
        self._check(vectors)
        self._index.add(vectors)

    def search(self, queries: np.ndarray, wanted: int, *, params: Any) -> tuple[np.ndarray, np.ndarray]:
        self._check(queries)
        if wanted > MOST:
            raise RuntimeError(f"GPU index only supports min/max-K selection up to {MOST} (requested {wanted})")
        self._module.searches.append(len(queries))
        self._module.wanted.append(wanted)
        if isinstance(params, _CagraSettings):
            assert wanted <= params.itopk_size <= 512
            params = faiss.SearchParametersHNSW(efSearch=params.itopk_size)
        if isinstance(params, faiss.SearchParametersIVF):
            assert 1 <= params.nprobe <= min(MOST, self.nlist)
        scores, rows = self._index.search(queries, wanted, params=params)
        return scores, rows

    def _check(self, vectors: np.ndarray) -> None:
        assert threading.get_ident() == self._owner, "a GPU index was used by another thread than its own"
        assert vectors.flags.c_contiguous
        if self._module.failing:
            raise RuntimeError(self._module.failing)


class _Resources:
    temporary_bytes = 0

    def setTempMemory(self, size: int) -> None:  # noqa: N802
        self.temporary_bytes = size


class _PqSettings:
    useFloat16LookupTables = False  # noqa: N815


class _CagraSettings:
    itopk_size = 64
