"""From the text of a filter to what it says."""

from __future__ import annotations

import re
from functools import lru_cache

from twinlens.index.filters.ast import Anything, Comparison, Filter, MetadataPath, Not, OwnField
from twinlens.index.filters.errors import InvalidFilter
from twinlens.index.filters.grammar import read

MAX_CHARACTERS = 16_384
MAX_DEPTH = 24  # of parentheses, and of AND, OR and NOT inside each other: what the database's parser can take
MAX_PARTS = 1_000  # comparisons, and the names in their paths: what the database is asked grows with them

# A quote that is never closed reaches to the end: otherwise each one after it would be tried, too.
_QUOTED_OR_BRACKET = re.compile(r""""(?:[^"\\]|\\.)*(?:"|\\?\Z)|'(?:[^'\\]|\\.)*(?:'|\\?\Z)|[()]""", re.DOTALL)


@lru_cache(maxsize=256)
def parse(text: str) -> Filter:
    """Reads a filter.

    Args:
        text: Not blank.

    Raises:
        InvalidFilter: it is no filter, or too long or too deep; where and why is said.
    """
    _check(text)
    node = read(text)
    parts = _parts(node)
    if parts > MAX_PARTS:
        raise InvalidFilter(0, f"it has {parts} comparisons and names, at most {MAX_PARTS} are allowed: split it")
    if (depth := _depth(node)) > MAX_DEPTH:
        problem = f"AND, OR and NOT are nested {depth} deep inside each other, at most {MAX_DEPTH} are allowed"
        raise InvalidFilter(0, f"{problem}: split it")
    return node


def check_filter(text: str) -> None:
    """Does nothing, if a filter can be read or is blank.

    Raises:
        InvalidFilter: as `parse`.
    """
    if text.strip():
        parse(text)


def parse_path(text: str) -> OwnField | MetadataPath:
    """Reads what stands before an operator, such as `camera.lens`.

    Raises:
        InvalidFilter: it is no path.
    """
    node = parse(f"{text}:*")
    if isinstance(node, Comparison) and isinstance(node.value, Anything):
        return node.field
    raise InvalidFilter(0, "expected a single path, such as camera.lens")


def _check(text: str) -> None:
    if len(text) > MAX_CHARACTERS:
        problem = f"it has {len(text)} characters, at most {MAX_CHARACTERS} are allowed"
        raise InvalidFilter(MAX_CHARACTERS, problem)
    for position, character in enumerate(text):
        if character == "\0" or "\ud800" <= character <= "\udfff":
            raise InvalidFilter(position, "NUL and halves of surrogate pairs are not allowed")
    depth = 0
    for found in _QUOTED_OR_BRACKET.finditer(text):
        depth += {"(": 1, ")": -1}.get(found[0], 0)
        if depth > MAX_DEPTH:
            raise InvalidFilter(found.start(), f"parentheses are nested more than {MAX_DEPTH} deep")


def _depth(node: Filter) -> int:
    if isinstance(node, Comparison):
        return 0
    inside = (node.operand,) if isinstance(node, Not) else node.operands
    return 1 + max(map(_depth, inside))


def _parts(node: Filter) -> int:
    if isinstance(node, Comparison):
        return 1 + len(getattr(node.field, "segments", ("own",)))
    if isinstance(node, Not):
        return _parts(node.operand)
    return sum(map(_parts, node.operands))
