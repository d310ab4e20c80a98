from __future__ import annotations

import torch

from twinlens.training.modules.centre import Centre


def test_the_centre_is_the_moving_average_of_batch_means() -> None:
    torch.manual_seed(0)
    batches = torch.randn(5, 8, 3)
    centre = Centre(3, momentum=0.8)
    expected = torch.zeros(3)
    for batch in batches:
        centre.update(batch)
        expected = 0.8 * expected + 0.2 * batch.mean(dim=0)
    torch.testing.assert_close(centre.value, expected)


def test_the_centre_comes_to_a_constant_output() -> None:
    centre = Centre(2, momentum=0.9)
    for _ in range(200):
        centre.update(torch.tensor([[3.0, -1.0]] * 4))
    torch.testing.assert_close(centre.value, torch.tensor([3.0, -1.0]))


def test_the_centre_is_kept_in_checkpoints_and_is_nothing_to_train() -> None:
    centre = Centre(2)
    centre.update(torch.ones(3, 2, requires_grad=True))
    other = Centre(2)
    other.load_state_dict(centre.state_dict())
    torch.testing.assert_close(other.value, torch.tensor([0.1, 0.1]))
    assert not list(centre.parameters())
    assert not centre.value.requires_grad
