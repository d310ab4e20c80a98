"""Writes docs/reference from the code, so that it cannot rot; `--check` only compares (CI)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from twinlens.__main__ import app
from twinlens.encoders.manifest import Manifest
from twinlens.server.settings import Settings

REFERENCE = Path(__file__).resolve().parent / "reference"


# Commands are Any: Typer has them from click in older versions and from a copy of its own in newer ones.
def _commands(command: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield path, command
    if hasattr(command, "list_commands"):
        for name in command.list_commands(None):
            child = command.get_command(None, name)
            if child is not None and not child.hidden:
                yield from _commands(child, (*path, name))


def _option_row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    if is_argument:
        names = f"`{parameter.name.upper()}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    default = parameter.default
    # Compared by identity: 0 is a default worth showing, and equals False.
    absent = default is None or default is False or default in ([], ()) or callable(default)
    shown = "" if absent else f"`{default}`"
    text = " ".join((getattr(parameter, "help", None) or "").split()).replace("|", "\\|")
    return f"| {names} | {text} | {'required' if parameter.required else shown} |"


def cli_reference() -> str:
    """The command line as Markdown: one section a command."""
    lines = ["# Commands", "", "Generated from `twinlens --help` by `make docs`.", ""]
    for path, command in _commands(app(), ("twinlens",)):
        lines += [f"## `{' '.join(path)}`", "", (command.help or "").strip(), ""]
        parameters = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
        if parameters:
            lines += ["| option | meaning | default |", "| --- | --- | --- |"]
            lines += [_option_row(p) for p in parameters]
            lines.append("")
    return "\n".join(lines)


def manifest_schema() -> str:
    """JSON Schema of bundle.json."""
    return json.dumps(Manifest.model_json_schema(), indent=2) + "\n"


def settings_reference() -> str:
    """The server's settings as Markdown."""
    lines = [
        "# Server settings",
        "",
        "Generated from the code by `make docs`. An option of `twinlens serve` overrules the",
    ]
    lines += ["environment, which overrules the TOML file given with `--config`.", ""]
    lines += ["| key in the file | environment | default |", "| --- | --- | --- |"]
    for name, field in Settings.model_fields.items():
        default = "" if field.default is None else f"`{field.default}`"
        lines.append(f"| `{name}` | `TWINLENS_{name.upper()}` | {default} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    """Writes the pages, or with --check says which are not current."""
    pages = {"cli.md": cli_reference(), "settings.md": settings_reference(), "bundle.schema.json": manifest_schema()}
    stale = []
    for name, text in pages.items():
        path = REFERENCE / name
        if "--check" in sys.argv[1:]:
            if not path.is_file() or path.read_text(encoding="utf-8") != text:
                stale.append(name)
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if stale:
        sys.stderr.write(f"docs/reference is not current ({', '.join(stale)}): run make docs\n")
    return 1 if stale else 0


if __name__ == "__main__":
    raise SystemExit(main())
