"""Fine-tuning on a few pictures: what it is given, what it may touch, that it learns."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.evaluation import low_shot as module
from twinlens.training.evaluation.labelled import Labelled
from twinlens.training.evaluation.low_shot import FineTuning, low_shot

SPEC = PreprocessSpec(size=16, resize_size=16, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))
QUICK = FineTuning(epochs=1, least_steps=30, learning_rate=3e-3)
SHORT = FineTuning(epochs=1, least_steps=5, learning_rate=3e-3)


def stripes(count: int, seed: int) -> Labelled:
    """Lying and standing stripes of any colour and place: a network of random filters hardly tells them apart."""
    rng = np.random.default_rng(seed)
    labels = np.arange(count) % 2
    wave = np.sin(np.arange(16)[None, :] * 1.6 + rng.uniform(0, 6, (count, 1)))[:, :, None] * np.ones((1, 1, 16))
    wave = np.where(labels[:, None, None] == 0, wave, wave.transpose(0, 2, 1))
    colours = rng.uniform(-40, 40, (count, 1, 1, 3))
    pixels = 128 + colours * wave[..., None] + rng.normal(0, 25, (count, 16, 16, 3))
    names = tuple(str(i) for i in range(count))
    return Labelled(pixels.clip(0, 255).astype(np.uint8), labels.astype(np.int64), ("lying", "standing"), names)


def network() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3, stride=2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )


def test_fine_tuning_beats_the_frozen_encoder() -> None:
    train, test = stripes(200, 0), stripes(100, 1)
    found = low_shot(network(), train, test, SPEC, 0.5, tuning=FineTuning(epochs=1, least_steps=80, learning_rate=1e-2))
    assert found.pictures == 100
    assert found.accuracy > max(0.8, found.linear_accuracy)


def test_the_encoder_is_left_as_it_was_and_the_result_repeats() -> None:
    net = network().train()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    first = low_shot(net, stripes(60, 0), stripes(20, 1), SPEC, 0.5, tuning=SHORT)
    for name, value in net.state_dict().items():
        torch.testing.assert_close(value, before[name], rtol=0, atol=0)
    assert net.training
    assert first == low_shot(net, stripes(60, 0), stripes(20, 1), SPEC, 0.5, tuning=SHORT)


def test_a_frozen_encoder_is_trained_all_the_same() -> None:
    net = network()
    for parameter in net.parameters():
        parameter.requires_grad = False
    free, frozen = network(), net
    data = (stripes(60, 0), stripes(20, 1), SPEC, 0.5)
    assert low_shot(frozen, *data, tuning=SHORT) == low_shot(free, *data, tuning=SHORT)


def test_fine_tuning_starts_where_the_linear_probe_of_the_same_pictures_ends() -> None:
    nothing = FineTuning(epochs=1, least_steps=1, learning_rate=1e-12, weight_decay=0.0, batch_size=16)
    trained = network()
    trained(torch.randn(64, 3, 16, 16))
    found = low_shot(trained, stripes(60, 0), stripes(40, 1), SPEC, 0.3, tuning=nothing)
    assert found.accuracy == found.linear_accuracy


def test_one_picture_a_class_is_enough_to_run() -> None:
    seen: list[float] = []
    found = low_shot(
        network(), stripes(40, 0), stripes(10, 1), SPEC, 0.01, tuning=QUICK, progress=lambda step, _: seen.append(step)
    )
    assert found.pictures == 2
    assert seen[-1] == 30


def test_an_encoder_that_was_never_trained_is_tuned_on_few_pictures_too() -> None:
    """Its filters are so small that nothing is left of a picture unless batch norm makes it large again."""
    torch.manual_seed(0)
    parts: list[nn.Module] = []
    for inputs, stride in ((3, 1), (8, 2), (8, 1)):
        filters = nn.Conv2d(inputs, 8, 3, stride=stride, bias=False)
        nn.init.normal_(filters.weight, std=1e-3)
        parts += [filters, nn.BatchNorm2d(8), nn.ReLU()]
    net = nn.Sequential(*parts, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    how = FineTuning(epochs=1, least_steps=40, learning_rate=1e-2)
    found = low_shot(net, stripes(24, 0), stripes(60, 1), SPEC, 1.0, tuning=how)
    assert found.linear_accuracy > 0.5  # equal features score nothing
    assert found.accuracy > 0.7
    assert int(net[1].num_batches_tracked) == 0  # type: ignore[arg-type]


def test_few_pictures_do_not_move_the_statistics_of_the_long_training() -> None:
    trained = network()
    trained(torch.randn(64, 3, 16, 16))
    before = trained[1].running_mean.clone()  # type: ignore[operator]
    module._take_first_statistics(trained, stripes(8, 0).pixels_nhwc, SPEC)
    model = nn.Sequential(trained, nn.Linear(8, 2))
    module._fine_tune(model, stripes(8, 0), SPEC, SHORT, 0, lambda *_: None)
    torch.testing.assert_close(trained[1].running_mean, before)
    module._fine_tune(model, stripes(64, 0), SPEC, SHORT, 0, lambda *_: None)
    assert not torch.equal(trained[1].running_mean, before)  # type: ignore[arg-type]
