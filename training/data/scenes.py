"""Captioned scenes: built-in, download-free data in which word order matters.

Every picture comes with a true caption and minimally different wrong ones, as in ARO (Yuksekgonul et al. 2023) and
SugarCrepe (Hsieh et al. 2023). A share of the scenes are siblings: four scenes whose captions have the very same words
in another binding or order, so that a bag of words cannot tell them apart.
"""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from PIL import Image

from twinlens.training.data.scene_drawing import draw
from twinlens.training.data.scene_words import (
    CLEAR_DISTANCE,
    COLOURS,
    RELATIONS,
    SHAPES,
    SIZES,
    TEXTURES,
    Claim,
    Phrase,
    Thing,
)

SIBLINGS = 4
SMALLEST = 16  # pixels a side
KINDS = ("swap_attribute", "swap_relation", "swap_object")
# How far apart, in picture widths, the generator puts what it relates; well over what makes a relation true.
_DISTANCE = CLEAR_DISTANCE + 0.1


@dataclass(frozen=True, slots=True)
class SceneStyle:
    """How rich the scenes are.

    Attributes:
        three_share: Share of scenes with a third object.
        sibling_share: Share of families of four whose captions share all their words.
        clutter: Faint strokes behind the objects.
        textures: What objects may be filled with.
        quarters: Objects stand in the middles of the picture's quarters, not anywhere: what is left to learn sooner is
            which word belongs to what.
    """

    three_share: float = 0.3
    sibling_share: float = 0.5
    clutter: int = 6
    textures: tuple[str, ...] = TEXTURES
    quarters: bool = False


@dataclass(frozen=True, slots=True)
class Scene:
    """A picture, what is true of it and what is not.

    Attributes:
        id: Stable name, of seed and index.
        image: RGB, square.
        caption: True of the picture.
        negatives: Kind (see `KINDS`) to a caption that is false of it; each has the words of the true one, except
            `swap_relation`, where one relation is replaced by its opposite.
        things: The objects, in symbols.
        claim: The caption, in symbols.
    """

    id: str
    image: Image.Image
    caption: str
    negatives: dict[str, str]
    things: tuple[Thing, ...]
    claim: Claim

    def png(self) -> bytes:
        """The picture as a PNG file."""
        buffer = io.BytesIO()
        self.image.save(buffer, "PNG", compress_level=1)
        return buffer.getvalue()


def make_scene(seed: int, index: int, size: int = 64, style: SceneStyle | None = None) -> Scene:
    """Scene number `index` of the endless sequence `seed`: the same whatever was made before it.

    Args:
        seed: Names the sequence, at least 0.
        index: Position in it, at least 0.
        size: Side of the picture in pixels, at least 16.
        style: How rich the scenes are.

    Raises:
        ValueError: if an argument is out of range.
    """
    if seed < 0 or index < 0 or size < SMALLEST:
        raise ValueError(f"seed and index must be at least 0 and size at least {SMALLEST}")
    style = style or SceneStyle()
    family, variant = divmod(index, SIBLINGS)
    family_rng = np.random.default_rng((seed, family, 0))
    own_rng = np.random.default_rng((seed, index, 1))
    siblings = family_rng.random() < style.sibling_share
    claim = _claim(family_rng if siblings else own_rng, style)
    if siblings:
        claim = _sibling(claim, variant)
    things = _place(claim, own_rng, quarters=style.quarters)
    order = own_rng.permutation(len(things))
    image = draw([things[i] for i in order], size, style.clutter, own_rng)
    negatives = {
        "swap_attribute": str(claim.swap_attribute(_swappable(claim, own_rng))),
        "swap_relation": str(claim.swap_relation()),
        "swap_object": str(claim.swap_object()),
    }
    return Scene(f"scene-{seed}-{index}", image, str(claim), negatives, things, claim)


def generate(n: int, seed: int, size: int = 64, *, start: int = 0, style: SceneStyle | None = None) -> Iterator[Scene]:
    """Scenes `start` to `start + n - 1` of the sequence `seed`."""
    for index in range(start, start + n):
        yield make_scene(seed, index, size, style)


def write_scenes(
    folder: Path, n: int, seed: int, size: int = 64, *, start: int = 0, style: SceneStyle | None = None
) -> Path:
    """Writes pictures to `folder/images/` and their captions to `folder/captions.jsonl`.

    Returns:
        The captions file; a row is `{"id", "image", "caption", "negatives": {kind: caption}}`, `image` relative to it.
    """
    (folder / "images").mkdir(parents=True, exist_ok=True)
    path = folder / "captions.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for scene in generate(n, seed, size, start=start, style=style):
            name = f"images/{scene.id}.png"
            (folder / name).write_bytes(scene.png())
            row = {"id": scene.id, "image": name, "caption": scene.caption, "negatives": scene.negatives}
            file.write(json.dumps(row) + "\n")
    return path


def _claim(rng: np.random.Generator, style: SceneStyle) -> Claim:
    count = 3 if rng.random() < style.three_share else 2
    # Colours and shapes differ within a scene, so exchanging either always makes a caption false.
    colours = rng.permutation(len(COLOURS))[:count]
    shapes = rng.permutation(len(SHAPES))[:count]
    names = list(COLOURS)
    phrases = tuple(
        Phrase(
            SIZES[int(rng.integers(len(SIZES)))],
            style.textures[int(rng.integers(len(style.textures)))],
            names[int(colour)],
            SHAPES[int(shape)],
        )
        for colour, shape in zip(colours, shapes, strict=True)
    )
    first = RELATIONS[int(rng.integers(4))]
    relations = [first]
    if count == 3:
        # Across the first relation, so the three never have to stand in one row.
        across = RELATIONS[2:] if first in RELATIONS[:2] else RELATIONS[:2]
        relations.append(across[int(rng.integers(2))])
    return Claim(phrases, tuple(relations))


def _sibling(claim: Claim, variant: int) -> Claim:
    if variant in {1, 3}:
        claim = claim.swap_attribute("colour")
    if variant in {2, 3}:
        claim = claim.swap_object()
    return claim


def _swappable(claim: Claim, rng: np.random.Generator) -> str:
    first, second = claim.phrases[:2]
    usable = [a for a in ("colour", "shape", "size", "texture") if getattr(first, a) != getattr(second, a)]
    # Colour and shape always differ; size and texture are taken as often as they can be.
    return usable[int(rng.integers(len(usable)))]


def _place(claim: Claim, rng: np.random.Generator, *, quarters: bool) -> tuple[Thing, ...]:
    # In a quarter there is a little more room.
    small, large = (0.135, 0.225) if quarters else (0.12, 0.2)
    radii = [(small if p.size == "small" else large) * (0.9 + 0.2 * rng.random()) for p in claim.phrases]
    positions = _quarters(claim.relations, rng) if quarters else _positions(claim.relations, radii, rng)
    return tuple(
        Thing(p.colour, p.shape, p.size, p.texture, x, y, r)
        for p, r, (x, y) in zip(claim.phrases, radii, positions, strict=True)
    )


def _positions(relations: tuple[str, ...], radii: list[float], rng: np.random.Generator) -> list[tuple[float, float]]:
    """Centres such that every relation holds clearly, no boxes overlap and nothing leaves the picture."""
    r = np.array(radii)
    apart = r[:, None] + r[None, :]
    np.fill_diagonal(apart, 0.0)
    for _ in range(4):
        centres = r[:, None] + rng.random((256, len(r), 2)) * (1 - 2 * r[:, None])
        gaps = np.abs(centres[:, :, None] - centres[:, None, :]).max(axis=-1)
        fits = (gaps >= apart).all(axis=(1, 2))
        for other, relation in enumerate(relations, start=1):
            axis, sign = _AXES[relation]
            offset = centres[:, other] - centres[:, 0]
            along = sign * offset[:, axis]
            # Nobody says "left of" of what is mostly above.
            fits &= (along >= _DISTANCE) & (along >= 1.3 * np.abs(offset[:, 1 - axis]))
        if fits.any():
            return [(float(x), float(y)) for x, y in centres[int(fits.argmax())]]
    return _corners(relations)


# The coordinate a relation speaks of, and the sign of (other - first) when it holds.
_AXES = {"left of": (0, 1), "right of": (0, -1), "above": (1, 1), "below": (1, -1)}


def _corners(relations: tuple[str, ...]) -> list[tuple[float, float]]:
    """A layout that always fits: the first object in a corner, each other at the far end of its own axis."""
    first = [0.25, 0.25]
    for relation in relations:
        axis, sign = _AXES[relation]
        first[axis] = 0.5 - 0.25 * sign
    centres = [(first[0], first[1])]
    for relation in relations:
        axis, sign = _AXES[relation]
        other = list(first)
        other[axis] = 0.5 + 0.25 * sign
        centres.append((other[0], other[1]))
    return centres


def _quarters(relations: tuple[str, ...], rng: np.random.Generator) -> list[tuple[float, float]]:
    """A layout in the middles of the quarters: the first two side by side, a third on either end of its side.

    So the quarters that are taken say nothing of the first relation: they are as likely with its opposite.
    """
    middles = rng.choice((0.25, 0.75), size=(len(relations) + 1, 2))
    for other, relation in enumerate(relations, start=1):
        axis, sign = _AXES[relation]
        middles[0, axis] = 0.5 - 0.25 * sign
        middles[other, axis] = 0.5 + 0.25 * sign
    across = 1 - _AXES[relations[0]][0]
    middles[1, across] = middles[0, across]
    return [(float(x), float(y)) for x, y in middles]
