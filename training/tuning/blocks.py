"""The parts of a tower from bottom to top, found by the names of its parameters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from torch import nn

# What open_clip, timm and transformers call the lists of their blocks, each with its number behind.
_BLOCK: Final = re.compile(
    r"^(.*?\b(?:res|albert_)?(?:blocks?|layers?\d*|layer_groups|stages?|levels?|h|features)\.\d+)\."
)
# Parameters that a module holds itself come first, wherever they are used.
_OF_THE_STEM: Final = re.compile(r"^(?!.*pool).*(embed|relative_attention_bias|\bpos_|\bcls_emb|_token\b)")
_OF_THE_HEAD: Final = re.compile(r"(^|\.)(proj|text_projection|residual\..*)$")
_IMAGE: Final = "visual."
_TEXT: Final = "text."


@dataclass(frozen=True)
class Parts:
    """Names of a tower's parameters in the whole model.

    Attributes:
        stem: Below the first block: embeddings, first convolutions.
        blocks: From bottom to top.
        head: Behind the last block: norms, pooling, projection.
    """

    stem: tuple[str, ...]
    blocks: tuple[tuple[str, ...], ...]
    head: tuple[str, ...]

    @property
    def layers(self) -> list[tuple[str, ...]]:
        """Stem, blocks and head, from bottom to top, without those that hold nothing."""
        return [layer for layer in (self.stem, *self.blocks, self.head) if layer]


def parts_of(model: nn.Module) -> dict[str, Parts]:
    """The parts of both towers, `image` and `text`; scale and bias belong to neither.

    Args:
        model: See `build_towers`.
    """
    names = [name for name, _ in model.named_parameters() if not name.startswith("logit_")]
    image = {name: name.removeprefix(_IMAGE) for name in names if name.startswith(_IMAGE)}
    text = {name: name.removeprefix(_TEXT) for name in names if not name.startswith(_IMAGE)}
    return {"image": _parts(image), "text": _parts(text)}


def locked_names(parts: Parts, lock: bool | int) -> set[str]:
    """What a lock keeps from being trained: nothing, all but a residual, or all but the head and some last blocks.

    Args:
        parts: Of the tower.
        lock: See `TuningConfig`.
    """
    if lock is False:
        return set()
    if lock is True:
        return {name for layer in parts.layers for name in layer if ".residual." not in name}
    closed = parts.blocks[: max(0, len(parts.blocks) - lock)]
    # With all blocks open there is nothing to keep the stem for.
    return set() if lock > len(parts.blocks) else set(parts.stem).union(*closed)


def _parts(within: Mapping[str, str]) -> Parts:
    """Sorts names of the whole model by what they are called within the tower."""
    blocks: dict[str, list[str]] = {}
    stem: list[str] = []
    head: list[str] = []
    for name, own in within.items():
        found = _BLOCK.match(own)
        if found:
            blocks.setdefault(found[1], []).append(name)
        elif _OF_THE_HEAD.search(own):
            head.append(name)
        elif not blocks or _OF_THE_STEM.search(own):
            stem.append(name)
        else:
            head.append(name)
    return Parts(tuple(stem), _tuples(blocks.values()), tuple(head))


def _tuples(lists: Iterable[list[str]]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(each) for each in lists)
