"""The grammar of filters, a subset of https://google.aip.dev/160, and the parser made from it."""

from __future__ import annotations

from functools import cache
from typing import Any

from lark import Lark, Token, Transformer
from lark.exceptions import UnexpectedInput

from twinlens.index.filters import literals
from twinlens.index.filters.ast import And, Comparison, Filter, Not, Operator, Or
from twinlens.index.filters.fields import comparison
from twinlens.index.filters.syntax_errors import explained

# As in AIP-160, OR binds tighter than AND, and conditions side by side are joined as by AND.
# What a word may consist of depends on where it stands: times and versions ("1.2") are values, but dots part a path.
_GRAMMAR = r"""
start: expression
expression: sequence (AND sequence)*
sequence: alternatives+
alternatives: condition (OR condition)*
condition: (NOT | MINUS)? (comparison | OPEN expression CLOSE)
comparison: path (COMPARATOR | HAS) value
path: (NAME | STRING) (DOT (NAME | STRING))*
value: WORD | MOMENT | STRING

AND.3: /AND(?![\w$@#\/-])/
OR.3: /OR(?![\w$@#\/-])/
NOT.3: /NOT(?![\w$@#\/-])/
MINUS: "-"
OPEN: "("
CLOSE: ")"
DOT: "."
COMPARATOR: "<=" | ">=" | "!=" | "=" | "<" | ">"
HAS: ":"
NAME: /(?!(?:AND|OR|NOT)(?![\w$@#\/-]))[\w$@#\/][\w$@#\/-]*/
STRING: /"(?:[^"\\]|\\(?:.|\n))*"|'(?:[^'\\]|\\(?:.|\n))*'/
MOMENT.2: /\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)?/
WORD: /(?!(?:AND|OR|NOT)(?![^\s"'()<>=!:,\\]))[^\s"'()<>=!:,\\]+/

%ignore /\s+/
"""


def read(text: str) -> Filter:
    """Reads a filter, as long and as deep as it may be.

    Raises:
        InvalidFilter: it is no filter; where and why is said.
    """
    try:
        return _parser().parse(text)  # type: ignore[return-value]  # what `_Build.start` returns, not a tree
    except UnexpectedInput as error:
        raise explained(error, text) from None


class _Build(Transformer[Token, Filter]):
    """What each rule amounts to. Called while parsing, without recursion: depth cannot exhaust the stack."""

    def start(self, parts: list[Any]) -> Filter:
        """All of it."""
        filter_: Filter = parts[0]
        return filter_

    def expression(self, parts: list[Any]) -> Filter:
        """Sequences, all of whose conditions must hold."""
        operands = [each for part in parts if not isinstance(part, Token) for each in part]
        return operands[0] if len(operands) == 1 else And(tuple(operands))

    def sequence(self, parts: list[Any]) -> list[Filter]:
        """Conditions side by side."""
        return parts

    def alternatives(self, parts: list[Any]) -> Filter:
        """Conditions of which one must hold."""
        operands = [part for part in parts if not isinstance(part, Token)]
        return operands[0] if len(operands) == 1 else Or(tuple(operands))

    def condition(self, parts: list[Any]) -> Filter:
        """A comparison or what stands in parentheses, on demand its opposite."""
        (inner,) = (part for part in parts if not isinstance(part, Token))
        negated = isinstance(parts[0], Token) and parts[0].type in {"NOT", "MINUS"}
        return Not(inner) if negated else inner

    def comparison(self, parts: list[Any]) -> Comparison:
        """A path, an operator and a value."""
        (names, at), operator, value = parts
        return comparison(names, at, Operator(str(operator)), str(value), _at(value))

    def path(self, parts: list[Token]) -> tuple[tuple[str, ...], int]:
        """The names of a path, and where it begins."""
        names = tuple(literals.name(str(part), _at(part)) for part in parts if part.type != "DOT")
        return names, _at(parts[0])

    def value(self, parts: list[Token]) -> Token:
        """The value as it is written."""
        return parts[0]


@cache
def _parser() -> Lark:
    """To make it takes some milliseconds."""
    return Lark(_GRAMMAR, parser="lalr", maybe_placeholders=False, transformer=_Build())


def _at(token: Token) -> int:
    return token.start_pos or 0
