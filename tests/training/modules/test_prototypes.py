from __future__ import annotations

import torch
from torch.nn.functional import cosine_similarity, normalize

from twinlens.training.modules.prototypes import Prototypes


def test_prototypes_start_and_return_to_unit_length_keeping_their_direction() -> None:
    torch.manual_seed(0)
    prototypes = Prototypes(6, 9)
    torch.testing.assert_close(prototypes.weight.norm(dim=1).detach(), torch.ones(9))
    before = prototypes.weight.detach().clone()
    with torch.no_grad():
        prototypes.weight.mul_(torch.linspace(0.1, 5, 9)[:, None])
    prototypes.normalise()
    torch.testing.assert_close(prototypes.weight.detach(), before)


def test_scores_are_cosines() -> None:
    torch.manual_seed(0)
    prototypes = Prototypes(6, 3)
    embeddings = normalize(torch.randn(4, 6), dim=1)
    cosines = cosine_similarity(embeddings[:, None], prototypes.weight[None], dim=2)
    torch.testing.assert_close(prototypes(embeddings), cosines)


def test_prototypes_are_learned_and_have_no_bias() -> None:
    prototypes = Prototypes(6, 3)
    assert [name for name, _ in prototypes.named_parameters()] == ["weight"]
    (gradient,) = torch.autograd.grad(prototypes(torch.ones(2, 6)).sum(), prototypes.weight)
    torch.testing.assert_close(gradient, torch.full((3, 6), 2.0))
