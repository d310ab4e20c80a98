"""transformers' CLIP and SigLIP: an image and a text tower in one space."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import Any, Final

from twinlens.encoders.manifest import Lineage, ScoringRule
from twinlens.training.checkpoint import CheckpointMeta, DualEncoderSpec, save_checkpoint
from twinlens.training.export.errors import ExportError
from twinlens.training.export.open_clip_towers import scoring_rule
from twinlens.training.export.towers import ImageExport, TextExport
from twinlens.training.pull.preprocessing import from_hugging_face
from twinlens.training.pull.pulled import PulledTowers
from twinlens.training.pull.siglip_text import with_siglip_clean_up
from twinlens.training.pull.source import Choices
from twinlens.training.pull.tokenizer_choice import check_vocabulary
from twinlens.training.pull.transformers_models import load_model, preprocessor_config
from twinlens.training.tokenizers import TokenizerExport, hugging_face_tokenizer
from twinlens.training.towers.transformers_config import as_data
from twinlens.training.towers.transformers_pair import pooled_towers
from twinlens.training.towers.two_towers import TwoTowers

MODEL_TYPES: Final = ("clip", "siglip")


def pair(folder: Path, config: dict[str, Any], name: str, choices: Choices) -> PulledTowers:
    """Builds both towers.

    Raises:
        ExportError: if weights, tokenizer or preprocessing are missing or do not fit.
    """
    preprocess = from_hugging_face(preprocessor_config(folder, name))
    kind = str(config["model_type"])
    model: Any = load_model(folder, "CLIPModel" if kind == "clip" else "SiglipModel", name)
    text_config, vision_config = model.config.text_config, model.config.vision_config
    if preprocess.size != vision_config.image_size:
        raise ExportError(
            f"{name} prepares pictures of {preprocess.size} pixels, its tower takes {vision_config.image_size}"
        )
    tokenizer = _tokenizer(choices.tokenizer or folder, kind, text_config, name)
    image_tower, text_tower = pooled_towers(model, kind)
    if kind == "clip":
        scoring = scoring_rule(model)
    else:
        scoring = ScoringRule(
            rule="sigmoid", scale=model.logit_scale.exp().item(), bias=model.logit_bias.detach().item()
        )
    image = ImageExport(
        image_tower,
        preprocess,
        architecture=f"{kind} vision model",
        pooling="tok" if kind == "clip" else "map",
        activation=str(vision_config.hidden_act),
    )
    text = TextExport(
        text_tower,
        tokenizer.spec,
        tokenizer.json,
        reference=text_tower,
        architecture=f"{kind} text model",
        pooling="eos" if kind == "clip" else "last",
        activation=str(text_config.hidden_act),
    )
    method = f"transformers {kind} {name}"
    keep = partial(_keep, image=image, text=text, config=model.config, name=name, method=method, scoring=scoring)
    return PulledTowers(image, text, name, method, scoring, keep)


def _keep(
    path: Path, *, image: ImageExport, text: TextExport, config: Any, name: str, method: str, scoring: ScoringRule
) -> None:
    described = {"transformers_pair": {"config": as_data(config)}}
    bias = scoring.bias if scoring.rule == "sigmoid" else None
    model_cfg = {
        "embed_dim": int(getattr(config, "projection_dim", 0) or config.vision_config.hidden_size),
        "vision_cfg": described,
        "text_cfg": described,
        "init_logit_bias": bias,
    }
    spec = DualEncoderSpec(model_cfg, image.preprocess, text.spec, text.tokenizer_json, name)
    model = TwoTowers(
        image.module, text.module, pad_id=text.spec.pad_id, masked=False, log_scale=math.log(scoring.scale), bias=bias
    )
    save_checkpoint(path, spec, model, CheckpointMeta(lineage=Lineage(method=method)))


def _tokenizer(source: Path | str, kind: str, text_config: Any, name: str) -> TokenizerExport:
    # SigLIP attends to its padding, and was trained with texts padded to the window.
    export = hugging_face_tokenizer(
        source,
        context_length=int(text_config.max_position_embeddings),
        clean="none",
        pad="context" if kind == "siglip" else "longest",
        attention_mask=False,
    )
    check_vocabulary(export, int(text_config.vocab_size), name)
    return with_siglip_clean_up(export, source) if kind == "siglip" else export
