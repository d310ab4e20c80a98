"""`[loss]`: what a dual encoder is trained by."""

from __future__ import annotations

from typing import Literal

from twinlens.training.sections.frozen import Frozen


class LossConfig(Frozen):
    """The loss over the pairs of a batch.

    Attributes:
        name: info_nce is CLIP's.
    """

    name: Literal["info_nce"] = "info_nce"
