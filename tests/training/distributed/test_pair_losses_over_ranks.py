from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.parallel import DistributedDataParallel

from tests.support.pair_features import same
from tests.support.ranks import on_ranks
from twinlens.training.losses.batch_figures import batch_figures
from twinlens.training.losses.pair_features import HardNegatives, PairFeatures
from twinlens.training.losses.pair_loss import pair_loss_of
from twinlens.training.modules.gather import gather_with_gradients, own_rows, world_size
from twinlens.training.sections.loss import LossConfig

N, EXTRAS, RANKS = 8, 4, 2
SECTIONS = {
    "info_nce": LossConfig(),
    "sigmoid": LossConfig(name="sigmoid", chunk_size=3),
    "debiased": LossConfig(name="debiased", tau_plus=0.1),
    "ranking": LossConfig(name="ranking", margin=0.5),
}


class Pair(nn.Module):
    """The least of dual encoders: a matrix a tower."""

    def __init__(self, section: LossConfig) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(6, 5), nn.Linear(4, 5)
        self.scale, self.bias = nn.Parameter(torch.tensor(4.0)), nn.Parameter(torch.tensor(-1.0))
        self.loss = pair_loss_of(section)

    def forward(self, rows: slice, extras: slice) -> tuple[Tensor, dict[str, Tensor]]:
        """The loss of these pairs, with these extra captions and pictures; all ranks' rows together are the batch."""
        generator = torch.Generator().manual_seed(1)

        def drawn(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator, dtype=torch.float64)

        pictures, captions = drawn(N, 6) - 0.5, drawn(N, 4) - 0.5
        more_pictures, more_captions = drawn(EXTRAS, 6) - 0.5, drawn(EXTRAS, 4) - 0.5
        images, texts = normalize(self.image(pictures[rows]), dim=1), normalize(self.text(captions[rows]), dim=1)
        hard_images = gather_with_gradients(normalize(self.image(more_pictures[extras]), dim=1))
        hard_texts = gather_with_gradients(normalize(self.text(more_captions[extras]), dim=1))
        features = PairFeatures(
            images,
            texts,
            gather_with_gradients(images),
            gather_with_gradients(texts),
            first=range(N)[rows].start,
            # Twins within a rank, and across ranks.
            equal=same(torch.tensor([0, 0, 2, 3, 4, 5, 3, 7]))[rows],
            hard_texts=HardNegatives(hard_texts, drawn(N, EXTRAS)[rows]),
            hard_images=HardNegatives(hard_images, 2 * drawn(N, EXTRAS)[rows]),
            weights_n=drawn(N)[rows],
            negative_weights=drawn(N, N)[rows],
        )
        figures = batch_figures(features, self.scale)
        return self.loss(features, self.scale, self.bias), {name: value.double() for name, value in figures.items()}


Found = tuple[Tensor, dict[str, Tensor], dict[str, Tensor]]


def found_by(module: nn.Module, rows: slice, extras: slice) -> Found:
    loss, figures = module(rows, extras)
    torch.autograd.backward(loss)
    gradients = {name.removeprefix("module."): p.grad for name, p in module.named_parameters() if p.grad is not None}
    return loss.detach(), figures, gradients


def pair(name: str) -> Pair:
    torch.manual_seed(0)
    return Pair(SECTIONS[name]).double()


def on_one_rank() -> dict[str, Found]:
    own, extra = own_rows(N // world_size()), own_rows(EXTRAS // world_size())
    return {name: found_by(DistributedDataParallel(pair(name)), own, extra) for name in SECTIONS}


@pytest.fixture(scope="module")
def of_ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Found]]:
    return on_ranks(on_one_rank, tmp_path_factory.mktemp("ranks"), ranks=RANKS)


@pytest.mark.parametrize("name", SECTIONS)
def test_loss_figures_and_every_gradient_over_ranks_are_those_of_one_big_batch(
    name: str, of_ranks: list[dict[str, Found]]
) -> None:
    loss, figures, gradients = found_by(pair(name), slice(0, N), slice(0, EXTRAS))
    results = [result[name] for result in of_ranks]
    torch.testing.assert_close(torch.stack([result[0] for result in results]).mean(), loss, rtol=1e-10, atol=1e-12)
    for key, value in figures.items():
        torch.testing.assert_close(torch.stack([result[1][key] for result in results]).mean(), value)
    assert len(gradients) == 6
    assert all(gradients[of].any() for of in ("image.weight", "image.bias", "text.weight", "text.bias"))
    for _, _, found in results:
        torch.testing.assert_close(found, gradients, rtol=1e-9, atol=1e-12)
