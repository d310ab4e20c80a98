"""The files of a report: whether they can be written is known before the work, and they appear whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from twinlens.training.errors import ConfigError

JSON_FILE = "evaluation.json"
PAGE_FILE = "report.html"


def check_writable(out: Path) -> None:
    """Refuses a folder that no report can be written to, before minutes of work on one.

    Raises:
        ConfigError: saying why.
    """
    for name in (JSON_FILE, PAGE_FILE):
        if (out / name).is_dir():
            raise ConfigError(f"{out / name} is a folder, where the report has a file; name another --out")
    try:
        with tempfile.TemporaryFile(dir=out):
            pass
    except OSError as error:
        raise _not_written(out, error) from None


def write_files(out: Path, texts: Mapping[str, str]) -> None:
    """Writes files of a folder; what has their names is replaced, and only once all are written.

    Raises:
        ConfigError: if they cannot be written. The old files stay.
    """
    # Two commands may have one folder.
    beside = {name: out / f".{name}.{os.getpid()}.tmp" for name in texts}
    try:
        out.mkdir(parents=True, exist_ok=True)  # it may have gone while the work went on
        for name, text in texts.items():
            beside[name].write_text(text, encoding="utf-8")
        for name in texts:
            beside[name].replace(out / name)
    except OSError as error:
        raise _not_written(out, error) from None
    finally:
        for path in beside.values():
            path.unlink(missing_ok=True)


def _not_written(out: Path, error: OSError) -> ConfigError:
    return ConfigError(f"cannot write to {out}: {error.strerror or error}")
