"""The keys that a configuration knows, and those that a mistyped one may have meant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from twinlens.training.pull.near_names import near


def perhaps_key(
    model: type[BaseModel], location: Sequence[str | int], others: Iterable[str] = (), *, prefix: str = ""
) -> str:
    """`; perhaps train.steps`, or nothing where no key is near: of the same section first, then of all.

    Args:
        model: What the configuration is checked by.
        location: Of the unknown key, as pydantic tells it.
        others: Further keys that there are elsewhere, dotted.
        prefix: The section that was checked on its own.
    """
    *path, key = [str(part) for part in location]
    siblings = _fields(model, path)
    section = [*([prefix] if prefix else []), *without_tags(model, path)]
    found = [".".join([*section, name]) for name in near(key, siblings)]
    if not found:
        everywhere = [*(dotted_keys(model) if not prefix else ()), *others]
        by_last: dict[str, list[str]] = {}
        for name in everywhere:
            by_last.setdefault(name.rpartition(".")[2], []).append(name)
        found = by_last.get(key) or [name for last in near(key, by_last) for name in by_last[last]]
    # A key that several kinds of a section share is one key.
    return f"; perhaps {', '.join(list(dict.fromkeys(found))[:3])}" if found else ""


def dotted_keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every key of a configuration as a person writes it, sections left out."""
    for name, field in model.model_fields.items():
        parts = _models(field.annotation)
        if not parts:
            yield f"{prefix}{name}"
        for part in parts:
            yield from dotted_keys(part, f"{prefix}{name}.")


def _fields(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    models = [model]
    for part in path:
        inner = [found for each in models if part in each.model_fields for found in _models(_annotation(each, part))]
        # Positions in a list and the tags of unions are no keys.
        models = inner or models
    return list(dict.fromkeys(name for each in models for name in each.model_fields))


def without_tags(model: type[BaseModel], path: Sequence[str]) -> list[str]:
    """Of a location, as pydantic tells it, what a person wrote: keys and positions, not which of a union was meant."""
    return [part for index, part in enumerate(path) if part.isdigit() or part in _fields(model, path[:index])]


def _annotation(model: type[BaseModel], name: str) -> Any:
    return model.model_fields[name].annotation


def _models(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models(part)]
