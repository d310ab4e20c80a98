from __future__ import annotations

import torch
import torch.nn.functional as F  # noqa: N812 - the field's name
from torch import Tensor

from twinlens.training.modules.short_attention import short_attention


def attended(dtype: torch.dtype, *, enclosed: bool) -> tuple[Tensor, str]:
    """Attention over 17 tokens, and the name of what computed it."""
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(2, 3, 17, 8, generator=generator, dtype=dtype).requires_grad_() for _ in range(3))
    with torch.autocast("cpu", dtype=torch.bfloat16, enabled=dtype == torch.bfloat16):
        if enclosed:
            with short_attention(query.device):
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


def test_in_single_precision_torch_chooses() -> None:
    plain, usual = attended(torch.float32, enclosed=False)
    found, instead = attended(torch.float32, enclosed=True)
    assert usual == instead
    assert torch.equal(found, plain)
