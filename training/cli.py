"""The commands of this room. Heavy imports happen inside them, so `twinlens --help` stays quick."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

COMMANDS: dict[str, Callable[..., Any]] = {}
