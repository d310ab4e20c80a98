"""The one kind of error that a person caused and can mend; commands print its line and end with 1."""

from __future__ import annotations


class TrainingRoomError(Exception):
    """Base of this room's errors. The message is one line that says what is wrong and, where it helps, what to do."""


class ConfigError(TrainingRoomError):
    """The configuration cannot be used. The message is one line that names the key."""


class CheckpointError(TrainingRoomError):
    """A checkpoint is missing, not ours, damaged, or of another architecture. The message is one line."""


class TrainingError(TrainingRoomError):
    """A run cannot start or go on. The message is one line."""


def first_line(error: BaseException) -> str:
    """The first line of what an error of another library says, at most 300 characters; its type if it says nothing."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else type(error).__name__
