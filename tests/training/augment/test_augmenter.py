"""The views of a batch: exact, batched, repeatable."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor

from tests.training.augment.test_draws import PHOTO
from tests.training.augment.test_recipe import shipped
from twinlens.training.augment.augmenter import Augmenter, Mode
from twinlens.training.augment.batched import augment_batched
from twinlens.training.augment.draws import draw
from twinlens.training.augment.exact import augment_exact
from twinlens.training.augment.recipe import AugmentRecipe
from twinlens.training.data.picture_sources import load_pictures

MODES: tuple[Mode, ...] = ("batched", "exact")
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def pictures(count: int, side: int, seed: int = 0) -> Tensor:
    """Smooth uint8 pictures (n, side, side, 3): noise at an eighth of the side, enlarged."""
    generator = torch.Generator().manual_seed(seed)
    coarse = torch.rand(count, 3, max(2, side // 8), max(2, side // 8), generator=generator)
    smooth = torch.nn.functional.interpolate(coarse, size=(side, side), mode="bilinear")
    return smooth.mul(255).to(torch.uint8).permute(0, 2, 3, 1).contiguous()


@pytest.mark.parametrize("interpolation", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("source", "size"), [(32, 32), (48, 32), (40, 24)])
def test_a_batch_is_augmented_as_torchvision_augments_each_picture(interpolation: str, source: int, size: int) -> None:
    recipe = AugmentRecipe.model_validate({"size": size, "interpolation": interpolation, "views": [PHOTO.model_dump()]})
    view = recipe.resolved()[0]
    draws = draw(view, 96, source, torch.Generator().manual_seed(7))
    assert (draws.jittered & draws.gray & (draws.sigmas > 0)).any()
    pixels = pictures(96, source).permute(0, 3, 1, 2).float() / 255
    made = augment_batched(pixels.transpose(1, 2).contiguous(), view, draws).transpose(1, 2)
    wanted = augment_exact(pixels, view, draws)
    # A pixel within a rounding error of the threshold may be solarised by one and not by the other.
    solarised = draws.solarized[:, None, None, None] & ((wanted - 0.5).abs() < 1e-5)
    torch.testing.assert_close(made.where(~solarised, wanted), wanted, rtol=0, atol=1e-5)


def test_rounding_is_all_that_parts_the_batched_way_from_the_papers_uint8_pictures() -> None:
    recipe = shipped("moco", 64)
    batch = pictures(32, 64)
    batched = Augmenter(recipe, (0.0,) * 3, (1.0,) * 3, seed=1)(batch, 0)
    exact = Augmenter(recipe, (0.0,) * 3, (1.0,) * 3, seed=1, mode="exact")(batch, 0)
    for ours, theirs in zip(batched, exact, strict=True):
        # torchvision cuts a uint8 picture off after each operation on its colours: up to 1/255 each.
        assert float((ours - theirs).abs().mean()) < 3 / 255
        assert float((ours - theirs).mean()) >= 0


@pytest.mark.shared
@pytest.mark.parametrize(("method", "size"), [("simclr", 32), ("simclr", 64), ("byol", 64), ("dino", 64)])
def test_real_photos_are_augmented_as_torchvision_augments_them(shared_data: Path, method: str, size: int) -> None:
    side = size if size <= 32 else size * 3 // 2
    photos = load_pictures(shared_data / "clothing10", side=side, smallest=size, limit=48).pixels_nhwc
    batch = torch.from_numpy(photos)
    recipe = shipped(method, size)
    batched, exact = (Augmenter(recipe, (0.0,) * 3, (1.0,) * 3, 0, mode)(batch, 0) for mode in MODES)
    for ours, theirs in zip(batched, exact, strict=True):
        apart = (ours - theirs).abs()
        # Up to a unit of 255 for each operation on the colours; a pixel at the threshold may be solarised by one alone.
        assert float((apart < 8 / 255).double().mean()) > 0.999
        assert float(apart.mean()) < 2 / 255


@pytest.mark.parametrize("mode", MODES)
def test_views_are_normalised_float32_in_channels_last_memory(mode: Mode) -> None:
    recipe = shipped("swav", 32)
    batch = pictures(4, 40)
    before = batch.clone()
    views = Augmenter(recipe, MEAN, STD, seed=0, mode=mode)(batch, 3)
    plain = Augmenter(recipe, (0.0,) * 3, (1.0,) * 3, seed=0, mode=mode)(batch, 3)
    assert torch.equal(batch, before)
    assert [tuple(view.shape) for view in views] == [(4, 3, 32, 32)] * 2 + [(4, 3, 16, 16)] * 6
    for view, as_seen in zip(views, plain, strict=True):
        assert view.dtype == torch.float32
        assert view.is_contiguous(memory_format=torch.channels_last)
        assert float(as_seen.min()) >= 0
        assert float(as_seen.max()) <= 1 + 1e-6
        wanted = (as_seen - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[:, None, None]
        torch.testing.assert_close(view, wanted)


def test_a_batch_depends_on_the_seed_and_its_number_alone() -> None:
    recipe = shipped("simclr", 32)
    batch = pictures(6, 32)
    whole_run = Augmenter(recipe, MEAN, STD, seed=5)
    whole_run(batch, 0)
    torch.manual_seed(99)
    after_other_batches = whole_run(batch, 1)
    resumed = Augmenter(recipe, MEAN, STD, seed=5)(batch, 1)
    for one, other in zip(after_other_batches, resumed, strict=True):
        assert torch.equal(one, other)
    for changed in (Augmenter(recipe, MEAN, STD, seed=6)(batch, 1), whole_run(batch, 2)):
        assert not torch.equal(changed[0], resumed[0])
    assert not torch.equal(resumed[0], resumed[1])


def test_augmentation_leaves_the_global_random_state_alone() -> None:
    before = torch.random.get_rng_state()
    Augmenter(shipped("byol", 32), MEAN, STD, seed=0)(pictures(4, 32), 0)
    assert torch.equal(torch.random.get_rng_state(), before)


def test_two_ranks_see_what_one_would_see_of_the_whole_batch() -> None:
    recipe = shipped("simclr", 32)
    batch = pictures(8, 32)
    whole = Augmenter(recipe, MEAN, STD, seed=2)(batch, 4)
    for rank in range(2):
        part = Augmenter(recipe, MEAN, STD, seed=2, rank=rank, world_size=2)(batch[rank * 4 : rank * 4 + 4], 4)
        for view, mine in zip(whole, part, strict=True):
            torch.testing.assert_close(mine, view[rank * 4 : rank * 4 + 4], rtol=0, atol=1e-5)


def test_large_batches_are_augmented_in_parts_with_the_same_views(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = shipped("byol", 64)
    batch = pictures(7, 64)
    whole = Augmenter(recipe, MEAN, STD, seed=2)(batch, 0)
    monkeypatch.setattr("twinlens.training.augment.augmenter._CHUNK_BYTES", 3 * 64 * 64 * 3 * 4)
    for view, in_parts in zip(whole, Augmenter(recipe, MEAN, STD, seed=2)(batch, 0), strict=True):
        torch.testing.assert_close(in_parts, view, rtol=0, atol=1e-5)


def test_autocast_does_not_reach_into_the_pixels() -> None:
    augmenter = Augmenter(shipped("simclr", 64), MEAN, STD, seed=0)
    batch = pictures(4, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = augmenter(batch, 0)
    assert torch.equal(inside[0], augmenter(batch, 0)[0])


def test_a_plain_recipe_gives_the_pictures_themselves() -> None:
    batch = pictures(3, 32)
    (view,) = Augmenter(shipped("random", 32), (0.0,) * 3, (1.0,) * 3, seed=0)(batch, 0)
    torch.testing.assert_close(view, batch.permute(0, 3, 1, 2) / 255)


@pytest.mark.gpu
def test_a_gpu_gives_the_views_of_the_cpu() -> None:
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    batch = pictures(32, 48)
    augmenter = Augmenter(shipped("dino", 64), MEAN, STD, seed=3)
    for here, there in zip(augmenter(batch, 0), augmenter(batch.cuda(), 0), strict=True):
        near = (here - there.cpu()).abs() < 1e-3
        assert float(near.double().mean()) > 0.9999  # but for pixels at the threshold of solarisation
