from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tests.training.conftest import SIZE
from twinlens.encoders.preprocess import preprocess
from twinlens.training.checkpoint import DualEncoderSpec, build_model
from twinlens.training.data.batches import PairBatches
from twinlens.training.data.pairs import from_scenes, tokenise
from twinlens.training.data.scenes import make_scene
from twinlens.training.losses.info_nce import info_nce
from twinlens.training.losses.pair_features import HardNegatives, of_one_process
from twinlens.training.losses.pair_loss import pair_loss_of
from twinlens.training.methods.clip import Clip
from twinlens.training.modules.dual_encoder import MAX_LOG_SCALE, DualEncoder
from twinlens.training.modules.momentum import warmed_up_momentum
from twinlens.training.optimiser import Schedule, adamw
from twinlens.training.pair_augment import train_views
from twinlens.training.sections.augment import PairAugmentConfig
from twinlens.training.sections.loss import LossConfig

INFO_NCE = pair_loss_of(LossConfig())


@pytest.fixture
def towers(tiny_spec: DualEncoderSpec) -> DualEncoder:
    torch.manual_seed(0)
    return DualEncoder(build_model(tiny_spec).eval(), tiny_spec.preprocess.mean, tiny_spec.preprocess.std)


def test_towers_give_unit_vectors_of_bytes_and_ids(towers: DualEncoder, tiny_spec: DualEncoderSpec) -> None:
    pixels = np.asarray(make_scene(1, 0, SIZE).image)
    ours = towers.images(torch.from_numpy(pixels.copy())[None])
    wanted = torch.from_numpy(preprocess(pixels, tiny_spec.preprocess))[None]
    theirs = towers.model.encode_image(wanted, normalize=True)  # type: ignore[operator]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)
    assert ours.norm(dim=1).item() == pytest.approx(1, abs=1e-5)


def test_the_temperature_stays_within_clips_bounds(towers: DualEncoder) -> None:
    scale: torch.nn.Parameter = towers.model.logit_scale  # type: ignore[assignment]
    scale.data.fill_(9.0)
    towers.clamp_scale()
    assert towers.scale().item() == pytest.approx(100.0, rel=1e-5)
    assert scale.item() == pytest.approx(MAX_LOG_SCALE)
    scale.data.fill_(-3.0)
    towers.clamp_scale()
    assert towers.scale().item() == 1.0


def test_the_scale_of_a_model_with_a_bias_has_no_upper_bound(tiny_spec: DualEncoderSpec) -> None:
    spec = dataclasses.replace(tiny_spec, model_cfg={**tiny_spec.model_cfg, "init_logit_bias": -10.0})
    siglip = DualEncoder(build_model(spec), tiny_spec.preprocess.mean, tiny_spec.preprocess.std)
    scale: torch.nn.Parameter = siglip.model.logit_scale  # type: ignore[assignment]
    for log_scale, kept in ((math.log(117.0), 117.0), (-3.0, 1.0)):
        scale.data.fill_(log_scale)
        siglip.clamp_scale()
        assert siglip.scale().item() == pytest.approx(kept, rel=1e-5)


def test_the_rate_warms_up_then_falls_to_nothing() -> None:
    schedule = Schedule(steps=100, warmup_steps=10)
    rates = [schedule.factor(step) for step in range(101)]
    assert rates[0] == pytest.approx(0.1)
    assert rates[9] == rates[10] == 1.0
    assert rates[55] == pytest.approx(0.5)
    assert rates[100] == pytest.approx(0.0, abs=1e-12)
    assert rates[10:] == sorted(rates[10:], reverse=True)


def test_gains_biases_and_temperature_are_not_decayed(towers: DualEncoder) -> None:
    decayed, free = adamw(towers, learning_rate=1.0, weight_decay=0.5).param_groups
    assert (decayed["weight_decay"], free["weight_decay"]) == (0.5, 0.0)
    assert all(p.ndim >= 2 for p in decayed["params"])
    assert any(p is towers.model.logit_scale for p in free["params"])
    assert len(decayed["params"]) + len(free["params"]) == len(list(towers.parameters()))


def test_a_method_names_its_losses(towers: DualEncoder, pair_batch: Callable[[int], Any]) -> None:
    method = Clip(towers, INFO_NCE, learning_rate=1e-3, weight_decay=0.0, schedule=Schedule(10, 1))
    values = method.training_step(pair_batch(8), 0)
    assert set(values) >= {"loss", "accuracy", "scale", "temperature", "bound"}
    assert values["loss"].requires_grad
    assert 0 <= values["accuracy"] <= 1
    assert method.exported() is towers.model


def test_mined_negatives_count_with_their_weight(towers: DualEncoder, pair_batch: Callable[[int], Any]) -> None:
    whole = pair_batch(12)
    batch = dataclasses.replace(whole, pairs=8)  # the last four stand in as negatives only
    batch = dataclasses.replace(batch, equal_texts=whole.equal_texts[:8], equal_images=whole.equal_images[:8])
    plain = dataclasses.replace(
        batch,
        pixels_nhwc=whole.pixels_nhwc[:8],
        token_ids_nl=whole.token_ids_nl[:8],
        equal_texts=whole.equal_texts[:8, :8],
        equal_images=whole.equal_images[:8, :8],
    )

    def loss(of: Any, weight: float) -> float:
        method = Clip(
            towers.eval(),
            INFO_NCE,
            learning_rate=1e-3,
            weight_decay=0.0,
            schedule=Schedule(10, 1),
            hard_weight=weight,
        )
        return float(method.training_step(of, 0)["loss"].detach())

    assert loss(batch, 1e-12) == pytest.approx(loss(plain, 1.0), rel=1e-5)
    assert loss(plain, 1.0) < loss(batch, 0.5) < loss(batch, 1.0) < loss(batch, 4.0)


def test_an_extra_counts_for_the_pairs_that_it_is_weighed_for(
    towers: DualEncoder, pair_batch: Callable[[int], Any]
) -> None:
    whole = pair_batch(12)
    equal = torch.eye(8, 12, dtype=torch.bool)
    batch = dataclasses.replace(whole, pairs=8, equal_texts=equal, equal_images=equal)  # four extras of both kinds
    weights = torch.rand(2, 8, 4, generator=torch.Generator().manual_seed(0)).round()
    confined = dataclasses.replace(batch, extra_text_weights=weights[0], extra_image_weights=weights[1])
    method = Clip(towers.eval(), INFO_NCE, learning_rate=1e-3, weight_decay=0.0, schedule=Schedule(10, 1))
    with torch.no_grad():
        images, texts = towers.images(batch.pixels_nhwc), towers.texts(batch.token_ids_nl)
    features = of_one_process(
        images[:8],
        texts[:8],
        hard_texts=HardNegatives(texts[8:], weights[0]),
        hard_images=HardNegatives(images[8:], weights[1]),
    )
    loss = method.training_step(confined, 0)["loss"]
    torch.testing.assert_close(loss.detach(), info_nce(features, towers.scale()).detach(), rtol=1e-5, atol=1e-6)
    assert method.training_step(batch, 0)["loss"] > loss


def test_losses_stay_in_fp32_where_the_towers_compute_in_bfloat16(
    towers: DualEncoder, pair_batch: Callable[[int], Any]
) -> None:
    scale: torch.nn.Parameter = towers.model.logit_scale  # type: ignore[assignment]
    scale.data.fill_(MAX_LOG_SCALE)
    batch = pair_batch(16)
    method = Clip(towers.eval(), INFO_NCE, learning_rate=1e-3, weight_decay=0.0, schedule=Schedule(10, 1))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = method.training_step(batch, 0)["loss"]
        images, texts = towers.images(batch.pixels_nhwc), towers.texts(batch.token_ids_nl)
    expected = info_nce(of_one_process(images, texts, equal=batch.equal_texts), towers.scale())
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture
def pair_batch(tiny_spec: DualEncoderSpec) -> Callable[[int], Any]:
    scenes = from_scenes([make_scene(3, index, SIZE) for index in range(32)])
    pairs = tokenise(scenes, tiny_spec.tokenizer_json, tiny_spec.text)
    return lambda size: next(iter(PairBatches(pairs, size, seed=0)))


def test_views_take_the_place_of_the_stored_pictures(towers: DualEncoder, tiny_spec: DualEncoderSpec) -> None:
    raw = from_scenes([make_scene(1, number, SIZE) for number in range(6)])
    batch = next(iter(PairBatches(tokenise(raw, tiny_spec.tokenizer_json, tiny_spec.text), 4, seed=0, start=3)))
    method = Clip(towers, INFO_NCE, learning_rate=1e-3, weight_decay=0.0, schedule=Schedule(10, 1))
    views = train_views(PairAugmentConfig(), tiny_spec.preprocess, seed=5)
    assert views is not None
    (expected,) = views(batch.pixels_nhwc, 3)
    shown = dataclasses.replace(batch, pixels_nhwc=expected.permute(0, 2, 3, 1))
    wanted = method.training_step(shown, 0)["loss"].item()
    plain = method.training_step(batch, 0)["loss"].item()
    method.augmenter = views
    assert method.training_step(batch, 0)["loss"].item() == wanted != plain


VIT = {"image_size": SIZE, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16}


def vision_transformer(tiny_spec: DualEncoderSpec) -> DualEncoder:
    """Towers that normalise nothing over a batch."""
    torch.manual_seed(0)
    spec = dataclasses.replace(tiny_spec, model_cfg={**tiny_spec.model_cfg, "vision_cfg": VIT})
    return DualEncoder(build_model(spec), spec.preprocess.mean, spec.preprocess.std)


def stepped(towers: DualEncoder, batch: Any, chunk_size: int | None) -> list[torch.Tensor]:
    method = Clip(
        towers, INFO_NCE, learning_rate=1e-3, weight_decay=0.0, schedule=Schedule(10, 1), chunk_size=chunk_size
    )
    towers.zero_grad()
    loss = method.training_step(batch, 0)["loss"]
    torch.autograd.backward(loss)
    return [loss.detach(), *(p.grad.clone() for p in towers.parameters() if p.grad is not None)]


def test_eight_chunks_equal_one_big_batch(tiny_spec: DualEncoderSpec, pair_batch: Callable[[int], Any]) -> None:
    towers, batch = vision_transformer(tiny_spec), pair_batch(32)
    whole = stepped(towers, batch, None)
    assert len(whole) == 1 + len(list(towers.parameters()))
    torch.testing.assert_close(stepped(towers, batch, 4), whole, rtol=1e-5, atol=1e-5)


def test_with_chunks_the_graph_keeps_pictures_captions_and_their_vectors_only(
    tiny_spec: DualEncoderSpec, pair_batch: Callable[[int], Any]
) -> None:
    """What the towers keep for the backward pass is there for one chunk at a time: see `encode_in_chunks`."""
    batch = pair_batch(32)
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    def bytes_kept(chunk_size: int | None) -> int:
        kept.clear()
        method = Clip(
            vision_transformer(tiny_spec),
            INFO_NCE,
            learning_rate=1e-3,
            weight_decay=0.0,
            schedule=Schedule(10, 1),
            chunk_size=chunk_size,
        )
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            values = method.training_step(batch, 0)
        assert values["loss"].requires_grad
        return sum(kept.values())

    inputs = batch.pixels_nhwc.nbytes + batch.token_ids_nl.nbytes
    assert bytes_kept(4) < inputs + 32 * 1024
    assert bytes_kept(None) > 8 * bytes_kept(4)


def test_the_average_follows_the_weights_and_is_what_a_checkpoint_keeps(
    tiny_spec: DualEncoderSpec, pair_batch: Callable[[int], Any]
) -> None:
    towers = vision_transformer(tiny_spec)
    method = Clip(towers, INFO_NCE, learning_rate=1e-3, weight_decay=0.0, schedule=Schedule(10, 1), ema_decay=0.5)
    assert method.average is not None
    average = {name: value.clone() for name, value in towers.model.state_dict().items()}
    for step in range(4):
        with torch.no_grad():
            for parameter in towers.parameters():
                parameter.add_(0.1)
        momentum = min(0.5, (1 + step) / (10 + step))
        method.average.follow(towers, warmed_up_momentum(0.5, step))
        for name, value in towers.model.state_dict().items():
            if value.is_floating_point():
                average[name] = momentum * average[name] + (1 - momentum) * value
    exported = method.exported().state_dict()
    assert exported.keys() == average.keys()
    torch.testing.assert_close(exported, average, rtol=1e-5, atol=1e-6)
    assert method.trained() is not towers
    assert not method.average.training
    assert all(parameter is not other for parameter in towers.parameters() for other in method.average.parameters())
