"""In which arithmetic a step is computed."""

from __future__ import annotations

from typing import Literal

import torch

Precision = Literal["fp32", "bf16", "fp16"]


def precision_of(asked: Literal["auto"] | Precision) -> Precision:
    """`auto` is bf16 where the processor computes in it, for elsewhere it is emulated and slow."""
    if asked != "auto":
        return asked
    if torch.cuda.is_available():
        return "bf16" if torch.cuda.is_bf16_supported(including_emulation=False) else "fp32"
    return "bf16" if torch.cpu.get_capabilities().get("avx512_bf16") else "fp32"
