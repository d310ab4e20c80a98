"""How many pictures, or texts, may turn out to be unusable before a run stops."""

from __future__ import annotations

from collections.abc import Mapping

from twinlens.training.data.errors import DataError

# A share of a small collection is less than a picture, and a stray icon should stop no one.
ALWAYS_ALLOWED = 3


def refuse_too_many(
    unusable: Mapping[str, str],
    of: int,
    *,
    max_share: float,
    key: str | None = None,
    in_all: int | None = None,
    what: str = "pictures",
) -> None:
    """Stops where more pictures than allowed are unusable, and always where all are.

    Args:
        unusable: What they are called, and what is wrong with each.
        of: Of how many pictures.
        max_share: So large a share may be unusable, and three pictures whatever the share, unless it is 0.
        key: The setting that allows more; None where there is none.
        in_all: How many pictures there are, where only some were looked at.
        what: What they are.

    Raises:
        DataError: telling how many, the first of them, and what to do.
    """
    allowed = max(ALWAYS_ALLOWED, int(max_share * of + 1e-9)) if max_share else 0
    if not unusable or (len(unusable) <= allowed and len(unusable) < of):
        return
    first, reason = next(iter(unusable.items()))
    told = ""
    if len(unusable) < of:
        more = "" if key is None else f", or allow more with {key}"
        told = f", {allowed} at most may be so: remove them{more}"
    looked_at = "" if in_all in {None, of} else f" looked at, out of {in_all},"
    raise DataError(f"{len(unusable)} of {of} {what}{looked_at} cannot be used{told}; the first is {first}: {reason}")
