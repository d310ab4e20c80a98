"""A dual encoder whose image tower began with pictures alone: trained, saved, trained on, exported."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from tests.support.image_files import encode, scene
from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.preprocess import load_pixels
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, build_model, load_checkpoint, save_checkpoint
from twinlens.training.config import TrainConfig, read_config
from twinlens.training.errors import CheckpointError, ConfigError
from twinlens.training.export.agreement import row_cosines
from twinlens.training.export.checkpoint_bundle import export_checkpoint
from twinlens.training.image_checkpoint import ImageEncoderSpec, save_image_checkpoint
from twinlens.training.modules.backbone import Backbone, build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.start import Parent, start_of
from twinlens.training.train import train

ROOT = Path(__file__).resolve().parent.parent.parent
CONFIG = BackboneConfig(
    timm="resnet18", stem="cifar_stride2", arguments={"layers": [1, 1, 1, 1], "channels": [8, 16, 16, 32]}
)
TEXT = {"embed_dim": 16, "text_cfg": TINY_TOWERS["text_cfg"]}


@pytest.fixture(scope="module")
def backbone() -> Backbone:
    torch.manual_seed(5)
    return build_backbone(CONFIG, SIZE)


@pytest.fixture(scope="module")
def image_checkpoint(backbone: Backbone, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("simclr") / "checkpoint.pt"
    preprocess = PreprocessSpec(size=SIZE, resize_size=SIZE, mean=(0.4, 0.4, 0.3), std=(0.2, 0.25, 0.25))
    save_image_checkpoint(path, ImageEncoderSpec(CONFIG, preprocess, "simclr", "mine"), backbone, CheckpointMeta(9))
    return path


def config(model: dict[str, Any], **run: Any) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "data": {"source": "scenes", "count": 64, "seed": 3},
            "model": model,
            "train": {"steps": 2, "batch_size": 16, "warmup_steps": 0, "log_every": 1, **run},
        }
    )


@pytest.fixture(scope="module")
def trained(image_checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("clip") / "run"
    return train(config({"image_checkpoint": image_checkpoint, "config": TEXT}), out, lambda *_: None).checkpoint


def test_the_image_tower_starts_from_the_trained_weights(
    image_checkpoint: Path, backbone: Backbone, tmp_path: Path
) -> None:
    settings = config({"image_checkpoint": image_checkpoint, "config": TEXT}, steps=1, learning_rate=1e-12)
    _, model, _ = load_checkpoint(train(settings, tmp_path / "run", lambda *_: None).checkpoint)
    tower: Any = model.visual
    for name, value in backbone.named_parameters():
        assert torch.allclose(tower.backbone.state_dict()[name], value, atol=1e-9), name


def test_a_run_folder_stands_for_its_checkpoint(image_checkpoint: Path, trained: Path) -> None:
    run = config({"image_checkpoint": image_checkpoint.parent, "config": TEXT}).model
    found, named = (start_of(model) for model in (run, run.model_copy(update={"image_checkpoint": image_checkpoint})))
    assert found.preprocess == named.preprocess
    assert isinstance(parent := start_of(config({"from_checkpoint": trained.parent}).model), Parent)
    assert parent.step == 2


def test_the_checkpoint_holds_tower_projection_and_preprocessing(trained: Path, backbone: Backbone) -> None:
    spec, model, meta = load_checkpoint(trained)
    assert spec.preprocess.mean == (0.4, 0.4, 0.3)
    assert spec.model_cfg["vision_cfg"]["backbone"] == CONFIG.model_dump(mode="json")
    assert (meta.step, meta.lineage.method) == (2, "clip")
    tower: Any = model.visual
    assert tower.projection.weight.shape == (16, 32)
    # Both the backbone and its statistics have moved.
    for name in ("trunk.conv1.weight", "trunk.bn1.running_mean"):
        assert not torch.equal(tower.backbone.state_dict()[name], backbone.state_dict()[name])


def test_training_goes_on_from_the_dual_encoder(trained: Path, tmp_path: Path) -> None:
    result = train(config({"from_checkpoint": trained}), tmp_path / "run", lambda *_: None)
    before, after = load_checkpoint(trained), load_checkpoint(result.checkpoint)
    assert (after[0], after[2].step) == (before[0], 4)
    for name in ("visual.projection.weight", "visual.backbone.trunk.conv1.weight"):
        assert not torch.equal(after[1].state_dict()[name], before[1].state_dict()[name])


@pytest.mark.slow
def test_the_exported_bundle_serves_both_towers(trained: Path, tmp_path: Path) -> None:
    manifest = export_checkpoint(trained, tmp_path / "bundle")
    assert manifest.image is not None
    assert manifest.image.architecture == "resnet18"
    spec, model, _ = load_checkpoint(trained)
    encoder = Encoder.load(tmp_path / "bundle", provider="cpu", threads=1)
    picture = encode(scene())
    with torch.no_grad():
        expected = model.encode_image(torch.from_numpy(load_pixels(picture, spec.preprocess)[None]))  # type: ignore[operator]
    assert row_cosines(expected.numpy(), encoder.encode_images(np.stack([encoder.prepare_image(picture)]))) >= 0.9999
    assert encoder.encode_texts([encoder.prepare_text("a red circle")]).shape == (1, 16)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ({"config": TINY_TOWERS}, "config.vision_cfg is for an image tower from scratch"),
        ({"config": TEXT, "mean": [0.5, 0.5, 0.5]}, "mean is for an image tower from scratch"),
        ({"from_checkpoint": "other.pt"}, "from_checkpoint has an image tower already"),
        ({}, "give exactly one of open_clip, config, from_checkpoint"),
    ],
)
def test_settings_that_contradict_the_image_checkpoint_are_refused(model: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        config({"image_checkpoint": "checkpoint.pt", **model})


def test_what_is_no_image_checkpoint_is_named(
    tmp_path: Path, tiny_spec: DualEncoderSpec, image_checkpoint: Path
) -> None:
    save_checkpoint(tmp_path / "dual.pt", tiny_spec, build_model(tiny_spec), CheckpointMeta())
    for path, message in ((tmp_path / "none.pt", "no checkpoint at"), (tmp_path / "dual.pt", "holds a dual encoder")):
        with pytest.raises(CheckpointError, match=message):
            train(config({"image_checkpoint": path, "config": TEXT}), tmp_path / "run", lambda *_: None)
    with pytest.raises(ConfigError, match="must have embed_dim and text_cfg"):
        train(config({"image_checkpoint": image_checkpoint, "config": {}}), tmp_path / "run", lambda *_: None)
    with pytest.raises(CheckpointError, match="image tower of 'clip' cannot be built: embed_dim must be"):
        train(
            config({"image_checkpoint": image_checkpoint, "config": TEXT | {"embed_dim": -3}}),
            tmp_path / "run",
            lambda *_: None,
        )
    with pytest.raises(CheckpointError, match="holds an image encoder alone"):
        train(config({"from_checkpoint": image_checkpoint}), tmp_path / "run", lambda *_: None)
    assert not (tmp_path / "run").exists()


def test_the_image_checkpoint_is_relative_to_the_file(tmp_path: Path) -> None:
    (tmp_path / "clip.toml").write_text(
        '[data]\nsource = "scenes"\n[model]\nimage_checkpoint = "simclr/checkpoint.pt"\nopen_clip = "ViT-B-32"\n'
    )
    assert read_config(tmp_path / "clip.toml").model.image_checkpoint == tmp_path / "simclr/checkpoint.pt"


def test_the_example_in_the_documentation_is_valid() -> None:
    model = read_config(ROOT / "docs/examples/clip-from-images.toml").model
    assert model.image_checkpoint is not None
    assert model.config is not None
    assert "vision_cfg" not in model.config
