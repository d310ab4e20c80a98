from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from twinlens.training.image_config import read_image_config, recipe_text
from twinlens.training.methods.registry import image_method
from twinlens.training.methods.run_plan import RunPlan
from twinlens.training.modules.backbone import build_backbone

METHODS = ("mae", "colorization", "jigsaw", "autoencoder", "supervised", "random")


@pytest.mark.parametrize("name", METHODS)
def test_the_recipe_states_every_option(name: str) -> None:
    stated = tomllib.loads(recipe_text(name)).get("method", {})
    assert set(stated) == set(image_method(name).Options.model_fields)


@pytest.mark.parametrize("name", METHODS)
def test_the_recipe_is_trainable_as_it_stands(name: str) -> None:
    config = read_image_config(name, pictures=Path("photos"))
    method = image_method(name)
    plan = RunPlan(
        steps=0 if config.train.steps == 0 else 10,
        batch_size=config.train.batch_size,
        dataset_size=1000,
        classes=10,
        size=config.size,
    )
    method.check(config.options(), plan, build_backbone(config.model.backbone(), config.size))
    assert method.wanted_global_views in {None, config.augment.global_views}
    assert config.augment.local_views == 0


def test_colours_are_left_as_they_are_where_they_are_the_answer() -> None:
    (view,) = read_image_config("colorization", pictures=Path("photos")).augment.views
    assert view.jitter is None
    assert not view.grayscale


def test_three_in_ten_puzzles_have_no_colour() -> None:
    (view,) = read_image_config("jigsaw", pictures=Path("photos")).augment.views
    assert view.grayscale == pytest.approx(0.3)
