"""EfficientNet-Lite0 (Tan & Le 2019; Lite variants by Google, 2020) trained on ImageNet-1k, as timm builds it."""

from __future__ import annotations

import io
import pickle

import torch
from torch import nn

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.export.errors import ExportError

# Not ImageNet's mean and std: those load without an error and cost 7 points of top-1. 224 / 0.875 = 256.
EFFICIENTNET_PREPROCESS = PreprocessSpec(
    size=224, resize_size=256, resize_mode="shortest", interpolation="bicubic", mean=(0.5,) * 3, std=(0.5,) * 3
)
CLASS_COUNT = 1000


def load_efficientnet(weights: bytes) -> nn.Module:
    """Builds the classifier: pixels (n, 3, 224, 224) to logits (n, 1000) in the order of sorted WordNet ids.

    The file comes from another code base with other names; its 296 tensors are timm's in the same order.

    Args:
        weights: A torch file of tensors; nothing in it is executed.

    Raises:
        ExportError: if the tensors are not timm's `tf_efficientnet_lite0`, one by one.
    """
    import timm  # noqa: PLC0415 - seconds

    try:
        theirs = torch.load(io.BytesIO(weights), map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, ValueError) as error:
        raise ExportError(f"the EfficientNet weights cannot be read: {str(error).splitlines()[0]}") from error
    model: nn.Module = timm.create_model("tf_efficientnet_lite0", pretrained=False)
    ours = model.state_dict()
    if len(theirs) != len(ours):
        raise ExportError(f"the EfficientNet file holds {len(theirs)} tensors, timm's model {len(ours)}")
    renamed = {}
    for (their_name, tensor), (name, own) in zip(theirs.items(), ours.items(), strict=True):
        # The last part (weight, bias, running_mean …) is the same in both code bases.
        if tensor.shape != own.shape or their_name.rsplit(".", 1)[-1] != name.rsplit(".", 1)[-1]:
            raise ExportError(f"the EfficientNet tensor {their_name} does not fit timm's {name}")
        renamed[name] = tensor
    model.load_state_dict(renamed)
    return model.eval()
