from __future__ import annotations

import pytest
import torch
from torch import nn
from transformers import BertConfig, BertModel

from twinlens.training.export.errors import ExportError
from twinlens.training.starter.minilm import MiniLM, load_minilm
from twinlens.training.starter.packages import MINILM_WEIGHTS, read_pinned


@pytest.fixture(scope="module")
def minilm() -> MiniLM:
    return load_minilm(read_pinned(MINILM_WEIGHTS))


def rows(seed: int, lengths: tuple[int, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(1000, 30_000, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return ids * mask, mask


def test_vectors_equal_transformers_bert_with_mean_pooling(minilm: MiniLM) -> None:
    from safetensors.torch import load

    config = BertConfig(hidden_size=384, num_hidden_layers=6, num_attention_heads=12, intermediate_size=1536)
    reference: nn.Module = BertModel(config)
    reference.eval()
    weights = {k: v for k, v in load(read_pinned(MINILM_WEIGHTS)).items() if k != "embeddings.position_ids"}
    reference.load_state_dict(weights)
    ids, mask = rows(0, (3, 9, 40, 1))
    with torch.no_grad():
        hidden = reference(ids, attention_mask=mask).last_hidden_state
        expected = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        torch.testing.assert_close(minilm(ids, mask), expected, atol=2e-5, rtol=0)


def test_padding_changes_nothing(minilm: MiniLM) -> None:
    ids, mask = rows(1, (4, 20))
    with torch.no_grad():
        torch.testing.assert_close(minilm(ids, mask)[0], minilm(ids[:1, :4], mask[:1, :4])[0], atol=1e-5, rtol=0)


def test_other_weights_are_refused() -> None:
    from safetensors.torch import save

    with pytest.raises(ExportError, match="MiniLM weights do not fit"):
        load_minilm(save({"embeddings.word_embeddings.weight": torch.zeros(2, 2)}))
    with pytest.raises(ExportError, match="MiniLM weights do not fit"):
        load_minilm(b"no safetensors")
