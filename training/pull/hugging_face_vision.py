"""transformers' image models alone: ViT, DINOv2 and others, an image-only bundle."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor, nn

from twinlens.training.export.errors import ExportError
from twinlens.training.export.towers import ImageExport
from twinlens.training.pull.preprocessing import from_hugging_face
from twinlens.training.pull.pulled import PulledTowers
from twinlens.training.pull.source import Choices
from twinlens.training.pull.transformers_models import load_model, preprocessor_config
from twinlens.training.towers.transformers_pair import PooledTower

# Class, and what a picture's vector is: the first token behind the last norm, the class's pooled output, or its
# projection into the space shared with texts.
_KINDS: Final[dict[str, tuple[str, str]]] = {
    "vit": ("ViTModel", "cls"),
    "deit": ("DeiTModel", "cls"),
    "dinov2": ("Dinov2Model", "cls"),
    "dinov2_with_registers": ("Dinov2WithRegistersModel", "cls"),
    "clip_vision_model": ("CLIPVisionModelWithProjection", "projected"),
    "siglip_vision_model": ("SiglipVisionModel", "pooled"),
}
MODEL_TYPES: Final = tuple(_KINDS)
# These carry a pooler that few checkpoints have trained.
_WITHOUT_POOLER = ("vit", "deit")


class FirstToken(nn.Module):
    """An image model whose vector is its first token (CLS)."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, pixels: Tensor) -> Tensor:
        """Embeds pixels, shape (n, 3, size, size), to (n, d), not normalised."""
        tokens: Tensor = self.model(pixels).last_hidden_state
        return tokens[:, 0]


def vision_model(folder: Path, config: dict[str, Any], name: str, choices: Choices) -> PulledTowers:
    """Builds the tower.

    Raises:
        ExportError: if weights or preprocessing are missing or do not fit.
    """
    if choices.tokenizer:
        raise ExportError(f"{name} has no text tower: --tokenizer means nothing here")
    kind = str(config["model_type"])
    class_name, vector = _KINDS[kind]
    preprocess = from_hugging_face(preprocessor_config(folder, name))
    options = {"add_pooling_layer": False} if kind in _WITHOUT_POOLER else {}
    model: Any = load_model(folder, class_name, name, **options)
    if preprocess.size != model.config.image_size:
        fix_positions(model, preprocess.size, name)
    tower: nn.Module
    if vector == "projected":
        tower = PooledTower(model.vision_model, model.visual_projection)
    else:
        tower = FirstToken(model) if vector == "cls" else PooledTower(model, None)
    image = ImageExport(
        tower, preprocess, architecture=class_name, pooling=vector, activation=str(model.config.hidden_act)
    )
    return PulledTowers(image, None, name, f"transformers {kind} {name}")


def fix_positions(model: Any, size: int, name: str) -> None:
    """Resamples the position embeddings for pictures of `size` once, here, as the model itself would each time.

    In a graph, ONNX's resampling with antialiasing differs from torch's
    (https://github.com/pytorch/pytorch/issues/177138).

    Raises:
        ExportError: if the model takes pictures of its own size only.
    """
    embeddings: Any = getattr(model, "embeddings", None)
    if not hasattr(embeddings, "interpolate_pos_encoding") or "dinov2" not in str(model.config.model_type):
        raise ExportError(f"{name} prepares pictures of {size} pixels, its tower takes {model.config.image_size}")
    patches = (size // model.config.patch_size) ** 2
    tokens = torch.zeros(1, patches + 1, model.config.hidden_size)
    with torch.no_grad():
        fixed = embeddings.interpolate_pos_encoding(tokens, size, size)
    embeddings.interpolate_pos_encoding = lambda *_: fixed
