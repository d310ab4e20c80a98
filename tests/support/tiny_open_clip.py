"""A tiny model of each family of open_clip, with random weights and open_clip's own way to embed."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import torch
import transformers
from open_clip.coca_model import CoCa
from open_clip.model import CLIP, CustomTextCLIP
from PIL import Image

from tests.support.tiny_weights import TinyModel, Vectors, awaken
from tests.support.tokenizer_families import OPEN_CLIP_CLEAN, Families
from twinlens.training.pull.source import Choices

VISION: dict[str, Any] = {"image_size": 32, "layers": 2, "width": 32, "head_width": 16, "patch_size": 8}
TEXT: dict[str, Any] = {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2}
CLIP_CFG: dict[str, Any] = {"embed_dim": 16, "vision_cfg": VISION, "text_cfg": TEXT}
OPEN_CLIP: dict[str, dict[str, Any]] = {
    "clip": CLIP_CFG,
    "quick_gelu": {**CLIP_CFG, "quick_gelu": True},
    "resnet": {
        **CLIP_CFG,
        "vision_cfg": {"image_size": 64, "layers": [1, 1, 1, 1], "width": 8, "head_width": 8, "patch_size": None},
    },
    # SigLIP: timm tower with attention pooling, a text tower that sees the padding and pools the last position.
    "siglip": {
        "embed_dim": 64,
        "init_logit_bias": -10,
        "custom_text": True,
        "vision_cfg": {"timm_model_name": "test_vit", "timm_pool": "map", "timm_proj": "none", "image_size": 160},
        "text_cfg": {
            **TEXT,
            "context_length": 32,
            "vocab_size": 4000,
            "hf_tokenizer_name": "nobody/siglip",
            "tokenizer_kwargs": {"clean": "canonicalize"},
            "no_causal_mask": True,
            "proj_bias": True,
            "pool_type": "last",
            "act_kwargs": {"approximate": "tanh"},
        },
    },
    "coca": {
        **CLIP_CFG,
        "custom_text": True,
        "multimodal_cfg": {**TEXT, "context_length": 24, "layers": 1, "attn_pooler_heads": 2},
        "vision_cfg": {
            **VISION,
            "attentional_pool": True,
            "attn_pooler_heads": 2,
            "attn_pooler_queries": 4,
            "output_tokens": True,
            "patch_dropout": 0.5,
        },
        "text_cfg": {**TEXT, "context_length": 24, "embed_cls": True, "output_tokens": True},
    },
    # CLIPA: no class token pooling, tokens padded with zeros in place of the separator.
    "clipa": {
        **CLIP_CFG,
        "vision_cfg": {**VISION, "no_ln_pre": True, "pool_type": "avg", "final_ln_after_pool": True},
        "text_cfg": {
            **TEXT,
            "context_length": 16,
            "vocab_size": 30522,
            "hf_tokenizer_name": "nobody/bert",
            "tokenizer_kwargs": {"strip_sep_token": True},
            "pool_type": "last",
            "no_causal_mask": True,
        },
    },
    # A transformers text tower inside open_clip.
    "roberta": {
        **CLIP_CFG,
        "text_cfg": {"hf_model_name": "nobody/roberta", "hf_tokenizer_name": "nobody/roberta", "hf_proj_type": "mlp"},
    },
    # MobileCLIP: FastViT, and a text tower that sees the padding but pools at the end token.
    "mobileclip": {
        "embed_dim": 32,
        "custom_text": True,
        "vision_cfg": {"timm_model_name": "fastvit_t8", "timm_pool": "avg", "timm_proj": None, "image_size": 64},
        "text_cfg": {**TEXT, "context_length": 16, "no_causal_mask": True},
    },
    # EVA: rotary position embeddings.
    "eva": {
        "embed_dim": 32,
        "custom_text": True,
        "vision_cfg": {
            "timm_model_name": "eva02_tiny_patch14_224",
            "timm_pool": "token",
            "timm_proj": None,
            "image_size": 224,
        },
        "text_cfg": TEXT,
    },
}
_ROBERTA_SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
}
TOKENIZERS = {"siglip": "siglip_folder", "clipa": "bert_folder", "roberta": "roberta_folder"}


def build_open_clip(cfg: dict[str, Any]) -> Any:
    """As open_clip's factory builds it."""
    cfg = copy.deepcopy(cfg)
    custom = cfg.pop("custom_text", False) or "hf_model_name" in cfg["text_cfg"]
    if "hf_model_name" in cfg["text_cfg"]:
        cfg["text_cfg"]["hf_model_pretrained"] = False
    return (CoCa if "multimodal_cfg" in cfg else CustomTextCLIP if custom else CLIP)(**cfg)


def open_clip_model(kind: str, folder: Path, families: Families) -> TinyModel:
    """A model of open_clip, saved as its trainer saves it."""
    cfg = copy.deepcopy(OPEN_CLIP[kind])
    tokenizer_folder: Any = getattr(families, TOKENIZERS[kind])() if kind in TOKENIZERS else None
    (folder / "config.json").write_text(json.dumps(cfg))
    if kind == "roberta":
        tokenizer_folder = families.saved(tokenizer_folder)
        roberta = transformers.RobertaConfig(
            **_ROBERTA_SIZE, vocab_size=3000, max_position_embeddings=82, pad_token_id=1, bos_token_id=0, eos_token_id=2
        )
        roberta.save_pretrained(tokenizer_folder)
        cfg["text_cfg"]["hf_model_name"] = str(tokenizer_folder)
    torch.manual_seed(0)
    model: Any = awaken(build_open_clip(cfg))
    if kind == "quick_gelu":
        with torch.no_grad():
            for name, weights in model.named_parameters():
                if name.endswith("mlp.c_proj.weight"):  # what follows the activation: so that it matters which one
                    weights.mul_(20.0)
    torch.save(
        {"epoch": 7, "state_dict": {f"module.{name}": value for name, value in model.state_dict().items()}},
        folder / "epoch_7.pt",
    )
    size = cfg["vision_cfg"]["image_size"]
    transform = open_clip.transform.image_transform_v2(open_clip.transform.PreprocessCfg(size=size), is_train=False)
    context = cfg["text_cfg"].get("context_length", 77)
    reference: Any
    if tokenizer_folder is None:
        reference = open_clip.SimpleTokenizer(context_length=context)
    else:
        options = dict(cfg["text_cfg"].get("tokenizer_kwargs", {}))
        options.setdefault("clean", OPEN_CLIP_CLEAN["clip_whitespace"])
        reference = open_clip.tokenizer.HFTokenizer(str(tokenizer_folder), context_length=context, **options)

    def image(pictures: Sequence[Image.Image]) -> Vectors:
        with torch.no_grad():
            return np.asarray(model.encode_image(torch.stack([transform(picture) for picture in pictures])))

    def text(texts: Sequence[str]) -> Vectors:
        with torch.no_grad():
            return np.asarray(model.encode_text(reference(list(texts))))

    def padded(rows: Sequence[Sequence[int]]) -> Vectors:
        pad = 1 if kind == "roberta" else 0
        with torch.no_grad():
            return np.asarray(model.encode_text(torch.tensor([[*row, *[pad] * (context - len(row))] for row in rows])))

    source = f"tiny-{kind}:{folder / 'epoch_7.pt'}"
    choices = Choices(folder / "config.json", str(tokenizer_folder) if tokenizer_folder else None)
    return TinyModel(source, choices, model, image, text, padded=padded)
