"""When a picture shows none of the labels that there are to choose from."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.server.core.errors import invalid_argument
from twinlens.server.core.labels import check_length

MAX_BACKGROUND = 256


@dataclass(frozen=True, slots=True)
class NoneOfThese:
    """What must hold for a label to fit; all of what is set.

    Attributes:
        min_cosine: Its cosine is at least this.
        min_probability: Its probability is at least this.
        background: Whole prompts that say what else there may be: its cosine is above that of each of them.
    """

    min_cosine: float | None = None
    min_probability: float | None = None
    background: tuple[str, ...] = ()

    def check(self) -> None:
        """Refuses what cannot be meant.

        Raises:
            ServiceError: INVALID_ARGUMENT.
        """
        if self.min_cosine is not None and not -1.0 <= self.min_cosine <= 1.0:  # also refuses NaN, as below
            raise invalid_argument(f"min_cosine is from -1 to 1, not {self.min_cosine:g}")
        if self.min_probability is not None and not 0.0 <= self.min_probability <= 1.0:
            raise invalid_argument(f"min_probability is from 0 to 1, not {self.min_probability:g}")
        if len(self.background) > MAX_BACKGROUND:
            raise invalid_argument(
                f"a request has at most {MAX_BACKGROUND} background prompts, not {len(self.background)}"
            )
        if any(not prompt.strip() for prompt in self.background):
            raise invalid_argument("a background prompt is empty")
        if len(set(self.background)) != len(self.background):
            raise invalid_argument("two background prompts are the same")
        for prompt in self.background:
            check_length(prompt, "background prompt")

    def holds(
        self,
        cosines: NDArray[np.float64],
        probabilities: NDArray[np.float64],
        background: NDArray[np.float64] | None,
    ) -> NDArray[np.bool_]:
        """Which pictures show none of the labels, shape (pictures,); none of them where nothing was said.

        It is enough to look at each picture's best label: for a picture, probabilities are in the order of cosines, so
        where that does not fit no other does. Compared as they are told, in 32 bits: a threshold that was read from an
        answer holds for that answer.

        Args:
            cosines: Of each picture and its best label, shape (pictures,).
            probabilities: Of the same.
            background: Of each picture and the nearest background prompt; None where there are none.
        """
        told = cosines.astype(np.float32)
        none = np.zeros(len(cosines), dtype=np.bool_)
        if self.min_cosine is not None:
            none |= told < np.float32(self.min_cosine)
        if self.min_probability is not None:
            none |= probabilities.astype(np.float32) < np.float32(self.min_probability)
        if background is not None:
            none |= told <= background.astype(np.float32)
        return none
