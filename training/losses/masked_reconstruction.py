"""The loss of masked autoencoders: pixels of hidden patches, each patch on its own scale."""

from __future__ import annotations

from torch import Tensor


def masked_reconstruction(
    predicted_nlp: Tensor,
    patches_nlp: Tensor,
    masked_nl: Tensor,
    *,
    normalise: bool = True,
    epsilon: float = 1e-6,
) -> Tensor:
    """Mean squared error over the patches that the encoder did not see (MAE, He et al. 2022, §3).

    With M the hidden patches of all pictures and p values a patch,

        L = 1/|M| Σ_{(i, l) ∈ M} 1/p Σ_j ( ŷ_ilj − t_ilj )²

    where t is the patch itself or, as the paper prefers, (y − mean(y)) / √(var(y) + ε) over the values of that patch,
    with the variance divided by p − 1 as in the authors' code.

    Args:
        predicted_nlp: Predictions, shape (n, l, p).
        patches_nlp: The true patches, the same shape (see `patches.patches_of`).
        masked_nl: bool, shape (n, l): True where the patch was hidden; only these count, so at least one must be.
        normalise: Whether targets are normalised patch by patch.
        epsilon: Added to the variance; keeps flat patches finite.

    Returns:
        The loss, a float32 scalar (float64 for float64 inputs).

    Raises:
        ValueError: if shapes differ.
    """
    if predicted_nlp.ndim != 3 or predicted_nlp.shape != patches_nlp.shape:
        raise ValueError(
            f"predicted {tuple(predicted_nlp.shape)} and true {tuple(patches_nlp.shape)} patches must be (n, l, p)"
        )
    if masked_nl.shape != predicted_nlp.shape[:2]:
        raise ValueError(f"the mask {tuple(masked_nl.shape)} must be (n, l) = {tuple(predicted_nlp.shape[:2])}")
    predicted, target = _at_least_float32(predicted_nlp), _at_least_float32(patches_nlp)
    if normalise:
        mean = target.mean(dim=-1, keepdim=True)
        target = (target - mean) / (target.var(dim=-1, keepdim=True) + epsilon).sqrt()
    error_nl = (predicted - target).square().mean(dim=-1)
    mask = masked_nl.to(error_nl.dtype)
    return (error_nl * mask).sum() / mask.sum()


def _at_least_float32(values: Tensor) -> Tensor:
    return values if values.dtype.itemsize >= 4 else values.float()
