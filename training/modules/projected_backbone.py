"""The image tower of a dual encoder that began with pictures alone: a backbone and a projection."""

from __future__ import annotations

from torch import Tensor, nn

from twinlens.training.modules.backbone import Backbone


class ProjectedBackbone(nn.Module):
    """Stands where open_clip has its image tower.

    As in CLIP, the projection is linear and without bias (Radford et al. 2021, §2.3); the head of the self-supervised
    method is gone, for the features before it carry over better (Chen et al. 2020, §4.2).

    Attributes:
        backbone: Pixels to features.
        projection: Features to the joint space.
    """

    def __init__(self, backbone: Backbone, embed_dim: int) -> None:
        """Puts a fresh projection on the backbone.

        Raises:
            ValueError: unless `embed_dim` is positive.
        """
        if embed_dim < 1:
            raise ValueError(f"embed_dim must be positive, not {embed_dim}")
        super().__init__()
        self.backbone = backbone
        self.projection = nn.Linear(backbone.dim, embed_dim, bias=False)
        nn.init.normal_(self.projection.weight, std=backbone.dim**-0.5)

    def forward(self, pixels: Tensor) -> Tensor:
        """Embeds normalised pixels, shape (n, 3, s, s), to (n, embed_dim), not normalised."""
        embeddings: Tensor = self.projection(self.backbone(pixels))
        return embeddings
