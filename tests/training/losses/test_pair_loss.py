from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError

from tests.support.pair_features import busy_batch, unit
from twinlens.training.losses.debiased import debiased_info_nce
from twinlens.training.losses.info_nce import info_nce
from twinlens.training.losses.pair_features import of_one_process
from twinlens.training.losses.pair_loss import pair_loss_of, starting_scale
from twinlens.training.losses.ranking import ranking_loss
from twinlens.training.losses.sigmoid import sigmoid_loss
from twinlens.training.sections.loss import LossConfig

NAMES = ("info_nce", "sigmoid", "debiased", "ranking")


def number(value: float) -> torch.Tensor:
    return torch.tensor(value, dtype=torch.float64, requires_grad=True)


def test_each_name_is_its_loss_with_its_settings() -> None:
    features, scale, bias = busy_batch().features, number(5.0), number(-2.0)
    expected = {
        LossConfig(): info_nce(features, scale),
        LossConfig(name="sigmoid", chunk_size=2): sigmoid_loss(features, scale, bias),
        LossConfig(name="debiased", tau_plus=0.2): debiased_info_nce(features, scale, tau_plus=0.2),
        LossConfig(name="ranking", margin=0.3): ranking_loss(features, margin=0.3),
    }
    for section, loss in expected.items():
        torch.testing.assert_close(pair_loss_of(section)(features, scale, bias), loss, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_every_parameter_gets_a_gradient_for_other_ranks_wait_for_it(name: str) -> None:
    scale, bias = number(5.0), number(-2.0)
    loss = pair_loss_of(LossConfig.model_validate({"name": name}))(busy_batch().features, scale, bias)
    assert all(gradient is not None for gradient in torch.autograd.grad(loss, (scale, bias), allow_unused=True))


@pytest.mark.parametrize("name", NAMES)
def test_a_duplicate_is_not_pushed_away_from_its_twin(name: str) -> None:
    images, texts = unit(2, 0), unit(2, 1)
    features = of_one_process(images, texts, equal=torch.ones(2, 2, dtype=torch.bool))
    loss = pair_loss_of(LossConfig.model_validate({"name": name}))(features, number(5.0), number(-2.0))
    (of_texts,) = torch.autograd.grad(loss, texts)
    # Along the twin's picture there is no more than what its own picture, at an angle to it, brings about.
    own = images.detach() * (of_texts * images.detach()).sum(1, keepdim=True)
    torch.testing.assert_close(of_texts, own, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_hard_negatives_and_weights_change_every_loss(name: str) -> None:
    busy = busy_batch().features
    plain = of_one_process(busy.images_nd, busy.texts_nd, equal=busy.equal)
    loss = pair_loss_of(LossConfig.model_validate({"name": name}))
    changes = {
        key: of_one_process(busy.images_nd, busy.texts_nd, equal=busy.equal, **{key: getattr(busy, key)})
        for key in ("hard_texts", "hard_images", "weights_n", "negative_weights")
    }
    base = loss(plain, number(5.0), number(-2.0)).item()
    changed = {key: loss(features, number(5.0), number(-2.0)).item() for key, features in changes.items()}
    assert changed["hard_texts"] > base
    assert changed["hard_images"] > base
    assert changed["weights_n"] != pytest.approx(base, rel=1e-3)
    assert changed["negative_weights"] != pytest.approx(base, rel=1e-3)


def test_a_sigmoid_starts_from_its_own_scale_and_a_bias_and_needs_one() -> None:
    assert starting_scale(LossConfig(name="sigmoid")) == pytest.approx((2.302585093, -10.0))
    assert starting_scale(LossConfig())[1] is None
    with pytest.raises(ValueError, match="needs a model with a bias"):
        pair_loss_of(LossConfig(name="sigmoid"))(busy_batch().features, number(5.0), None)


@pytest.mark.parametrize(
    ("section", "complaint"),
    [
        ({"name": "info_nce", "margin": 0.2}, "margin is for ranking, not for info_nce"),
        ({"name": "ranking", "tau_plus": 0.1}, "tau_plus is for debiased, not for ranking"),
        ({"chunk_size": 64}, "chunk_size is for sigmoid, not for info_nce"),
    ],
)
def test_a_key_of_another_loss_is_refused(section: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        LossConfig.model_validate(section)
    LossConfig.model_validate(LossConfig().model_dump())  # a recorded configuration holds all keys
