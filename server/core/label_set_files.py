"""Label sets on disk: a file of JSON each, and beside it the vectors of its labels, by what made them."""

from __future__ import annotations

import dataclasses
import io
import json
import logging
import re
import threading
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from twinlens.index.durable import make_folder, replace_file, sync
from twinlens.server.core.errors import Code, ServiceError, invalid_argument
from twinlens.server.core.labels import LabelVectors
from twinlens.server.core.none_of_these import NoneOfThese

log = logging.getLogger(__name__)

_ID = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FORMAT = 1
# Files of vectors a label set has at most: of its labels and its background prompts, by the encoder that is served and
# by the one before, to which a server may be put back.
_VECTOR_FILES = 4
# The end of the year 9999, after which the wire knows no time.
_LATEST_S = 253_402_300_799
# How many label sets are held in memory, ready to be used.
_HELD = 64


@dataclass(frozen=True, slots=True)
class LabelSet:
    """Labels and how to ask for them, kept under a name.

    Attributes:
        id: Chosen by the user.
        labels: To choose from.
        templates: Prompts around them; none means the default one.
        multi_label: Each label is judged on its own.
        none: When no label fits.
        created_s: When it was first put, in seconds since the epoch, UTC.
        updated_s: When it was last put.
    """

    id: str
    labels: tuple[str, ...]
    templates: tuple[str, ...] = ()
    multi_label: bool = False
    none: NoneOfThese = dataclasses.field(default_factory=NoneOfThese)
    created_s: float = 0.0
    updated_s: float = 0.0


def check_label_set_id(label_set_id: str) -> str:
    """Returns the id of a label set if it may be one; it becomes a file's name.

    Raises:
        ServiceError: INVALID_ARGUMENT.
    """
    if _ID.fullmatch(label_set_id) is None:
        shown = ascii(label_set_id)
        raise invalid_argument(
            f"label set id {shown if len(shown) <= 80 else shown[:77] + '...'}: use 1 to 64 of a-z, 0-9, '-' and '_', "
            "starting with a letter or digit"
        )
    return label_set_id


class LabelSetFiles:
    """The label sets of a data folder. All methods block; threads share one.

    What is written is on disk when `write` returns, all of it or nothing.

    Args:
        folder: Where they lie; made with the first of them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._held: dict[str, LabelSet] = {}
        self._lock = threading.Lock()

    def held(self, label_set_id: str) -> LabelSet | None:
        """One that is in memory already; does not block."""
        return self._held.get(label_set_id)

    def read(self, label_set_id: str) -> LabelSet:
        """A label set.

        Raises:
            ServiceError: NOT_FOUND if there is none, DATA_LOSS if its file cannot be understood.
        """
        with self._lock:
            return self._read(check_label_set_id(label_set_id))

    def ids(self, after: str) -> list[str]:
        """All ids behind one, in order."""
        try:
            names = [path.stem for path in self._folder.iterdir() if path.suffix == ".json"]
        except FileNotFoundError:
            return []
        return sorted(name for name in names if name > after and _ID.fullmatch(name) is not None)

    def write(self, given: LabelSet, vectors: dict[str, LabelVectors]) -> LabelSet:
        """Keeps a label set in place of one of the same id.

        Args:
            given: The label set; its times are set here.
            vectors: Those of its labels and prompts, by their digests.

        Returns:
            The label set with its times.

        Raises:
            ServiceError: INTERNAL where it cannot be written; what was there stays.
        """
        with self._lock:
            now_s = time.time()
            try:
                created_s = self._read(check_label_set_id(given.id)).created_s
            except ServiceError as error:
                if error.code not in {Code.NOT_FOUND, Code.DATA_LOSS}:
                    raise
                created_s = now_s
            made = replace(given, created_s=created_s, updated_s=max(now_s, created_s))
            try:
                make_folder(self._folder)
                names = [self._write_vectors(given.id, key, each).name for key, each in vectors.items()]
                replace_file(self._path(given.id), _as_json(made))
            except OSError as error:
                self._held.pop(given.id, None)  # what is on disk counts, and it may have got there all the same
                log.error("label set %s cannot be written: %s", given.id, error)  # noqa: TRY400 - a line says it all
                raise ServiceError(
                    Code.INTERNAL, f"label set {given.id} cannot be written; the server's log says why"
                ) from None
            self._hold(made)
            self._remove_vectors(given.id, keep=names)
            return made

    def delete(self, label_set_id: str) -> None:
        """Removes a label set.

        Raises:
            ServiceError: NOT_FOUND if there is none.
        """
        with self._lock:
            self._held.pop(label_set_id, None)
            try:
                self._path(check_label_set_id(label_set_id)).unlink()
                sync(self._folder)
            except FileNotFoundError:
                raise _not_found(label_set_id) from None
            self._remove_vectors(label_set_id, keep=())

    def vectors(self, label_set_id: str) -> VectorFiles:
        """Where the vectors of a label set are kept."""
        return VectorFiles(self, label_set_id)

    def read_vectors(self, label_set_id: str, key: str) -> LabelVectors | None:
        """Vectors by the digest of what made them; None where there are none, or none that can be read."""
        try:
            content = self._vectors_path(label_set_id, key).read_bytes()
            with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
                found = LabelVectors(arrays["labels"], arrays["neutral"], arrays["truncated"])
        except FileNotFoundError:
            return None
        except Exception as error:  # what reads zip files raises all kinds for one that is damaged
            log.warning("vectors of label set %s cannot be read (%s); they are made again", label_set_id, error)
            return None
        right = (
            found.labels.dtype == found.neutral.dtype == np.float32
            and found.truncated.dtype == np.bool_
            and found.labels.ndim == 2
            and found.neutral.shape == found.labels.shape[1:]
            and found.truncated.shape == found.labels.shape[:1]
        )
        return found if right else None

    def add_vectors(self, label_set_id: str, key: str, vectors: LabelVectors) -> None:
        """Keeps vectors of a label set that is there already, made by another encoder than those before."""
        with self._lock:
            if not self._path(label_set_id).is_file():
                return  # deleted meanwhile
            try:
                self._write_vectors(label_set_id, key, vectors)
            except OSError as error:
                log.warning("vectors of label set %s cannot be kept: %s", label_set_id, error)
                return
            files = sorted(self._vector_files(label_set_id), key=lambda path: path.stat().st_mtime_ns, reverse=True)
            self._remove_vectors(label_set_id, keep=[path.name for path in files[:_VECTOR_FILES]])

    def _read(self, label_set_id: str) -> LabelSet:
        if (held := self._held.get(label_set_id)) is not None:
            return held
        try:
            found = _from_json(label_set_id, self._path(label_set_id).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise _not_found(label_set_id) from None
        except (OSError, ValueError, RecursionError, KeyError, TypeError, ServiceError) as error:
            log.error("label set %s cannot be read: %s", label_set_id, error)  # noqa: TRY400 - a line says it all
            raise ServiceError(
                Code.DATA_LOSS, f"the file of label set {label_set_id} is damaged: put it again, or delete it"
            ) from None
        self._hold(found)
        return found

    def _hold(self, label_set: LabelSet) -> None:
        self._held.pop(label_set.id, None)
        self._held[label_set.id] = label_set
        while len(self._held) > _HELD:
            del self._held[next(iter(self._held))]

    def _write_vectors(self, label_set_id: str, key: str, vectors: LabelVectors) -> Path:
        buffer = io.BytesIO()
        np.savez(buffer, labels=vectors.labels, neutral=vectors.neutral, truncated=vectors.truncated)
        path = self._vectors_path(label_set_id, key)
        replace_file(path, buffer.getvalue())
        return path

    def _remove_vectors(self, label_set_id: str, *, keep: list[str] | tuple[str, ...]) -> None:
        for path in self._vector_files(label_set_id):
            if path.name not in keep:
                path.unlink(missing_ok=True)

    def _vector_files(self, label_set_id: str) -> list[Path]:
        return list(self._folder.glob(f"{label_set_id}.*.npz"))  # ids hold no dot, and nothing that a pattern takes

    def _path(self, label_set_id: str) -> Path:
        return self._folder / f"{label_set_id}.json"

    def _vectors_path(self, label_set_id: str, key: str) -> Path:
        return self._folder / f"{label_set_id}.{key}.npz"


@dataclass(frozen=True, slots=True)
class VectorFiles:
    """The vectors of one label set."""

    files: LabelSetFiles
    label_set_id: str

    def read(self, key: str) -> LabelVectors | None:
        """Those of a digest, or None."""
        return self.files.read_vectors(self.label_set_id, key)

    def write(self, key: str, vectors: LabelVectors) -> None:
        """Keeps vectors, if it can."""
        self.files.add_vectors(self.label_set_id, key, vectors)


def _not_found(label_set_id: str) -> ServiceError:
    return ServiceError(Code.NOT_FOUND, f"there is no label set {label_set_id}")


def _as_json(label_set: LabelSet) -> str:
    return json.dumps({"format": _FORMAT, **dataclasses.asdict(label_set)}, ensure_ascii=False, indent=1) + "\n"


def _from_json(label_set_id: str, text: str) -> LabelSet:
    content: dict[str, Any] = json.loads(text)
    if content["format"] != _FORMAT:
        raise ValueError(f"format {content['format']!r} is not known")
    none = content["none"]
    found = LabelSet(
        id=label_set_id,
        labels=_texts(content["labels"]),
        templates=_texts(content["templates"]),
        multi_label=bool(content["multi_label"]),
        none=NoneOfThese(none["min_cosine"], none["min_probability"], _texts(none["background"])),
        created_s=_time(content["created_s"]),
        updated_s=_time(content["updated_s"]),
    )
    if not found.labels:
        raise ValueError("it has no labels")
    found.none.check()
    return found


def _texts(values: Any) -> tuple[str, ...]:
    if not isinstance(values, list) or any(not isinstance(each, str) for each in values):
        raise TypeError("a list of texts is none")
    "".join(values).encode()  # half a character, which JSON can spell, could not be sent
    return tuple(values)


def _time(seconds: float) -> float:
    if not 0 <= seconds <= _LATEST_S:
        raise ValueError("a time is none")
    return float(seconds)
