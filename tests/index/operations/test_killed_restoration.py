"""Backing up and restoring over a collection, killed at any moment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.support import restore_until_killed as writer
from twinlens.index.catalog import Catalog
from twinlens.index.collection import Collection
from twinlens.index.operations.backup import list_backups
from twinlens.index.operations.steps import Finding


def run_until_killed(root: Path, steps: int, more_bytes: int) -> None:
    command = [sys.executable, "-m", "tests.support.restore_until_killed", str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0) as process:
        assert process.stdout is not None
        output = b""
        while output.count(b"step") < steps:
            chunk = process.stdout.read(16)
            assert chunk, "the writer ended by itself"
            output += chunk
        process.stdout.read(more_bytes)  # goes on meanwhile, so the kill falls anywhere in a step
        process.kill()


def assert_whole(collection: Collection) -> None:
    items = collection.list()
    assert len(items) == writer.ITEMS
    (version,) = {int(item.caption) for item in items}
    for item in items:
        assert collection.get_image(item.id) == writer.picture(version, int(item.id))
    assert not [step for step in collection.check() if isinstance(step, Finding)]


def killed_over_and_over(root: Path, rounds: int) -> None:
    catalog = Catalog(root / "data")
    writer.store(catalog.create("photos", space_id=writer.SPACE, dimension=4), 1)
    list(catalog.get("photos").backup(str(root / "backups"), backup="version-1"))
    catalog.close()
    rng = np.random.default_rng(5)
    for _ in range(rounds):
        run_until_killed(root, int(rng.integers(1, 24)), int(rng.integers(12)))
        catalog = Catalog(root / "data")
        assert [path.name for path in (root / "data/collections").iterdir()] == ["photos"]
        assert_whole(catalog.get("photos"))
        catalog.close()
    catalog = Catalog(root / "data")
    for number, backup in enumerate(list_backups(str(root / "backups"), limit=1000)):
        *_, restored = catalog.restore(str(root / "backups"), backup.id, id=f"copy-{number}")
        assert isinstance(restored, Collection)
        assert_whole(restored)
        catalog.delete(restored.id)
    catalog.close()


def test_a_collection_is_whole_and_so_is_every_backup_after_kills(tmp_path: Path) -> None:
    killed_over_and_over(tmp_path, rounds=3)


@pytest.mark.slow
def test_a_collection_is_whole_and_so_is_every_backup_after_many_kills(tmp_path: Path) -> None:
    killed_over_and_over(tmp_path, rounds=60)
