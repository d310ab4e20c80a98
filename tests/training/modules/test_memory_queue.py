from __future__ import annotations

from collections import deque

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from twinlens.training.losses.queue_info_nce import queue_info_nce
from twinlens.training.modules.memory_queue import MemoryQueue, check_queue_size


def keys(rows: int, seed: int, dimension: int = 3) -> Tensor:
    return torch.randn(rows, dimension, generator=torch.Generator().manual_seed(seed))


def as_rows(queue: Tensor) -> set[tuple[float, ...]]:
    return {tuple(row) for row in queue.tolist()}


@pytest.mark.parametrize("batch", [1, 2, 3, 4, 5, 8])  # with 8 keys: divides, wraps within a batch, fills it all
def test_it_always_holds_the_latest_keys_whatever_the_batch(batch: int) -> None:
    queue = MemoryQueue(8, 3)
    latest: deque[tuple[float, ...]] = deque(maxlen=8)
    for step in range(11):
        new = keys(batch, step)
        queue.push(new)
        latest.extend(tuple(row) for row in normalize(new, dim=1).tolist())
        if len(latest) == 8:
            assert as_rows(queue.keys_kd) == set(latest)
        assert queue.is_full == (len(latest) == 8)


def test_the_oldest_keys_leave_first() -> None:
    queue = MemoryQueue(4, 3)
    first, second, third = keys(2, 0), keys(2, 1), keys(2, 2)
    for each in (first, second, third):
        queue.push(each)
    assert as_rows(queue.keys_kd) == as_rows(normalize(torch.cat([second, third]), dim=1))


def test_a_batch_that_passes_the_end_goes_on_at_the_beginning() -> None:
    queue = MemoryQueue(5, 3)
    first, second = normalize(keys(4, 0), dim=1), normalize(keys(4, 1), dim=1)
    queue.push(first)
    queue.push(second)
    expected = torch.cat([second[1:], first[3:], second[:1]])
    torch.testing.assert_close(queue.keys_kd, expected)


def test_a_fresh_queue_is_random_and_of_unit_length() -> None:
    queue = MemoryQueue(64, 8)
    torch.testing.assert_close(queue.keys_kd.norm(dim=1), torch.ones(64))
    assert queue.keys_kd.mean(dim=0).norm() < 0.5
    assert not queue.is_full
    assert len(queue) == 64


def test_keys_are_stored_in_fp32_of_unit_length_and_without_a_graph() -> None:
    queue = MemoryQueue(4, 3)
    queue.push((100 * keys(2, 0)).bfloat16().requires_grad_())
    assert queue.keys_kd.dtype == torch.float32
    assert not queue.keys_kd.requires_grad
    torch.testing.assert_close(queue.keys_kd.norm(dim=1), torch.ones(4))


def test_a_resumed_queue_goes_on_where_it_was() -> None:
    queue = MemoryQueue(5, 3)
    queue.push(keys(4, 0))
    resumed = MemoryQueue(5, 3)
    resumed.load_state_dict(queue.state_dict())
    for each in (queue, resumed):
        each.push(keys(4, 1))
    assert torch.equal(queue.keys_kd, resumed.keys_kd)
    assert queue.is_full == resumed.is_full


def test_pushing_after_the_backward_pass_leaves_its_gradients_alone() -> None:
    queue = MemoryQueue(4, 3)
    q, k = keys(2, 0).requires_grad_(), keys(2, 1)
    loss = queue_info_nce(q, k, queue.keys_kd, 0.2)
    before = queue.keys_kd.clone()
    torch.autograd.backward(loss)
    queue.push(k)
    (again,) = torch.autograd.grad(queue_info_nce(q, k, before, 0.2), q)
    torch.testing.assert_close(q.grad, again)


def test_more_keys_than_places_or_of_another_length_are_refused() -> None:
    queue = MemoryQueue(4, 3)
    for wrong in (keys(5, 0), keys(2, 0, dimension=2)):
        with pytest.raises(ValueError, match="do not fit"):
            queue.push(wrong)
    with pytest.raises(ValueError, match="positive"):
        MemoryQueue(0, 3)


@pytest.mark.parametrize(
    ("size", "message"),
    [
        (128, r"128 keys is not larger than the 128 .* take 256 or more"),
        (64, r"64 keys is not larger than the 128 .* take 256 or more"),
        (1000, r"1000 keys is not a multiple of the 128 .* take 1024"),
        (200, r"200 keys is not a multiple of the 128 .* take 256"),
    ],
)
def test_a_queue_that_does_not_suit_the_batch_is_refused_with_a_size_that_does(size: int, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_queue_size(size, 128)


def test_a_multiple_of_the_batch_passes() -> None:
    check_queue_size(256, 128)
    check_queue_size(65536, 256)
