"""How much data variants need at least, counted before anything is decoded or built."""

from __future__ import annotations

from twinlens.training.export.errors import ExportError
from twinlens.training.export.variants.calibration import CalibrationData

# Fewer held-out items say nothing about half a point of recall: one of 64 is 1.6 points.
MIN_GATE_ITEMS = 64
MIN_CALIBRATION_ITEMS = 32
# A third calibrates, at most.
MIN_ITEMS = max(3 * MIN_CALIBRATION_ITEMS, MIN_CALIBRATION_ITEMS + MIN_GATE_ITEMS)


def refuse_too_little(data: CalibrationData, *, image: bool = True, text: bool = True) -> None:
    """Refuses data that cannot be enough, whatever its pictures turn out to be.

    Without texts and with too few captions there are the program's own sentences; without labels, none judge.

    Args:
        data: What the user named.
        image: Whether there is an image tower that wants pictures.
        text: Whether there is a text tower.

    Raises:
        ExportError: one line, naming what is wanted.
    """
    if image:
        there = [photo for photo in data.photos if photo.path.is_file()]
        if len(there) < MIN_ITEMS:
            gone = f" ({len(data.photos) - len(there)} more are named and not there)" if there != [*data.photos] else ""
            raise too_few(f"{len(there)} pictures{gone}", "--photos")
    if text and data.texts:
        count = len(data.texts) + sum(len(photo.captions) for photo in data.photos)
        if count < MIN_ITEMS:
            raise too_few(f"{count} texts", "--texts")
    if image and text:
        for labels in data.labelled:
            count = sum(path.is_file() for path in labels.photos)
            if count < MIN_GATE_ITEMS:
                raise too_few_labelled(labels.name, count)


def too_few(found: str, option: str, why: str = "are too few to calibrate on and to judge by") -> ExportError:
    """The line on too few of something."""
    return ExportError(
        f"{found} {why}: give at least {MIN_ITEMS} different ones ({option}); several hundred are better"
    )


def too_few_labelled(name: str, count: int) -> ExportError:
    """The line on a labelled set that is too small."""
    return ExportError(f"{name} has {count} labelled pictures of use, at least {MIN_GATE_ITEMS} are needed (--labels)")
