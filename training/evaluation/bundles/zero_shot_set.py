"""Pictures of known classes: zero-shot by the names of the classes, and nearest neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from twinlens.training.data.class_names import number_labels
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pictures import CLASSES_FILE, ListedPicture
from twinlens.training.data.picture_set import WHERE_CLASSES_STAND
from twinlens.training.data.picture_sources import list_pictures
from twinlens.training.data.picture_tables import PictureColumns
from twinlens.training.errors import ConfigError
from twinlens.training.evaluation.bundles.config import ZeroShotSection
from twinlens.training.evaluation.bundles.figures import Bars, Confusion, Figure, Sheet
from twinlens.training.evaluation.bundles.results import Measure, SetResult
from twinlens.training.evaluation.bundles.usable import (
    Usable,
    limited,
    set_name,
    shown_text,
    taken,
    twins,
    with_vectors,
)
from twinlens.training.evaluation.bundles.vectors_once import VectorsOnce
from twinlens.training.evaluation.held_out_pairs import spread_measures
from twinlens.training.evaluation.knn import accuracy, knn_votes
from twinlens.training.evaluation.prompt_templates import TemplateSet, checked, template_set
from twinlens.training.evaluation.zero_shot import ZeroShot, class_vectors, zero_shot

# So many pairs of classes that are taken for each other are told to scripts.
_CONFUSED_PAIRS = 20
# And so many are shown to people, with so many pictures each.
_PAIRS_SHOWN = 8
_PICTURES_SHOWN = 5
# A confusion of more classes is told by these pairs alone.
_MOST_IN_JSON = 100
# More bars are no figure.
_MOST_BARS = 60


@dataclass(frozen=True)
class ClassPictures:
    """A set before it is measured.

    Attributes:
        pictures: Those whose class is known.
        classes: Names.
        labels: Of the pictures, int64, shape (n,): positions in `classes`.
        unlabelled: How many pictures were left aside.
        prompts: Sets of them.
    """

    pictures: tuple[ListedPicture, ...]
    classes: tuple[str, ...]
    labels: NDArray[np.int64]
    unlabelled: int
    prompts: tuple[TemplateSet, ...]


def read_zero_shot(section: ZeroShotSection) -> ClassPictures:
    """Finds the pictures of a set, unread, with their classes.

    Raises:
        ConfigError: if a set of prompts cannot be used.
        DataError: if there are no pictures, or of fewer than two classes.
    """
    columns = PictureColumns(section.image_column, section.label_column)
    listing = list_pictures(section.path, columns=columns, images=section.images)
    if not listing.pictures:
        raise DataError(f"there are no pictures in {section.path}")
    known = [picture for picture in listing.pictures if picture.label is not None]
    if not known:
        example = listing.pictures[0].name
        raise DataError(
            f"no picture in {section.path} has a class by {listing.labels_from}, {example} for one: "
            f"{WHERE_CLASSES_STAND}"
        )
    # Of all of them: among the classes of some pictures alone, each would be found more easily.
    classes, labels = number_labels([picture.label for picture in known], listing.class_names)
    if len(classes) < 2:
        raise DataError(
            f"all pictures in {section.path} are of one class ({classes[0]}): there is nothing to tell apart"
        )
    rows = taken(range(len(known)), section.limit)
    unlabelled = len(listing.pictures) - len(known)
    pictures = tuple(known[row] for row in rows)
    return ClassPictures(pictures, classes, labels[rows], unlabelled, tuple(_template_sets(section)))


def measure_zero_shot(
    vectors: VectorsOnce, section: ZeroShotSection, found: ClassPictures, max_share: float
) -> SetResult:
    """Embeds pictures and the prompts of their classes. A model without a text tower has neighbours alone.

    Raises:
        DataError: if too many pictures cannot be used, or a prompt cannot.
    """
    classes = found.classes
    prompts = found.prompts if vectors.model.has_text_tower else ()
    usable = Usable(vectors, max_share, notes=limited(section))
    if not prompts:
        usable.notes.append("the model has no text tower: nearest neighbours alone, no zero-shot")
    elif all(name.isdecimal() for name in classes):
        usable.notes.append(f"classes are numbers, and prompts say them: name them in a {CLASSES_FILE} beside the list")
    if found.unlabelled:
        usable.notes.append(f"{found.unlabelled:,} picture(s) without a class were left aside")
    rows = usable.images(found.pictures)
    kept = with_vectors(rows)
    images, labels = rows[kept], found.labels[kept]
    measures: list[Measure] = []
    figures: list[Figure] = []
    details: dict[str, Any] = {"classes_by_name": list(classes), "templates": {}}
    name = set_name(section)
    for each in prompts:
        class_cd = _class_vectors(usable, each, classes)
        if alike := twins(class_cd):
            usable.notes.append(f"{alike:,} class(es) read like another to the model, and cannot be told from it")
        scored = zero_shot(images, labels, class_cd)
        measures += _measures(each, scored, len(classes))
        details["templates"][each.name] = _details(each, scored, classes)
        figures += _figures(f"{name}, {each.name}", scored, classes)
        pictures = [picture for picture, used in zip(found.pictures, kept, strict=True) if used]
        figures += _mistakes(f"{name}, {each.name}", scored, pictures, labels, classes)
    knn = _neighbours(images, labels, len(classes), section.k)
    if knn is not None:
        measures.append(Measure("knn", f"kNN, k = {section.k}, leave one out", knn, 1 / len(classes)))
    else:
        usable.notes.append("no class has two pictures: there are no neighbours to look at")
    spread = spread_measures(images)
    told = {"uniformity": "uniformity of pictures, lower is more even", "rank": "effective rank of pictures"}
    measures += [
        Measure(f"image_{key}", told[key], value, digits=1 if key == "rank" else 3) for key, value in spread.items()
    ]
    return SetResult(
        "zero_shot",
        name,
        section.path,
        {"pictures": len(images), "classes": len(classes)},
        tuple(measures),
        details,
        tuple(figures),
        usable.problems,
        tuple(dict.fromkeys(usable.notes)),
    )


def _template_sets(section: ZeroShotSection) -> list[TemplateSet]:
    sets = [template_set(which) for which in section.templates]
    if section.prompts:
        sets.append(TemplateSet("prompts", checked(section.prompts, "prompts")))
    if not sets:
        raise ConfigError("templates: name at least one set of prompts")
    names = [each.name for each in sets]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigError(f"two sets of prompts are called {twice!r}")
    return sets


def _class_vectors(usable: Usable, templates: TemplateSet, classes: tuple[str, ...]) -> NDArray[np.float64]:
    prompts = templates.prompts(classes)
    rows = usable.texts(prompts)
    bad = np.flatnonzero(~with_vectors(rows))
    if len(bad):
        prompt = prompts[int(bad[0])]
        shown = shown_text(prompt)
        raise DataError(f"the prompt {shown} cannot be embedded: {usable.problems[shown]}")
    return class_vectors(rows.reshape(len(classes), len(templates.templates), -1))


def _neighbours(images: NDArray[np.float32], labels: NDArray[np.int64], classes: int, k: int) -> float | None:
    """Accuracy over the pictures whose class has another one; None where no class has two."""
    asking = np.bincount(labels, minlength=classes)[labels] > 1
    if not asking.any():
        return None
    bank, numbers = torch.from_numpy(images), torch.from_numpy(labels)
    votes = knn_votes(bank, bank, numbers, classes, k=k, leave_one_out=True)
    return accuracy(votes[torch.from_numpy(asking)], numbers[torch.from_numpy(asking)])


def _measures(templates: TemplateSet, found: ZeroShot, classes: int) -> list[Measure]:
    which = f"{templates.name} ({len(templates.templates)})" if len(templates.templates) > 1 else templates.name
    measures = [Measure(f"{templates.name}/top_1", f"zero-shot top-1, {which}", found.top_1, 1 / classes)]
    if found.top_5 is not None:
        measures.append(Measure(f"{templates.name}/top_5", f"zero-shot top-5, {which}", found.top_5, 5 / classes))
    told = f"mean recall of a class, {which}"
    return [*measures, Measure(f"{templates.name}/mean_per_class", told, found.mean_per_class, 1 / classes)]


def _mistakes(
    title: str,
    found: ZeroShot,
    pictures: Sequence[ListedPicture],
    labels: NDArray[np.int64],
    classes: tuple[str, ...],
) -> list[Figure]:
    """Some pictures of the classes that are most often taken for each other."""
    rows = []
    for own, other, count in found.confusions.pairs(_PAIRS_SHOWN):
        which = np.flatnonzero((labels == own) & (found.confusions.chosen == other))[:_PICTURES_SHOWN]
        cells = tuple((pictures[row], pictures[row].name) for row in which.tolist())
        rows.append((f"{classes[own]} → {classes[other]} ({count:,})", cells))
    return [Sheet(f"{title}: most often taken for another class", tuple(rows))] if rows else []


def _details(templates: TemplateSet, found: ZeroShot, classes: tuple[str, ...]) -> dict[str, Any]:
    details: dict[str, Any] = {
        "prompts": list(templates.templates),
        "top_1": found.top_1,
        "top_5": found.top_5,
        "mean_per_class": found.mean_per_class,
        "per_class": {
            name: None if np.isnan(share) else float(share)
            for name, share in zip(classes, found.per_class, strict=True)
        },
        "confused": [
            {"is": classes[own], "went_to": classes[other], "pictures": count}
            for own, other, count in found.confusions.pairs(_CONFUSED_PAIRS)
        ],
    }
    if len(classes) <= _MOST_IN_JSON:
        details["confusion"] = found.confusions.matrix().tolist()
    return details


def _figures(title: str, found: ZeroShot, classes: tuple[str, ...]) -> list[Figure]:
    figures: list[Figure] = [Confusion(f"{title}: which class goes where", classes, found.confusions)]
    shares = {name: float(share) for name, share in zip(classes, found.per_class, strict=True) if not np.isnan(share)}
    ordered = sorted(shares.items(), key=lambda pair: -pair[1])
    if len(ordered) > _MOST_BARS:
        half = _MOST_BARS // 2
        ordered = ordered[:half] + ordered[-half:]
        title = f"{title}, the {half} best and {half} worst"
    return [*figures, Bars(f"{title}: recall of each class", dict(ordered), 1 / len(classes))]
