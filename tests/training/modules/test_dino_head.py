from __future__ import annotations

import pytest
import torch
from lightly.models.modules import DINOProjectionHead
from torch import nn

from twinlens.training.modules.dino_head import DinoHead


def head(**options: object) -> DinoHead:
    torch.manual_seed(0)
    return DinoHead(6, 10, hidden=8, bottleneck=4, **options)  # type: ignore[arg-type]


def test_outputs_are_cosines_with_the_last_layers_rows() -> None:
    ours = head()
    features = torch.randn(5, 6)
    embeddings = ours.embed(features)
    torch.testing.assert_close(embeddings.norm(dim=1), torch.ones(5))
    cosines = nn.functional.cosine_similarity(embeddings[:, None], ours.last[None], dim=2)
    torch.testing.assert_close(ours(features), cosines)


@pytest.mark.parametrize("batch_norm", [False, True])
def test_outputs_equal_lightlys_with_the_same_weights(batch_norm: bool) -> None:
    ours = head(norm="batch" if batch_norm else "none")
    with pytest.warns(FutureWarning, match="weight_norm"):
        theirs = DINOProjectionHead(6, 8, 4, 10, batch_norm=batch_norm)
    linear = [layer for layer in ours.perceptron if isinstance(layer, nn.Linear)]
    reference = [layer for layer in theirs.layers if isinstance(layer, nn.Linear)]
    with torch.no_grad():
        # Where a batch norm follows, lightly has no bias and neither matters.
        for mine, other in zip(linear, reference, strict=True):
            other.weight.copy_(mine.weight)
        theirs.last_layer.weight_v.copy_(ours.last)
    features = torch.randn(7, 6)
    torch.testing.assert_close(ours(features), theirs(features))


def test_the_length_of_the_last_layers_rows_is_trained_only_when_asked_for() -> None:
    assert not head().gain.requires_grad
    assert head(train_gain=True).gain.requires_grad
    torch.testing.assert_close(head().gain.detach(), torch.ones(10, 1))


def test_without_batch_norm_a_picture_does_not_depend_on_its_batch() -> None:
    features = torch.randn(5, 6)
    plain, normed = head(), head(norm="batch")
    torch.testing.assert_close(plain(features)[:2], plain(features[:2]))
    assert not torch.allclose(normed(features)[:2], normed(features[:2]))
