from __future__ import annotations

import dataclasses
import errno
import json
import os
import pickle
import signal
from pathlib import Path

import pytest
import torch

from twinlens.encoders.manifest import Lineage
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, build_model, load_checkpoint, save_checkpoint
from twinlens.training.errors import CheckpointError


@pytest.fixture
def model(tiny_spec: DualEncoderSpec) -> torch.nn.Module:
    torch.manual_seed(0)
    return build_model(tiny_spec)


META = CheckpointMeta(7, Lineage(method="clip", packages={"torch": "2"}), {"recall": 0.5})


def test_a_checkpoint_comes_back_as_it_was_saved(
    tmp_path: Path, tiny_spec: DualEncoderSpec, model: torch.nn.Module
) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, tiny_spec, model, META)
    spec, loaded, meta = load_checkpoint(path)
    assert (spec, meta) == (tiny_spec, META)
    assert not loaded.training
    for name, value in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], value), name
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_failed_save_keeps_the_last_good_checkpoint(
    tmp_path: Path, tiny_spec: DualEncoderSpec, model: torch.nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, tiny_spec, model, META)
    before = path.read_bytes()

    def full_disk(payload: object, file: object) -> None:
        file.write(b"half of it")  # type: ignore[attr-defined]
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full_disk)
    with pytest.raises(CheckpointError, match="No space left"):
        save_checkpoint(path, tiny_spec, model, META)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["checkpoint.pt"]


def test_a_write_that_fails_is_told_by_its_reason(
    tmp_path: Path, tiny_spec: DualEncoderSpec, model: torch.nn.Module
) -> None:
    resource = pytest.importorskip("resource")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    path = tmp_path / "checkpoint.pt"
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, before[1]))
    try:
        with pytest.raises(CheckpointError) as caught:
            save_checkpoint(path, tiny_spec, model, META)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert str(caught.value) == f"cannot write the checkpoint {path}: {os.strerror(errno.EFBIG)}"
    assert list(tmp_path.iterdir()) == []


def test_a_missing_checkpoint_is_named(tmp_path: Path) -> None:
    with pytest.raises(CheckpointError, match=r"no checkpoint at .*nope\.pt"):
        load_checkpoint(tmp_path / "nope.pt")


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 half a zip"])
def test_a_damaged_file_is_refused_in_one_line(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "checkpoint.pt"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(path)
    assert "\n" not in str(caught.value)


def test_a_truncated_checkpoint_is_refused(tmp_path: Path, tiny_spec: DualEncoderSpec, model: torch.nn.Module) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, tiny_spec, model, META)
    path.write_bytes(path.read_bytes()[:-5000])
    with pytest.raises(CheckpointError, match="not a readable checkpoint"):
        load_checkpoint(path)


@pytest.mark.parametrize(
    "changes", [{"model_cfg": 5}, {"model_cfg": None}, {"tokenizer_json": {}}, {"preprocess": []}, {"name": None}]
)
def test_a_description_of_another_form_is_refused_in_one_line(
    tmp_path: Path, tiny_spec: DualEncoderSpec, model: torch.nn.Module, changes: dict[str, object]
) -> None:
    path = tmp_path / "checkpoint.pt"
    save_checkpoint(path, tiny_spec, model, META)
    payload = torch.load(path)
    torch.save(payload | {"spec": json.dumps(json.loads(payload["spec"]) | changes)}, path)
    with pytest.raises(CheckpointError, match="has a damaged description"):
        load_checkpoint(path)


def test_nothing_in_a_file_is_executed(tmp_path: Path) -> None:
    trace = tmp_path / "executed"

    class Attack:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (trace,)  # type: ignore[return-value]

    path = tmp_path / "checkpoint.pt"
    torch.save({"format": 1, "spec": Attack()}, path)
    with pytest.raises(CheckpointError):
        load_checkpoint(path)
    path.write_bytes(pickle.dumps(Attack()))
    with pytest.raises(CheckpointError):
        load_checkpoint(path)
    assert not trace.exists()


def test_checkpoints_of_others_are_refused_with_a_hint(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.pt"
    torch.save({"state_dict": {}}, path)
    with pytest.raises(CheckpointError, match="twinlens pull"):
        load_checkpoint(path)


def test_weights_of_another_architecture_are_refused(
    tmp_path: Path, tiny_spec: DualEncoderSpec, model: torch.nn.Module
) -> None:
    path = tmp_path / "checkpoint.pt"
    wider = dataclasses.replace(tiny_spec, model_cfg={**tiny_spec.model_cfg, "embed_dim": 24})
    save_checkpoint(path, wider, model, META)
    with pytest.raises(CheckpointError, match=r"another architecture: .* has shape"):
        load_checkpoint(path)


@pytest.mark.parametrize("part", ["vision_cfg", "text_cfg"])
def test_a_tower_that_is_no_table_is_refused(tiny_spec: DualEncoderSpec, part: str) -> None:
    with pytest.raises(CheckpointError, match="that is no table"):
        build_model(dataclasses.replace(tiny_spec, model_cfg={**tiny_spec.model_cfg, part: "text"}))


@pytest.mark.parametrize(
    ("part", "named", "message"),
    [
        ("text_cfg", {"hf_model_name": "someone/roberta"}, "has a text tower looked up on Hugging Face"),
        ("vision_cfg", {"timm_model_name": "hf-hub:someone/vit"}, "'hf-hub:someone/vit' is a place"),
        ("vision_cfg", {"timm_model_name": "local-dir:/tmp"}, "'local-dir:/tmp' is a place"),
    ],
)
def test_a_description_has_nothing_looked_up_elsewhere(
    tiny_spec: DualEncoderSpec, part: str, named: dict[str, str], message: str
) -> None:
    model_cfg = {**tiny_spec.model_cfg, part: {**tiny_spec.model_cfg[part], **named}}
    with pytest.raises(CheckpointError, match=message):
        build_model(dataclasses.replace(tiny_spec, model_cfg=model_cfg))


def test_a_configuration_that_open_clip_does_not_know_is_refused(tiny_spec: DualEncoderSpec) -> None:
    with pytest.raises(CheckpointError, match="cannot build the model 'tiny'"):
        build_model(dataclasses.replace(tiny_spec, model_cfg={**tiny_spec.model_cfg, "surprise": 1}))
