from __future__ import annotations

import torch

from twinlens.training.checkpoint import DualEncoderSpec, build_model
from twinlens.training.optimiser import adamw
from twinlens.training.sections.tuning import TuningConfig
from twinlens.training.tuning.rates import learning_rates


def test_each_part_learns_slower_than_the_one_above(tiny_spec: DualEncoderSpec) -> None:
    rates = learning_rates(build_model(tiny_spec), TuningConfig(layer_decay=0.5, image_rate=0.1, text_rate=2.0))
    image = ["attnpool.q_proj.weight", "layer4.0.conv1.weight", "layer3.0.conv1.weight", "layer2.0.conv1.weight"]
    image += ["layer1.0.conv1.weight", "conv1.weight"]
    for below, name in enumerate(image):
        assert rates[f"visual.{name}"] == 0.1 * 0.5**below
    assert (rates["ln_final.weight"], rates["token_embedding.weight"]) == (2.0, 2.0 * 0.25)
    assert "transformer.resblocks.0.ln_1.weight" not in rates  # 2.0 * 0.5
    assert "logit_scale" not in rates


def test_by_default_all_learn_alike(tiny_spec: DualEncoderSpec) -> None:
    assert learning_rates(build_model(tiny_spec), TuningConfig()) == {}


def test_the_optimiser_takes_each_parameter_once_at_its_rate_and_decays_matrices_alone(
    tiny_spec: DualEncoderSpec,
) -> None:
    model = build_model(tiny_spec)
    rates = learning_rates(model, TuningConfig(layer_decay=0.7, image_rate=0.3))
    optimiser = adamw(model, learning_rate=0.01, weight_decay=0.2, rates=rates)
    found = {id(p): group for group in optimiser.param_groups for p in group["params"]}
    assert optimiser.param_groups[0]["lr"] == 0.01  # what a run reports
    assert len(found) == sum(len(group["params"]) for group in optimiser.param_groups)
    for name, parameter in model.named_parameters():
        group = found[id(parameter)]
        assert group["lr"] == 0.01 * rates.get(name, 1.0), name
        assert group["weight_decay"] == (0.2 if parameter.ndim >= 2 else 0.0), name


def test_a_rate_is_kept_along_the_schedule(tiny_spec: DualEncoderSpec) -> None:
    model = build_model(tiny_spec)
    optimiser = adamw(model, learning_rate=0.01, weight_decay=0.0, rates=dict.fromkeys(["logit_scale"], 0.5))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, lambda step: 1 / (step + 1))
    optimiser.step()
    schedule.step()
    assert sorted({group["lr"] for group in optimiser.param_groups}) == [0.0025, 0.005]
