"""Draws the symbols of a scene with Pillow."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw

from twinlens.training.data.scene_words import COLOURS, Thing

_SUPERSAMPLE = 2  # drawn at twice the side and averaged: soft edges at a quarter of the cost of 4×


def draw(things: Sequence[Thing], size: int, clutter: int, rng: np.random.Generator) -> Image.Image:
    """Draws `things` over a cluttered background.

    Args:
        things: What to draw, in this order.
        size: Side of the square picture in pixels.
        clutter: Number of faint strokes and specks behind the objects.
        rng: Consumed for the background only.
    """
    side = size * _SUPERSAMPLE
    image = Image.new("RGB", (side, side), tuple(int(v) for v in rng.integers(120, 152, size=3)))
    canvas = ImageDraw.Draw(image)
    numbers = rng.random((clutter, 6))
    tones = rng.integers(80, 205, size=(clutter, 3))
    for row, tone in zip(numbers, tones, strict=True):
        x, y = row[0] * side, row[1] * side
        colour = tuple(int(v) for v in tone)
        if row[2] < 0.5:
            canvas.line((x, y, row[3] * side, row[4] * side), fill=colour, width=1 + int(row[5] * 2))
        else:
            r = 1 + row[5] * side * 0.03
            canvas.ellipse((x - r, y - r, x + r, y + r), fill=colour)
    for thing in things:
        x, y = thing.x * side, thing.y * side
        r = max(2, round(thing.radius * side))
        mask = _mask(thing.shape, thing.texture, r)
        image.paste(COLOURS[thing.colour], (round(x) - r, round(y) - r), mask)
    return image.reduce(_SUPERSAMPLE)


@lru_cache(maxsize=1024)
def _mask(shape: str, texture: str, r: int) -> Image.Image:
    """The stencil of a shape of half-extent `r` pixels; stripes and dots are holes that show the background."""
    side = 2 * r + 1
    mask = Image.new("L", (side, side), 0)
    canvas = ImageDraw.Draw(mask)
    match shape:
        case "circle":
            canvas.ellipse((0, 0, side - 1, side - 1), fill=255)
        case "square":
            inset = round(0.1 * r)
            canvas.rectangle((inset, inset, side - 1 - inset, side - 1 - inset), fill=255)
        case "triangle":
            canvas.polygon([(r, 0), (side - 1, side - 1), (0, side - 1)], fill=255)
        case "star":
            canvas.polygon(_star(r), fill=255)
        case "cross":
            arm = max(1, round(0.36 * r))
            canvas.rectangle((r - arm, 0, r + arm, side - 1), fill=255)
            canvas.rectangle((0, r - arm, side - 1, r + arm), fill=255)
        case "ring":
            canvas.ellipse((0, 0, side - 1, side - 1), fill=255)
            hole = round(0.5 * r)
            canvas.ellipse((r - hole, r - hole, r + hole, r + hole), fill=0)
        case _:
            raise ValueError(f"unknown shape {shape!r}")
    if texture == "striped":
        pitch = max(4, round(0.55 * r))
        for y in range(pitch // 2, side, pitch):
            canvas.rectangle((0, y, side - 1, y + max(1, round(pitch * 0.4)) - 1), fill=0)
    elif texture == "dotted":
        pitch = max(4, round(0.6 * r))
        dot = max(1.0, pitch * 0.24)
        for y in range(r % pitch, side, pitch):
            for x in range(r % pitch, side, pitch):
                canvas.ellipse((x - dot, y - dot, x + dot, y + dot), fill=0)
    return mask


def _star(r: int) -> list[tuple[float, float]]:
    points = []
    for k in range(10):
        reach = r if k % 2 == 0 else 0.42 * r
        angle = math.pi * (k / 5 - 0.5)
        points.append((r + reach * math.cos(angle), r + reach * math.sin(angle)))
    return points
