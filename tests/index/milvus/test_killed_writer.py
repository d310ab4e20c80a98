"""A server that is killed while it writes to a collection that another one reads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.items import SPACE
from twinlens.index.item import Modality
from twinlens.index.milvus.catalog import MilvusCatalog

pytestmark = pytest.mark.slow

_DIMENSION = 16
_WRITE = """
import sys
import numpy as np
from twinlens.index.item import Modality, NewItem
from twinlens.index.milvus.catalog import MilvusCatalog

address, pictures, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
collection = MilvusCatalog(address, pictures=pictures).get("killed")
for number in range(10_000):
    rng = np.random.default_rng((seed, number))
    items = [
        NewItem(f"{seed}-{number % 7}-{i}", {Modality.IMAGE: rng.standard_normal(16)}, image=b"%d %d" % (number, i),
                metadata={"number": number})
        for i in range(5)
    ]
    collection.upsert(items, space_id="space-one")
    print(number, flush=True)
"""


def vector(seed: int, number: int, place: int) -> NDArray[np.float64]:
    drawn = np.random.default_rng((seed, number)).standard_normal((5, _DIMENSION))[place]
    unit: NDArray[np.float64] = drawn / np.linalg.norm(drawn)
    return unit


def test_what_a_killed_server_acknowledged_is_there_and_nothing_half_written(
    milvus_server: str, tmp_path: Path, rng: np.random.Generator
) -> None:
    pictures = str(tmp_path / "pictures")
    catalog = MilvusCatalog(milvus_server, pictures=pictures)
    collection = catalog.create("killed", space_id=SPACE, dimension=_DIMENSION)
    for seed in range(4):
        with subprocess.Popen(
            [sys.executable, "-c", _WRITE, milvus_server, pictures, str(seed)], stdout=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            for _ in range(int(rng.integers(2, 12))):
                acknowledged = int(process.stdout.readline())
            process.kill()
            acknowledged = max([acknowledged, *(int(line) for line in process.stdout if line.strip())])
        slots = {number % 7: number for number in range(acknowledged + 1)}
        items = {item.id: item for item in collection.list(limit=1000)}
        vectors: dict[str, NDArray[np.float32]] = {}
        for ids, page in collection.iter_vectors(Modality.IMAGE):
            vectors.update(zip(ids, page, strict=True))
        queries = []
        for slot, number in slots.items():
            for place in range(5):
                item_id = f"{seed}-{slot}-{place}"
                written = items[item_id].metadata["number"]
                # The write that was under way may be there as well, item by item.
                assert written == number or (written == acknowledged + 1 and written % 7 == slot)
                queries.append(vector(seed, written, place))
                np.testing.assert_allclose(vectors[item_id], queries[-1], atol=1e-6)
            assert collection.get_image(item_id) == b"%d %d" % (written, place)
        ids = [f"{seed}-{slot}-{place}" for slot in slots for place in range(5)]
        hits = collection.search(np.stack(queries), modality=Modality.IMAGE, top_k=500, space_id=SPACE)
        assert [of_query[0].item.id for of_query in hits] == ids
        for of_query in hits:
            assert {hit.item.id for hit in of_query} == set(items) == set(vectors)
            assert len(of_query) == len(items)
    catalog.delete("killed")
    catalog.close()
