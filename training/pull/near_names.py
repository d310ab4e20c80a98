"""Names like the one that was mistyped."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

_SHOWN = 4


def perhaps(name: str, known: Iterable[str]) -> str:
    """`; perhaps A, B`, or nothing where no name is near: those that are spelt alike, then those that contain it."""
    spelt = {each.lower(): each for each in known}
    near = difflib.get_close_matches(name.lower(), spelt, n=_SHOWN)
    near += [lower for lower in sorted(spelt) if name.lower() in lower and lower not in near]
    return f"; perhaps {', '.join(spelt[lower] for lower in near[:_SHOWN])}" if near else ""
