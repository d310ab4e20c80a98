"""Label vectors: prompts around labels, embedded once and kept."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from twinlens.server.core.admission import Admission
from twinlens.server.core.call import Call
from twinlens.server.core.engine import Engine, Text
from twinlens.server.core.errors import Code, Reason, ServiceError, invalid_argument
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.shared_cache import SharedCache

PLACEHOLDER = "{}"
DEFAULT_TEMPLATE = "a photo of a {}."
NEUTRAL_LABEL = "thing"
# Of UTF-8, of a label and of a template. Every result repeats its labels, and every label is put into every template.
MAX_TEXT_BYTES = 1024
# Batches of prompts that are worked on at a time, however many there are: one runs, the others are ready, so that the
# tower goes from batch to batch.
_BATCHES_AT_A_TIME = 4
# Below this length the mean of unit vectors is rounding, not a direction.
_CANCELLED = 1e-5


@dataclass(frozen=True, slots=True)
class LabelVectors:
    """Unit vectors of labels, shape (labels, d), and of the neutral prompt, shape (d,).

    `truncated`, shape (labels,), marks those of which a prompt was longer than the model's context.
    """

    labels: NDArray[np.float32]
    neutral: NDArray[np.float32]
    truncated: NDArray[np.bool_]


class KeptVectors(Protocol):
    """Where label vectors are kept beyond the memory of the process. Both methods block, and raise nothing."""

    def read(self, key: str) -> LabelVectors | None:
        """Those of a key, or None."""

    def write(self, key: str, vectors: LabelVectors) -> None:
        """Keeps vectors, if it can."""


def fill(template: str, label: str) -> str:
    """Puts a label in the place of the first "{}"; braces in the label or elsewhere stay as they are."""
    return template.replace(PLACEHOLDER, label, 1)


class LabelCache:
    """Label vectors, kept.

    Args:
        engine: Embeds prompts.
        admission: Weighs them.
        io: Where files are read and written.
        max_bytes: What all vectors may take.
    """

    def __init__(self, engine: Engine, admission: Admission, io: WorkerPool, max_bytes: int) -> None:
        self._engine = engine
        self._admission = admission
        self._at_a_time = _BATCHES_AT_A_TIME * engine.max_batch
        self._io = io
        self._cache: SharedCache[LabelVectors] = SharedCache(_size, max_bytes)

    async def get(
        self,
        labels: Sequence[str],
        templates: Sequence[str],
        call: Call,
        *,
        what: str = "label",
        kept: KeptVectors | None = None,
        held: int = 0,
    ) -> LabelVectors:
        """Vectors of labels, from the cache or embedded now, for all who ask for the same at the same time.

        What is embedded is admitted as other texts are, but for what the caller who asked first holds already: that
        waits for the labels, so what is worked on at a time is the larger of the two.

        Args:
            labels: See `check_labels`.
            templates: Prompts around them.
            call: The call this is for.
            what: What a label is called in an error.
            kept: Where to look, before anything is embedded, and where what is embedded is kept.
            held: Items for which the call was admitted, and which wait for this.

        Raises:
            ServiceError: INVALID_ARGUMENT naming a label that cannot be embedded, RESOURCE_EXHAUSTED when the server is
                full.
        """
        key = self.key(labels, templates)
        shared = replace(call, deadline_s=None)  # it goes on when this caller goes away
        return await self._cache.get(key, lambda: self._make(key, labels, templates, shared, what, kept, held))

    def has(self, labels: Sequence[str], templates: Sequence[str]) -> bool:
        """Whether nothing has to be embedded for `get`."""
        return self.key(labels, templates) in self._cache

    def key(self, labels: Sequence[str], templates: Sequence[str]) -> str:
        """A digest of all that makes these vectors, the encoder's space first of all."""
        content = [self._engine.manifest.space_id, list(labels), list(templates)]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()

    async def close(self) -> None:
        """Stops what still runs."""
        await self._cache.close()

    async def _make(
        self,
        key: str,
        labels: Sequence[str],
        templates: Sequence[str],
        call: Call,
        what: str,
        kept: KeptVectors | None,
        held: int,
    ) -> LabelVectors:
        if kept is None:
            return await self._embed(labels, templates, call, what, held)
        found = await self._io.submit(call.priority, kept.read, key)
        if found is not None and found.labels.shape == (len(labels), self._engine.dimension):
            return found
        vectors = await self._embed(labels, templates, call, what, held)
        await self._io.submit(call.priority, kept.write, key, vectors)
        return vectors

    async def _embed(
        self, labels: Sequence[str], templates: Sequence[str], call: Call, what: str, held: int
    ) -> LabelVectors:
        everything = [*labels, NEUTRAL_LABEL]
        per_chunk = max(1, self._at_a_time // len(templates))
        prompts = min(per_chunk, len(everything)) * len(templates)
        rows: list[NDArray[np.float32]] = []
        truncated: list[bool] = []
        with self._admitted(prompts, sum(map(len, (*everything, *templates))), call, held):
            for start in range(0, len(everything), per_chunk):
                chunk, cut = await self._embed_chunk(everything[start : start + per_chunk], templates, call, what)
                rows += chunk
                truncated += cut
        vectors = np.stack(rows)
        return LabelVectors(vectors[:-1], vectors[-1], np.array(truncated[:-1], dtype=np.bool_))

    def _admitted(self, prompts: int, size_bytes: int, call: Call, held: int) -> AbstractContextManager[object]:
        more = prompts - held
        if more <= 0:
            return nullcontext()
        waits = self._engine.is_bulk(prompts)
        return self._admission.admit(more, size_bytes, fetches=waits, held=held, call=call)

    async def _embed_chunk(
        self, labels: Sequence[str], templates: Sequence[str], call: Call, what: str
    ) -> tuple[list[NDArray[np.float32]], list[bool]]:
        prompts = [Text(fill(template, label)) for label in labels for template in templates]
        outcomes = await self._engine.embed(prompts, call)
        means: list[NDArray[np.float64]] = []
        truncated: list[bool] = []
        for i, label in enumerate(labels):
            mine = outcomes[i * len(templates) : (i + 1) * len(templates)]
            for outcome in mine:
                if outcome.failure is not None:
                    raise _label_error(what, label, outcome.failure.reason, outcome.failure.message)
            means.append(np.mean([np.asarray(outcome.vector, dtype=np.float64) for outcome in mine], axis=0))
            truncated.append(any(outcome.truncated for outcome in mine))
        return list(directions(np.stack(means), labels, "the prompts")), truncated


def _label_error(what: str, label: str, reason: Reason, message: str) -> ServiceError:
    if reason is Reason.INTERNAL:
        return ServiceError(Code.INTERNAL, message)
    return invalid_argument(f"{what} {quoted(label)}: {message}")


def check_length(text: str, what: str) -> None:
    """Refuses a label or a template that is too long.

    Raises:
        ServiceError: INVALID_ARGUMENT naming it.
    """
    if (size := len(text.encode())) > MAX_TEXT_BYTES:
        raise invalid_argument(f"{what} {quoted(text)} has {size} bytes, at most {MAX_TEXT_BYTES} are allowed")


def quoted(label: str) -> str:
    """A label in a message, shortened."""
    return repr(label if len(label) <= 60 else label[:57] + "...")


def directions(means_nd: NDArray[np.float64], labels: Iterable[str], of: str) -> NDArray[np.float32]:
    """Means of unit vectors, one a label, at length one.

    Args:
        means_nd: Shape (labels, d).
        labels: Whose they are.
        of: What they are means of, for the error.

    Raises:
        ServiceError: INVALID_ARGUMENT naming a label whose mean points nowhere.
    """
    norms = np.linalg.norm(means_nd, axis=1, keepdims=True)
    for label, norm in zip(labels, norms[:, 0], strict=True):
        if norm <= _CANCELLED:
            raise invalid_argument(f"{of} of label {quoted(label)} cancel each other out")
    return np.asarray(means_nd / norms, dtype=np.float32)


def _size(vectors: LabelVectors) -> int:
    return vectors.labels.nbytes + vectors.neutral.nbytes + vectors.truncated.nbytes
