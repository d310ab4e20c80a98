"""`text_cfg.transformers`: an encoder of Hugging Face's transformers, a pooling, and layers behind it."""

from __future__ import annotations

from typing import Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field
from torch import nn

from twinlens.encoders.manifest import TextSpec
from twinlens.training.towers.masked_text import MaskedTextTower, UnitLength

# Encoders that take a mask and know no pooling layer that we would use.
_WITHOUT_POOLER: Final = ("bert", "camembert", "mpnet", "roberta", "xlm-roberta", "albert")
ACTIVATIONS: Final[dict[str, type[nn.Module]]] = {
    "Identity": nn.Identity,
    "Tanh": nn.Tanh,
    "ReLU": nn.ReLU,
    "GELU": nn.GELU,
    "SiLU": nn.SiLU,
    "Sigmoid": nn.Sigmoid,
}


class DenseConfig(BaseModel):
    """A linear layer and an activation.

    Attributes:
        inputs: Length of what it takes.
        outputs: Length of what it gives.
        bias: Whether it adds one.
        activation: Name of a class of `torch.nn`.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    inputs: int = Field(ge=1)
    outputs: int = Field(ge=1)
    bias: bool = True
    activation: Literal["Identity", "Tanh", "ReLU", "GELU", "SiLU", "Sigmoid"] = "Identity"


class TransformersTextConfig(BaseModel):
    """A tower as data.

    Attributes:
        config: The encoder's configuration, with its `model_type`.
        pooling: How the tokens' vectors become one.
        head: What follows, in order: linear layers, and `normalize`.
        projection: Whether a last linear layer without bias leads to the joint space.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    config: dict[str, Any]
    pooling: Literal["mean", "cls", "max", "mean_sqrt_len", "last"] = "mean"
    head: tuple[DenseConfig | Literal["normalize"], ...] = ()
    projection: bool = True


def build_transformers_text(described: Any, embed_dim: int, text: TextSpec) -> MaskedTextTower:
    """Builds the tower with fresh weights.

    Args:
        described: See `TransformersTextConfig`.
        embed_dim: Of the joint space.
        text: How ids are made.

    Raises:
        ExportError: if transformers is not installed.
        ValidationError, ValueError, KeyError, TypeError: if it cannot be built.
    """
    given = TransformersTextConfig.model_validate(described)
    if not text.attention_mask:
        raise ValueError("an encoder of transformers needs an attention mask")
    encoder = encoder_of(given.config)
    width = int(encoder.config.hidden_size)
    head: list[nn.Module] = []
    for layer in given.head:
        if isinstance(layer, DenseConfig):
            head.append(dense(layer))
            width = layer.outputs
        else:
            head.append(UnitLength())
    if given.projection:
        head.append(nn.Linear(width, embed_dim, bias=False))
        nn.init.normal_(head[-1].weight, std=width**-0.5)  # type: ignore[arg-type]
    return MaskedTextTower(encoder, given.pooling, head)


def dense(layer: DenseConfig) -> nn.Sequential:
    """The layer with fresh weights."""
    return nn.Sequential(nn.Linear(layer.inputs, layer.outputs, bias=layer.bias), ACTIVATIONS[layer.activation]())


def encoder_of(config: dict[str, Any]) -> Any:
    """A transformers encoder with fresh weights; nothing is downloaded.

    Raises:
        ExportError: if transformers is not installed.
        ValueError, KeyError, TypeError: if it cannot be built.
    """
    from twinlens.training.pull.transformers_models import quiet, transformers  # noqa: PLC0415 - seconds
    from twinlens.training.towers.transformers_config import config_of  # noqa: PLC0415

    made = config_of(config)
    without = {"add_pooling_layer": False} if made.model_type in _WITHOUT_POOLER else {}
    with quiet():
        return transformers().AutoModel.from_config(made, trust_remote_code=False, **without)
