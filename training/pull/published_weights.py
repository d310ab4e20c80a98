"""The weights that open_clip publishes: from the local cache, or downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinlens.training.export.errors import ExportError
from twinlens.training.hub import downloading, hub_file
from twinlens.training.pull.open_clip_listing import pretrained, tag_config, tags_of
from twinlens.training.pull.source import Source, weights_file

_TAGS_SHOWN = 6


def open_clip_tag(source: Source) -> dict[str, Any]:
    """What open_clip lists for a published tag; empty for a file and for random weights.

    Raises:
        ExportError: if the model has no such tag, or there is no such file.
    """
    if source.weights is None:
        return {}
    found = tag_config(source.model, source.weights)
    if found or weights_file(source.weights) is not None:
        return found
    tags = tags_of(source.model)
    known = ", ".join(tags[:_TAGS_SHOWN]) + (", …" if len(tags) > _TAGS_SHOWN else "") if tags else "none"
    raise ExportError(f"{source.model} has no published weights {source.weights!r}; known: {known}")


def published_weights(model: str, tag: str, tag_cfg: Mapping[str, Any]) -> Path:
    """Finds or downloads the weights of an open_clip tag.

    Args:
        model: The open_clip model name, for the error.
        tag: The tag, for the error.
        tag_cfg: What open_clip lists for the tag: `hf_hub` (repository and file) or `url`.

    Raises:
        ExportError: one line, within seconds, if there is no network; or if the download fails.
    """
    listing = pretrained()
    instead = f"with the file at hand: twinlens pull {model}:/path/to/checkpoint.pt"
    repository, _, name = str(tag_cfg.get("hf_hub", "")).rpartition("/")
    if repository:
        names = [name] if name else [listing.HF_SAFE_WEIGHTS_NAME, listing.HF_WEIGHTS_NAME]
        return hub_file(repository, names, instead, what=f"{model}:{tag}")
    url = str(tag_cfg.get("url", ""))
    with downloading(f"{model}:{tag}", url, instead):
        return Path(listing.download_pretrained(dict(tag_cfg)))
