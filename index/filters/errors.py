"""What is wrong with a filter, and where."""

from __future__ import annotations

from twinlens.index.errors import InvalidArgument


class InvalidFilter(InvalidArgument):
    """A filter cannot be read. The message begins "filter, column 12: ".

    Attributes:
        column: Where, counted in characters from 1.
    """

    def __init__(self, position: int, problem: str) -> None:
        """Says what is wrong.

        Args:
            position: In characters from 0.
            problem: One line.
        """
        self.column = position + 1
        super().__init__(f"filter, column {self.column}: {problem}")


def shown(text: str) -> str:
    """A piece of a filter in quotes, on one short, printable line."""
    printable = "".join(character if character.isprintable() else "?" for character in text)
    return f'"{printable if len(printable) <= 40 else printable[:37] + "..."}"'
