"""What goes wrong in a demo."""

from __future__ import annotations

from twinlens.training.errors import TrainingRoomError


class DemoFailed(TrainingRoomError):  # noqa: N818 - reads as what it says
    """A step of a demo failed. The message is one line."""
