"""What was acknowledged survives a kill, and nothing is ever half there."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np

from tests.support import write_until_killed as writer
from tests.support.oracle import assert_exact
from twinlens.index.blobs import content_hash
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.item import Modality

ROUNDS = 8
State = tuple[writer.Model, str]


def run_until_killed(root: Path, seed: int, state: State, acknowledgements: int, more_bytes: int) -> tuple[State, ...]:
    """Runs the writer, kills it at some moment after so many acknowledgements, and says what may be there now."""
    command = [sys.executable, writer.__file__, str(root), str(seed)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        output = b""
        while output.count(b'"done"') < acknowledgements:
            chunk = process.stdout.read(64)
            assert chunk, "the writer ended by itself"
            output += chunk
        output += process.stdout.read(more_bytes)  # goes on writing meanwhile, so the kill falls anywhere in a step
        process.kill()
        output += process.stdout.read()
    pending: writer.Step | None = None
    for line in output.decode().splitlines(keepends=True):
        if not line.endswith("\n"):
            break
        said = json.loads(line)
        if "step" in said:
            pending = said["step"]
        elif pending is not None:
            state, pending = writer.applied(*state, pending), None
    return (state,) if pending is None else (state, writer.applied(*state, pending))


def found_in(collection: Collection) -> State:
    return {item.id: int(item.caption) for item in collection.list(limit=1000)}, collection.space_id


def assert_whole(collection: Collection, root: Path, state: State, rng: np.random.Generator) -> None:
    model, space_id = state
    vectors = {item_id: writer.vector(item_id, version, space_id) for item_id, version in model.items()}
    assert collection.stats().image_vectors == len(model)
    for query in rng.standard_normal((3, writer.SPACES[space_id])):
        hits = collection.search(query[np.newaxis], modality=Modality.IMAGE, top_k=10, space_id=space_id)[0]
        assert_exact(query, vectors, 10, [(hit.item.id, hit.score) for hit in hits])
    pictures = {item_id: writer.picture(version) for item_id, version in model.items()}
    for item_id, picture in pictures.items():
        assert collection.get(item_id).has_image == (picture is not None)
        if picture is not None:
            assert collection.get_image(item_id) == picture
    on_disk = {path.name for path in (root / "collections" / "photos" / "blobs").rglob("*") if path.is_file()}
    assert on_disk == {content_hash(picture) for picture in pictures.values() if picture is not None}


def test_every_acknowledged_write_survives_kills_at_any_moment(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create("photos", space_id="space-a", dimension=writer.SPACES["space-a"])
    catalog.close()
    rng = np.random.default_rng(7)
    state: State = ({}, "space-a")
    for seed in range(ROUNDS):
        possible = run_until_killed(tmp_path, seed, state, int(rng.integers(3, 40)), int(rng.integers(200)))
        catalog = Catalog(tmp_path)
        collection = catalog.get("photos")
        state = found_in(collection)
        assert state in possible, f"round {seed}"
        assert_whole(collection, tmp_path, state, rng)
        catalog.close()


def test_a_filling_that_was_killed_goes_on_and_ends_whole(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    collection = catalog.create("photos", space_id="space-a", dimension=16)
    model = {f"item-{i}": i for i in range(40)}
    writer.perform(collection, {"kind": "upsert", "items": list(model.items())}, model)
    generation = collection.begin_generation(space_id="space-b", dimension=24)
    first = collection.missing(generation, limit=10)
    collection.write_vectors(
        generation,
        {item.id: {Modality.IMAGE: writer.vector(item.id, model[item.id], "space-b")} for item in first},
    )
    catalog.close()
    catalog = Catalog(tmp_path)
    collection = catalog.get("photos")
    writer.perform(collection, {"kind": "refill", "space_id": "space-b"}, model)
    assert_whole(collection, tmp_path, (model, "space-b"), np.random.default_rng(0))
    catalog.close()


def test_pictures_that_a_crash_left_without_an_item_are_cleared(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.create("photos", space_id="space-a", dimension=16)
    catalog.close()
    folder = tmp_path / "collections" / "photos"
    orphan = folder / "blobs" / "ab" / "cd" / "abcdef"
    orphan.parent.mkdir(parents=True)
    orphan.write_bytes(b"orphan")
    (orphan.parent / ".writing-1").write_bytes(b"half")
    (folder / "collection.db-wal").touch()  # what an unclean end leaves
    catalog = Catalog(tmp_path)
    catalog.get("photos")
    assert not [path for path in (folder / "blobs").rglob("*") if path.is_file()]
    catalog.close()
