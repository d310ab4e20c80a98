from __future__ import annotations

import pytest
import torch
from lightly.models.modules import heads
from torch import nn

from twinlens.training.modules.projection_head import mlp_head

PAPERS = {
    "simclr": (mlp_head([12, 12, 8], last_norm=True), heads.SimCLRProjectionHead(12, 12, 8)),
    "moco v2": (mlp_head([12, 12, 8], norm="none"), heads.MoCoProjectionHead(12, 12, 8)),
    "simsiam prediction": (mlp_head([8, 4, 8]), heads.SimSiamPredictionHead(8, 4, 8)),
    "simsiam projection": (
        mlp_head([12, 10, 10, 8], last_norm="affine-free"),
        heads.SimSiamProjectionHead(12, 10, 8),
    ),
}


@pytest.mark.parametrize("paper", PAPERS)
def test_the_papers_heads_compute_what_lightlys_do(paper: str) -> None:
    ours, theirs = PAPERS[paper]
    kinds = [type(layer) for layer in ours]
    assert kinds == [type(layer) for layer in theirs.layers]
    ours.load_state_dict(theirs.layers.state_dict())
    features = torch.randn(6, 12 if paper != "simsiam prediction" else 8, generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(ours(features), theirs(features))


def biases(head: nn.Sequential) -> list[bool]:
    return [layer.bias is not None for layer in head if isinstance(layer, nn.Linear)]


def test_a_layer_has_a_bias_where_no_batch_norm_follows() -> None:
    assert biases(mlp_head([4, 4, 4, 2])) == [False, False, True]
    assert biases(mlp_head([4, 4, 2], norm="none")) == [True, True]
    assert biases(mlp_head([4, 4, 2], last_norm=True)) == [False, False]


def test_biases_can_be_those_of_the_authors() -> None:
    assert biases(mlp_head([4, 4, 4, 2], bias=True, last_bias=False)) == [True, True, False]
    assert biases(mlp_head([4, 4, 2], norm="none", bias=False)) == [False, True]


def test_the_last_layer_has_no_rectifier() -> None:
    output = mlp_head([6, 6, 3])(torch.randn(32, 6, generator=torch.Generator().manual_seed(0)))
    assert (output < 0).any()


def test_an_affine_free_last_norm_learns_nothing_and_standardises() -> None:
    head = mlp_head([6, 6, 3], last_norm="affine-free")
    output = head(torch.randn(64, 6, generator=torch.Generator().manual_seed(0)))
    torch.testing.assert_close(output.mean(dim=0), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(output.std(dim=0, unbiased=False), torch.ones(3), atol=1e-3, rtol=0)
    assert not list(head[-1].parameters())


def test_two_sizes_make_a_linear_head() -> None:
    head = mlp_head([5, 3])
    assert [type(layer) for layer in head] == [nn.Linear]


@pytest.mark.parametrize("sizes", [[], [4], [4, 0]])
def test_a_head_without_layers_is_refused(sizes: list[int]) -> None:
    with pytest.raises(ValueError, match="two positive sizes"):
        mlp_head(sizes)
