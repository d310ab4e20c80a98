"""Everything that is measured of one trained encoder on labelled pictures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from twinlens.training.data.errors import DataError
from twinlens.training.data.picture_set import PictureSet
from twinlens.training.data.picture_sources import load_pictures
from twinlens.training.evaluation.features import embed_pictures
from twinlens.training.evaluation.knn import accuracy, knn_votes
from twinlens.training.evaluation.knn_callback import feature_measures
from twinlens.training.evaluation.labelled import Labelled, labelled, stratified
from twinlens.training.evaluation.linear_probe import linear_probe
from twinlens.training.evaluation.low_shot import FineTuning, LowShot, low_shot
from twinlens.training.image_checkpoint import ImageEncoderSpec, load_image_checkpoint
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.progress import Report
from twinlens.training.run_checkpoint import checkpoint_of

SHARES = (0.01, 0.1)
_HELD_OUT = 0.2


@dataclass(frozen=True)
class ProbeRequest:
    """What to measure on what.

    Attributes:
        source: A checkpoint of an image encoder, or a run folder with one.
        train: Labelled pictures, as `twinlens train --images` takes them.
        test: Held-out ones; None: a fifth of every class of `train`.
        shares: Of the training pictures, for low-shot fine-tuning; none: it is left out.
        k: Neighbours.
        temperature: Of their weights.
        limit: Take at most so many pictures of either.
        seed: Of every random choice.
    """

    source: Path
    train: Path
    test: Path | None = None
    shares: Sequence[float] = ()
    k: int = 20
    temperature: float = 0.07
    limit: int | None = None
    seed: int = 0


@dataclass(frozen=True)
class ProbeResult:
    """What was measured.

    Attributes:
        checkpoint: Of which file.
        method: What trained it.
        name: Of the model.
        steps: It was trained for.
        classes: How many there are.
        train_pictures: How many.
        test_pictures: How many.
        unreadable: Pictures that were left out, and why.
        knn: Accuracy of the nearest neighbours, 0 to 1.
        knn_untrained: The same by a network of this kind with fresh weights, as a run of `seed` starts with; it is more
            than chance.
        linear: Accuracy of the linear probe, on the test pictures.
        linear_train: The same on those it was fitted to.
        penalty: Of the linear probe.
        feature_std: Mean standard deviation of the test features' dimensions, normalised.
        feature_rank: Effective rank of the test features.
        dimension: Length of a feature.
        low_shot: A fine-tuning for each share.
        per_class: Class to its share of test pictures that the neighbours got right.
    """

    checkpoint: Path
    method: str
    name: str
    steps: int
    classes: int
    train_pictures: int
    test_pictures: int
    unreadable: dict[str, str]
    knn: float
    knn_untrained: float
    linear: float
    linear_train: float
    penalty: float
    feature_std: float
    feature_rank: float
    dimension: int
    low_shot: tuple[LowShot, ...]
    per_class: dict[str, float]

    def summary(self) -> dict[str, Any]:
        """For scripts."""
        return {**asdict(self), "checkpoint": str(self.checkpoint)}


@dataclass(frozen=True)
class Probed:
    """A result with what maps are drawn from.

    Attributes:
        result: The measures.
        test: The test pictures.
        features: Theirs, float32, shape (n, d).
    """

    result: ProbeResult
    test: Labelled
    features: Tensor


def probe(request: ProbeRequest, reporting: Callable[[str, int], AbstractContextManager[Report]]) -> Probed:
    """Measures a checkpoint.

    Args:
        request: What on what.
        reporting: Given a title and a number of steps, opens what is told of the fine-tuning.

    Raises:
        CheckpointError: if there is no usable checkpoint.
        DataError: if the pictures cannot be used, or have no classes.
    """
    checkpoint = checkpoint_of(request.source)
    spec, backbone, meta = load_image_checkpoint(checkpoint)
    train, test, unreadable = _pictures(request, spec)
    seen = _by_neighbours(backbone, train, test, spec, request)
    fresh = _by_neighbours(_fresh(spec, request.seed), train, test, spec, request)
    train_labels, test_labels = torch.from_numpy(train.labels), torch.from_numpy(test.labels)
    classes = len(train.classes)
    linear = linear_probe(
        seen.train_features, train_labels, seen.test_features, test_labels, classes, seed=request.seed
    )
    shots = []
    for share in request.shares:
        few = len(stratified(train.labels, share, request.seed))
        with reporting(f"fine-tuning on {few} pictures ({share:.0%})", FineTuning().steps(few)) as progress:
            shots.append(low_shot(backbone, train, test, spec.preprocess, share, seed=request.seed, progress=progress))
    result = ProbeResult(
        checkpoint=checkpoint,
        method=spec.method,
        name=spec.name,
        steps=meta.step,
        classes=classes,
        train_pictures=len(train),
        test_pictures=len(test),
        unreadable=unreadable,
        knn=accuracy(seen.votes, test_labels),
        knn_untrained=accuracy(fresh.votes, test_labels),
        linear=linear.accuracy,
        linear_train=linear.train_accuracy,
        penalty=linear.penalty,
        **feature_measures(seen.test_features),
        dimension=seen.test_features.shape[1],
        low_shot=tuple(shots),
        per_class={
            name: accuracy(seen.votes[test_labels == i], test_labels[test_labels == i])
            for i, name in enumerate(train.classes)
            if bool((test_labels == i).any())
        },
    )
    return Probed(result, test, seen.test_features)


@dataclass(frozen=True)
class _Neighbours:
    """The features of both parts, and how those of training vote on the others."""

    train_features: Tensor
    test_features: Tensor
    votes: Tensor


def _by_neighbours(
    backbone: nn.Module, train: Labelled, test: Labelled, spec: ImageEncoderSpec, request: ProbeRequest
) -> _Neighbours:
    backbone.to("cuda" if torch.cuda.is_available() else "cpu").to(memory_format=torch.channels_last)
    bank, questions = (embed_pictures(backbone, part.pixels_nhwc, spec.preprocess) for part in (train, test))
    labels = torch.from_numpy(train.labels)
    votes = knn_votes(questions, bank, labels, len(train.classes), k=request.k, temperature=request.temperature)
    return _Neighbours(bank, questions, votes)


def _fresh(spec: ImageEncoderSpec, seed: int) -> nn.Module:
    """A network as a run of this seed starts with; the caller's generator is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed)
        return build_backbone(spec.backbone, spec.preprocess.size)


def _pictures(request: ProbeRequest, spec: ImageEncoderSpec) -> tuple[Labelled, Labelled, dict[str, str]]:
    def load(path: Path) -> PictureSet:
        # As serving sees them: at the size of the encoder, and small ones are enlarged.
        return load_pictures(path, side=spec.preprocess.size, smallest=1, limit=request.limit)

    training = load(request.train)
    train = labelled(training)
    if request.test is None:
        held = stratified(train.labels, _HELD_OUT, request.seed)
        rest = np.setdiff1d(np.arange(len(train)), held)
        if len(np.unique(train.labels[rest])) < len(np.unique(train.labels)):
            raise DataError(f"{request.train} has a class of one picture: name other pictures with --test")
        return train.taken(rest), train.taken(held), training.unreadable
    testing = load(request.test)
    # Both often have a picture of one name.
    unreadable = {
        f"{path}: {name}": reason
        for path, found in ((request.train, training), (request.test, testing))
        for name, reason in found.unreadable.items()
    }
    return train, labelled(testing, train.classes), unreadable
