"""Writes docs/reference from the code, so that it cannot rot; `--check` only compares (CI)."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from twinlens.__main__ import app
from twinlens.encoders.manifest import Manifest

REFERENCE = Path(__file__).resolve().parent / "reference"


def _commands(command: click.Command, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    yield path, command
    if isinstance(command, click.Group):
        context = click.Context(command, info_name=" ".join(path))
        for name in command.list_commands(context):
            child = command.get_command(context, name)
            if child is not None and not child.hidden:
                yield from _commands(child, (*path, name))


def _option_row(parameter: click.Parameter) -> str:
    record = parameter.to_info_dict()
    if isinstance(parameter, click.Argument):
        names = f"`{parameter.human_readable_name}`"
    else:
        names = ", ".join(f"`{name}`" for name in (*parameter.opts, *parameter.secondary_opts))
    default = record.get("default")
    shown = "" if default in (None, False, [], ()) or callable(default) else f"`{default}`"
    required = "required" if parameter.required else shown
    text = " ".join(str(getattr(parameter, "help", "") or "").split()).replace("|", "\\|")
    return f"| {names} | {text} | {required} |"


def cli_reference() -> str:
    """The command line as Markdown: one section a command."""
    lines = ["# Commands", "", "Generated from `twinlens --help` by `make docs`.", ""]
    for path, command in _commands(app(), ("twinlens",)):
        lines += [f"## `{' '.join(path)}`", "", (command.help or "").split("\f")[0].strip(), ""]
        parameters = [p for p in command.params if not getattr(p, "hidden", False) and p.name != "help"]
        if parameters:
            lines += ["| option | meaning | default |", "| --- | --- | --- |"]
            lines += [_option_row(p) for p in parameters]
            lines.append("")
    return "\n".join(lines)


def manifest_schema() -> str:
    """JSON Schema of bundle.json."""
    return json.dumps(Manifest.model_json_schema(), indent=2) + "\n"


def main() -> int:
    """Writes the pages, or with --check says which are not current."""
    pages = {"cli.md": cli_reference(), "bundle.schema.json": manifest_schema()}
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
