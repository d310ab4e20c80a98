from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from twinlens.training.cached_features import encode_in_chunks
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig
from twinlens.training.modules.short_attention import short_attention


def attended(dtype: torch.dtype, *, enclosed: bool, tokens: int = 17) -> tuple[Tensor, str]:
    """Attention over so many tokens, and the name of what computed it."""
    generator = torch.Generator().manual_seed(0)
    shape = (2, 3, tokens, 8)
    query, key, value = (torch.randn(shape, generator=generator, dtype=dtype).requires_grad_() for _ in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        if enclosed:
            with short_attention(query.device, tokens):
                result = F.scaled_dot_product_attention(query, key, value)
        else:
            result = F.scaled_dot_product_attention(query, key, value)
    return result, type(result.grad_fn).__name__


def test_in_bfloat16_on_the_cpu_flash_attention_is_left_out_and_the_result_is_the_same() -> None:
    plain, usual = attended(torch.bfloat16, enclosed=False)
    found, instead = attended(torch.bfloat16, enclosed=True)
    assert "Flash" in usual
    assert "Flash" not in instead
    torch.testing.assert_close(found, plain, rtol=0.02, atol=0.02)


def test_over_many_tokens_torch_chooses() -> None:
    assert "Flash" in attended(torch.bfloat16, enclosed=True, tokens=197)[1]


def test_in_single_precision_torch_chooses() -> None:
    plain, usual = attended(torch.float32, enclosed=False)
    found, instead = attended(torch.float32, enclosed=True)
    assert usual == instead
    assert torch.equal(found, plain)


class Operations(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Keeps the names of what torch computes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.names.add(str(func))
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("chunk_size", [None, 2])
def test_a_vit_attends_this_way_also_when_a_chunk_is_encoded_again(chunk_size: int | None) -> None:
    arguments = {"patch_size": 4, "embed_dim": 16, "depth": 1, "num_heads": 2}
    backbone = build_backbone(BackboneConfig(timm="vit_tiny_patch16_224", arguments=arguments), 16)
    with Operations() as operations:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            features = encode_in_chunks(backbone, torch.randn(4, 3, 16, 16), chunk_size, modules=[backbone])
        torch.autograd.backward(features.sum())
    assert any("bmm" in name for name in operations.names)
    assert not any("flash" in name for name in operations.names)
