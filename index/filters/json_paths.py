"""Ways from an item's metadata to the values at a path."""

from __future__ import annotations

from collections.abc import Callable

from twinlens.index.filters.conditions import Sql, put, value

Test = Callable[[Sql, Sql], Sql]
"""From the JSON type of a value and the value to a condition on them."""


def is_plain(segment: str) -> bool:
    """Whether SQLite's paths can name it: JSON escapes the other characters, and its paths compare what is written."""
    return all(character >= " " and character not in {'"', "\\"} for character in segment)


def written(segments: tuple[str, ...]) -> str:
    """The path of plain segments as SQLite writes it."""
    return "$" + "".join(f'."{segment}"' for segment in segments)


def literal(segments: tuple[str, ...]) -> str:
    """The expression of an index: the one place where a path is no parameter, since SQLite could not match one."""
    quoted = written(segments).replace("'", "''")
    return f"json_extract(metadata, '{quoted}')"


def at(segments: tuple[str, ...], test: Test, *, indexed: bool) -> Sql:
    """Whether there is something at a path, reached through mappings alone, that passes a test."""
    if all(map(is_plain, segments)):
        path = value(written(segments))
        found = Sql(literal(segments)) if indexed else put("json_extract(items.metadata, {})", path)
        return test(put("json_type(items.metadata, {})", path), found)
    tables = ["json_each(items.metadata) s0"]
    tables += [
        f"json_each(CASE s{i}.type WHEN 'object' THEN s{i}.value ELSE '{{}}' END) s{i + 1}"
        for i in range(len(segments) - 1)
    ]
    return _exists(tables, segments, test)


def reached(segments: tuple[str, ...], test: Test) -> Sql:
    """Whether anything at a path passes a test, where lists on the way mean each of their elements."""
    if len(segments) == 1:
        return at(segments, test, indexed=False)
    tables = ["json_each(items.metadata) s0"]
    for i in range(len(segments) - 1):
        # A mapping is taken for a list of itself alone.
        as_list = (
            f"CASE s{i}.type WHEN 'array' THEN s{i}.value WHEN 'object' THEN '[' || s{i}.value || ']' ELSE '[]' END"
        )
        tables.append(f"json_each({as_list}) e{i}")
        tables.append(f"json_each(CASE e{i}.type WHEN 'object' THEN e{i}.value ELSE '{{}}' END) s{i + 1}")
    return _exists(tables, segments, test)


def any_element(kind: Sql, found: Sql, test: Test) -> Sql:
    """Whether it is a list, and one of its elements passes a test."""
    elements = put("json_each(CASE {} WHEN 'array' THEN {} ELSE '[]' END) e", kind, found)
    return put("EXISTS (SELECT 1 FROM {} WHERE {})", elements, test(Sql("e.type"), Sql("e.value")))


def any_key(kind: Sql, found: Sql, test: Callable[[Sql], Sql]) -> Sql:
    """Whether it is a mapping, and one of its keys passes a test."""
    members = put("json_each(CASE {} WHEN 'object' THEN {} ELSE '{{}}' END) e", kind, found)
    return put("EXISTS (SELECT 1 FROM {} WHERE {})", members, test(Sql("e.key")))


def _exists(tables: list[str], segments: tuple[str, ...], test: Test) -> Sql:
    # CROSS JOIN keeps SQLite from trying orders of tables: each needs the one before.
    last = len(segments) - 1
    names = [put(f"s{i}.key = {{}}", value(segment)) for i, segment in enumerate(segments)]
    every = put(" AND ".join(["{}"] * len(names)), *names)
    tested = test(Sql(f"s{last}.type"), Sql(f"s{last}.value"))
    return put("EXISTS (SELECT 1 FROM {} WHERE {} AND {})", Sql(" CROSS JOIN ".join(tables)), every, tested)
