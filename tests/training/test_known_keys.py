"""A mistyped key is answered with the one that was meant."""

from __future__ import annotations

import pytest

from twinlens.training.config import TrainConfig
from twinlens.training.image_config import ImageTrainConfig
from twinlens.training.known_keys import dotted_keys, perhaps_key
from twinlens.training.methods.simclr import SimCLROptions


@pytest.mark.parametrize(
    ("location", "told"),
    [
        (("train", "step"), "; perhaps train.steps"),
        (("trian",), "; perhaps train"),
        (("batch_size",), "; perhaps train.batch_size"),
        (("data", "epochs"), "; perhaps train.epochs"),
        (("augment", "views", 0, "cropscale"), "; perhaps augment.views.0.crop_scale, augment.views.0.grayscale"),
        (("augment", "views", 1, "jitter", "brightnes"), "; perhaps augment.views.1.jitter.brightness"),
        (("train", "tau"), ""),
    ],
)
def test_the_nearest_key_of_the_section_comes_before_those_of_others(
    location: tuple[str | int, ...], told: str
) -> None:
    assert perhaps_key(ImageTrainConfig, location) == told


def test_keys_of_either_kind_of_data_are_known() -> None:
    assert perhaps_key(TrainConfig, ("data", "captions", "caption_colum")).startswith("; perhaps data.caption_column")
    assert perhaps_key(TrainConfig, ("data", "scenes", "cout")) == "; perhaps data.count"
    assert perhaps_key(TrainConfig, ("loss", "sourc")).startswith("; perhaps data.source, validation.data.source")
    assert {"data.count", "data.caption_column", "hard_negatives.manifest"} <= set(dotted_keys(TrainConfig))


def test_keys_that_are_told_besides_are_found_too() -> None:
    assert perhaps_key(ImageTrainConfig, ("train", "temperature"), ["method.temperature"]) == (
        "; perhaps knn.temperature, method.temperature"
    )
    assert perhaps_key(SimCLROptions, ("temprature",), prefix="method") == "; perhaps method.temperature"
    assert perhaps_key(SimCLROptions, ("epochs",), ["train.epochs"], prefix="method") == "; perhaps train.epochs"
