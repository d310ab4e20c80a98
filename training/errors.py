"""The one kind of error that a person caused and can mend; commands print its line and end with 1."""

from __future__ import annotations


class TrainingRoomError(Exception):
    """Base of this room's errors. The message is one line that says what is wrong and, where it helps, what to do."""
