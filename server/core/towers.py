"""What a caller learns who needs a tower that the model does not have."""

from __future__ import annotations

from collections.abc import Sequence

from twinlens.encoders.manifest import Manifest
from twinlens.index.item import Modality
from twinlens.server.core.errors import Code, ItemFailure, Reason, ServiceError

_TRAINED = " (`twinlens train clip` trains one from captions, on top of an image encoder too)"


def no_tower(manifest: Manifest, missing: Modality, so: str, instead: str) -> str:
    """Why it cannot be, and the two ways out.

    Args:
        manifest: Of the model that is served.
        missing: Which tower it lacks.
        so: What follows, as "… so {so}".
        instead: What to do with this model.
    """
    kind, embeds = ("text", "pictures") if missing is Modality.TEXT else ("image", "texts")
    return (
        f"the model {manifest.name}/{manifest.version} embeds {embeds} only and has no {kind} tower, so {so}; "
        f"{instead}, or use a bundle that has one{_TRAINED if missing is Modality.TEXT else ''}"
    )


def refuse_if_unsupported(failures: Sequence[ItemFailure | None]) -> None:
    """Fails a call of which nothing can be answered because every item needs a tower that is missing.

    Raises:
        ServiceError: FAILED_PRECONDITION, with the first item's message.
    """
    first = failures[0] if failures else None
    if first is not None and all(each is not None and each.reason is Reason.UNSUPPORTED for each in failures):
        raise ServiceError(Code.FAILED_PRECONDITION, first.message)
