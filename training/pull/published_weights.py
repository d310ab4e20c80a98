"""The weights that open_clip publishes: from the local cache, or downloaded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinlens.training.hub import downloading, hub_file
from twinlens.training.pull.open_clip_listing import pretrained


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
