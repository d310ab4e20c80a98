"""Measuring, on this machine, where and in which precision a bundle's towers run fastest."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.agreement_limits import MIN_MEAN_COSINE, MIN_WORST_COSINE
from twinlens.encoders.bundle import read_manifest
from twinlens.encoders.encoder import Encoder, tower_files
from twinlens.encoders.errors import BundleError, RuntimeUnavailable
from twinlens.encoders.parity_inputs import DEFAULT_PARITY_TEXTS, default_parity_images
from twinlens.encoders.runtime import Provider, RunPrecision, Tower, available_precisions, available_providers
from twinlens.encoders.tokenise import TokenisedText

BATCHES: Final = (1, 8, 32)

# A gain below this over fp32 on the default provider is not worth another runtime or less precision.
WORTH_IT: Final = 1.1
_ROUNDS = 9
_ENOUGH_S = 3.0
_LOADING_S = 2.0
# Queries are short; the parity texts also hold one that fills the window.
_QUERY_WORDS = 8


@dataclass(frozen=True, slots=True)
class Choice:
    """Where a tower runs and what it computes in."""

    provider: Provider
    precision: RunPrecision


@dataclass(frozen=True, slots=True)
class Measured:
    """One choice for one tower.

    Attributes:
        tower: The tower.
        choice: What was measured.
        per_second: Items a second by batch size; empty where it must not be used.
        gain: Its speed over fp32 on the default provider, the geometric mean over batch sizes; 1 for that itself.
        cosine: The worst to the trainer's vectors over the parity inputs.
        problem: Why it must not be used, on one line; empty where it may.
    """

    tower: Tower
    choice: Choice
    per_second: Mapping[int, float] = field(default_factory=dict)
    gain: float = 0.0
    cosine: float | None = None
    problem: str = ""


def plan(folder: Path) -> list[tuple[Tower, Choice]]:
    """What `tune` measures, in this order: for each tower first the reference, fp32 on the default provider.

    Args:
        folder: The bundle.

    Raises:
        BundleError: if its manifest cannot be read.
        RuntimeUnavailable: if there is no runtime to compare with.
    """
    providers = available_providers()
    if "cpu" not in providers:
        raise RuntimeUnavailable("onnxruntime is not installed; install twinlens[cpu]")
    default: Provider = "cuda" if "cuda" in providers else "cpu"
    return [
        (tower, Choice(provider, precision))
        for tower, files in tower_files(read_manifest(folder)).items()
        for provider in sorted(providers, key=lambda name: name != default)
        for precision in available_precisions(provider)
        if precision == "bf16" or precision in files.by_precision()
    ]


def expected_s(choices: int) -> float:
    """Seconds that so many choices take at most, where the model is quick enough to be measured in that time."""
    return choices * (len(BATCHES) * _ENOUGH_S + _LOADING_S)


def tune(
    folder: Path,
    *,
    threads: int | None = None,
    batches: Sequence[int] = BATCHES,
    report: Callable[[Measured], None] = lambda _: None,
) -> list[Measured]:
    """Measures every provider and precision there is here for each tower of a bundle.

    Each is measured in turns with fp32 on the default provider, so that both feel alike what else the machine does.
    Before, it has to reproduce the bundle's parity vectors. What the agreement gate has not judged (it ran the bundle's
    files in ONNX Runtime on the CPU) also has to stay within the gate's limits on ordinary content.

    Args:
        folder: The bundle.
        threads: Threads of a tower, as they will be when it serves.
        batches: Batch sizes to measure; with none, only parity is checked.
        report: Called with each result as it comes.

    Returns:
        The results, for each tower fp32 on the default provider first.

    Raises:
        BundleError: if the bundle does not even run in fp32 on the default provider.
        RuntimeUnavailable: if there is no runtime to compare with.
    """
    planned = plan(folder)
    reference = planned[0][1]
    measured = []
    with closing(Encoder.load(folder, provider=reference.provider, threads=threads)) as base:
        content = {tower: _Ordinary(base, tower) for tower, _ in planned}
        for tower, choice in planned:
            if choice == reference:
                found = _measure_alone(base, folder, choice, content[tower], batches)
            else:
                found = _measure(base, folder, choice, content[tower], batches, threads)
            measured.append(found)
            report(found)
    return measured


def fastest(measured: Sequence[Measured]) -> dict[Tower, Choice]:
    """The best choice that may be used, for each tower; fp32 on the default provider unless another is worth it."""
    best: dict[Tower, Measured] = {}
    for entry in measured:
        standing = best.get(entry.tower)
        if standing is None or (not entry.problem and entry.gain > max(standing.gain, WORTH_IT)):
            best[entry.tower] = entry
    return {tower: entry.choice for tower, entry in best.items()}


class _Ordinary:
    """Ordinary content for a tower: what speed is measured on, and vectors are compared by."""

    def __init__(self, encoder: Encoder, tower: Tower) -> None:
        self.tower = tower
        self._pixels = np.zeros((0, 3, 1, 1), np.float32)
        self._tokens: list[TokenisedText] = []
        if tower == "image":
            self._pixels = np.stack([encoder.prepare_image(data) for data in default_parity_images().values()])
        else:
            short = (" ".join(text.split()[:_QUERY_WORDS]) for text in DEFAULT_PARITY_TEXTS)
            self._tokens = [encoder.prepare_text(text) for text in short]

    def embed(self, encoder: Encoder, count: int) -> NDArray[np.float32]:
        """Unit vectors of so many items, which are taken in turn; shape (count, d)."""
        if self.tower == "image":
            return encoder.encode_images(np.resize(self._pixels, (count, *self._pixels.shape[1:])))
        return encoder.encode_texts([self._tokens[i % len(self._tokens)] for i in range(count)])

    def require_agreement(self, exact: Encoder, reduced: Encoder) -> None:
        """Holds a reduced tower to the limits of the agreement gate.

        Raises:
            BundleError: if it is too far from fp32.
        """
        count = len(self._pixels) or len(self._tokens)
        cosines = (self.embed(exact, count) * self.embed(reduced, count)).sum(axis=1)
        mean, worst = float(cosines.mean()), float(cosines.min())
        if mean < MIN_MEAN_COSINE or worst < MIN_WORST_COSINE:
            msg = (
                f"too far from fp32: cosine mean {mean:.4f}, worst {worst:.4f} over {count} {self.tower}s, at least "
                f"{MIN_MEAN_COSINE} and {MIN_WORST_COSINE} wanted"
            )
            raise BundleError(msg)


def _measure_alone(base: Encoder, folder: Path, choice: Choice, content: _Ordinary, batches: Sequence[int]) -> Measured:
    """The reference itself: against another run of the same it would only show how unsteady the machine is."""
    report = base.verify(folder)
    per_second = {batch: batch / in_turns((partial(content.embed, base, batch),))[0] for batch in batches}
    gain = 1.0 if batches else 0.0
    return Measured(content.tower, choice, per_second, gain, report.image if content.tower == "image" else report.text)


def _measure(
    base: Encoder,
    folder: Path,
    choice: Choice,
    content: _Ordinary,
    batches: Sequence[int],
    threads: int | None,
) -> Measured:
    tower = content.tower
    try:
        encoder = Encoder.load(
            folder,
            provider={tower: choice.provider},
            precision={tower: choice.precision},
            threads=threads,
            verify=False,
        )
    except (BundleError, RuntimeUnavailable) as error:
        return Measured(tower, choice, problem=str(error))
    with closing(encoder):
        try:
            report = encoder.verify(folder)
            if choice.precision != "fp32" and choice.provider != "cpu":
                content.require_agreement(base, encoder)
            per_second, gains = {}, []
            for batch in batches:
                seconds = in_turns((partial(content.embed, base, batch), partial(content.embed, encoder, batch)))
                per_second[batch] = batch / seconds[1]
                gains.append(seconds[0] / seconds[1])
        except BundleError as error:
            return Measured(tower, choice, problem=str(error))
    gain = float(np.exp(np.mean(np.log(gains)))) if gains else 0.0
    return Measured(tower, choice, per_second, gain, report.image if tower == "image" else report.text)


def in_turns(
    calls: Sequence[Callable[[], object]], *, rounds: int = _ROUNDS, enough_s: float = _ENOUGH_S
) -> list[float]:
    """The median seconds of each call, measured one after the other in rounds, after one that does not count.

    Every other round goes backwards, for who runs first finds the caches full of somebody else's data.

    Args:
        calls: What to measure.
        rounds: How often; at least 3 times, fewer than asked for once `enough_s` have passed.
        enough_s: Seconds to spend.
    """
    taken: list[list[float]] = [[] for _ in calls]
    for call in calls:
        call()
    begun = time.perf_counter()
    for number in range(rounds):
        if number >= 3 and time.perf_counter() - begun > enough_s:
            break
        for call, times in list(zip(calls, taken, strict=True))[:: -1 if number % 2 else 1]:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return [statistics.median(times) for times in taken]
