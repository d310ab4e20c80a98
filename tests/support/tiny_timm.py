"""A tiny classifier of timm, with random weights and timm's own way to embed."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import timm
import torch
from PIL import Image
from safetensors.torch import save_file

from tests.support.tiny_weights import TinyModel, Vectors, awaken
from twinlens.training.pull.source import Choices


def timm_model(folder: Path) -> TinyModel:
    """A classifier of timm in a safetensors file: its head is of no use to us."""
    torch.manual_seed(0)
    classifier = awaken(timm.create_model("test_resnet", pretrained=False))
    save_file(classifier.state_dict(), folder / "model.safetensors")
    features = timm.create_model("test_resnet", pretrained=False, num_classes=0)
    features.load_state_dict({k: v for k, v in classifier.state_dict().items() if not k.startswith("fc.")})
    features.eval()
    config = timm.data.resolve_model_data_config(features)  # type: ignore[attr-defined,no-untyped-call]
    transform: Any = timm.data.create_transform(**config, is_training=False)  # type: ignore[attr-defined]

    def image(pictures: Sequence[Image.Image]) -> Vectors:
        with torch.no_grad():
            return np.asarray(features(torch.stack([transform(picture) for picture in pictures])))

    return TinyModel(f"timm:test_resnet:{folder / 'model.safetensors'}", Choices(), features, image)
