"""Judging reduced towers of a bundle by its held-out samples and its parity inputs."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.agreement_limits import MIN_WORST_COSINE
from twinlens.encoders.encoder import Encoder, tower_files
from twinlens.encoders.errors import BundleError
from twinlens.encoders.manifest import Manifest
from twinlens.encoders.progress import Progress
from twinlens.encoders.runtime import Tower, TowerSession, open_tower
from twinlens.encoders.tokenise import TextTokenizer, TokenisedText
from twinlens.training.export.agreement import row_cosines
from twinlens.training.export.variants.gate import Judgement, Vectors, judge
from twinlens.training.export.variants.samples import Pixels, Samples
from twinlens.training.export.variants.watch import Watch, unwatched

_CHUNK = 64


class _TooFarError(Exception):
    """One vector is off by more than the gate allows: the rest need not be computed."""

    def __init__(self, cosines: list[NDArray[np.float64]]) -> None:
        super().__init__()
        self.cosines = np.concatenate(cosines)


class Judge:
    """Holds what fp32 gives for the samples, and compares."""

    def __init__(self, manifest: Manifest, folder: Path, samples: Samples, watch: Watch = unwatched) -> None:
        """Embeds the samples with the fp32 towers of the bundle in `folder`; `watch` is told how far embedding is."""
        self._manifest = manifest
        self._folder = folder
        self._samples = samples
        self._watch = watch
        self.fp32: dict[Tower, TowerSession] = {
            name: open_tower(folder / files.fp32, provider="cpu") for name, files in tower_files(manifest).items()
        }
        self._tokenizer = None
        if manifest.text is not None:
            self._tokenizer = TextTokenizer(folder / manifest.text.text.tokenizer, manifest.text.text)
        self._exact = self._vectors(self._encoder({}), None, [])

    def __call__(self, reduced: dict[Tower, TowerSession]) -> Judgement:
        """Judges towers, each beside the others in fp32 where it is alone."""
        encoder = self._encoder(reduced)
        cosines: list[NDArray[np.float64]] = []
        try:
            found = self._vectors(encoder, reduced, cosines)
        except _TooFarError as early:
            worst = float(early.cosines.min())
            return Judgement(
                float(early.cosines.mean()),
                worst,
                len(early.cosines),
                problems=(f"worst cosine {worst:.4f}, at least {MIN_WORST_COSINE} is needed",),
            )
        except BundleError as error:  # a vector that is zero or not finite
            return Judgement(0.0, 0.0, 1, problems=(str(error),))
        labels = {labelled.name: labelled.labels for labelled in self._samples.labelled}
        judged = judge(self._exact, found, np.concatenate(cosines), self._samples.caption_of, labels)
        try:
            parity = encoder.verify(self._folder)
        except BundleError as error:
            return dataclasses.replace(judged, problems=(*judged.problems, str(error)))
        awkward: dict[Tower, float | None] = {"image": parity.image, "text": parity.text}
        least = [cosine for tower, cosine in awkward.items() if tower in reduced and cosine is not None]
        return dataclasses.replace(judged, worst_cosine=min([judged.worst_cosine, *least]))

    def _encoder(self, reduced: dict[Tower, TowerSession]) -> Encoder:
        sessions = self.fp32 | reduced
        return Encoder(
            self._manifest,
            sessions.get("image"),
            sessions.get("text"),
            self._tokenizer,
            # Which reduced precision it is makes no difference to what parity asks.
            precisions={name: "int8" if name in reduced else "fp32" for name in sessions},
        )

    def _vectors(
        self, encoder: Encoder, reduced: dict[Tower, TowerSession] | None, cosines: list[NDArray[np.float64]]
    ) -> Vectors:
        """Embeds what the reduced towers change; the rest is fp32's. All of it where `reduced` is None."""
        with self._watch("embedding", self._chunks(self.fp32 if reduced is None else reduced)) as progress:
            return self._embedded(encoder, reduced, cosines, progress)

    def _chunks(self, towers: Iterable[Tower]) -> int:
        samples = self._samples
        sizes = {
            "image": [len(samples.gate_pixels), *(len(labels.pixels) for labels in samples.labelled)],
            "text": [len(samples.gate_texts), *(len(labels.prompts) for labels in samples.labelled)],
        }
        return sum(math.ceil(size / _CHUNK) for tower in towers for size in sizes[tower])

    def _embedded(
        self,
        encoder: Encoder,
        reduced: dict[Tower, TowerSession] | None,
        cosines: list[NDArray[np.float64]],
        progress: Progress,
    ) -> Vectors:
        samples = self._samples
        known = None if reduced is None else self._exact

        def images(pixels: Pixels, exact: NDArray[np.float32] | None) -> NDArray[np.float32]:
            if exact is not None and (reduced is None or "image" not in reduced):
                return exact
            rows = []
            for start in range(0, len(pixels), _CHUNK):
                rows.append(encoder.encode_images(pixels[start : start + _CHUNK]))
                progress.advance()
                self._note(rows[-1], exact, start, cosines)
            return np.concatenate(rows) if rows else np.zeros((0, self._manifest.dimension), np.float32)

        def texts(tokens: Sequence[TokenisedText], exact: NDArray[np.float32] | None) -> NDArray[np.float32]:
            if exact is not None and (reduced is None or "text" not in reduced):
                return exact
            rows = []
            for start in range(0, len(tokens), _CHUNK):
                rows.append(encoder.encode_texts(tokens[start : start + _CHUNK]))
                progress.advance()
                self._note(rows[-1], exact, start, cosines)
            return np.concatenate(rows) if rows else np.zeros((0, self._manifest.dimension), np.float32)

        labelled = []
        for i, labels in enumerate(samples.labelled):
            before = (None, None) if known is None else known.labelled[i]
            labelled.append((images(labels.pixels, before[0]), texts(labels.prompts, before[1])))
        return Vectors(
            images(samples.gate_pixels, None if known is None else known.images),
            texts(samples.gate_texts, None if known is None else known.texts),
            tuple(labelled),
        )

    @staticmethod
    def _note(
        found: NDArray[np.float32], exact: NDArray[np.float32] | None, start: int, cosines: list[NDArray[np.float64]]
    ) -> None:
        if exact is None:
            return
        cosines.append(row_cosines(exact[start : start + len(found)], found))
        if cosines[-1].min() < MIN_WORST_COSINE:
            raise _TooFarError(cosines)
