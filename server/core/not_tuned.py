"""The refusal to go by a choice that was not measured."""

from __future__ import annotations


class NotTuned(Exception):  # noqa: N818 - reads as what it is
    """There is no choice of `--tune` to go by. The message is one line that says what to do."""
