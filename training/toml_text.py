"""A configuration as a TOML file that a person can read, change and give back."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any


def toml_text(content: Mapping[str, Any]) -> str:
    """Sections of keys; lists of tables inside a section are written out, all other tables in one line.

    A key that is None is a comment, since TOML has no such value.

    Args:
        content: Section to its keys, as JSON has them.
    """
    lines: list[str] = []
    for section, keys in content.items():
        if keys is None:
            lines += ["", f"# [{_key(section)}] is not set"]
            continue
        lines += ["", f"[{_key(section)}]", *_section(section, keys)]
    return "\n".join(lines[1:]) + "\n"


def _section(section: str, keys: Mapping[str, Any]) -> Iterator[str]:
    tables = {key: value for key, value in keys.items() if _is_tables(value)}
    for key, value in keys.items():
        if value is None:
            yield f"# {_key(key)} is not set"
        elif key not in tables:
            yield f"{_key(key)} = {_value(value)}"
    for key, rows in tables.items():
        for row in rows:
            yield ""
            yield f"[[{_key(section)}.{_key(key)}]]"
            yield from (f"{_key(name)} = {_value(value)}" for name, value in row.items() if value is not None)


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(each, Mapping) for each in value)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(f"{_key(key)} = {_value(each)}" for key, each in value.items() if each is not None)
        return f"{{ {inner} }}" if inner else "{}"
    if isinstance(value, list):
        return f"[{', '.join(_value(each) for each in value)}]"
    # JSON's strings, numbers and words are TOML's, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def _key(key: str) -> str:
    bare = key.isascii() and key.replace("_", "").replace("-", "").isalnum()
    return key if bare else _value(key)
