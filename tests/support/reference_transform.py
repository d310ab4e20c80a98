"""open_clip's own evaluation transform, for any specification of ours."""

from __future__ import annotations

from typing import Literal

import numpy as np
from PIL import Image

from twinlens.encoders.manifest import PreprocessSpec

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
Mode = Literal["shortest", "longest", "squash"]
Interpolation = Literal["bilinear", "bicubic"]


def spec(
    mode: Mode = "shortest", interpolation: Interpolation = "bicubic", size: int = 32, *, resize: int = 0, fill: int = 0
) -> PreprocessSpec:
    """CLIP's colours; `resize` is `size` where it is not given."""
    return PreprocessSpec(
        size=size,
        resize_size=resize or size,
        resize_mode=mode,
        interpolation=interpolation,
        mean=MEAN,
        std=STD,
        fill=fill,
    )


def open_clip_tensor(pixels: np.ndarray, wanted: PreprocessSpec) -> np.ndarray:
    """What open_clip makes of the pixels (h, w, 3): float32, shape (3, size, size)."""
    from open_clip.transform import PreprocessCfg, image_transform_v2

    fields = {name: getattr(wanted, name) for name in ("size", "mean", "std", "interpolation", "resize_mode")}
    transform = image_transform_v2(PreprocessCfg(**fields, fill_color=wanted.fill), is_train=False)
    return np.asarray(transform(Image.fromarray(pixels)))
