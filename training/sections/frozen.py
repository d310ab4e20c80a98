"""What every section of a configuration is made of."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict


class Frozen(BaseModel):
    """Base of all sections: unknown keys are errors, and so are numbers that are not finite."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


def _named(value: object) -> object:
    if value == "":  # which would be the current folder
        raise ValueError("it names nothing; give a file or a folder")
    return value


NamedPath = Annotated[Path, BeforeValidator(_named)]
