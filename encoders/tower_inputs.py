"""What a graph is given: the inputs it names, of those a tower has."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from twinlens.encoders.errors import BundleError


def select_inputs(graph: str, names: Sequence[str], given: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """The inputs a graph names; the rest is left out.

    Args:
        graph: The file's name, for the message.
        names: The inputs it takes.
        given: What there is.

    Raises:
        BundleError: if one is not there.
    """
    for name in names:
        if name not in given:
            msg = f"{graph} wants an input named {name!r}, which this tower does not have"
            raise BundleError(msg)
    return {name: given[name] for name in names}
