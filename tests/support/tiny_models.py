"""A tiny model of each family that `pull` knows, with random weights and its own library's way to embed.

Fresh weights are so small that all inputs get nearly the same vector, and then agreement proves nothing: `awaken` makes
them larger, and the tests check that different inputs differ.
"""

from __future__ import annotations

import copy
import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import open_clip
import timm
import torch
import transformers
from numpy.typing import NDArray
from open_clip.coca_model import CoCa
from open_clip.model import CLIP, CustomTextCLIP
from PIL import Image
from safetensors.torch import save_file
from torch import nn

from tests.support.tokenizer_families import OPEN_CLIP_CLEAN, Families
from twinlens.training.pull.source import Choices
from twinlens.training.starter.packages import MINILM_TOKENIZER, read_pinned
from twinlens.training.tokenizers import open_clip_tokenizer_json

Vectors = NDArray[np.float32]
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
TOKENIZERS = {"siglip": "siglip_folder", "clipa": "bert_folder", "roberta": "roberta_folder"}


@dataclass
class TinyModel:
    """What to pull, and what the model's own library makes of pictures and texts, not normalised."""

    source: str
    choices: Choices
    model: Any
    image: Callable[[Sequence[Image.Image]], Vectors] | None = None
    text: Callable[[Sequence[str]], Vectors] | None = None
    # Pixels as the bundle prepares them to vectors, where the library's own preprocessing works on tensors.
    pixels: Callable[[NDArray[np.float32]], Vectors] | None = None
    # Unpadded rows of ids to the vectors of rows padded to the window.
    padded: Callable[[Sequence[Sequence[int]]], Vectors] | None = None


def awaken(model: nn.Module, seed: int = 0) -> nn.Module:
    """Makes weights as large as trained ones, so that each input has a vector of its own."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if not weights.is_floating_point() or name.startswith("logit_"):
                continue
            if weights.ndim >= 2 and "pos" not in name:
                fan = weights[0].numel()
                weights.copy_(torch.randn(weights.shape, generator=generator) * 1.6 / fan**0.5)
            elif weights.ndim == 1:
                weights.add_(0.2 * torch.randn(weights.shape, generator=generator))
        for name, buffer in model.named_buffers():
            if name.endswith("running_mean"):
                buffer.copy_(0.2 * torch.randn(buffer.shape, generator=generator))
    return model.eval()


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
            **BERT_SIZE, vocab_size=3000, max_position_embeddings=82, pad_token_id=1, bos_token_id=0, eos_token_id=2
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


def timm_model(folder: Path, _: Families | None = None) -> TinyModel:
    """A classifier of timm in a safetensors file: its head is of no use to us."""
    torch.manual_seed(0)
    classifier = awaken(timm.create_model("test_resnet", pretrained=False))
    save_file(classifier.state_dict(), folder / "model.safetensors")
    features = timm.create_model("test_resnet", pretrained=False, num_classes=0)
    features.load_state_dict({k: v for k, v in classifier.state_dict().items() if not k.startswith("fc.")})
    features.eval()
    config = timm.data.resolve_model_data_config(features)  # type: ignore[attr-defined,no-untyped-call]
    transform: Any = timm.data.create_transform(**config, is_training=False)  # type: ignore[attr-defined]

    def image(pictures: Sequence[Image.Image]) -> Vectors:
        with torch.no_grad():
            return np.asarray(features(torch.stack([transform(picture) for picture in pictures])))

    return TinyModel(f"timm:test_resnet:{folder / 'model.safetensors'}", Choices(), features, image)


BERT_SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "hidden_act": "gelu",
}
_HF_VISION = {**BERT_SIZE, "image_size": 32, "patch_size": 8}


def hf_clip(folder: Path, _: Families | None = None) -> TinyModel:
    """transformers' CLIP with OpenAI's tokenizer and activation."""
    config = transformers.CLIPConfig(
        text_config={
            **BERT_SIZE,
            "hidden_act": "quick_gelu",
            "vocab_size": 49408,
            "max_position_embeddings": 77,
            "bos_token_id": 49406,
            "eos_token_id": 49407,
            "pad_token_id": 49407,
        },
        vision_config={**_HF_VISION, "hidden_act": "quick_gelu"},
        projection_dim=16,
    )
    torch.manual_seed(0)
    model: Any = awaken(transformers.CLIPModel(config))
    tokenizer = _saved_tokenizer(folder, open_clip_tokenizer_json(), pad="<end_of_text>")
    transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size=32).save_pretrained(folder)
    return _hf_pair(folder, model, tokenizer, {"padding": True, "max_length": 77, "truncation": True})


def hf_siglip(folder: Path, families: Families) -> TinyModel:
    """transformers' SigLIP: padded to the window, no mask."""
    ends = {"pad_token_id": 1, "bos_token_id": 1, "eos_token_id": 1}
    config = transformers.SiglipConfig(
        text_config={**BERT_SIZE, "vocab_size": 4000, "max_position_embeddings": 32, "projection_size": 32, **ends},
        vision_config=_HF_VISION,
    )
    torch.manual_seed(0)
    model: Any = awaken(transformers.SiglipModel(config))
    transformers.SiglipImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    shutil.copy(families.siglip_folder() / "spiece.model", folder)
    tokenizer: Any = transformers.SiglipTokenizer(vocab_file=str(folder / "spiece.model"), model_max_length=32)
    tokenizer.save_pretrained(folder)
    return _hf_pair(folder, model, tokenizer, {"padding": "max_length", "max_length": 32, "truncation": True})


def _hf_pair(folder: Path, model: Any, tokenizer: Any, options: dict[str, Any]) -> TinyModel:
    model.save_pretrained(folder)

    def pixels(rows: NDArray[np.float32]) -> Vectors:
        with torch.no_grad():
            return np.asarray(model.get_image_features(pixel_values=torch.from_numpy(rows)).pooler_output)

    def text(texts: Sequence[str]) -> Vectors:
        batch = tokenizer(list(texts), return_tensors="pt", **options)
        with torch.no_grad():
            return np.asarray(model.get_text_features(input_ids=batch["input_ids"]).pooler_output)

    def padded(rows: Sequence[Sequence[int]]) -> Vectors:
        window, pad = model.config.text_config.max_position_embeddings, tokenizer.pad_token_id
        ids = torch.tensor([[*row, *[pad] * (window - len(row))] for row in rows])
        with torch.no_grad():
            return np.asarray(model.get_text_features(input_ids=ids).pooler_output)

    return TinyModel(f"hf:{folder}", Choices(), model, text=text, pixels=pixels, padded=padded)


def hf_dinov2(folder: Path, _: Families | None = None) -> TinyModel:
    """DINOv2 prepared at another size than its position embeddings were made for."""
    config = transformers.Dinov2Config(**{**_HF_VISION, "image_size": 48})
    torch.manual_seed(0)
    model = awaken(transformers.Dinov2Model(config))
    crop = {"height": 32, "width": 32}
    transformers.BitImageProcessor(size={"shortest_edge": 40}, crop_size=crop).save_pretrained(folder)
    return _hf_vision(folder, model)


def hf_vit(folder: Path, _: Families | None = None) -> TinyModel:
    """A ViT saved as a classifier, as most are: no pooler, and a head of no use."""
    config = transformers.ViTConfig(**_HF_VISION)
    torch.manual_seed(0)
    classifier: Any = awaken(transformers.ViTForImageClassification(config))
    transformers.ViTImageProcessor(size={"height": 32, "width": 32}).save_pretrained(folder)
    classifier.save_pretrained(folder)
    return _hf_vision(folder, classifier.vit, save=False)


def _hf_vision(folder: Path, model: Any, *, save: bool = True) -> TinyModel:
    if save:
        model.save_pretrained(folder)

    def pixels(rows: NDArray[np.float32]) -> Vectors:
        with torch.no_grad():
            return np.asarray(model(pixel_values=torch.from_numpy(rows)).last_hidden_state[:, 0])

    return TinyModel(f"hf:{folder}", Choices(), model, pixels=pixels)


# Of each kind: configuration class, and what of its sizes is named otherwise.
TEXT_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("BertConfig", {**BERT_SIZE, "pad_token_id": 0}),
    "roberta": ("RobertaConfig", {**BERT_SIZE, "pad_token_id": 0}),
    "xlm-roberta": ("XLMRobertaConfig", {**BERT_SIZE, "pad_token_id": 0}),
    "camembert": ("CamembertConfig", {**BERT_SIZE, "pad_token_id": 0}),
    "mpnet": ("MPNetConfig", {**BERT_SIZE, "pad_token_id": 0}),
    "albert": ("AlbertConfig", {**BERT_SIZE, "embedding_size": 16, "pad_token_id": 0}),
    "electra": ("ElectraConfig", {**BERT_SIZE, "embedding_size": 16, "pad_token_id": 0}),
    "distilbert": ("DistilBertConfig", {"dim": 32, "n_layers": 2, "n_heads": 2, "hidden_dim": 48, "pad_token_id": 0}),
}
WINDOW = 20


def sentence_model(
    folder: Path, kind: str = "bert", pooling: str = "mean", *, dense: bool = False, file: str = "model.safetensors"
) -> TinyModel:
    """A folder as sentence-transformers saves it, with MiniLM's tokenizer."""
    class_name, sizes = TEXT_CONFIGS[kind]
    config = getattr(transformers, class_name)(**sizes, vocab_size=30522, max_position_embeddings=40)
    torch.manual_seed(0)
    auto: Any = transformers.AutoModel
    encoder: Any = awaken(auto.from_config(config))
    encoder.save_pretrained(folder)
    tokenizer = _saved_tokenizer(folder, read_pinned(MINILM_TOKENIZER).decode(), pad="[PAD]")
    modules = ["Transformer", "Pooling", *(["Dense"] if dense else []), "Normalize"]
    paths = ["", *(f"{number}_{name}" for number, name in enumerate(modules) if number)]
    listed = [
        {"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{name}"}
        for i, (name, path) in enumerate(zip(modules, paths, strict=True))
    ]
    (folder / "modules.json").write_text(json.dumps(listed))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": WINDOW, "do_lower_case": False}))
    (folder / "1_Pooling").mkdir()
    names = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "mean_sqrt_len": "mean_sqrt_len_tokens"}
    modes = {f"pooling_mode_{name}": mode == pooling for mode, name in names.items()}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps({"word_embedding_dimension": 32, **modes}))
    head: nn.Module = nn.Identity()
    if dense:
        linear = awaken(nn.Linear(32, 24))
        head = nn.Sequential(linear, nn.Tanh())
        (folder / "2_Dense").mkdir()
        described = {"in_features": 32, "out_features": 24, "activation_function": "torch.nn.modules.activation.Tanh"}
        (folder / "2_Dense" / "config.json").write_text(json.dumps(described))
        state = {f"linear.{name}": value for name, value in linear.state_dict().items()}
        save_file(state, folder / "2_Dense" / file)

    def embed(ids: torch.Tensor, mask: torch.Tensor) -> Vectors:
        with torch.no_grad():
            tokens = encoder(input_ids=ids, attention_mask=mask).last_hidden_state
            rows = [states[keep.bool()] for states, keep in zip(tokens, mask, strict=True)]
            if pooling == "cls":
                pooled = torch.stack([row[0] for row in rows])
            elif pooling == "max":
                pooled = torch.stack([row.max(dim=0).values for row in rows])
            else:
                pooled = torch.stack([row.sum(0) / len(row) ** (0.5 if "sqrt" in pooling else 1) for row in rows])
            return np.asarray(head(pooled))

    def text(texts: Sequence[str]) -> Vectors:
        batch = tokenizer(list(texts), return_tensors="pt", padding=True, truncation=True, max_length=WINDOW)
        return embed(batch["input_ids"], batch["attention_mask"])

    def padded(rows: Sequence[Sequence[int]]) -> Vectors:
        ids = torch.tensor([[*row, *[0] * (WINDOW - len(row))] for row in rows])
        mask = torch.tensor([[1] * len(row) + [0] * (WINDOW - len(row)) for row in rows])
        return embed(ids, mask)

    return TinyModel(f"hf:{folder}", Choices(), encoder, text=text, padded=padded)


def _saved_tokenizer(folder: Path, tokenizer_json: str, pad: str) -> Any:
    path = folder / "tokenizer.json"
    path.write_text(tokenizer_json, encoding="utf-8")
    fast: Any = transformers.PreTrainedTokenizerFast
    tokenizer = fast(tokenizer_file=str(path), pad_token=pad)
    tokenizer.save_pretrained(folder)
    return tokenizer
