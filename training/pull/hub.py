"""Published files: from the local cache, or downloaded; without a network, one line within seconds."""

from __future__ import annotations

import contextlib
import logging
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from twinlens.training.export.errors import ExportError

_PROBE_TIMEOUT_S = 10.0


def published_weights(model: str, tag: str, tag_cfg: Mapping[str, Any]) -> Path:
    """Finds or downloads the weights of an open_clip tag.

    Args:
        model: The open_clip model name, for the error.
        tag: The tag, for the error.
        tag_cfg: What open_clip lists for the tag: `hf_hub` (repository and file) or `url`.

    Raises:
        ExportError: one line, within seconds, if there is no network; or if the download fails.
    """
    from open_clip.constants import HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME  # noqa: PLC0415
    from open_clip.pretrained import download_pretrained  # noqa: PLC0415 - seconds

    instead = f"with the file at hand: twinlens pull {model}:/path/to/checkpoint.pt"
    repository, _, name = str(tag_cfg.get("hf_hub", "")).rpartition("/")
    if repository:
        names = [name] if name else [HF_SAFE_WEIGHTS_NAME, HF_WEIGHTS_NAME]
        return hub_file(repository, names, instead, what=f"{model}:{tag}")
    url = str(tag_cfg.get("url", ""))
    with _one_line(f"{model}:{tag}", url, instead):
        return Path(download_pretrained(dict(tag_cfg)))


def hub_file(repository: str, names: Sequence[str], instead: str, what: str = "") -> Path:
    """The first of these files that the repository has; of an earlier download without asking the hub again.

    Args:
        repository: Its name on the hub.
        names: File names, the preferred one first.
        instead: What a user without a network can do, for the error.
        what: What the user asked for, for the error; by default the repository's name.

    Raises:
        ExportError: one line, if there is no network or no such file.
    """
    from huggingface_hub import hf_hub_download, try_to_load_from_cache  # noqa: PLC0415

    for name in names:
        found = try_to_load_from_cache(repository, name)
        if isinstance(found, str):
            return Path(found)
    from huggingface_hub.errors import EntryNotFoundError  # noqa: PLC0415

    with _one_line(what or repository, _hub_url(), instead):
        for name in names[:-1]:
            with contextlib.suppress(EntryNotFoundError):
                return Path(hf_hub_download(repository, name))
        return Path(hf_hub_download(repository, names[-1]))


def hub_snapshot(repository: str, patterns: Sequence[str], instead: str) -> Path:
    """The repository's files that match, as a folder.

    Raises:
        ExportError: one line, if there is neither a network nor an earlier download.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import LocalEntryNotFoundError  # noqa: PLC0415

    with contextlib.suppress(LocalEntryNotFoundError, OSError, ValueError):
        return Path(snapshot_download(repository, allow_patterns=list(patterns), local_files_only=True))
    with _one_line(repository, _hub_url(), instead):
        return Path(snapshot_download(repository, allow_patterns=list(patterns)))


@contextlib.contextmanager
def _one_line(what: str, url: str, instead: str) -> Iterator[None]:
    """Around a download: the hub's client alone would try for a minute before it says that there is no network."""
    reason = _unreachable(url)
    if reason is not None:
        raise ExportError(f"cannot download {what}: no network ({reason}); {instead}")
    hub_log = logging.getLogger("huggingface_hub")
    level = hub_log.level
    hub_log.setLevel(logging.CRITICAL)  # it logs every attempt; the last reason is in the error
    try:
        yield
    except Exception as error:  # whatever urllib or the hub client raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(f"cannot download {what}: {lines[0][:200]}; {instead}") from error
    finally:
        hub_log.setLevel(level)


def _hub_url() -> str:
    from huggingface_hub import constants  # noqa: PLC0415

    return str(constants.ENDPOINT)


def _unreachable(url: str) -> str | None:
    """Why the host does not answer, or None."""
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
