"""Low-shot: the whole encoder is trained on with the classes of a few pictures."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from twinlens.encoders.manifest import PreprocessSpec
from twinlens.training.augment.augmenter import Augmenter
from twinlens.training.augment.recipe import AugmentRecipe, ViewGroup
from twinlens.training.evaluation.features import embed_pictures, normalised
from twinlens.training.evaluation.knn import accuracy
from twinlens.training.evaluation.labelled import Labelled, stratified
from twinlens.training.evaluation.linear_probe import fit_linear
from twinlens.training.optimiser import Schedule, optimiser_of
from twinlens.training.precision import precision_of
from twinlens.training.progress import Report

# Of the linear layer that the fine-tuning starts from: strong, as there are few pictures.
_PENALTY = 1e-2
# Pictures of a batch that batch norm can take its statistics from.
_FEWEST_FOR_STATISTICS = 32
_MOST_AT_ONCE = 256


@dataclass(frozen=True)
class FineTuning:
    """How the few pictures are used.

    Attributes:
        epochs: Walks through them, but no fewer than `least_steps` steps.
        least_steps: One percent of a small set fills a batch or two; walks alone would hardly move anything.
        batch_size: At most; fewer pictures are one batch.
        learning_rate: After warm-up, of AdamW with cosine decay.
        weight_decay: Of matrices and filters.
    """

    epochs: int = 30
    least_steps: int = 200
    batch_size: int = 128
    learning_rate: float = 1e-3
    weight_decay: float = 0.05

    def steps(self, pictures: int) -> int:
        """How many steps so many pictures get."""
        return max(self.least_steps, self.epochs * math.ceil(pictures / min(self.batch_size, pictures)))


@dataclass(frozen=True)
class LowShot:
    """What came of it.

    Attributes:
        share: Of the training pictures.
        pictures: How many that are.
        accuracy: On the test pictures, after fine-tuning.
        linear_accuracy: The same with the encoder frozen: where the fine-tuning starts.
    """

    share: float
    pictures: int
    accuracy: float
    linear_accuracy: float


def low_shot(
    backbone: nn.Module,
    train: Labelled,
    test: Labelled,
    preprocess: PreprocessSpec,
    share: float,
    *,
    tuning: FineTuning | None = None,
    seed: int = 0,
    progress: Report = lambda *_: None,
) -> LowShot:
    """Fine-tunes a copy on a share of every class (the protocol of SimCLR, Chen et al. 2020, section 4 and B.5).

    As there: random crops and flips only. Otherwise than there: the layer on top starts as the linear probe of the same
    pictures, so that what a fresh one makes the encoder forget does not count (Kumar et al. 2022), and the optimiser is
    AdamW, which serves convolutional networks and transformers alike; bf16 where the machine computes in it. Batch norm
    takes its statistics from the batches where these hold 32 pictures or more; else it keeps those of the long
    training, if there was one.

    Args:
        backbone: Left as it is.
        train: The share is taken from these.
        test: Scored, with no say in anything.
        preprocess: Of the encoder.
        share: In (0, 1]; 0.01 and 0.1 in the literature.
        tuning: How; None: the defaults.
        seed: Of the share, the batches and the crops.
        progress: Told of steps and their losses.

    Raises:
        ValueError: if the share is out of range.
    """
    how = FineTuning() if tuning is None else tuning
    few = train.taken(stratified(train.labels, share, seed))
    classes = len(train.classes)
    tuned = copy.deepcopy(backbone)
    _take_first_statistics(tuned, few.pixels_nhwc, preprocess)
    features = embed_pictures(tuned, few.pixels_nhwc, preprocess)
    fitted = fit_linear(features, torch.from_numpy(few.labels), classes, _PENALTY)
    test_labels = torch.from_numpy(test.labels)
    linear = accuracy(fitted.logits(embed_pictures(tuned, test.pixels_nhwc, preprocess)), test_labels)

    for parameter in tuned.parameters():
        parameter.requires_grad = True
    device = next(tuned.parameters()).device
    head = nn.Linear(features.shape[1], classes).to(device)
    weight, bias = fitted.on_features()
    with torch.no_grad():
        head.weight.copy_(weight)
        head.bias.copy_(bias)
    model = nn.Sequential(tuned, head)
    _fine_tune(model, few, preprocess, how, seed, progress)
    return LowShot(share, len(few), accuracy(embed_pictures(model, test.pixels_nhwc, preprocess), test_labels), linear)


def _fine_tune(
    model: nn.Module, few: Labelled, preprocess: PreprocessSpec, how: FineTuning, seed: int, progress: Report
) -> None:
    size = preprocess.size
    # Crops of a third of a picture and more: gentler than pre-training's, for the object should stay in sight.
    group = ViewGroup(count=1, crop_scale=(0.3, 1.0), crop_ratio=(3 / 4, 4 / 3), flip=0.5)
    augment = Augmenter(AugmentRecipe(size=size, views=(group,)), preprocess.mean, preprocess.std, seed)
    batch = min(how.batch_size, len(few))
    steps = how.steps(len(few))
    optimiser = optimiser_of(
        "adamw", [model], learning_rate=how.learning_rate, weight_decay=how.weight_decay, momentum=0.0
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(optimiser, Schedule(steps, steps // 10).factor)
    device = next(model.parameters()).device
    rng = np.random.default_rng((seed, len(few)))
    order = np.empty(0, dtype=np.int64)
    model.train()
    if batch < _FEWEST_FOR_STATISTICS:
        for norm in _batch_norms(model):
            if norm.num_batches_tracked:  # those of the long training are better
                norm.eval()
    fast = precision_of("auto") == "bf16"
    every = max(1, steps // 20)
    for step in range(steps):
        if len(order) < batch:
            order = np.concatenate([order, rng.permutation(len(few))])
        rows, order = order[:batch], order[batch:]
        pixels = torch.from_numpy(few.pixels_nhwc[rows]).to(device)
        labels = torch.from_numpy(few.labels[rows]).to(device)
        optimiser.zero_grad(set_to_none=True)
        with torch.autocast(device.type, torch.bfloat16, enabled=fast):
            scores = model(augment(pixels, step)[0])
        loss = F.cross_entropy(scores.float(), labels)
        loss.backward()  # type: ignore[no-untyped-call]
        optimiser.step()
        schedule.step()
        if (step + 1) % every == 0 or step + 1 == steps:
            progress(step + 1, {"step": float(step + 1), "loss": float(loss.detach())})


def _take_first_statistics(backbone: nn.Module, pixels_nhwc: NDArray[np.uint8], preprocess: PreprocessSpec) -> None:
    """Batch norms that no batch has passed, as in an encoder that was never trained, start with those of the pictures.

    As built they normalise nothing, and the first batch would change all that the linear layer was fitted to.
    """
    fresh = {norm: norm.momentum for norm in _batch_norms(backbone) if norm.num_batches_tracked == 0}
    if not fresh:
        return
    device = next(backbone.parameters()).device
    backbone.eval()
    for norm in fresh:
        norm.train()
        norm.momentum = None  # the mean over all batches
    with torch.no_grad():
        for part in np.array_split(pixels_nhwc, -(-len(pixels_nhwc) // _MOST_AT_ONCE)):
            backbone(normalised(torch.from_numpy(part).to(device), preprocess))
    for norm, momentum in fresh.items():
        norm.momentum = momentum
        cast("Tensor", norm.num_batches_tracked).zero_()  # still of no training


def _batch_norms(model: nn.Module) -> list[_BatchNorm]:
    return [part for part in model.modules() if isinstance(part, _BatchNorm)]
