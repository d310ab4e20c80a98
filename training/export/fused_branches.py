"""Towers that are trained with parallel branches and run with one: FastViT (MobileCLIP), RepVGG and their kin."""

from __future__ import annotations

from torch import nn

# By which timm's modules say that they can be fused.
_METHODS = ("fuse", "reparameterize", "switch_to_deploy")


def fuse_branches(model: nn.Module) -> nn.Module:
    """Adds up the kernels of parallel branches, which computes the same in less time (RepVGG, Ding et al. 2021, §3.3).

    ONNX Runtime folds batch norms into convolutions but keeps the branches.

    Args:
        model: In evaluation mode.

    Returns:
        A fused copy; the model itself where there is nothing to fuse.
    """
    if not any(hasattr(module, method) for module in model.modules() for method in _METHODS):
        return model
    from timm.models import reparameterize_model  # noqa: PLC0415 - seconds

    fused: nn.Module = reparameterize_model(model)
    return fused
