"""Names like the one that was mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 4


def perhaps(name: str, known: Iterable[str]) -> str:
    """`; perhaps A, B`, or nothing where no name is near."""
    found = near(name, known)
    return f"; perhaps {', '.join(found)}" if found else ""


def near(name: str, known: Iterable[str]) -> list[str]:
    """At most four names: those that are spelt alike, then those that contain it."""
    spelt = {each.lower(): each for each in known}
    found = difflib.get_close_matches(name.lower(), spelt, n=_SHOWN)
    found += [lower for lower in sorted(spelt) if name.lower() in lower and lower not in found]
    return [spelt[lower] for lower in found[:_SHOWN]]
