"""Watches to which prototypes pictures are assigned, and stops a run in which that tells nothing of the picture."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from twinlens.training.collapse.monitor import Watched
from twinlens.training.errors import TrainingError
from twinlens.training.modules.gather import sum_over_ranks, world_size

# In nats. A healthy run has one or more: log of the number of groups it tells apart.
_LOW_INFORMATION = 0.05


@dataclass(frozen=True)
class AssignmentUse:
    """How the pictures of a batch, over all ranks, are assigned to k prototypes.

    Attributes:
        information: What an assignment tells of the picture, in nats, a scalar: H(mean distribution) - mean H (Krause
            et al. 2010, eq. 2). 0 both where all pictures fall on one prototype and where every picture is spread over
            all of them alike, the two ways in which clustering and distillation collapse (DINO, Caron et al. 2021,
            section 5.3); at most log min(n, k).
        entropy: Mean entropy of a picture's distribution, in nats, a scalar.
        used: How many prototypes the pictures use together, as a number of equally used ones, a scalar in [1, k].
        prototypes: K.
    """

    information: Tensor
    entropy: Tensor
    used: Tensor
    prototypes: int


@torch.no_grad()
def assignment_use(distributions_nk: Tensor) -> AssignmentUse:
    """Measures the assignments of a batch.

    Args:
        distributions_nk: Rows add up to 1, shape (n, k), n equal on all ranks.
    """
    each = torch.special.entr(distributions_nk).sum(dim=1).mean()
    # One message: the means of all ranks.
    own = torch.cat([distributions_nk.mean(dim=0), each[None]])
    means = sum_over_ranks(own) / world_size()
    together = torch.special.entr(means[:-1]).sum()
    return AssignmentUse(together - means[-1], means[-1], together.exp(), distributions_nk.shape[1])


class AssignmentMonitor(nn.Module):
    """Raises once assignments are, and stay, the same for all pictures.

    The loss of such a run is near its least, and the softmax of the loss is saturated, so that embeddings need not come
    closer to each other and the watch on their spread may see nothing.
    """

    def __init__(self, causes: str, patience: int = 30) -> None:
        """Takes what to tell.

        Args:
            causes: One sentence: what makes assignments of this method collapse most often.
            patience: Steps, as of `CollapseMonitor`.
        """
        super().__init__()
        self._causes = causes
        self._patience = patience
        self._information = Watched(floor=_LOW_INFORMATION, least=0.0, chance=_LOW_INFORMATION)

    def see(self, step: int, use: AssignmentUse) -> None:
        """Looks at one step's assignments.

        Args:
            step: Of the optimiser; rises from look to look.
            use: Of the prototypes, which is the same on all ranks, so that they stop together.

        Raises:
            TrainingError: if the assignments have collapsed.
        """
        if not self._information.has_collapsed(step, float(use.information), self._patience):
            return
        used, k = float(use.used), use.prototypes
        where = "every picture is spread over all prototypes alike" if used > k / 2 else "all pictures fall on the same"
        raise TrainingError(
            f"the assignments have collapsed at step {step}: {where} ({used:.1f} of {k} in use); {self._causes}"
        )
