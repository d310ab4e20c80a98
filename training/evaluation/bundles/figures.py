"""The figures of a report: what they show, and how they are drawn."""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from twinlens.client.contact_sheet import contact_sheet
from twinlens.printable import printable
from twinlens.training.data.listed_pictures import Picture
from twinlens.training.evaluation.bundles.embedder import read_picture
from twinlens.training.evaluation.bundles.guessing import found_by_guessing
from twinlens.training.evaluation.confusions import Confusions
from twinlens.training.evaluation.embedding_map import COLOURS

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

# More names than this beside a picture cannot be read.
_MOST_NAMES = 50
_THUMBNAIL = 150


@dataclass(frozen=True)
class RankCurve:
    """Places of right answers.

    Attributes:
        name: What asks for what.
        ranks: Of the best right answer of each query, from 1.
        right: How many right answers each query has.
        of: How many there were to choose from.
    """

    name: str
    ranks: NDArray[np.int64]
    right: NDArray[np.int64]
    of: int


@dataclass(frozen=True)
class RankCurves:
    """Share of queries with a right answer among the first k, for every k, beside what guessing finds.

    Attributes:
        title: Above it.
        curves: One a way of asking.
    """

    title: str
    curves: tuple[RankCurve, ...]


@dataclass(frozen=True)
class Histogram:
    """Where values lie, by group; areas are 1.

    Attributes:
        title: Above it.
        values: Group to its values.
        axis: What the values are.
    """

    title: str
    values: Mapping[str, NDArray[np.float64]]
    axis: str


@dataclass(frozen=True)
class Bars:
    """A share each, with what guessing gives.

    Attributes:
        title: Above it.
        shares: Name to share, from the top.
        chance: Of all of them; None: not drawn.
    """

    title: str
    shares: Mapping[str, float]
    chance: float | None = None


@dataclass(frozen=True)
class Confusion:
    """Which class goes where.

    Attributes:
        title: Above it.
        classes: Names.
        confusions: By their numbers.
    """

    title: str
    classes: tuple[str, ...]
    confusions: Confusions


@dataclass(frozen=True)
class Sheet:
    """Pictures in rows.

    Attributes:
        title: Above it.
        rows: A title, and pictures with what is said below each.
    """

    title: str
    rows: tuple[tuple[str, tuple[tuple[Picture, str], ...]], ...]


Figure = RankCurves | Histogram | Bars | Confusion | Sheet


def draw(figure: Figure) -> bytes:
    """A PNG file; a JPEG file where it is made of photos."""
    if isinstance(figure, Sheet):
        return _draw_sheet(figure)
    from matplotlib.backends.backend_agg import FigureCanvasAgg  # noqa: PLC0415 - half a second, and only here
    from matplotlib.figure import Figure as Canvas  # noqa: PLC0415

    canvas = Canvas(layout="constrained")
    FigureCanvasAgg(canvas)
    match figure:
        case RankCurves():
            _draw_ranks(canvas, figure)
        case Histogram():
            _draw_histogram(canvas, figure)
        case Bars():
            _draw_bars(canvas, figure)
        case Confusion():
            _draw_confusion(canvas, figure)
    buffer = io.BytesIO()
    with warnings.catch_warnings():
        # A name in letters that the font lacks is drawn as boxes; nobody can do anything about it here.
        warnings.filterwarnings("ignore", message=r"Glyph \d+")
        canvas.savefig(buffer, format="png", dpi=110, metadata={"Software": None})
    return buffer.getvalue()


def _draw_sheet(figure: Sheet) -> bytes:
    # What cannot be read any more is a grey place.
    rows = [
        (printable(title), [(_bytes_of(picture), printable(told)) for picture, told in cells])
        for title, cells in figure.rows
    ]
    buffer = io.BytesIO()
    contact_sheet(rows, cell=_THUMBNAIL, font_size=12).save(buffer, format="JPEG", quality=82)
    return buffer.getvalue()


def _bytes_of(picture: Picture) -> bytes:
    data = read_picture(picture)
    return data if isinstance(data, bytes) else b""


def _draw_ranks(canvas: Canvas, figure: RankCurves) -> None:
    canvas.set_size_inches(5.6, 3.6)
    axes = canvas.subplots()
    for colour, curve in zip(COLOURS, figure.curves, strict=False):
        ks = np.unique(np.geomspace(1, curve.of, 200).astype(np.int64)).tolist()
        axes.plot(ks, [(curve.ranks <= k).mean() for k in ks], color=colour, linewidth=1.6, label=curve.name)
        guessed = [found_by_guessing(curve.right, curve.of, k) for k in ks]
        axes.plot(ks, guessed, color=colour, linewidth=0.8, linestyle=":", label="guessing")
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.set_xlabel("k", fontsize=9)
    axes.set_ylabel("share found among the first k", fontsize=9)
    axes.grid(alpha=0.25)
    axes.legend(fontsize=8)
    _finish(canvas, figure.title)


def _draw_histogram(canvas: Canvas, figure: Histogram) -> None:
    canvas.set_size_inches(5.6, 3.2)
    axes = canvas.subplots()
    everything = np.concatenate(list(figure.values.values()))
    low, high = float(everything.min()), float(everything.max())
    bins = np.linspace(low - 1e-3, high + 1e-3, 60)
    for colour, (name, values) in zip(COLOURS, figure.values.items(), strict=False):
        axes.hist(values, bins=list(bins), density=True, alpha=0.55, color=colour, label=name)
    axes.set_xlabel(figure.axis, fontsize=9)
    axes.set_yticks([])
    axes.legend(fontsize=8)
    _finish(canvas, figure.title)


def _draw_bars(canvas: Canvas, figure: Bars) -> None:
    names = list(figure.shares)
    canvas.set_size_inches(6.4, 1.0 + 0.24 * len(names))
    axes = canvas.subplots()
    places = np.arange(len(names))[::-1]
    axes.barh(places, list(figure.shares.values()), color=COLOURS[0], height=0.7)
    axes.set_yticks(places, [_drawn(name) for name in names], fontsize=8)
    axes.set_xlim(0, 1)
    if figure.chance is not None:
        axes.axvline(figure.chance, color=COLOURS[1], linestyle="--", linewidth=1.2, label="guessing")
        axes.legend(fontsize=8, loc="lower right")
    axes.grid(axis="x", alpha=0.25)
    _finish(canvas, figure.title)


def _draw_confusion(canvas: Canvas, figure: Confusion) -> None:
    title, shown = figure.title, np.arange(len(figure.classes))
    if len(shown) > _MOST_NAMES:
        shown = figure.confusions.most_confused(_MOST_NAMES)
        title = f"{title}, the {_MOST_NAMES} most confused of {len(figure.classes)} classes"
    count = len(shown)
    side = 2.0 + (0.34 if count <= 15 else 0.17) * max(count, 8)
    canvas.set_size_inches(side + 0.6, side)
    axes = canvas.subplots()
    # Of all pictures of the class, also where some of them went to classes that are not shown.
    shares = figure.confusions.matrix(shown) / np.maximum(1, figure.confusions.pictures()[shown])[:, None]
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    names = [_drawn(figure.classes[row]) for row in shown.tolist()]
    size = 8 if count <= 25 else 6
    axes.set_xticks(range(count), names, rotation=90, fontsize=size)
    axes.set_yticks(range(count), names, fontsize=size)
    axes.set_xlabel("went to", fontsize=9)
    axes.set_ylabel("is", fontsize=9)
    if count <= 15:
        for (row, column), share in np.ndenumerate(shares):
            if share > 0:
                colour = "white" if share > 0.5 else "black"
                axes.text(column, row, f"{share:.2f}".lstrip("0"), ha="center", va="center", fontsize=6, color=colour)
    canvas.colorbar(image, ax=axes, shrink=0.7)
    _finish(canvas, title)


def _finish(canvas: Canvas, title: str) -> None:
    for axes in canvas.axes:
        axes.tick_params(labelsize=8 if len(axes.get_yticklabels()) < 30 else 6)
    canvas.suptitle(_drawn(title, most=90), fontsize=10)


def _drawn(text: str, most: int = 28) -> str:
    line = printable(text)
    # Not as mathematics, which a dollar would begin.
    return (line if len(line) <= most else line[: most - 1] + "…").replace("$", r"\$")
