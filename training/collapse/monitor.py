"""Watches the embeddings of a run and stops it when they have collapsed."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twinlens.training.collapse.measures import (
    alignment,
    effective_rank,
    participation_ratio,
    spread,
    std_per_dimension,
    uniformity,
)
from twinlens.training.errors import TrainingError

# A spread of 0.1 is a mean cosine of 0.99 between pictures. Healthy runs on natural photos stay above 0.35, and fresh
# ResNets and ViTs start above 0.4.
_LOW_SPREAD = 0.1
# Below this, one direction holds five sixths of all differences between pictures. Healthy SimSiam and BYOL come down
# to 2 to 4 in their first hundred steps on natural photos, DINO with a narrow ResNet to 1.7.
_LOW_DIRECTIONS = 1.4
# A few directions and no noise in any other; noise soon adds up to more, in the same healthy runs to 10 and above.
_LOW_RANK = 3.0
# Rows that are looked at: enough to see a collapse, and the rank of a batch of thousands would take seconds.
_ROWS = 256
# What is left of the best value when something fell.
_FELL_TO = 0.25
# Looks that must agree, however far apart they are.
_LOOKS = 3
# Pictures less one, or dimensions, that it takes to tell a collapse onto a line, or onto a few, from chance.
_FEWEST_FOR_A_LINE = 3
_FEWEST_FOR_A_RANK = 15
# So many times the patience for what never rose: a network that is still to find its way is not disturbed.
_NEVER_ROSE = 10


@dataclass
class _Streak:
    """Since when, and at how many looks, something has been so."""

    since: int = 0
    looks: int = 0

    def see(self, step: int, so: bool) -> None:
        if not so:
            self.looks = 0
            return
        self.since = step if self.looks == 0 else self.since
        self.looks += 1

    def lasts(self, step: int, patience: int) -> bool:
        return self.looks >= _LOOKS and step - self.since >= patience


class Watched(nn.Module):
    """One measure and how long it has been low; a module so that a checkpoint of the method keeps it.

    A value is low below `floor`. It has fallen if it is also near what a collapse gives, `least`, by its distance at
    the best look, which has to be more than `chance`.
    """

    def __init__(self, *, floor: float, least: float, chance: float) -> None:
        super().__init__()
        self._floor = floor
        self._least = least
        self._chance = chance
        self._best = least
        self._low = _Streak()
        self._fallen = _Streak()

    def has_collapsed(self, step: int, value: float, patience: int) -> bool:
        """Takes the value of a look, and tells whether it has been too low for too long."""
        self._best = max(self._best, value)
        height = self._best - self._least
        low = value < self._floor
        self._low.see(step, low)
        self._fallen.see(step, low and height > self._chance and value - self._least < _FELL_TO * height)
        return self._fallen.lasts(step, patience) or self._low.lasts(step, _NEVER_ROSE * patience)

    def get_extra_state(self) -> Tensor:
        """What was seen, for the checkpoint."""
        streaks = [self._low.since, self._low.looks, self._fallen.since, self._fallen.looks]
        return torch.tensor([self._best, *streaks], dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """What `get_extra_state` gave."""
        best, *streaks = state.tolist()
        self._best = best
        low_since, low_looks, fallen_since, fallen_looks = map(int, streaks)
        self._low, self._fallen = _Streak(low_since, low_looks), _Streak(fallen_since, fallen_looks)


class CollapseMonitor(nn.Module):
    """Measures embeddings and raises once they are, and stay, collapsed.

    Two collapses are told apart: *complete*, all pictures have one embedding; and *dimensional*, the embeddings differ
    along a line or little more (Jing et al. 2022). A fresh network may look like either, and some methods dip before
    they rise; so a value has to be low for `patience` steps on end and at three looks or more, and to have fallen to a
    quarter of the best seen. What was low from the start and never rose is given ten times as long.

    Methods with one view do not compare embeddings, so nothing drives them together: a healthy MAE differs along 1.2
    directions early on, and to tell two classes apart a line is all that it takes. There only a complete collapse
    counts, and it is given ten times as long.
    """

    def __init__(self, causes: str, patience: int = 30) -> None:
        """Takes what to tell.

        Args:
            causes: One sentence: what makes embeddings of this method collapse most often.
            patience: Steps, not looks.

        Raises:
            ValueError: if `patience` is negative.
        """
        if patience < 0:
            raise ValueError("patience must not be negative")
        super().__init__()
        self._causes = causes
        self._patience = patience
        self._spread = Watched(floor=_LOW_SPREAD, least=0.0, chance=1e-3)
        self._directions = Watched(floor=_LOW_DIRECTIONS, least=1.0, chance=0.25)
        self._rank = Watched(floor=_LOW_RANK, least=1.0, chance=0.25)

    def see(self, step: int, embeddings: tuple[Tensor, ...]) -> dict[str, float]:
        """Looks at one step's embeddings.

        Args:
            step: Of the optimiser; rises from look to look.
            embeddings: One tensor (n, d) for each view, n ≥ 2, of the same pictures in the same order; views beyond the
                second are not looked at.

        Returns:
            `std`: mean standard deviation of a dimension of the normalised embeddings (1/√d is the best possible);
            `effective_rank` of the normalised and centred embeddings; `directions`, the participation ratio of the
            same; `uniformity`; and, where there are two views, `alignment`. Empty without embeddings.

        Raises:
            TrainingError: if the embeddings have collapsed, or are not finite.
        """
        if not embeddings:
            return {}
        # On the CPU, for not every device computes in float64.
        first, *others = (view.detach()[:_ROWS].cpu() for view in embeddings[:2])
        with torch.no_grad(), torch.autocast("cpu", enabled=False):
            if not all(torch.isfinite(view).all() for view in (first, *others)):
                raise TrainingError(f"embeddings are not finite at step {step}: lower learning_rate or use fp32")
            values = _measure(first, others[0] if others else None)
            spread_now = float(spread(first))
        patience = self._patience if others else _NEVER_ROSE * self._patience
        complete = self._spread.has_collapsed(step, spread_now, patience)
        dimensional = bool(others) and self._on_a_line(step, values, min(len(first) - 1, first.shape[1]))
        if complete:
            raise TrainingError(
                f"the embeddings have collapsed at step {step}: all pictures have nearly the same (a std of "
                f"{values['std']:.2g} a dimension; {first.shape[1] ** -0.5:.2g} is the best possible); {self._causes}"
            )
        if dimensional:
            raise TrainingError(
                f"the embeddings have collapsed at step {step} to {values['directions']:.1f} of {first.shape[1]} "
                f"dimensions (dimensional collapse); {self._causes}"
            )
        return values

    def _on_a_line(self, step: int, values: dict[str, float], most: int) -> bool:
        """Whether too few of at most so many directions are left; few pictures differ in few, collapsed or not."""
        line = most >= _FEWEST_FOR_A_LINE and self._directions.has_collapsed(step, values["directions"], self._patience)
        few = most >= _FEWEST_FOR_A_RANK and self._rank.has_collapsed(step, values["effective_rank"], self._patience)
        return line or few


def _measure(first_nd: Tensor, second_nd: Tensor | None) -> dict[str, float]:
    unit = F.normalize(first_nd.double(), dim=1)
    centred = unit - unit.mean(dim=0)
    # Equal embeddings differ by rounding, which has a high rank.
    centred = torch.where(centred.abs().amax() < 1e-6, torch.zeros_like(centred), centred)
    values = {
        "std": float(std_per_dimension(first_nd).mean()),
        "effective_rank": float(effective_rank(centred)),
        "directions": float(participation_ratio(centred)),
        "uniformity": float(uniformity(first_nd)),
    }
    if second_nd is not None:
        values["alignment"] = float(alignment(first_nd, second_nd))
    return values
