"""transformers' CLIP and SigLIP: an image and a text tower in one space."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from torch import Tensor, nn

from twinlens.encoders.manifest import ScoringRule
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

MODEL_TYPES: Final = ("clip", "siglip")


class PooledTower(nn.Module):
    """A vision or text model of transformers, its pooled output, and a projection if there is one."""

    def __init__(self, model: nn.Module, projection: nn.Module | None) -> None:
        super().__init__()
        self.model = model
        self.projection = projection

    def forward(self, inputs: Tensor) -> Tensor:
        """Embeds pixels, shape (n, 3, size, size), or ids, shape (n, l), to (n, d), not normalised."""
        pooled: Tensor = self.model(inputs).pooler_output
        if self.projection is None:
            return pooled
        projected: Tensor = self.projection(pooled)
        return projected


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
    image_tower: nn.Module
    text_tower: nn.Module
    if kind == "clip":
        image_tower = PooledTower(model.vision_model, model.visual_projection)
        text_tower = PooledTower(model.text_model, model.text_projection)
        scoring = scoring_rule(model)
    else:
        image_tower = PooledTower(model.vision_model, None)
        text_tower = PooledTower(model.text_model, None)
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
    return PulledTowers(image, text, name, f"transformers {kind} {name}", scoring)


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
