"""Whether torch can compile a network here."""

from __future__ import annotations

import torch

from twinlens.training.errors import ConfigError, first_line


def check_compiler(device: str) -> None:
    """Compiles a few lines, which takes seconds, before anything long begins.

    Args:
        device: `cuda` or `cpu`.

    Raises:
        ConfigError: if that fails, as it does on the CPU without a C++ compiler.
    """
    try:
        torch.compile(torch.nn.functional.gelu)(torch.ones(16, device=device))
    except Exception as error:  # whatever the tools behind it raise
        why = first_line(error)
        raise ConfigError(
            f"train.compile: nothing can be compiled here ({why}); install a C++ compiler, or leave it out"
        ) from error
