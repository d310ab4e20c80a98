"""A bundle that keeps its checkpoint is where the next run starts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from tests.support.tiny_bundle import TinyTowers, stage_tiny_bundle, tiny_draft
from twinlens.__main__ import main
from twinlens.encoders.bundle import read_manifest
from twinlens.encoders.manifest import TRAINING_FILE
from twinlens.encoders.publish import publish
from twinlens.encoders.repository import ModelRepository
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, build_model, load_checkpoint, save_checkpoint

CONFIG = """
[data]
source = "scenes"
count = 32
[model]
from_checkpoint = "{bundle}"
[train]
steps = 2
batch_size = 8
warmup_steps = 0
[tuning]
lock_image = true
"""


@pytest.fixture(scope="module")
def bundle(tiny_spec: DualEncoderSpec, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Its graphs are others': what they compute does not matter here, and writing them takes long."""
    folder = tmp_path_factory.mktemp("parent")
    stage_tiny_bundle(folder / "staging", TinyTowers())
    torch.manual_seed(0)
    save_checkpoint(folder / "staging" / TRAINING_FILE, tiny_spec, build_model(tiny_spec), CheckpointMeta(7))
    publish(tiny_draft(), folder / "staging", folder / "tiny" / "1")
    return folder / "tiny" / "1"


def test_a_run_goes_on_from_a_bundle_and_names_its_space(bundle: Path, tmp_path: Path) -> None:
    (tmp_path / "clip.toml").write_text(CONFIG.format(bundle=bundle))
    assert main(["train", "clip", str(tmp_path / "clip.toml"), "--out", str(tmp_path / "run")]) == 0
    spec, model, meta = load_checkpoint(tmp_path / "run" / "checkpoint.pt")
    parent_spec, parent, _ = load_checkpoint(bundle / TRAINING_FILE)
    assert spec == parent_spec
    assert meta.step == 9
    assert meta.lineage.parent_space_id == read_manifest(bundle).space_id
    before = parent.state_dict()
    moved = {name for name, value in model.state_dict().items() if not torch.equal(value, before[name])}
    assert "ln_final.weight" in moved
    assert not any(name.startswith("visual.") for name in moved)


def test_a_checkpoint_that_was_exchanged_is_refused(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    ModelRepository(str(tmp_path / "models")).push(bundle)
    (tmp_path / "models" / read_manifest(bundle).name / "1").rename(copy)
    (copy / TRAINING_FILE).write_bytes((bundle / TRAINING_FILE).read_bytes() + b"\0")
    (tmp_path / "clip.toml").write_text(CONFIG.format(bundle=copy))
    assert main(["train", "clip", str(tmp_path / "clip.toml"), "--out", str(tmp_path / "run")]) == 1
    assert "is not the checkpoint that the bundle lists" in capsys.readouterr().err
    assert main(["models", "verify", str(copy)]) == 1


def test_publishing_takes_the_checkpoint_along(bundle: Path, tmp_path: Path) -> None:
    models = ModelRepository(str(tmp_path / "models"))
    manifest = models.push(bundle)
    assert TRAINING_FILE in {entry.path for entry in manifest.files}
    assert (tmp_path / "models" / manifest.name / "1" / TRAINING_FILE).read_bytes() == (
        bundle / TRAINING_FILE
    ).read_bytes()


@pytest.mark.slow
def test_no_checkpoint_leaves_it_out_and_the_space_is_the_same(
    bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, spaces = tmp_path / "small", []
    for folder, more in ((tmp_path / "whole", []), (out, ["--no-checkpoint"])):
        assert main(["export", str(bundle), "--out", str(folder), "--json", *more]) == 0
        spaces.append(json.loads(capsys.readouterr().out)["space_id"])
    assert spaces[0] == spaces[1]
    assert (tmp_path / "whole" / TRAINING_FILE).read_bytes() == (bundle / TRAINING_FILE).read_bytes()
    assert not (out / TRAINING_FILE).exists()
    (tmp_path / "clip.toml").write_text(CONFIG.format(bundle=out))
    assert main(["train", "clip", str(tmp_path / "clip.toml"), "--out", str(tmp_path / "run")]) == 1
    assert "a bundle without a checkpoint to train from" in capsys.readouterr().err
