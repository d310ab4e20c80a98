from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import publish_until_killed
from tests.support.tiny_bundle import DIMENSION, TinyTowers, stage_tiny_bundle, tiny_draft
from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.publish import publish
from twinlens.encoders.repository import ModelRepository


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The repositories that publishers killed one step later each left, in the order of steps."""
    root = tmp_path_factory.mktemp("killed")
    staging = root / "staging"
    stage_tiny_bundle(staging, TinyTowers(), text=False)
    (staging / "dimension.json").write_text(str(DIMENSION))
    done = subprocess.run(
        [sys.executable, publish_until_killed.__file__, str(staging), str(root / "runs")],
        check=True,
        capture_output=True,
        text=True,
    )
    steps = int(done.stdout)
    assert steps > 30
    return [root / "runs" / str(step) for step in range(steps + 1)]


def test_a_reader_sees_the_whole_bundle_or_none_wherever_the_publisher_was_killed(killed: list[Path]) -> None:
    whole = []
    for models in killed:
        bundle = models / "tiny" / "1"
        whole.append(bundle.exists())
        if bundle.exists():
            verify_digests(bundle, read_manifest(bundle))
        if (models / "tiny").exists():
            assert [entry.problem for entry in ModelRepository(str(models)).scan() if entry.problem] == []
    assert whole == sorted(whole)  # from one step on
    assert (whole[0], whole[-1]) == (False, True)


def test_publishing_again_succeeds_wherever_the_first_was_killed(killed: list[Path], tmp_path: Path) -> None:
    stage_tiny_bundle(tmp_path, TinyTowers(), text=False)
    for models in killed[:: len(killed) // 8]:
        manifest = publish(tiny_draft(text=False), tmp_path, models / "tiny" / "1")
        verify_digests(models / "tiny" / "1", manifest)
        assert [entry.version for entry in ModelRepository(str(models)).scan()] == ["1"]
