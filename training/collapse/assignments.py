"""Watches to which prototypes pictures are assigned, and stops a run in which that tells nothing of the picture."""

from __future__ import annotations

import torch
from torch import Tensor

from twinlens.training.collapse.monitor import Watched
from twinlens.training.loop import TrainingError

# In nats. A healthy run has one or more: log of the number of groups it tells apart.
_LOW_INFORMATION = 0.05


def assignment_information(distributions_nk: Tensor) -> Tensor:
    """What an assignment tells of the picture, in nats: H(mean distribution) - mean H (Krause et al. 2010, eq. 2).

    0 both where all pictures fall on one prototype and where every picture is spread over all of them alike, the two
    ways in which clustering and distillation collapse (DINO, Caron et al. 2021, section 5.3); at most log min(n, k).

    Args:
        distributions_nk: Rows add up to 1, shape (n, k).

    Returns:
        A scalar.
    """
    together = torch.special.entr(distributions_nk.mean(dim=0)).sum()
    each = torch.special.entr(distributions_nk).sum(dim=1).mean()
    information: Tensor = together - each
    return information


def prototypes_used(distributions_nk: Tensor) -> Tensor:
    """How many prototypes the pictures use together, as a number of equally used ones: e to the entropy of the mean.

    Args:
        distributions_nk: Rows add up to 1, shape (n, k).

    Returns:
        A scalar in [1, k].
    """
    used: Tensor = torch.special.entr(distributions_nk.mean(dim=0)).sum().exp()
    return used


class AssignmentMonitor:
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
        self._causes = causes
        self._patience = patience
        self._information = Watched(floor=_LOW_INFORMATION, least=0.0, chance=_LOW_INFORMATION)

    def see(self, step: int, distributions_nk: Tensor) -> None:
        """Looks at one step's assignments.

        Args:
            step: Of the optimiser; rises from look to look.
            distributions_nk: Rows add up to 1, shape (n, k).

        Raises:
            TrainingError: if the assignments have collapsed.
        """
        information = float(assignment_information(distributions_nk))
        if not self._information.has_collapsed(step, information, self._patience):
            return
        k = distributions_nk.shape[1]
        used = float(prototypes_used(distributions_nk))
        where = (
            "every picture is spread over all prototypes alike" if used > 0.5 * k else "all pictures fall on the same"
        )
        raise TrainingError(
            f"the assignments have collapsed at step {step}: {where} ({used:.1f} of {k} in use); {self._causes}"
        )
