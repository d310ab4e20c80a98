"""`vision_cfg.transformers_pair` and `text_cfg.transformers_pair`: the towers of transformers' CLIP and SigLIP."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict
from torch import Tensor, nn

_CLASSES: Final = {"clip": "CLIPModel", "siglip": "SiglipModel"}


class TransformersPairConfig(BaseModel):
    """Both towers as data.

    Attributes:
        config: The whole model's configuration, with its `model_type`, `clip` or `siglip`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: dict[str, Any]


class PooledTower(nn.Module):
    """A vision or text model of transformers, its pooled output, and a projection if there is one."""

    def __init__(self, model: nn.Module, projection: nn.Module | None) -> None:
        super().__init__()
        self.model = model
        self.projection = projection

    def forward(self, inputs: Tensor) -> Tensor:
        """Embeds pixels, shape (n, 3, size, size), or ids, shape (n, l), to (n, d), not normalised."""
        pooled: Tensor = self.model(inputs).pooler_output
        if self.projection is None:
            return pooled
        projected: Tensor = self.projection(pooled)
        return projected


def pooled_towers(model: Any, kind: str) -> tuple[PooledTower, PooledTower]:
    """The image and the text tower of a `CLIPModel` or `SiglipModel`; the weights stay where they are."""
    if kind == "clip":
        return (
            PooledTower(model.vision_model, model.visual_projection),
            PooledTower(model.text_model, model.text_projection),
        )
    return PooledTower(model.vision_model, None), PooledTower(model.text_model, None)


def build_transformers_pair(described: Any, tower: Literal["image", "text"]) -> PooledTower:
    """Builds one of the towers with fresh weights; nothing is downloaded.

    Args:
        described: See `TransformersPairConfig`.
        tower: Which.

    Raises:
        ExportError: if transformers is not installed.
        ValidationError, ValueError, KeyError, TypeError: if it cannot be built.
    """
    from twinlens.training.pull.transformers_models import quiet, transformers  # noqa: PLC0415 - seconds
    from twinlens.training.towers.transformers_config import config_of  # noqa: PLC0415

    given = TransformersPairConfig.model_validate(described)
    kind = str(given.config["model_type"])
    if kind not in _CLASSES:
        raise ValueError(f"a pair of towers is of type {' or '.join(_CLASSES)}, not {kind}")
    with quiet():
        model = getattr(transformers(), _CLASSES[kind])(config_of(given.config))
    image, text = pooled_towers(model, kind)
    return image if tower == "image" else text
