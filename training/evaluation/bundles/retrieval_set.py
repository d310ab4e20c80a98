"""Pictures and captions: retrieval both ways, and how the space is filled."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from twinlens.training.data.captions import CaptionColumns, read_captions
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pairs import CaptionedPicture
from twinlens.training.data.listed_pictures import Picture
from twinlens.training.evaluate import retrieval_ranks
from twinlens.training.evaluation.bundles.config import RetrievalSection
from twinlens.training.evaluation.bundles.figures import Histogram, RankCurve, RankCurves, Sheet
from twinlens.training.evaluation.bundles.guessing import found_by_guessing
from twinlens.training.evaluation.bundles.results import Measure, SetResult
from twinlens.training.evaluation.bundles.usable import Usable, limited, set_name, taken, twins, with_vectors
from twinlens.training.evaluation.bundles.vectors_once import VectorsOnce
from twinlens.training.evaluation.held_out_pairs import rank_measures, space_measures
from twinlens.training.export.variants.calibration import CAPTIONS

KS = (1, 5, 10)
# Cosines of strangers in the histogram.
_STRANGERS = 20_000
# Captions on the sheet, and pictures for each.
_ASKED = 10
_FOUND = 4
_TOLD = {
    "text_to_image": "text → image",
    "image_to_text": "image → text",
    "alignment": "alignment: mean squared distance of pairs, lower is nearer",
    "modality_gap": "gap between the mean picture and the mean caption",
    "image_uniformity": "uniformity of pictures, lower is more even",
    "text_uniformity": "uniformity of captions",
    "image_rank": "effective rank of pictures",
    "text_rank": "effective rank of captions",
}


def read_retrieval(section: RetrievalSection) -> list[CaptionedPicture]:
    """The rows of a set, pictures unread.

    Raises:
        DataError: if the file cannot be used.
    """
    columns = CaptionColumns(image=section.image_column, caption=section.caption_column)
    path = section.path / CAPTIONS if section.path.is_dir() else section.path
    rows = read_captions(path, columns, images=section.images)
    kept = set(taken(list(dict.fromkeys(row.picture.name for row in rows)), section.limit))
    return [row for row in rows if row.picture.name in kept]


def measure_retrieval(
    vectors: VectorsOnce, section: RetrievalSection, rows: Sequence[CaptionedPicture], max_share: float
) -> SetResult:
    """Embeds pictures and captions, and searches both ways.

    Raises:
        DataError: if too much cannot be used, or fewer than two pictures can.
    """
    pictures = list({row.picture.name: row.picture for row in rows}.values())
    usable = Usable(vectors, max_share, notes=limited(section))
    image_md = usable.images(pictures)
    text_nd = usable.texts([row.caption for row in rows])
    place = {picture.name: row for row, picture in enumerate(pictures)}
    owners = np.array([place[row.picture.name] for row in rows])
    kept = with_vectors(text_nd, image_md[owners])
    captioned, owners = np.unique(owners[kept], return_inverse=True)
    images, texts = image_md[captioned], text_nd[kept]
    if len(images) < 2:
        why = usable.first_problem()
        raise DataError(f"{section.path} has {len(images)} usable picture(s), and retrieval needs at least two{why}")
    used = [row for row, is_used in zip(rows, kept, strict=True) if is_used]
    usable.notes.extend(_repeated(used))
    if alike := twins(images):
        usable.notes.append(f"{alike:,} picture(s) look like another to the model, and cannot be told from it")
    text_ranks, image_ranks = retrieval_ranks(images, texts, owners)
    own, strangers = _cosines(images, texts, owners)
    name = set_name(section)
    found = {**rank_measures(text_ranks, image_ranks, KS), **space_measures(images, texts, owners)}
    captions = np.bincount(owners, minlength=len(images))
    chance = _chance(captions, len(images))
    curves = (
        RankCurve("captions looking for their picture", text_ranks, np.ones_like(owners), len(images)),
        RankCurve("pictures looking for a caption", image_ranks, captions, len(texts)),
    )
    return SetResult(
        "retrieval",
        name,
        section.path,
        {"pictures": len(images), "captions": len(texts)},
        (
            *(_measure(key, value, chance.get(key)) for key, value in found.items() if key != "mean_recall"),
            Measure("positive_cosine", "mean cosine of a caption and its picture", float(own.mean())),
            Measure("negative_cosine", "mean cosine of a caption and another picture", float(strangers.mean())),
        ),
        details={"mean_recall": found["mean_recall"]},
        figures=(
            RankCurves(f"{name}: found among the first k", curves),
            Histogram(f"{name}: cosines", {"own picture": own, "another picture": strangers}, "cosine"),
            _sheet(name, [pictures[row] for row in captioned], images, used, texts, owners, text_ranks),
        ),
        unusable=usable.problems,
        notes=tuple(usable.notes),
    )


def _repeated(rows: list[CaptionedPicture]) -> list[str]:
    """A note on captions of several pictures: every search for one finds the wrong picture at least once."""
    pictures = defaultdict(set)
    for row in rows:
        pictures[row.caption].add(row.picture.name)
    shared = sum(len(images) > 1 for images in pictures.values())
    if not shared:
        return []
    return [f"{shared:,} caption(s) belong to several pictures each: only one of them can be first"]


def _cosines(
    images: NDArray[np.float32], texts: NDArray[np.float32], owners: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Cosines of captions with their own picture, and with some others, the same ones every time."""
    own = (texts * images[owners]).sum(axis=1, dtype=np.float64)
    rng = np.random.default_rng(0)
    asking = rng.integers(0, len(texts), size=_STRANGERS)
    others = (owners[asking] + rng.integers(1, len(images), size=_STRANGERS)) % len(images)
    return own, (texts[asking] * images[others]).sum(axis=1, dtype=np.float64)


def _sheet(
    name: str,
    pictures: Sequence[Picture],
    images: NDArray[np.float32],
    rows: Sequence[CaptionedPicture],
    texts: NDArray[np.float32],
    owners: NDArray[np.int64],
    ranks: NDArray[np.int64],
) -> Sheet:
    """Some captions, from the best found to the worst, each with its own picture and those that were nearest."""
    order = np.argsort(ranks, kind="stable")
    shown = []
    for row in dict.fromkeys(np.linspace(0, len(order) - 1, _ASKED).round().astype(int).tolist()):
        caption = int(order[row])
        scores = images @ texts[caption]
        own = int(owners[caption])
        cells = [(pictures[own], f"its own: {scores[own]:.3f}")]
        for place, found in enumerate(np.argsort(-scores, kind="stable")[:_FOUND].tolist(), 1):
            cells.append((pictures[found], f"{place}: {scores[found]:.3f}{' (its own)' if found == own else ''}"))
        shown.append((f"place {ranks[caption]:,}: {rows[caption].caption}", tuple(cells)))
    return Sheet(f"{name}: some captions, from the best found to the worst, and the nearest pictures", tuple(shown))


def _chance(captions: NDArray[np.int64], pictures: int) -> dict[str, float]:
    """Recall@k and median rank of an order drawn at random; `captions` counts those of each picture."""
    one = np.ones(1, dtype=np.int64)
    chance = {f"text_to_image_r{k}": found_by_guessing(one, pictures, k) for k in KS}
    chance |= {f"image_to_text_r{k}": found_by_guessing(captions, int(captions.sum()), k) for k in KS}
    return {**chance, "text_to_image_median_rank": (pictures + 1) / 2}


def _measure(key: str, value: float, chance: float | None) -> Measure:
    for way in ("text_to_image", "image_to_text"):
        if key.startswith(way):
            what = key.removeprefix(f"{way}_")
            told = f"R@{what[1:]}" if what.startswith("r") else "median rank"
            return Measure(key, f"{_TOLD[way]} {told}", value, chance, digits=3 if told != "median rank" else 1)
    details: Any = {"digits": 1} if key.endswith("_rank") else {}
    return Measure(key, _TOLD[key], value, chance, **details)
