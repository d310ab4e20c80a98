"""Choices between nearly equal captions (SugarCrepe) and nearly equal pictures (Winoground, NLVR)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from twinlens.training.data.errors import DataError
from twinlens.training.evaluate import nearer
from twinlens.training.evaluation.bundles.config import CompositionalSection, PairsSection
from twinlens.training.evaluation.bundles.figures import Bars, Histogram
from twinlens.training.evaluation.bundles.picture_pairs import PicturePair, read_picture_pairs
from twinlens.training.evaluation.bundles.results import Measure, SetResult
from twinlens.training.evaluation.bundles.usable import Usable, limited, set_name, taken, with_vectors
from twinlens.training.evaluation.bundles.vectors_once import VectorsOnce
from twinlens.training.evaluation.bundles.wrong_captions import WrongCaption, read_wrong_captions
from twinlens.training.evaluation.image_text_pairs import GROUP_CHANCE, IMAGE_CHANCE, TEXT_CHANCE, pair_scores

_COIN = 0.5


def read_compositional(section: CompositionalSection) -> list[WrongCaption]:
    """The rows of a set, pictures unread.

    Raises:
        DataError: if the file cannot be used.
    """
    return taken(read_wrong_captions(section.path, images=section.images), section.limit)


def measure_compositional(
    vectors: VectorsOnce, section: CompositionalSection, choices: Sequence[WrongCaption], max_share: float
) -> SetResult:
    """Asks whether each picture is nearer to its caption than to the wrong one.

    Raises:
        DataError: if too much cannot be used.
    """
    usable = Usable(vectors, max_share, notes=limited(section))
    images = usable.images([choice.picture for choice in choices])
    right = usable.texts([choice.caption for choice in choices])
    wrong = usable.texts([choice.negative_caption for choice in choices])
    kept = with_vectors(images, right, wrong)
    if not kept.any():
        raise DataError(f"{section.path} has no row that can be used{usable.first_problem()}")
    images, right, wrong = images[kept], right[kept], wrong[kept]
    won = nearer(images, right, wrong)
    # As objects: an array of texts gives each the room of the longest.
    kinds = np.array([choice.kind for choice in choices], dtype=object)[kept]
    by_kind = {str(kind): float(won[kinds == kind].mean()) for kind in np.unique(kinds)}
    counts = {str(kind): int((kinds == kind).sum()) for kind in np.unique(kinds)}
    margins = ((images * right).sum(axis=1) - (images * wrong).sum(axis=1)).astype(np.float64)
    name = set_name(section)
    kinds_told = [
        Measure(f"accuracy/{kind}", f"right caption chosen, {kind} ({counts[kind]:,})", share, _COIN)
        for kind, share in by_kind.items()
    ]
    mean = float(np.mean(list(by_kind.values())))
    several = [Measure("mean_accuracy", "mean over kinds", mean, _COIN)] if len(by_kind) > 1 else []
    return SetResult(
        "compositional",
        name,
        section.path,
        {"rows": len(won), "kinds": len(by_kind)},
        (*kinds_told, *several, Measure("accuracy", "right caption chosen, all rows", float(won.mean()), _COIN)),
        {"rows_by_kind": counts},
        (
            Bars(
                f"{name}: right caption chosen", {f"{kind} ({counts[kind]})": by_kind[kind] for kind in by_kind}, _COIN
            ),
            Histogram(f"{name}: how much nearer the right caption is", {"all kinds": margins}, "difference of cosines"),
        ),
        usable.problems,
        tuple(dict.fromkeys(usable.notes)),
    )


def read_pairs(section: PairsSection) -> list[PicturePair]:
    """The rows of a set, pictures unread.

    Raises:
        DataError: if the file cannot be used.
    """
    return taken(read_picture_pairs(section.path, images=section.images), section.limit)


def measure_pairs(
    vectors: VectorsOnce, section: PairsSection, pairs: Sequence[PicturePair], max_share: float
) -> SetResult:
    """Winoground's scores of rows of two captions; of rows of one, how often its own picture is the nearer one.

    Raises:
        DataError: if too much cannot be used.
    """
    usable = Usable(vectors, max_share, notes=limited(section))
    images = usable.images([picture for pair in pairs for picture in pair.pictures]).reshape(len(pairs), 2, -1)
    captions = len(pairs[0].captions)
    texts = usable.texts([caption for pair in pairs for caption in pair.captions]).reshape(len(pairs), captions, -1)
    kept = with_vectors(images, texts)
    if not kept.any():
        raise DataError(f"{section.path} has no row that can be used{usable.first_problem()}")
    images, texts = images[kept], texts[kept]
    if captions == 1:
        share = float(nearer(texts[:, 0], images[:, 0], images[:, 1]).mean())
        measures = [Measure("accuracy", "right picture chosen", share, _COIN)]
    else:
        scores = pair_scores(images, texts)
        measures = [
            Measure("text", "text score: both captions chosen rightly", scores.text, TEXT_CHANCE),
            Measure("image", "image score: both pictures chosen rightly", scores.image, IMAGE_CHANCE),
            Measure("group", "group score: both at once", scores.group, GROUP_CHANCE),
        ]
    name = set_name(section)
    bars: Mapping[str, float] = {f"{each.name} (guessing {each.chance:.2f})": each.value for each in measures}
    return SetResult(
        "pairs",
        name,
        section.path,
        {"rows": int(kept.sum())},
        tuple(measures),
        figures=(Bars(f"{name}: choices between two pictures", bars),),
        unusable=usable.problems,
        notes=tuple(dict.fromkeys(usable.notes)),
    )
