"""The file behind a published open_clip tag: from the local cache, or downloaded."""

from __future__ import annotations

import logging
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from twinlens.training.export.errors import ExportError

_PROBE_TIMEOUT_S = 10.0


def published_weights(model: str, tag: str, tag_cfg: Mapping[str, Any]) -> Path:
    """Finds or downloads the weights of a tag.

    Args:
        model: The open_clip model name, for the error.
        tag: The tag, for the error.
        tag_cfg: What open_clip lists for the tag: `hf_hub` (repository and file) or `url`.

    Raises:
        ExportError: one line, within seconds, if there is no network; or if the download fails.
    """
    from open_clip.pretrained import download_pretrained  # noqa: PLC0415 - seconds

    cached = _cached(str(tag_cfg.get("hf_hub", "")))
    if cached is not None:
        return cached
    instead = f"with the file at hand: twinlens pull {model}:/path/to/checkpoint.pt"
    reason = _unreachable(tag_cfg)
    if reason is not None:
        raise ExportError(f"cannot download {model}:{tag}: no network ({reason}); {instead}")
    hub_log = logging.getLogger("huggingface_hub")
    level = hub_log.level
    hub_log.setLevel(logging.CRITICAL)  # it logs every attempt; the last reason is in the error
    try:
        return Path(download_pretrained(dict(tag_cfg)))
    except Exception as error:  # whatever urllib or the hub client raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(f"cannot download {model}:{tag}: {lines[0][:200]}; {instead}") from error
    finally:
        hub_log.setLevel(level)


def _cached(hf_hub: str) -> Path | None:
    """The file if an earlier pull has fetched it; published files do not change."""
    if not hf_hub:
        return None
    from huggingface_hub import try_to_load_from_cache  # noqa: PLC0415
    from open_clip.constants import HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME  # noqa: PLC0415

    repository, _, name = hf_hub.rpartition("/")
    names = [name] if name else [HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME]
    for candidate in names:
        found = try_to_load_from_cache(repository, candidate)
        if isinstance(found, str):
            return Path(found)
    return None


def _unreachable(tag_cfg: Mapping[str, Any]) -> str | None:
    """Why the host does not answer, or None. The hub client alone would try for a minute before it says so."""
    from huggingface_hub import constants  # noqa: PLC0415

    url = constants.ENDPOINT if tag_cfg.get("hf_hub") else str(tag_cfg.get("url", ""))
    if not url.startswith(("https://", "http://")):
        return None
    request = urllib.request.Request(url, method="HEAD")  # noqa: S310 - the scheme was checked
    try:
        with urllib.request.urlopen(request, timeout=_PROBE_TIMEOUT_S):  # noqa: S310
            return None
    except urllib.error.HTTPError:
        return None  # it answers; whether the file is there is the download's to find out
    except OSError as error:
        return str(getattr(error, "reason", error))
