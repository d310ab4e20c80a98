"""What `[augment]` means for a dual encoder: how its pictures are stored, and the views that a step takes of them."""

from __future__ import annotations

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.augment.augmenter import Augmenter
from twinlens.training.errors import ConfigError
from twinlens.training.image_plan import stored_side
from twinlens.training.ranks import ALONE, Ranks
from twinlens.training.sections.augment import PairAugmentConfig


def stored_preprocess(config: PairAugmentConfig | None, preprocess: PreprocessSpec) -> PreprocessSpec:
    """How pictures are stored: as the tower takes them, or, where views are cut from them, larger.

    Args:
        config: The section; None: there are no views.
        preprocess: The image tower's.

    Raises:
        ConfigError: if `augment.side` is less than the tower's input.
    """
    if config is None:
        return preprocess
    side = config.side or stored_side(preprocess.size)
    if side < preprocess.size:
        raise ConfigError(
            f"augment.side: {side} is smaller than the pictures of {preprocess.size} that the model takes"
        )
    resize = round(preprocess.resize_size * side / preprocess.size)
    return preprocess.model_copy(update={"size": side, "resize_size": resize})


def train_views(
    config: PairAugmentConfig | None, preprocess: PreprocessSpec, seed: int, ranks: Ranks = ALONE
) -> Augmenter | None:
    """Gives each batch of stored pictures its views; None where they go to the tower as they are.

    Args:
        config: The section; None: there are none.
        preprocess: The image tower's.
        seed: Of the run.
        ranks: The processes that share each batch; without extra pictures in it, they draw what one process would.
    """
    if config is None:
        return None
    recipe = config.recipe(preprocess.size, preprocess.interpolation)
    return Augmenter(recipe, preprocess.mean, preprocess.std, seed, rank=ranks.rank, world_size=ranks.world_size)
