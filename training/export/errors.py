"""Why a model could not become a bundle; the commands print the message as one line."""

from __future__ import annotations

from twinlens.training.errors import TrainingRoomError


class ExportError(TrainingRoomError):
    """A model cannot be exported, or its graph does not reproduce it. The message is one line."""
