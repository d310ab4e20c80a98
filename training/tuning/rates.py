"""How fast each parameter of a dual encoder learns."""

from __future__ import annotations

from torch import nn

from twinlens.training.sections.tuning import TuningConfig
from twinlens.training.tuning.blocks import parts_of


def learning_rates(model: nn.Module, config: TuningConfig) -> dict[str, float]:
    """The factor on the learning rate for every parameter that has another than 1, by name.

    The head of a tower learns at the tower's rate; each part below it at `layer_decay` times the rate of the part above
    (ELECTRA, Clark et al. 2020, §3.1: low layers of a trained network are general, and need the least change).

    Args:
        model: See `build_towers`.
        config: The rates.
    """
    rates: dict[str, float] = {}
    for tower, rate in (("image", config.image_rate), ("text", config.text_rate)):
        parts = parts_of(model)[tower]
        for below_head, layer in enumerate((parts.head, *reversed(parts.blocks), parts.stem)):
            rates.update(dict.fromkeys(layer, rate * config.layer_decay**below_head))
    return {name: rate for name, rate in rates.items() if rate != 1.0}
