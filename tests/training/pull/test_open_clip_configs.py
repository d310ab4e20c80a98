"""Every configuration that open_clip lists is either accepted, or refused with a reason."""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import open_clip
import pytest
import torch

from twinlens.training.export.errors import ExportError
from twinlens.training.export.open_clip_towers import open_clip_towers
from twinlens.training.pull.open_clip_config import (
    OpenClipConfig,
    TokenizerNeed,
    built_in,
    check_pictures,
    tokenizer_need,
)
from twinlens.training.pull.open_clip_models import _build
from twinlens.training.pull.preprocessing import from_open_clip
from twinlens.training.tokenizers import clip_tokenizer

REFUSED = {"coca_base": "has a vocabulary of 64,000, CLIP's is 49,408: name its tokenizer with --tokenizer"}


def check(config: OpenClipConfig) -> TokenizerNeed:
    check_pictures(config)
    return tokenizer_need(config)


def test_all_are_accepted_or_refused_with_a_reason() -> None:
    names = open_clip.list_models()
    kinds: Counter[str] = Counter()
    for name in names:
        config = built_in(name)
        if name in REFUSED:
            with pytest.raises(ExportError, match=REFUSED[name]):
                check(config)
            kinds["refused"] += 1
            continue
        need = check(config)
        text_cfg = config.text_cfg
        expected = text_cfg.get("hf_tokenizer_name") or text_cfg.get("hf_model_name") or ""
        assert need.hub_name == expected
        kinds["hub tokenizer" if expected else "own tokenizer"] += 1
    assert kinds["refused"] == len(REFUSED)
    if len(names) == 144:  # open_clip 3.3; later ones list more
        assert kinds == {"own tokenizer": 94, "hub tokenizer": 49, "refused": 1}


@pytest.mark.parametrize(
    ("name", "clean", "strip_sep"),
    [
        ("ViT-B-32", "clip_lower", False),
        ("coca_ViT-L-14", "clip_lower", False),
        ("MobileCLIP-S1", "clip_lower", False),
        ("ViT-B-16-SigLIP2", "canonicalize", False),
        ("ViT-L-14-CLIPA", "clip_whitespace", True),
        ("ViT-H-14-worldwide", "clip_whitespace", False),
        ("ViT-L-14-worldwide", "canonicalize", False),
        ("xlm-roberta-base-ViT-B-32", "clip_whitespace", False),
    ],
)
def test_texts_are_cleaned_as_open_clips_own_tokenizer_does(name: str, clean: str, strip_sep: bool) -> None:
    need = tokenizer_need(built_in(name))
    assert (need.clean, need.strip_sep) == (clean, strip_sep)


@pytest.mark.parametrize(
    ("part", "changes", "reason"),
    [
        ("vision_cfg", {"image_size": [224, 336]}, "pictures of 224x336 are not square"),
        ("vision_cfg", {"timm_model_name": "naflexvit_base_patch16_siglip"}, "NaFlex"),
        (
            "text_cfg",
            {"tokenizer_kwargs": {"language": "de"}},
            "tokenizer options that serving does not have: language",
        ),
        ("text_cfg", {"tokenizer_kwargs": {"clean": "upper"}}, "clean=upper"),
        ("text_cfg", {"tokenizer_mode": "clips"}, "tokenizer_mode clips"),
        ("text_cfg", {"vocab_size": 1000}, "vocabulary of 1,000"),
    ],
)
def test_what_serving_cannot_reproduce_is_refused(part: str, changes: dict[str, Any], reason: str) -> None:
    model_cfg = copy.deepcopy(open_clip.get_model_config("ViT-B-32"))
    model_cfg[part].update(changes)
    config = OpenClipConfig("mine", model_cfg)
    with pytest.raises(ExportError, match=reason):
        check(config)


def test_a_tokenizer_the_user_names_settles_an_unusual_vocabulary() -> None:
    assert tokenizer_need(built_in("coca_base"), given=True).hub_name == ""


@pytest.mark.slow
def test_all_can_be_built_and_split_into_towers() -> None:
    """Without weights, on the meta device; a tower of transformers needs a file from the hub."""
    built = 0
    for name in set(open_clip.list_models()) - REFUSED.keys():
        config = built_in(name)
        if config.text_cfg.get("hf_model_name"):
            continue
        with torch.device("meta"):
            model: Any = _build(config, config.model_cfg)
            cfg = {"size": model.visual.image_size, "mean": (0.5,) * 3, "std": (0.5,) * 3}
            image, text = open_clip_towers(
                model, from_open_clip(cfg), clip_tokenizer(config.context_length).spec, "{}", config.model_cfg
            )
            size = image.preprocess.size
            assert image.module(torch.zeros(2, 3, size, size)).shape == (2, config.model_cfg["embed_dim"])
        sees_padding = bool(config.text_cfg.get("no_causal_mask"))
        assert text.spec.pad_to_context == sees_padding, name
        built += 1
    assert built >= 130
