"""What can be wrong with training data."""

from __future__ import annotations

from twinlens.training.errors import TrainingRoomError


class DataError(TrainingRoomError):
    """The data cannot be trained on: missing, empty, of other columns, or too broken. The message is one line."""
