"""open_clip's causal text towers over rows as long as they need to be."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from twinlens.training.modules.short_attention import short_attention

# Few lengths, so that what is prepared for one (kernels, compiled graphs) serves again.
_LENGTHS = 4
# Groups of rows of like length, and how many rows one has at the least: each costs its calls.
_GROUPS, _LEAST_GROUP = 4, 16


@dataclass(frozen=True)
class EndToken:
    """Where a causal tower takes its vector.

    Attributes:
        pool_type: `argmax`: CLIP's, the end token has the highest id; `eos`: it is `eos_id`.
        eos_id: Of the end token, for `eos`.
    """

    pool_type: str
    eos_id: int = 0

    def positions(self, token_ids_nl: Tensor) -> Tensor:
        """Of the end token of each row, shape (n,)."""
        # argmax takes the first of equal values in torch and in ONNX, here the first end token.
        if self.pool_type == "eos":
            return torch.eq(token_ids_nl, self.eos_id).int().argmax(dim=-1)
        return token_ids_nl.argmax(dim=-1)


def causal_tower(model: nn.Module) -> tuple[Any, EndToken] | None:
    """The text tower of an open_clip model and where it pools, if padding behind the end token changes nothing there.

    Args:
        model: An `open_clip.CLIP` or `CustomTextCLIP`, or another with `encode_text`.

    Returns:
        None where tokens attend to what stands behind them, or the vector is taken elsewhere (CoCa, SigLIP, towers of
        Hugging Face).
    """
    tower: Any = getattr(model, "text", model)
    if not isinstance(getattr(tower, "attn_mask", None), Tensor) or getattr(tower, "cls_emb", None) is not None:
        return None
    pool_type = str(getattr(model, "text_pool_type", "") or getattr(tower, "pool_type", ""))
    if pool_type not in {"argmax", "eos"} or not hasattr(tower, "token_embedding"):
        return None
    eos_id = getattr(model, "text_eos_id", None) if tower is model else getattr(tower, "eos_id", None)
    if pool_type == "eos" and eos_id is None:
        return None
    return tower, EndToken(pool_type, eos_id or 0)


def causal_text_features(tower: Any, token_ids_nl: Tensor, end: EndToken) -> Tensor:
    """What the tower gives for rows of any length up to its window, shape (n, d), not normalised.

    Args:
        tower: Its parts by open_clip's names: `token_embedding`, `positional_embedding`, `transformer`, `attn_mask`,
            `ln_final`, `text_projection`.
        token_ids_nl: Shape (n, l).
        end: Where the vector is taken.
    """
    return _features_of(tower, tower.token_embedding(token_ids_nl), token_ids_nl, end)


def _features_of(tower: Any, embedded: Tensor, token_ids_nl: Tensor, end: EndToken) -> Tensor:
    length = token_ids_nl.shape[1]
    x = embedded + tower.positional_embedding[:length]
    x = tower.ln_final(tower.transformer(x, attn_mask=tower.attn_mask[:length, :length]))
    return project(x[torch.arange(x.shape[0], device=x.device), end.positions(token_ids_nl)], tower.text_projection)


def causal_text_by_length(tower: Any, token_ids_nl: Tensor, end: EndToken) -> Tensor:
    """The same as `causal_text_features`, without the columns behind the end tokens.

    On CPUs, rows of like length go together, so that one long caption does not make all others long: a batch of 128
    captions of photos takes two thirds of the time. Devices that wait for their next kernel gain nothing by that.

    Args:
        tower: See `causal_text_features`.
        token_ids_nl: Rows padded behind their end tokens, shape (n, l).
        end: Where the vector is taken.
    """
    positions = end.positions(token_ids_nl)
    if token_ids_nl.device.type != "cpu":
        length = _rounded(int(positions.max()) + 1)
        with short_attention(token_ids_nl.device, length):
            return causal_text_features(tower, token_ids_nl[:, :length], end)
    order = positions.argsort()
    groups = [token_ids_nl[rows, :length] for rows, length in _groups(order, positions)]
    # Looked up at once: each time, the gradient is a table for the whole vocabulary.
    embedded = tower.token_embedding(torch.cat([ids.flatten() for ids in groups])).split(
        [ids.numel() for ids in groups]
    )
    parts = []
    for ids, x in zip(groups, embedded, strict=True):
        with short_attention(ids.device, ids.shape[1]):
            parts.append(_features_of(tower, x.view(*ids.shape, -1), ids, end))
    return torch.cat(parts)[order.argsort()]


def _groups(order: Tensor, positions: Tensor) -> list[tuple[Tensor, int]]:
    """Rows in the order of their lengths, cut into a few groups, each with the length that its longest row needs."""
    found: list[tuple[Tensor, int]] = []
    for rows in order.chunk(max(1, min(_GROUPS, len(order) // _LEAST_GROUP))):
        length = _rounded(int(positions[rows[-1]]) + 1)
        if found and found[-1][1] == length:
            found[-1] = (torch.cat([found[-1][0], rows]), length)
        else:
            found.append((rows, length))
    return found


def _rounded(length: int) -> int:
    return -(-length // _LENGTHS) * _LENGTHS


def project(pooled: Tensor, projection: Tensor | nn.Module | None) -> Tensor:
    """open_clip's last step of a text tower, which is a matrix, a linear layer, or nothing."""
    if projection is None:
        return pooled
    if isinstance(projection, nn.Module):
        projected: Tensor = projection(pooled)
        return projected
    return pooled @ projection
