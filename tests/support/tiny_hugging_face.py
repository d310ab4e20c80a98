"""Tiny models of transformers and sentence-transformers, saved as their libraries save them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors.torch import save_file
from torch import nn

from tests.support.tiny_weights import TinyModel, Vectors, awaken
from tests.support.tokenizer_families import Families
from twinlens.training.pull.source import Choices
from twinlens.training.starter.packages import MINILM_TOKENIZER, read_pinned
from twinlens.training.tokenizers import clip_tokenizer

BERT_SIZE: dict[str, Any] = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 48,
    "hidden_act": "gelu",
}
_HF_VISION = {**BERT_SIZE, "image_size": 32, "patch_size": 8}


def hf_clip(folder: Path) -> TinyModel:
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
    tokenizer = _saved_tokenizer(folder, clip_tokenizer().json, pad="<end_of_text>")
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


def hf_dinov2(folder: Path) -> TinyModel:
    """DINOv2 prepared at another size than its position embeddings were made for."""
    config = transformers.Dinov2Config(**{**_HF_VISION, "image_size": 48})
    torch.manual_seed(0)
    model = awaken(transformers.Dinov2Model(config))
    crop = {"height": 32, "width": 32}
    transformers.BitImageProcessor(size={"shortest_edge": 40}, crop_size=crop).save_pretrained(folder)
    return _hf_vision(folder, model)


def hf_vit(folder: Path) -> TinyModel:
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
