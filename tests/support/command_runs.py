"""What a command left behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Ran:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    def failed(self, code: int = 1) -> str:
        """The only line of stderr of a command that failed as it should."""
        assert self.code == code, self
        assert self.out == ""
        (line,) = self.err.splitlines()
        assert line.startswith("twinlens: ")
        return line
