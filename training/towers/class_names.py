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
        residual: Whether a projection of the classifier's features is added.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    timm: str
    classes: int = Field(ge=1)
    temperature: float = Field(gt=0)
    residual: bool = False


class ClassNameTower(nn.Module):
    """Pixels to the embedding of what a classifier sees.

    A picture lies where the names of the classes it may show lie: the mean of their embeddings, weighted by the
    classifier's softened probabilities (Norouzi et al. 2014, eq. 3, without the cut at the best classes).

    Attributes:
        classifier: Pixels to logits.
        class_embeddings: Of the names, shape (classes, d); they are the text tower's and are not trained.
        residual: The classifier's pooled features to what is added to the embedding; None: nothing is. It starts at
            zero, so that the vectors are the old ones until it is trained; what the classes have no name for goes here.
    """

    class_embeddings: Tensor

    def __init__(self, classifier: nn.Module, class_embeddings: Tensor, temperature: float) -> None:
        """Takes a classifier with logits (n, c) and the embeddings of its classes, shape (c, d)."""
        super().__init__()
        self.classifier: Any = classifier
        self.register_buffer("class_embeddings", class_embeddings)
        self.residual: nn.Linear | None = None
        self._temperature = temperature

    def add_residual(self) -> None:
        """Gives the tower a `residual` of zeros, where it has none.

        Raises:
            ValueError: if the classifier does not tell its features from its logits.
        """
        if self.residual is not None:
            return
        last = getattr(self.classifier, "get_classifier", lambda: None)()
        if not isinstance(last, nn.Linear):
            msg = "its classifier has no linear last layer, whose input a residual could take"
            raise ValueError(msg)  # noqa: TRY004 - of a description, like all that is wrong with one
        self.residual = nn.Linear(last.in_features, self.class_embeddings.shape[1], bias=False)
        nn.init.zeros_(self.residual.weight)

    def forward(self, pixels: Tensor) -> Tensor:
        """Embeds pixels, shape (n, 3, s, s), to (n, d), not normalised."""
        if self.residual is None:
            return self._of_classes(self.classifier(pixels))
        return self.of_features(self.features(pixels))

    def features(self, pixels: Tensor) -> Tensor:
        """What the classifier's last layer sees, shape (n, k); the logits where the tower has no residual."""
        if self.residual is None:
            logits: Tensor = self.classifier(pixels)
            return logits
        features: Tensor = self.classifier.forward_head(self.classifier.forward_features(pixels), pre_logits=True)
        return features

    def of_features(self, features: Tensor) -> Tensor:
        """Embeddings, shape (n, d), of what `features` gives."""
        if self.residual is None:
            return self._of_classes(features)
        embeddings: Tensor = self._of_classes(self.classifier.get_classifier()(features)) + self.residual(features)
        return embeddings

    def _of_classes(self, logits: Tensor) -> Tensor:
        embeddings: Tensor = F.softmax(logits / self._temperature, dim=-1) @ self.class_embeddings
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
    tower = ClassNameTower(classifier, torch.zeros(config.classes, embed_dim), config.temperature)
    if config.residual:
        tower.add_residual()
    return tower
