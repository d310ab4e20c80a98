"""`[augment]` of a dual encoder: what is stored, what a step is shown."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
import torch

from tests.training.augment.test_augmenter import pictures
from tests.training.test_clip_run import config, run, same
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.config import read_config
from twinlens.training.errors import ConfigError
from twinlens.training.interruption import RunInterrupted
from twinlens.training.pair_augment import stored_preprocess, train_views
from twinlens.training.ranks import Ranks
from twinlens.training.sections.augment import PairAugmentConfig

SPEC = PreprocessSpec(size=64, resize_size=72, mean=(0.5, 0.4, 0.3), std=(0.2, 0.25, 0.3))


def test_without_the_section_pictures_are_stored_as_the_tower_takes_them() -> None:
    assert stored_preprocess(None, SPEC) is SPEC
    assert train_views(None, SPEC, seed=0) is None


def test_with_it_the_same_part_of_a_picture_is_stored_larger() -> None:
    stored = stored_preprocess(PairAugmentConfig(), SPEC)
    assert (stored.size, stored.resize_size) == (96, 108)
    assert stored_preprocess(PairAugmentConfig(side=80), SPEC).size == 80
    with pytest.raises(ConfigError, match=r"augment\.side: 32 is smaller than the pictures of 64"):
        stored_preprocess(PairAugmentConfig(side=32), SPEC)


def test_crops_are_those_of_open_clips_trainer() -> None:
    (view,) = PairAugmentConfig().recipe(64, "bicubic").resolved()
    assert (view.side, view.interpolation, view.crop_scale, view.crop_ratio) == (
        64,
        "bicubic",
        (0.9, 1.0),
        (0.75, 4 / 3),
    )
    assert (view.flip, view.jitter, view.grayscale, view.blur, view.solarize) == (0.0, None, 0.0, None, None)


def test_a_view_is_drawn_from_the_seed_and_the_number_of_the_batch() -> None:
    stored = pictures(6, 96)
    (first,), (again,) = (train_views(PairAugmentConfig(), SPEC, seed=3)(stored, 5) for _ in range(2))  # type: ignore[misc]
    assert first.shape == (6, 3, 64, 64)
    torch.testing.assert_close(first, again, rtol=0, atol=0)
    for seed, number in ((3, 6), (4, 5)):
        (other,) = train_views(PairAugmentConfig(), SPEC, seed=seed)(stored, number)  # type: ignore[misc]
        assert not torch.equal(first, other)


def test_ranks_draw_what_one_process_draws_for_the_whole_batch() -> None:
    stored = pictures(6, 96)
    (whole,) = train_views(PairAugmentConfig(), SPEC, seed=3)(stored, 5)  # type: ignore[misc]
    parts = []
    for rank in range(2):
        views = train_views(PairAugmentConfig(), SPEC, seed=3, ranks=Ranks(rank=rank, world_size=2))
        assert views is not None
        parts += views(stored[3 * rank : 3 * rank + 3], 5)
    torch.testing.assert_close(torch.cat(parts), whole, rtol=0, atol=1e-6)


def test_a_range_that_cannot_be_is_told_by_its_section(tmp_path: Path) -> None:
    file = tmp_path / "clip.toml"
    file.write_text('[data]\nsource = "scenes"\n[model]\nopen_clip = "RN50"\n[augment]\ncrop_scale = [0.9, 0.1]\n')
    with pytest.raises(ConfigError, match=r"augment: .*crop_scale must be a rising pair"):
        read_config(file)


def test_an_interrupted_run_sees_the_views_that_it_would_have_seen(tmp_path: Path) -> None:
    settings = config().model_copy(update={"augment": PairAugmentConfig(crop_scale=(0.5, 1.0))})
    run(settings, tmp_path / "whole")
    with pytest.raises(RunInterrupted):
        run(settings, tmp_path / "cut", lambda step: signal.raise_signal(signal.SIGTERM) if step == 2 else None)
    run(settings, tmp_path / "cut", resume=True)
    assert same(tmp_path / "cut", tmp_path / "whole")
    run(config(), tmp_path / "plain")
    assert not same(tmp_path / "plain", tmp_path / "whole")
