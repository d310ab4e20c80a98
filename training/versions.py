"""Versions of installed packages, for the record of how something was made."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import metadata


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Name on PyPI to version, of those that are installed."""
    found = {}
    for name in packages:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:  # an extra, or twinlens run from a source tree
            continue
    return found
