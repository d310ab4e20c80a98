from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

from twinlens.encoders.manifest import Lineage, PreprocessSpec
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, build_model, load_checkpoint, read_payload
from twinlens.training.checkpoint import save_checkpoint as save_dual
from twinlens.training.errors import CheckpointError
from twinlens.training.image_checkpoint import (
    ImageEncoderSpec,
    holds_image_encoder,
    load_image_checkpoint,
    save_image_checkpoint,
)
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig

CONFIG = BackboneConfig(
    timm="resnet18", stem="cifar_stride2", arguments={"layers": [1, 1, 1, 1], "channels": [8, 16, 16, 32]}
)
PREPROCESS = PreprocessSpec(size=32, resize_size=32, mean=(0.5, 0.4, 0.3), std=(0.25, 0.25, 0.25))
SPEC = ImageEncoderSpec(CONFIG, PREPROCESS, "simclr", "mine")
META = CheckpointMeta(7, Lineage(method="simclr", config_sha256="ab" * 32), {"knn_accuracy": 0.5})


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    torch.manual_seed(0)
    path = tmp_path / "checkpoint.pt"
    save_image_checkpoint(path, SPEC, build_backbone(CONFIG, 32), META)
    return path


def test_a_checkpoint_gives_back_all_that_was_saved(checkpoint: Path) -> None:
    torch.manual_seed(0)
    saved = build_backbone(CONFIG, 32)
    spec, backbone, meta = load_image_checkpoint(checkpoint)
    assert (spec, meta) == (SPEC, META)
    assert not backbone.training
    assert holds_image_encoder(read_payload(checkpoint), checkpoint)
    for name, value in saved.state_dict().items():
        assert torch.equal(backbone.state_dict()[name], value), name


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_do_not_take_the_place_of_good_ones(checkpoint: Path, value: float) -> None:
    good = checkpoint.read_bytes()
    broken = build_backbone(CONFIG, 32)
    broken.state_dict()["trunk.layer1.0.bn1.running_var"][3] = value
    with pytest.raises(CheckpointError, match=r"not written: layer1.0.bn1.running_var is not finite; lower learning"):
        save_image_checkpoint(checkpoint, SPEC, broken, META)
    assert checkpoint.read_bytes() == good
    assert [each.name for each in checkpoint.parent.iterdir()] == [checkpoint.name]


def test_the_two_kinds_of_checkpoint_are_told_apart(
    checkpoint: Path, tmp_path: Path, tiny_spec: DualEncoderSpec
) -> None:
    save_dual(tmp_path / "dual.pt", tiny_spec, build_model(tiny_spec), CheckpointMeta())
    assert not holds_image_encoder(read_payload(tmp_path / "dual.pt"), tmp_path / "dual.pt")
    with pytest.raises(CheckpointError, match=r"dual.pt holds a dual encoder, not an image encoder alone"):
        load_image_checkpoint(tmp_path / "dual.pt")
    with pytest.raises(CheckpointError, match=r"checkpoint.pt holds an image encoder alone; a dual encoder is wanted"):
        load_checkpoint(checkpoint)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"backbone": {"timm": "resnet_none"}}, "timm has no model 'resnet_none'"),
        ({"backbone": {"timm": "resnet18", "stem": "cifar"}}, "weights of another architecture: layer1.1.conv1"),
        ({"preprocess": {}}, "damaged description"),
        ({"preprocess": None}, "damaged description"),
    ],
)
def test_damage_is_one_clear_line(checkpoint: Path, change: dict[str, Any], message: str) -> None:
    payload = torch.load(checkpoint, weights_only=True)
    payload["spec"] = json.dumps(json.loads(payload["spec"]) | change)
    torch.save(payload, checkpoint)
    with pytest.raises(CheckpointError, match=message) as raised:
        load_image_checkpoint(checkpoint)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("spec", ["[]", "{", "3"])
def test_a_description_that_is_none_is_one_clear_line(checkpoint: Path, spec: str) -> None:
    payload = torch.load(checkpoint, weights_only=True)
    torch.save(payload | {"spec": spec}, checkpoint)
    with pytest.raises(CheckpointError, match="damaged description"):
        holds_image_encoder(read_payload(checkpoint), checkpoint)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("a text", "is damaged: conv1.weight is no plain tensor"),
        (torch.zeros(64, 3, 3, 3).to_sparse(), "is damaged: conv1.weight is no plain tensor"),
        (torch.zeros(64, 3, 3, 3, dtype=torch.complex64), "is damaged: conv1.weight is no plain tensor"),
        (
            torch.zeros(64, 3, 3, 3, dtype=torch.int8),
            "weights of another architecture: conv1.weight is int8 instead of",
        ),
        (torch.full((64, 3, 3, 3), torch.nan), "cannot be used: conv1.weight is not finite"),
    ],
)
def test_what_cannot_be_a_weight_is_one_clear_line(checkpoint: Path, value: object, message: str) -> None:
    payload = torch.load(checkpoint, weights_only=True)
    payload["state_dict"]["conv1.weight"] = value
    torch.save(payload, checkpoint)
    with pytest.raises(CheckpointError, match=message) as raised:
        load_image_checkpoint(checkpoint)
    assert len(str(raised.value).splitlines()) == 1


@pytest.mark.parametrize("state", [[], ["conv1.weight"], None, {1: torch.zeros(1)}])
def test_weights_without_names_are_one_clear_line(checkpoint: Path, state: object) -> None:
    torch.save(torch.load(checkpoint, weights_only=True) | {"state_dict": state}, checkpoint)
    with pytest.raises(CheckpointError, match="is damaged"):
        load_image_checkpoint(checkpoint)


def test_a_few_bytes_of_damage_are_noticed_wherever_they_are(checkpoint: Path) -> None:
    sound = checkpoint.read_bytes()
    for share in (0.2, 0.5, 0.8):
        at = int(share * len(sound))
        checkpoint.write_bytes(sound[:at] + bytes(64 - i for i in range(64)) + sound[at + 64 :])
        with pytest.raises(CheckpointError, match="is not a readable checkpoint: "):
            load_image_checkpoint(checkpoint)
    checkpoint.write_bytes(sound)
    load_image_checkpoint(checkpoint)


def test_a_compressed_checkpoint_is_refused_unread(checkpoint: Path) -> None:
    with zipfile.ZipFile(checkpoint) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(checkpoint, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, part in parts.items():
            archive.writestr(name, part)
    with pytest.raises(CheckpointError, match="is not a readable checkpoint: it is compressed; write it"):
        load_image_checkpoint(checkpoint)
