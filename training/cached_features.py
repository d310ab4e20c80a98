"""Batches larger than memory: features are encoded in chunks, and the loss still sees all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def encode_in_chunks(
    encode: Callable[[Tensor], Tensor], inputs: Tensor, chunk_size: int | None, *, modules: Sequence[nn.Module]
) -> Tensor:
    """Encodes a batch with the activations of one chunk in memory (gradient caching, Gao et al. 2021, §3).

    Each chunk is encoded twice: now, keeping its features only, and once more when the backward pass reaches it, with
    the same random numbers (dropout) and under the same autocast. Losses that compare all pairs of a batch thus keep
    all their negatives, which adding up the gradients of small batches would lose, and the gradient is that of the
    whole batch.

    One chunk is what torch holds. On CPUs the process took 1.4 to 1.75 times the memory of a chunk by itself, for freed
    blocks of other sizes leave gaps in glibc's heap; mapping each block by itself closed them, and took two thirds
    longer.

    Batch norm is the exception, because it takes its statistics from a chunk, as it does from a rank's share in a
    distributed run: what is beside it in the chunk, not in the batch, decides how a picture is normalised. Running
    statistics are moved by the first encoding of each chunk only.

    Args:
        encode: From inputs (m, …) to features (m, d); it may be called with any part of the batch.
        inputs: The whole batch, shape (n, …).
        chunk_size: The most rows encoded at a time; chunks differ by one row at most. None: all at once, once. An odd
            batch in twos has one chunk of three, for batch norm has no statistics of a single row.
        modules: All that `encode` runs through; their buffers are left alone when it runs again.

    Returns:
        The features, shape (n, d), in the order of the inputs.

    Raises:
        ValueError: if `chunk_size` is not positive.
    """
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be positive, found {chunk_size}")
    if chunk_size is None or len(inputs) <= chunk_size:
        return encode(inputs)
    # Of like size, so that no last chunk of a row or two has statistics of its own.
    count = -(-len(inputs) // chunk_size)
    chunks = inputs.tensor_split(count if chunk_size == 1 else min(count, len(inputs) // 2))
    if not torch.is_grad_enabled():
        return torch.cat([encode(chunk) for chunk in chunks])

    def contexts() -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
        return nullcontext(), _buffers_left_alone(modules)

    features: list[Tensor] = [checkpoint(encode, chunk, use_reentrant=False, context_fn=contexts) for chunk in chunks]
    return torch.cat(features)


@contextmanager
def _buffers_left_alone(modules: Sequence[nn.Module]) -> Iterator[None]:
    """Lends the modules copies of their buffers, so that what a second pass writes is lost."""
    owners = [each for module in modules for each in module.modules()]
    # Each buffer once, though modules may share one or be named twice.
    kept = {(id(owner), name): (owner, name, buffer) for owner in owners for name, buffer in _buffers(owner)}
    try:
        for owner, name, buffer in kept.values():
            setattr(owner, name, buffer.clone())
        yield
    finally:
        for owner, name, buffer in kept.values():
            setattr(owner, name, buffer)


def _buffers(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return module.named_buffers(recurse=False)
