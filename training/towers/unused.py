"""Parameters that a model brings along and no vector depends on, such as a pooling that is not used."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from twinlens.encoders.manifest import PreprocessSpec, TextSpec
from twinlens.training.modules.evaluation_mode import evaluation_mode
from twinlens.training.towers.fit import blanks

# They belong to the loss.
_OF_THE_LOSS = "logit_"


def rest_unused(model: nn.Module, preprocess: PreprocessSpec, text: TextSpec) -> list[str]:
    """Takes parameters without influence from training; they keep their values.

    In one process they would have no gradient, and an optimiser leaves them alone. Between processes each waits for the
    gradients of all that are trained, and these never come.

    Args:
        model: See `build_towers`; it is left in the mode it has.
        preprocess: What its pictures are like.
        text: What its rows of ids are like.

    Returns:
        Their names.
    """
    towers: Any = model
    pixels, ids = blanks(preprocess, text)
    # In evaluation mode layers that are left out at random are used all the same.
    with evaluation_mode(model), torch.enable_grad():
        vectors = [towers.encode_image(pixels), towers.encode_text(ids)]
    trained = {
        name: each
        for name, each in model.named_parameters()
        if each.requires_grad and not name.startswith(_OF_THE_LOSS)
    }
    total = torch.stack([each.float().sum() for each in vectors]).sum()
    if not (trained and total.requires_grad):
        return []
    found = torch.autograd.grad(total, list(trained.values()), allow_unused=True)
    unused = [name for name, gradient in zip(trained, found, strict=True) if gradient is None]  # type: ignore[redundant-expr]
    for name in unused:
        trained[name].requires_grad_(False)
    return unused
