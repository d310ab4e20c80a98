"""Published files: from the local cache, or downloaded; without a network, one line within seconds."""

from __future__ import annotations

import contextlib
import logging
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from twinlens.training.export.errors import ExportError

_PROBE_TIMEOUT_S = 10.0


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

    with downloading(what or repository, _hub_url(), instead):
        for name in names[:-1]:
            with contextlib.suppress(EntryNotFoundError):
                return Path(hf_hub_download(repository, name))
        return Path(hf_hub_download(repository, names[-1]))


def hub_snapshot(
    repository: str,
    patterns: Sequence[str],
    instead: str,
    what: str = "",
    holds: Callable[[Path], bool] = Path.is_dir,
) -> Path:
    """The repository's files that match, as a folder.

    Args:
        repository: Its name on the hub.
        patterns: Of file names.
        instead: What a user without a network can do, for the error.
        what: What is looked for, for the error; by default the repository's name.
        holds: Whether the folder of an earlier download, which may have been of other files, is enough.

    Raises:
        ExportError: one line, if there is neither a network nor an earlier download.
    """
    from huggingface_hub import snapshot_download  # noqa: PLC0415
    from huggingface_hub.errors import LocalEntryNotFoundError  # noqa: PLC0415

    with contextlib.suppress(LocalEntryNotFoundError, OSError, ValueError):
        earlier = Path(snapshot_download(repository, allow_patterns=list(patterns), local_files_only=True))
        if holds(earlier):
            return earlier
    with downloading(what or repository, _hub_url(), instead):
        return Path(snapshot_download(repository, allow_patterns=list(patterns)))


@contextlib.contextmanager
def downloading(what: str, url: str, instead: str) -> Iterator[None]:
    """Around a download: the hub's client alone would try for a minute before it says that there is no network.

    Args:
        what: What is downloaded, for the error.
        url: Of the host that has to answer; empty: the user forbids to ask it.
        instead: What a user without a network can do, for the error.

    Raises:
        ExportError: one line, if the host does not answer or the download fails.
    """
    reason = _unreachable(url)
    if reason is not None:
        raise ExportError(f"cannot download {what}: no network ({reason}); {instead}")
    hub_log = logging.getLogger("huggingface_hub")
    level = hub_log.level
    hub_log.setLevel(logging.CRITICAL)  # it logs every attempt; the last reason is in the error
    try:
        yield
    except (ImportError, NameError):  # a fault of an installation or a program, not of the network
        raise
    except Exception as error:  # whatever urllib or the hub client raise
        lines = str(error).strip().splitlines() or [type(error).__name__]
        raise ExportError(f"cannot download {what}: {lines[0][:200]}; {instead}") from error
    finally:
        hub_log.setLevel(level)


def _hub_url() -> str:
    """The hub's address, or nothing where the user set its client offline."""
    from huggingface_hub import constants  # noqa: PLC0415

    if constants.HF_HUB_OFFLINE:
        return ""
    return str(constants.ENDPOINT)


def _unreachable(url: str) -> str | None:
    """Why the host does not answer, or None."""
    if not url:
        return "HF_HUB_OFFLINE is set"
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
