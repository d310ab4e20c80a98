"""Which towers there are beside open_clip's own: by the key in `vision_cfg` or `text_cfg` that describes one.

A description is data, so that a checkpoint says by itself what to build; each kind's file says what it holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from torch import nn

from twinlens.encoders.manifest import PreprocessSpec, TextSpec

IMAGE_KINDS: Final = ("backbone", "class_names", "transformers_pair")
TEXT_KINDS: Final = ("minilm", "open_clip_hugging_face", "transformers", "transformers_pair")


def own_image_tower(vision_cfg: Mapping[str, Any], embed_dim: int, preprocess: PreprocessSpec) -> nn.Module | None:
    """The image tower that `vision_cfg` describes, with fresh weights; None where open_clip builds it.

    The tower takes pixels, shape (n, 3, size, size), and gives embeddings, shape (n, embed_dim), not normalised.

    Raises:
        ConfigError, ValidationError, ValueError, TypeError, KeyError: if the description is wrong.
    """
    match _kind(vision_cfg, IMAGE_KINDS):
        case "backbone":
            from twinlens.training.towers.projected_backbone import build_projected_backbone  # noqa: PLC0415 - timm

            return build_projected_backbone(vision_cfg["backbone"], embed_dim, preprocess.size)
        case "class_names":
            from twinlens.training.towers.class_names import build_class_names  # noqa: PLC0415 - timm

            return build_class_names(vision_cfg["class_names"], embed_dim)
        case "transformers_pair":
            from twinlens.training.towers.transformers_pair import build_transformers_pair  # noqa: PLC0415

            return build_transformers_pair(vision_cfg["transformers_pair"], "image")
        case _:
            return None


def own_text_tower(text_cfg: Mapping[str, Any], embed_dim: int, text: TextSpec) -> nn.Module | None:
    """The text tower that `text_cfg` describes, with fresh weights; None where open_clip builds it.

    The tower takes ids, shape (n, l), and an attention mask where `text` says so, and gives embeddings, shape
    (n, embed_dim), not normalised.

    Raises:
        ConfigError, ValidationError, ValueError, TypeError, KeyError: if the description is wrong.
    """
    match _kind(text_cfg, TEXT_KINDS):
        case "minilm":
            from twinlens.training.towers.minilm import build_minilm  # noqa: PLC0415 - seldom needed

            return build_minilm(text_cfg["minilm"], embed_dim, text)
        case "open_clip_hugging_face":
            from twinlens.training.towers.open_clip_hugging_face import (  # noqa: PLC0415 - transformers
                build_open_clip_hugging_face,
            )

            return build_open_clip_hugging_face(text_cfg["open_clip_hugging_face"], embed_dim)
        case "transformers":
            from twinlens.training.towers.transformers_text import (  # noqa: PLC0415 - transformers
                build_transformers_text,
            )

            return build_transformers_text(text_cfg["transformers"], embed_dim, text)
        case "transformers_pair":
            from twinlens.training.towers.transformers_pair import build_transformers_pair  # noqa: PLC0415

            return build_transformers_pair(text_cfg["transformers_pair"], "text")
        case _:
            return None


def _kind(part: Mapping[str, Any], kinds: tuple[str, ...]) -> str | None:
    found = [kind for kind in kinds if kind in part]
    if len(found) > 1:
        raise ValueError(f"it is described twice: {' and '.join(found)}")
    return found[0] if found else None
