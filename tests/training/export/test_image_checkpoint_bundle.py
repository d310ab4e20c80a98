from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.support.image_files import encode, scene
from twinlens.__main__ import main
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.manifest import Lineage, PreprocessSpec
from twinlens.encoders.preprocess import load_pixels
from twinlens.encoders.repository import ModelRepository
from twinlens.training.checkpoint import CheckpointMeta
from twinlens.training.export.agreement import row_cosines
from twinlens.training.image_checkpoint import ImageEncoderSpec, save_image_checkpoint
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig

CONFIGS = {
    "resnet": BackboneConfig(
        timm="resnet18", stem="cifar_stride2", arguments={"layers": [1, 1, 1, 1], "channels": [8, 16, 16, 32]}
    ),
    "vit": BackboneConfig(
        timm="vit_tiny_patch16_224", arguments={"patch_size": 8, "embed_dim": 32, "depth": 2, "num_heads": 2}
    ),
}


@pytest.mark.parametrize("kind", CONFIGS)
def test_an_image_encoder_serves_the_features_of_its_backbone(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    torch.manual_seed(0)
    preprocess = PreprocessSpec(size=32, resize_size=32, mean=(0.5, 0.4, 0.3), std=(0.25, 0.25, 0.25))
    backbone = build_backbone(CONFIGS[kind], 32)
    spec = ImageEncoderSpec(CONFIGS[kind], preprocess, "simclr", "mine")
    meta = CheckpointMeta(7, Lineage(method="simclr", data_sha256="0" * 64), {"knn_accuracy": 0.5})
    save_image_checkpoint(tmp_path / "checkpoint.pt", spec, backbone, meta)

    out = tmp_path / "models" / "mine" / "1"
    # By its run folder.
    assert main(["export", str(tmp_path), "--out", str(out), "--json"]) == 0
    manifest = ModelRepository(str(tmp_path / "models")).manifest("mine")
    assert json.loads(capsys.readouterr().out)["dimension"] == manifest.dimension == 32
    assert manifest.text is None
    assert manifest.image is not None
    assert manifest.image.architecture.startswith(CONFIGS[kind].timm)
    assert (manifest.lineage.method, manifest.metrics) == ("simclr", {"knn_accuracy": 0.5})

    encoder = Encoder.load(out, provider="cpu", threads=1)  # verifies parity
    picture = encode(scene())
    with torch.no_grad():
        expected = backbone.eval()(torch.from_numpy(load_pixels(picture, preprocess)[None]))
    served = encoder.encode_images(np.stack([encoder.prepare_image(picture)]))
    assert row_cosines(expected.numpy(), served).min() >= 0.9999
