"""`[model]`: what a dual encoder starts from."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from twinlens.training.sections.frozen import Frozen, NamedPath


class ModelConfig(Frozen):
    """Exactly one of `open_clip`, `config` and `from_checkpoint`.

    The two first start from random weights with a vocabulary learned from the captions; `from_checkpoint` goes on from
    a checkpoint, with its architecture, preprocessing and tokenizer. A run folder or a bundle stands for the checkpoint
    in it.

    In `config`, `vision_cfg` may hold a `backbone` beside its `image_size`: a table like the `[model]` of methods on
    pictures (`timm`, `stem`, `arguments`). And `text_cfg` may hold `transformers` beside its `context_length`: a table
    of a `config` as transformers has it, with its `model_type`, and a `pooling` (mean, cls, max or last).

    Attributes:
        open_clip: Name of a model of open_clip.
        config: An open_clip configuration: `embed_dim`, `vision_cfg`, `text_cfg`.
        from_checkpoint: A checkpoint, a run folder or a bundle to go on from.
        image_checkpoint: An image encoder that a method on pictures alone has trained: it becomes the image tower, with
            a fresh projection on top and its own preprocessing; `config` then has no `vision_cfg`.
        text_checkpoint: A text encoder that was pulled from Hugging Face: it becomes the text tower, with a fresh
            projection on top and its own tokenizer; `config` then has no `text_cfg`.
        name: What a person calls the model; None: "clip", or what the checkpoint is called.
        vocabulary_size: Of the tokenizer learned from the captions.
        position_std: Spread of the positions that a ResNet's attention pool starts with; None: open_clip's.
        mean: Of the channels, on the scale 0 to 1.
        std: Likewise.
    """

    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$")
    open_clip: str | None = None
    config: dict[str, Any] | None = None
    from_checkpoint: NamedPath | None = None
    image_checkpoint: NamedPath | None = None
    text_checkpoint: NamedPath | None = None
    vocabulary_size: int = Field(default=4096, ge=259)
    position_std: float | None = Field(default=None, gt=0)
    mean: tuple[float, float, float] = (0.48145466, 0.4578275, 0.40821073)
    std: tuple[float, float, float] = (0.26862954, 0.26130258, 0.27577711)

    @model_validator(mode="after")
    def _one_origin(self) -> Self:
        given = [name for name in ("open_clip", "config", "from_checkpoint") if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of open_clip, config, from_checkpoint (found: {len(given)})")
        kept = {"vocabulary_size", "position_std", "mean", "std"} & self._chosen()
        if self.from_checkpoint is not None and kept:
            raise ValueError(f"{min(kept)} is for a model from scratch; a checkpoint keeps its own")
        if self.image_checkpoint is not None:
            if self.from_checkpoint is not None:
                raise ValueError("from_checkpoint has an image tower already; leave image_checkpoint out")
            own = {"position_std", "mean", "std"} & self._chosen()
            if own:
                raise ValueError(f"{min(own)} is for an image tower from scratch; image_checkpoint keeps its own")
            if self.config is not None and self.config.get("vision_cfg"):
                raise ValueError("config.vision_cfg is for an image tower from scratch; image_checkpoint has its own")
        if self.text_checkpoint is not None:
            if self.from_checkpoint is not None:
                raise ValueError("from_checkpoint has a text tower already; leave text_checkpoint out")
            if "vocabulary_size" in self._chosen():
                raise ValueError("vocabulary_size is for a text tower from scratch; text_checkpoint keeps its own")
            if self.config is not None and self.config.get("text_cfg"):
                raise ValueError("config.text_cfg is for a text tower from scratch; text_checkpoint has its own")
        return self

    def _chosen(self) -> set[str]:
        """Keys of other values than the defaults; a recorded configuration holds these, too."""
        return {name for name, field in type(self).model_fields.items() if getattr(self, name) != field.default}
