"""The linear probe: how far one linear layer on frozen features separates the classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from twinlens.training.evaluation.knn import accuracy
from twinlens.training.evaluation.labelled import stratified

# Swept when none is given; the best on a held-out tenth of the training features is kept (as in CLIP, appendix A.3).
PENALTIES = (1e-4, 1e-3, 1e-2, 1e-1, 1.0)
_HELD_OUT = 0.1
_ITERATIONS = 200


@dataclass(frozen=True)
class LinearClassifier:
    """Logits from features.

    Attributes:
        weight_cd: float64, shape (classes, d), for standardised features.
        bias_c: float64, shape (classes,).
        mean_d: Of the training features.
        std_d: Of the training features; 1 where they are constant.
        penalty: What was trained with.
    """

    weight_cd: Tensor
    bias_c: Tensor
    mean_d: Tensor
    std_d: Tensor
    penalty: float

    def logits(self, features_nd: Tensor) -> Tensor:
        """float64, shape (n, classes)."""
        standard = (features_nd.double() - self.mean_d) / self.std_d
        return standard @ self.weight_cd.T + self.bias_c

    def on_features(self) -> tuple[Tensor, Tensor]:
        """Weight and bias of the same classifier on features as they are: float64, (classes, d) and (classes,)."""
        weight = self.weight_cd / self.std_d
        return weight, self.bias_c - weight @ self.mean_d


@dataclass(frozen=True)
class LinearProbe:
    """How well it did.

    Attributes:
        accuracy: Share of test features whose own class has the highest logit.
        train_accuracy: The same on the features that it was fitted to.
        penalty: On the squared weights.
    """

    accuracy: float
    train_accuracy: float
    penalty: float


def linear_probe(
    train_nd: Tensor,
    train_labels: Tensor,
    test_md: Tensor,
    test_labels: Tensor,
    classes: int,
    *,
    penalties: Sequence[float] = PENALTIES,
    seed: int = 0,
) -> LinearProbe:
    """Fits to the training features and scores the test features, which have no say in anything.

    Args:
        train_nd: Features, shape (n, d).
        train_labels: int64, shape (n,), each in [0, classes).
        test_md: Features, shape (m, d).
        test_labels: int64, shape (m,).
        classes: How many there are.
        penalties: One, or several of which the best on held-out training features is taken.
        seed: Of what is held out.

    Raises:
        ValueError: if shapes differ, something is empty or not finite, or there is no penalty.
    """
    penalty = _best(train_nd, train_labels, classes, penalties, seed)
    fitted = fit_linear(train_nd, train_labels, classes, penalty)
    return LinearProbe(
        accuracy(fitted.logits(test_md), test_labels), accuracy(fitted.logits(train_nd), train_labels), penalty
    )


def fit_linear(features_nd: Tensor, labels: Tensor, classes: int, penalty: float) -> LinearClassifier:
    """Multinomial logistic regression on standardised features, to convergence, in float64.

    Minimises mean cross-entropy + ½ · penalty · ‖W‖², biases free: convex, so that nothing but the features decides.

    Args:
        features_nd: Shape (n, d).
        labels: int64, shape (n,), each in [0, classes).
        classes: How many there are.
        penalty: Positive, or weights grow without end where the classes can be separated.

    Raises:
        ValueError: if shapes differ, something is empty or not finite, a label is out of range, or the penalty is not
            positive.
    """
    if features_nd.ndim != 2 or labels.shape != (len(features_nd),) or not len(labels):
        raise ValueError(
            f"features {tuple(features_nd.shape)} and labels {tuple(labels.shape)} must be (n, d) and (n,)"
        )
    if not torch.isfinite(features_nd).all():
        raise ValueError("some features are not finite")
    if int(labels.min()) < 0 or int(labels.max()) >= classes or penalty <= 0:
        raise ValueError(f"labels must be in [0, {classes}) and the penalty positive, got {penalty}")
    features = features_nd.detach().double()
    mean, std = features.mean(dim=0), features.std(dim=0, correction=0)
    std = torch.where(std > 1e-8 * (1 + mean.abs()), std, torch.ones_like(std))
    standard = (features - mean) / std
    weight = torch.zeros(classes, features.shape[1], dtype=torch.float64, device=features.device, requires_grad=True)
    bias = torch.zeros(classes, dtype=torch.float64, device=features.device, requires_grad=True)
    optimiser = torch.optim.LBFGS(
        [weight, bias], max_iter=_ITERATIONS, tolerance_grad=1e-7, tolerance_change=1e-12, line_search_fn="strong_wolfe"
    )

    def closure() -> Any:
        optimiser.zero_grad()
        loss = F.cross_entropy(standard @ weight.T + bias, labels) + 0.5 * penalty * weight.square().sum()
        loss.backward()  # type: ignore[no-untyped-call]
        return loss

    with torch.enable_grad(), torch.autocast(features.device.type, enabled=False):
        optimiser.step(closure)  # type: ignore[no-untyped-call]
    return LinearClassifier(weight.detach(), bias.detach(), mean, std, penalty)


def _best(features: Tensor, labels: Tensor, classes: int, penalties: Sequence[float], seed: int) -> float:
    if not penalties:
        raise ValueError("name at least one penalty")
    if len(penalties) == 1:
        return penalties[0]
    held = stratified(labels.cpu().numpy().astype(np.int64), _HELD_OUT, seed)
    out = torch.zeros(len(labels), dtype=torch.bool, device=labels.device)
    out[torch.from_numpy(held).to(labels.device)] = True
    if bool(out.all()):  # one picture a class: there is nothing to choose by
        return sorted(penalties)[len(penalties) // 2]
    scores = [
        accuracy(fit_linear(features[~out], labels[~out], classes, penalty).logits(features[out]), labels[out])
        for penalty in penalties
    ]
    # Of equals the largest: the simplest classifier.
    return max(zip(scores, penalties, strict=True))[1]
