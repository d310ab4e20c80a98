from __future__ import annotations

import pytest
import torch

from twinlens.training.modules.upsampling import UpsamplingDecoder


@pytest.mark.parametrize(("side_in", "side_out"), [(4, 4), (4, 8), (2, 16), (3, 20), (7, 56), (8, 5)])
def test_predictions_have_the_asked_size_whatever_the_map(side_in: int, side_out: int) -> None:
    decoder = UpsamplingDecoder(channels_in=6, side_in=side_in, width=8, channels_out=5, side_out=side_out)
    assert decoder(torch.randn(2, 6, side_in, side_in)).shape == (2, 5, side_out, side_out)


def test_mixed_precision_takes_any_size() -> None:
    torch.manual_seed(0)
    decoder = UpsamplingDecoder(channels_in=6, side_in=3, width=8, channels_out=5, side_out=20)
    features = torch.randn(2, 6, 3, 3)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        predicted = decoder(features)
    torch.autograd.backward(predicted.float().square().sum())
    torch.testing.assert_close(predicted.float(), decoder(features), atol=0.05, rtol=0.1)


def test_a_prediction_depends_on_its_own_surroundings_only() -> None:
    torch.manual_seed(0)
    decoder = UpsamplingDecoder(channels_in=3, side_in=8, width=8, channels_out=2, side_out=16).eval()
    features = torch.randn(1, 3, 8, 8, requires_grad=True)
    torch.autograd.backward(decoder(features)[0, :, 0, 0].sum())
    assert features.grad is not None
    reached = features.grad[0].abs().sum(dim=0).nonzero()
    assert bool((reached <= 2).all())
    assert len(reached) > 0


def test_every_weight_learns() -> None:
    torch.manual_seed(0)
    decoder = UpsamplingDecoder(channels_in=3, side_in=2, width=40, channels_out=2, side_out=8)
    torch.autograd.backward(decoder(torch.randn(4, 3, 2, 2)).square().sum())
    assert all(p.grad is not None for p in decoder.parameters())
    assert decoder.predict.in_channels == 32
