"""What a scene holds, in symbols, and what a caption claims: so that every caption can be proved true or false."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

COLOURS: dict[str, tuple[int, int, int]] = {
    "red": (214, 39, 40),
    "blue": (31, 90, 200),
    "green": (34, 150, 60),
    "yellow": (240, 205, 30),
    "purple": (140, 60, 190),
    "orange": (250, 135, 20),
    "white": (250, 250, 250),
    "black": (20, 20, 20),
}
SHAPES = ("circle", "square", "triangle", "star", "cross", "ring")
SIZES = ("small", "large")
TEXTURES = ("plain", "striped", "dotted")
RELATIONS = ("left of", "right of", "above", "below")
OPPOSITE = {"left of": "right of", "right of": "left of", "above": "below", "below": "above"}
# Centres closer than this (in picture widths) are on no side of each other.
CLEAR_DISTANCE = 0.15


@dataclass(frozen=True, slots=True)
class Thing:
    """One object of a scene.

    Attributes:
        x: Centre, from 0 (left) to 1 (right); `y` from 0 (top) to 1 (bottom).
        radius: Half of its extent, in picture widths.
    """

    colour: str
    shape: str
    size: str
    texture: str
    x: float
    y: float
    radius: float


@dataclass(frozen=True, slots=True)
class Phrase:
    """What a caption says of one object; `plain` texture goes unsaid."""

    size: str
    texture: str
    colour: str
    shape: str

    @classmethod
    def of(cls, thing: Thing) -> Phrase:
        """The full phrase for a thing."""
        return cls(thing.size, thing.texture, thing.colour, thing.shape)

    def matches(self, thing: Thing) -> bool:
        """Whether the thing has every attribute named here; an unsaid texture may be any."""
        said = self.texture in {"plain", thing.texture}
        return said and (self.size, self.colour, self.shape) == (thing.size, thing.colour, thing.shape)

    def __str__(self) -> str:
        words = [self.size, *([] if self.texture == "plain" else [self.texture]), self.colour, self.shape]
        return "a " + " ".join(words)


@dataclass(frozen=True, slots=True)
class Claim:
    """A caption in symbols: the first phrase stands in `relations[i]` to phrase `i + 1`.

    The text reads "a large red circle left of a small blue square and above a small striped green star".
    """

    phrases: tuple[Phrase, ...]
    relations: tuple[str, ...]

    def __str__(self) -> str:
        others = zip(self.relations, self.phrases[1:], strict=True)
        return f"{self.phrases[0]} " + " and ".join(f"{relation} {phrase}" for relation, phrase in others)

    def holds(self, things: Sequence[Thing]) -> bool:
        """Whether some choice of distinct things makes every word of the claim true."""
        for chosen in permutations(things, len(self.phrases)):
            named = all(p.matches(t) for p, t in zip(self.phrases, chosen, strict=True))
            if named and all(stands(chosen[0], r, t) for r, t in zip(self.relations, chosen[1:], strict=True)):
                return True
        return False

    def swap_attribute(self, attribute: str) -> Claim:
        """The first two phrases exchange one attribute (`colour`, `shape`, `size` or `texture`)."""
        first, second = self.phrases[:2]
        a, b = getattr(first, attribute), getattr(second, attribute)
        return replace(
            self,
            phrases=(replace(first, **{attribute: b}), replace(second, **{attribute: a}), *self.phrases[2:]),
        )

    def swap_relation(self) -> Claim:
        """The first relation turns into its opposite."""
        return replace(self, relations=(OPPOSITE[self.relations[0]], *self.relations[1:]))

    def swap_object(self) -> Claim:
        """The first two phrases exchange their places."""
        return replace(self, phrases=(self.phrases[1], self.phrases[0], *self.phrases[2:]))


def stands(a: Thing, relation: str, b: Thing) -> bool:
    """Whether `a` clearly stands in `relation` to `b`."""
    distance = {"left of": b.x - a.x, "right of": a.x - b.x, "above": b.y - a.y, "below": a.y - b.y}[relation]
    return distance >= CLEAR_DISTANCE


_PHRASE = re.compile(
    rf"a (?P<size>{'|'.join(SIZES)})(?: (?P<texture>{'|'.join(TEXTURES)}))? "
    rf"(?P<colour>{'|'.join(COLOURS)}) (?P<shape>{'|'.join(SHAPES)})"
)
_RELATION = re.compile("|".join(RELATIONS))


def parse(caption: str) -> Claim:
    """Reads a caption of this grammar back into symbols; the inverse of `str(claim)`.

    Raises:
        ValueError: if the caption is not of this grammar.
    """
    phrases = tuple(
        Phrase(m["size"], m["texture"] or "plain", m["colour"], m["shape"]) for m in _PHRASE.finditer(caption)
    )
    relations = tuple(m[0] for m in _RELATION.finditer(caption))
    if len(phrases) < 2 or len(relations) != len(phrases) - 1 or str(Claim(phrases, relations)) != caption:
        raise ValueError(f"not a caption of a scene: {caption!r}")
    return Claim(phrases, relations)
