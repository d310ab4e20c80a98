"""Preprocessing against the transform of the library that trained the model."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import timm
import transformers
from PIL import Image

from tests.support.image_files import scene
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.preprocess import preprocess
from twinlens.training.export.errors import ExportError
from twinlens.training.pull.preprocessing import from_hugging_face, from_open_clip, from_timm
from twinlens.training.pull.timm_models import _preprocess, _pretrained_cfg

SIZES = ((300, 400), (400, 300), (123, 457), (64, 64))


def assert_same_pixels(spec: PreprocessSpec, reference: Any) -> None:
    for height, width in SIZES:
        rgb = scene(height, width, seed=height)
        ours = preprocess(rgb, spec)
        theirs = np.asarray(reference(Image.fromarray(rgb)))
        assert ours.shape == theirs.shape
        # One step of a channel, in normalised units.
        assert np.abs(ours - theirs).max() <= 1.01 / 255 / min(spec.std)


@pytest.mark.parametrize(
    "name", ["resnet18", "resnet50.a1_in1k", "vit_base_patch16_siglip_224", "test_vit", "convnext_atto"]
)
def test_timms_evaluation_transform(name: str) -> None:
    model, _, tag = name.partition(".")
    cfg = _pretrained_cfg(model, tag)
    config = timm.data.resolve_data_config(  # type: ignore[attr-defined,no-untyped-call]
        {}, pretrained_cfg=cfg, use_test_size=not cfg.get("fixed_input_size")
    )
    transform: Any = timm.data.create_transform(**config, is_training=False)  # type: ignore[attr-defined]
    spec = _preprocess(cfg)
    assert spec == from_timm(config)
    assert_same_pixels(spec, transform)


def test_timm_evaluates_at_the_test_size_where_there_is_one() -> None:
    assert _preprocess(_pretrained_cfg("resnet18", "a1_in1k")).size == 288
    assert _preprocess(_pretrained_cfg("resnet18", "tv_in1k")).resize_size == 256


@pytest.mark.parametrize(
    "processor",
    [
        transformers.CLIPImageProcessorPil(size={"shortest_edge": 48}, crop_size={"height": 32, "width": 32}),
        transformers.CLIPImageProcessorPil(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32}),
        transformers.SiglipImageProcessorPil(size={"height": 32, "width": 32}),
        transformers.ViTImageProcessorPil(size={"height": 32, "width": 32}),
        transformers.BitImageProcessorPil(size={"shortest_edge": 40}, crop_size={"height": 32, "width": 32}),
    ],
    ids=["clip", "clip without a margin", "siglip", "vit", "dinov2"],
)
def test_transformers_image_processors(processor: Any) -> None:
    spec = from_hugging_face(processor.to_dict())
    assert_same_pixels(spec, lambda picture: processor(picture)["pixel_values"][0])


BASE: dict[str, Any] = {
    "image_processor_type": "CLIPImageProcessor",
    "image_mean": [0.5, 0.5, 0.5],
    "image_std": [0.5, 0.5, 0.5],
    "size": {"shortest_edge": 40},
    "crop_size": {"height": 32, "width": 32},
    "resample": 3,
}


def test_older_spellings_mean_the_same() -> None:
    spec = from_hugging_face(BASE)
    assert (spec.size, spec.resize_size, spec.resize_mode) == (32, 40, "shortest")
    assert from_hugging_face({**BASE, "size": 40, "crop_size": 32, "do_center_crop": True}) == spec
    assert from_hugging_face({"image_processor": BASE}) == spec
    squashed = from_hugging_face({**BASE, "size": 32, "do_center_crop": False})
    assert (squashed.size, squashed.resize_mode) == (32, "squash")
    assert from_hugging_face({**BASE, "do_normalize": False}).std == (1.0, 1.0, 1.0)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"resample": 1}, "resample 1 is not supported"),
        ({"do_resize": False}, "more than resize, crop and scale"),
        ({"rescale_factor": 1.0}, "rescale_factor 1.0 is not 1/255"),
        ({"crop_pct": 0.9}, "more than resize"),
        ({"size": {"height": 32, "width": 64}, "do_center_crop": False}, "pictures of 32x64 are not square"),
        ({"do_center_crop": False}, "not cropped: the input is not square"),
        ({"size": {"max_height": 3}}, "picture size"),
        ({"crop_size": {"height": 48, "width": 48}}, "resize_size must not be smaller"),
    ],
)
def test_image_processors_that_do_something_else_are_refused(change: dict[str, Any], reason: str) -> None:
    with pytest.raises(ExportError, match=reason):
        from_hugging_face({**BASE, **change})


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"input_size": (1, 32, 32)}, "pictures of 1 channels"),
        ({"input_size": (3, 32, 64)}, "not square"),
        ({"crop_mode": "border"}, "crop_mode 'border'"),
        ({"interpolation": "lanczos"}, "interpolation 'lanczos'"),
    ],
)
def test_timm_transforms_that_do_something_else_are_refused(change: dict[str, Any], reason: str) -> None:
    base = {
        "input_size": (3, 32, 32),
        "crop_pct": 0.9,
        "interpolation": "bicubic",
        "mean": (0.5,) * 3,
        "std": (0.5,) * 3,
    }
    with pytest.raises(ExportError, match=reason):
        from_timm({**base, **change})


def test_open_clips_resolved_preprocessing() -> None:
    cfg = {"size": (32, 32), "mean": 0.5, "std": (0.1, 0.2, 0.3), "interpolation": "random", "resize_mode": "longest"}
    spec = from_open_clip({**cfg, "fill_color": 7})
    assert (spec.interpolation, spec.resize_mode, spec.fill, spec.mean) == ("bicubic", "longest", 7, (0.5, 0.5, 0.5))
    with pytest.raises(ExportError, match="not square"):
        from_open_clip({**cfg, "size": (32, 64)})
