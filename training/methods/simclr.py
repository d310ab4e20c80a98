"""SimCLR: two views of a picture find each other among all views of the batch (Chen et al. 2020)."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
import torch.nn.functional as F
from pydantic import Field
from torch import Tensor, nn

from twinlens.training.data.picture_batch import PictureBatch
from twinlens.training.losses.nt_xent import nt_xent
from twinlens.training.methods.image_method import ImageMethod, MethodOptions, StepOutput
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import Backbone
from twinlens.training.modules.gather import gather_with_gradients, own_rows
from twinlens.training.modules.projection_head import mlp_head


class SimCLROptions(MethodOptions):
    """The section [method].

    Attributes:
        temperature: τ; 0.1 is the paper's best on ImageNet, 0.5 on CIFAR-10 (appendix B.9).
        head: What stands between the encoder and the loss: the paper's perceptron with one hidden layer, or, for its
            ablation (figure 8), a linear layer or nothing.
        hidden: Width of the hidden layer; None: that of the encoder, as in the paper.
        dim: Length of the projections.
        head_norm: Batch norm in the head, as in the authors' code; the paper's equation has none.
    """

    temperature: float = Field(default=0.1, gt=0)
    head: Literal["mlp", "linear", "none"] = "mlp"
    hidden: int | None = Field(default=None, ge=1)
    dim: int = Field(default=128, ge=2)
    head_norm: Literal["batch", "none"] = "batch"


class SimCLR(ImageMethod):
    """Both views through one network; every other view of the batch, of all ranks together, is a negative."""

    name = "simclr"
    Options = SimCLROptions
    encodes_in_chunks: ClassVar[bool] = True

    def __init__(self, backbone: Backbone, options: SimCLROptions, plan: RunPlan) -> None:
        """Adds the projection head."""
        super().__init__(backbone, options, plan)
        self.head = _head(backbone.dim, options)

    def step(self, views: list[Tensor], batch: PictureBatch) -> StepOutput:
        """One step's loss; `accuracy`: how many views have the other view of their picture as the nearest."""
        # Together, as in the paper, so that batch norm sees both views; the head is small and always sees the batch.
        features = self.encode(torch.cat(views))
        projections = self.head(features)
        first, second = projections.to(torch.promote_types(projections.dtype, torch.float32)).chunk(2)
        all_first, all_second = gather_with_gradients(torch.cat([first, second], dim=1)).chunk(2, dim=1)
        mine = own_rows(batch.samples)
        loss = nt_xent(all_first, all_second, self.options.temperature, anchors=mine)
        return StepOutput(loss, {"accuracy": _accuracy(all_first, all_second, mine)}, (first, second))

    def collapse_causes(self) -> str:
        """Its negatives push embeddings apart, so that it is the optimisation."""
        return (
            "the learning rate may be too high, the batch too small to have negatives worth the name, or "
            "method.temperature too high"
        )


def _head(width: int, options: SimCLROptions) -> nn.Module:
    match options.head:
        case "none":
            return nn.Identity()
        case "linear":
            return mlp_head([width, options.dim])
        case _:
            sizes = [width, options.hidden or width, options.dim]
            norm = options.head_norm
            return mlp_head(sizes, norm=norm, last_norm=norm == "batch")


@torch.no_grad()
def _accuracy(first: Tensor, second: Tensor, mine: slice) -> Tensor:
    """The share of the views of `mine` that are nearest, by cosine, to the other view of their picture."""
    n = len(first)
    with torch.autocast(first.device.type, enabled=False):
        z = F.normalize(torch.cat([first, second]), dim=1)
        pictures = torch.arange(n, device=z.device)[mine]
        rows = torch.cat([pictures, pictures + n])
        cosines = z[rows] @ z.T
    cosines.scatter_(1, rows[:, None], -2.0)
    return (cosines.argmax(dim=1) == (rows + n) % (2 * n)).float().mean()
