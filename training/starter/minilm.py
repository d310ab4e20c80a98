"""all-MiniLM-L6-v2 (Wang et al. 2020; Reimers & Gurevych 2019): a six-layer BERT encoder with mean pooling."""

from __future__ import annotations

from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from twinlens.encoders.manifest import TextSpec
from twinlens.training.export.errors import ExportError

WIDTH = 384
_HEADS = 12
_LAYERS = 6
_FEED_FORWARD = 1536
_VOCABULARY = 30_522
_POSITIONS = 512
_EPS = 1e-12

# 256 is the length sentence-transformers uses it with. The result does not depend on padding: the mask sees to it.
MINILM_TEXT = TextSpec(clean="none", context_length=256, pad_id=0, pad_to_context=False, attention_mask=True)

# transformers' names of a BERT layer's parts, and ours.
_LAYER_NAMES = {
    "attention.self.query": "query",
    "attention.self.key": "key",
    "attention.self.value": "value",
    "attention.output.dense": "attended",
    "attention.output.LayerNorm": "attention_norm",
    "intermediate.dense": "widen",
    "output.dense": "narrow",
    "output.LayerNorm": "output_norm",
}
_OUTER_NAMES = {
    "embeddings.word_embeddings": "words",
    "embeddings.position_embeddings": "positions",
    "embeddings.token_type_embeddings": "segments",
    "embeddings.LayerNorm": "norm",
}
_UNUSED = ("pooler.", "embeddings.position_ids")


class MiniLM(nn.Module):
    """Token ids to sentence embeddings."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(_VOCABULARY, WIDTH)
        self.positions = nn.Embedding(_POSITIONS, WIDTH)
        self.segments = nn.Embedding(2, WIDTH)
        self.norm = nn.LayerNorm(WIDTH, eps=_EPS)
        self.layers = nn.ModuleList(BertLayer() for _ in range(_LAYERS))

    def forward(self, input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        """Embeds a batch.

        Args:
            input_ids: int64, shape (n, l), l at most 512.
            attention_mask: int64, shape (n, l): 1 for a token, 0 for padding.

        Returns:
            Mean of the last hidden states over the tokens of each row, shape (n, 384), not normalised.
        """
        # One segment only, so its row 0 is added everywhere.
        x = self.words(input_ids) + self.positions.weight[: input_ids.shape[1]] + self.segments.weight[0]
        x = self.norm(x)
        keep = attention_mask.bool()[:, None, None, :]
        for layer in self.layers:
            x = layer(x, keep)
        weights = attention_mask.to(x.dtype).unsqueeze(-1)
        mean: Tensor = (x * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1.0)
        return mean


class BertLayer(nn.Module):
    """Self-attention and feed-forward, each with a residual and a layer norm behind it (Devlin et al. 2019)."""

    def __init__(self) -> None:
        super().__init__()
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.attended = nn.Linear(WIDTH, WIDTH)
        self.attention_norm = nn.LayerNorm(WIDTH, eps=_EPS)
        self.widen = nn.Linear(WIDTH, _FEED_FORWARD)
        self.narrow = nn.Linear(_FEED_FORWARD, WIDTH)
        self.output_norm = nn.LayerNorm(WIDTH, eps=_EPS)

    def forward(self, x: Tensor, keep: Tensor) -> Tensor:
        """One layer over hidden states (n, l, 384); `keep` (n, 1, 1, l) is False at padding."""
        query, key, value = (_split_heads(part(x)) for part in (self.query, self.key, self.value))
        mixed = F.scaled_dot_product_attention(query, key, value, attn_mask=keep)
        x = self.attention_norm(x + self.attended(mixed.transpose(1, 2).flatten(2)))
        normed: Tensor = self.output_norm(x + self.narrow(F.gelu(self.widen(x))))
        return normed


def load_minilm(weights: bytes) -> MiniLM:
    """Builds the encoder from a safetensors file with transformers' names.

    Raises:
        ExportError: if tensors are missing, unknown or of another shape.
    """
    from safetensors import SafetensorError  # noqa: PLC0415
    from safetensors.torch import load  # noqa: PLC0415

    model = MiniLM()
    try:
        model.load_state_dict(_renamed(load(weights)))
    except (SafetensorError, RuntimeError) as error:
        raise ExportError(f"the MiniLM weights do not fit: {str(error).splitlines()[0]}") from error
    return model.eval()


def _renamed(theirs: Mapping[str, Tensor]) -> dict[str, Tensor]:
    ours: dict[str, Tensor] = {}
    for name, tensor in theirs.items():
        if name.startswith(_UNUSED):
            continue
        stem, _, kind = name.rpartition(".")
        if stem.startswith("encoder.layer."):
            number, _, part = stem.removeprefix("encoder.layer.").partition(".")
            stem = f"layers.{number}.{_LAYER_NAMES.get(part, part)}"
        ours[f"{_OUTER_NAMES.get(stem, stem)}.{kind}"] = tensor.to(torch.float32)
    return ours


def _split_heads(x: Tensor) -> Tensor:
    """(n, l, width) to (n, heads, l, width / heads)."""
    return x.view(*x.shape[:-1], _HEADS, WIDTH // _HEADS).transpose(1, 2)
