"""`vision_cfg.class_names`: a classifier whose probabilities weigh the embeddings of its classes (ConSE)."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn


class ClassNamesConfig(BaseModel):
    """A tower as data.

    Attributes:
        timm: The classifier's name in timm.
        classes: How many it tells apart.
        temperature: Its logits are divided by it.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    timm: str
    classes: int = Field(ge=1)
    temperature: float = Field(gt=0)


class ClassNameTower(nn.Module):
    """Pixels to the embedding of what a classifier sees.

    A picture lies where the names of the classes it may show lie: the mean of their embeddings, weighted by the
    classifier's softened probabilities (Norouzi et al. 2014, eq. 3, without the cut at the best classes).

    Attributes:
        classifier: Pixels to logits.
        class_embeddings: Of the names, shape (classes, d).
    """

    class_embeddings: Tensor

    def __init__(self, classifier: nn.Module, class_embeddings: Tensor, temperature: float) -> None:
        """Takes a classifier with logits (n, c) and the embeddings of its classes, shape (c, d)."""
        super().__init__()
        self.classifier = classifier
        self.register_buffer("class_embeddings", class_embeddings)
        self._temperature = temperature

    def forward(self, pixels: Tensor) -> Tensor:
        """Embeds pixels, shape (n, 3, s, s), to (n, d), not normalised."""
        probabilities = F.softmax(self.classifier(pixels) / self._temperature, dim=-1)
        embeddings: Tensor = probabilities @ self.class_embeddings
        return embeddings


def build_class_names(described: Any, embed_dim: int) -> ClassNameTower:
    """Builds the tower with fresh weights.

    Args:
        described: See `ClassNamesConfig`.
        embed_dim: Of the joint space.

    Raises:
        ValidationError, ValueError: if it cannot be built.
    """
    import timm  # noqa: PLC0415 - seconds

    config = ClassNamesConfig.model_validate(described)
    if not timm.is_model(config.timm):
        raise ValueError(f"timm has no model {config.timm!r}")
    classifier: nn.Module = timm.create_model(config.timm, pretrained=False, num_classes=config.classes)
    return ClassNameTower(classifier, torch.zeros(config.classes, embed_dim), config.temperature)
