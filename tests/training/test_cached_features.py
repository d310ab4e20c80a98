from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from twinlens.training.cached_features import encode_in_chunks
from twinlens.training.losses.info_nce import info_nce
from twinlens.training.losses.nt_xent import nt_xent
from twinlens.training.losses.pair_features import of_one_process

N, WIDTH, D = 16, 6, 4


def batch(seed: int = 0, n: int = N) -> Tensor:
    return torch.randn(n, WIDTH, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(*layers: nn.Module) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(WIDTH, 8), *layers, nn.GELU(), nn.Linear(8, D)).double()


def gradients(module: nn.Module) -> list[Tensor]:
    return [parameter.grad.clone() for parameter in module.parameters() if parameter.grad is not None]


def step(module: nn.Module, chunk_size: int | None, encode: Callable[[Tensor], Tensor] | None = None) -> list[Tensor]:
    """The loss and the gradients of one SimCLR step."""
    module.zero_grad()
    views = torch.cat([batch(1), batch(2)])
    features = encode_in_chunks(encode or module, views, chunk_size, modules=[module])
    loss = nt_xent(features[:N], features[N:], 0.5)
    torch.autograd.backward(loss)
    return [loss.detach(), *gradients(module)]


@pytest.mark.parametrize("chunk_size", [4, 5, 31, 32, 100])
def test_chunks_give_the_loss_and_gradients_of_the_whole_batch(chunk_size: int) -> None:
    module = network(nn.LayerNorm(8))
    torch.testing.assert_close(step(module, chunk_size), step(module, None), rtol=1e-10, atol=1e-12)


def test_eight_chunks_equal_one_big_batch_in_single_precision_through_a_convolutional_network() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )
    pictures = torch.randn(64, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    results = []
    for chunk_size in (None, 8):
        module.zero_grad()
        features = encode_in_chunks(module, pictures, chunk_size, modules=[module])
        torch.autograd.backward(nt_xent(features[:32], features[32:], 0.1))
        results.append([features.detach(), *gradients(module)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)


def test_a_sum_of_small_batches_is_something_else() -> None:
    module = network()
    whole = step(module, None)
    module.zero_grad()
    for part in (slice(0, 8), slice(8, 16)):
        torch.autograd.backward(0.5 * nt_xent(module(batch(1)[part]), module(batch(2)[part]), 0.5))
    assert not torch.allclose(gradients(module)[0], whole[1], rtol=1e-2)


def test_two_towers_in_chunks_give_clips_gradients() -> None:
    images, texts = network(), network(nn.Tanh())
    results = []
    for chunk_size in (None, 3):
        images.zero_grad()
        texts.zero_grad()
        rows = [
            nn.functional.normalize(encode_in_chunks(tower, batch(seed), chunk_size, modules=[tower]), dim=1)
            for seed, tower in enumerate((images, texts))
        ]
        torch.autograd.backward(info_nce(of_one_process(rows[0], rows[1]), 10.0))
        results.append([*gradients(images), *gradients(texts)])
    torch.testing.assert_close(results[1], results[0], rtol=1e-10, atol=1e-12)


def test_dropout_is_replayed_when_a_chunk_is_encoded_again() -> None:
    dropped: list[Tensor] = []

    class Watched(nn.Dropout):
        def forward(self, rows: Tensor) -> Tensor:
            output = super().forward(rows)
            dropped.append(output.detach() == 0)
            return output

    module = network(Watched(0.5))
    torch.manual_seed(5)
    step(module, 8)
    first, again = dropped[:4], dropped[4:]
    assert [mask.tolist() for mask in again] == [mask.tolist() for mask in reversed(first)]
    assert not first[0].equal(first[1])


def test_running_statistics_move_once_for_each_chunk_and_not_again() -> None:
    chunked, forwards_only = network(nn.BatchNorm1d(8)), network(nn.BatchNorm1d(8))
    step(chunked, 8)
    with torch.no_grad():
        for part in torch.cat([batch(1), batch(2)]).tensor_split(4):
            forwards_only(part)
    assert chunked[1].num_batches_tracked == 4
    torch.testing.assert_close(dict(chunked.named_buffers()), dict(forwards_only.named_buffers()), rtol=0, atol=0)


@pytest.mark.parametrize(("rows", "chunk_size"), [(3, 2), (7, 2), (4, 3), (7, 3), (9, 4)])
def test_no_chunk_of_a_batch_is_a_single_row(rows: int, chunk_size: int) -> None:
    module = network(nn.BatchNorm1d(8))
    chunks: list[int] = []

    def encode(chunk: Tensor) -> Tensor:
        chunks.append(len(chunk))
        features: Tensor = module(chunk)
        return features

    for graph in (torch.enable_grad(), torch.no_grad()):
        with graph:
            encode_in_chunks(encode, batch(n=rows), chunk_size, modules=[module])
    assert sum(chunks) == 2 * rows
    assert min(chunks) >= 2
    assert max(chunks) <= max(3, chunk_size)


def test_buffers_are_the_same_tensors_afterwards() -> None:
    module = network(nn.BatchNorm1d(8))
    before = {name: id(buffer) for name, buffer in module.named_buffers()}
    step(module, 8)
    assert {name: id(buffer) for name, buffer in module.named_buffers()} == before


def test_frozen_batch_norm_keeps_the_whole_batchs_gradients() -> None:
    module = network(nn.BatchNorm1d(8))
    with torch.no_grad():
        module(3 * batch(3) + 1)
    module.eval()
    torch.testing.assert_close(step(module, 4), step(module, None), rtol=1e-10, atol=1e-12)


class Activation(torch.autograd.Function):
    """Writes down when the activations of a chunk come and go."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, log: list[str]) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.log = log
        log.append(f"encode {float(rows[0, 0]):.0f}")
        return rows * 1.0

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (rows,) = ctx.saved_tensors
        ctx.log.append(f"free {float(rows[0, 0]):.0f}")
        return gradient, None


def test_one_chunk_is_in_memory_at_a_time() -> None:
    log: list[str] = []
    rows = torch.arange(3.0)[:, None].requires_grad_()
    features = encode_in_chunks(lambda chunk: Activation.apply(chunk, log), rows, 1, modules=[])
    assert log == ["encode 0", "encode 1", "encode 2"]
    torch.autograd.backward(features.sum())
    assert log[3:] == ["encode 2", "free 2", "encode 1", "free 1", "encode 0", "free 0"]


def test_the_graph_keeps_the_inputs_only() -> None:
    kept: list[int] = []

    def keep(tensor: Tensor) -> Tensor:
        kept.append(tensor.nbytes)
        return tensor

    def bytes_kept(chunk_size: int | None) -> int:
        kept.clear()
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            encode_in_chunks(module, inputs, chunk_size, modules=[module])
        return sum(kept)

    module, inputs = network(nn.Linear(8, 512), nn.GELU(), nn.Linear(512, 8)), batch(n=64)
    assert bytes_kept(8) == inputs.nbytes
    assert bytes_kept(None) > 2 * 64 * 512 * inputs.itemsize


def test_without_gradients_nothing_is_encoded_twice() -> None:
    log: list[str] = []
    with torch.no_grad():
        features = encode_in_chunks(
            lambda chunk: Activation.apply(chunk, log), torch.arange(4.0)[:, None], 2, modules=[]
        )
    assert log == ["encode 0", "encode 2"]
    assert features.tolist() == [[0.0], [1.0], [2.0], [3.0]]


def test_autocast_is_the_same_when_a_chunk_is_encoded_again() -> None:
    seen: list[bool] = []

    def encode(rows: Tensor) -> Tensor:
        seen.append(torch.is_autocast_enabled("cpu"))
        return nn.functional.linear(rows, weight)

    weight = torch.randn(D, WIDTH, requires_grad=True)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        features = encode_in_chunks(encode, batch().float(), 8, modules=[])
    torch.autograd.backward(features.float().sum())
    assert seen == [True] * 4


def test_a_chunk_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="chunk_size must be positive"):
        encode_in_chunks(network(), batch(), 0, modules=[])
