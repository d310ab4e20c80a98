"""The manifest of a bundle (bundle.json): everything that changes a vector, and where it came from."""

from __future__ import annotations

import hashlib
import json
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

SCHEMA_VERSION = 1
MANIFEST_NAME = "bundle.json"
# What training goes on from, where the bundle has it: listed and published like any file, but no server reads it, and
# it is no part of the space.
TRAINING_FILE = "checkpoint.pt"

Precision = Literal["fp32", "fp16", "int8"]
_LARGE = 1e6
NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$"
_ROUNDING = 1e-6
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]


class _Frozen(BaseModel):
    # NaN has no spelling in JSON: it would be written as null, and not read again.
    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class PreprocessSpec(_Frozen):
    """From decoded RGB to the image tower's input.

    `resize_size` is the side the picture is resized to before the centre crop of `size`: the shorter side for
    `shortest`, the longer for `longest` (then padded with `fill` to a square), both for `squash`.
    """

    decode_contract: int = 1
    size: int = Field(gt=0)
    resize_size: int = Field(gt=0)
    resize_mode: Literal["shortest", "longest", "squash"] = "shortest"
    interpolation: Literal["bilinear", "bicubic"] = "bicubic"
    mean: tuple[float, float, float]
    std: tuple[float, float, float]
    fill: int = Field(default=0, ge=0, le=255)

    @model_validator(mode="after")
    def _numbers_make_sense(self) -> Self:
        # Pixels lie between 0 and 1: numbers far beyond would only overflow.
        if not all(abs(value) < _LARGE for value in (*self.mean, *self.std)) or min(self.std) < 1 / _LARGE:
            msg = "mean and std must be finite, and std above zero"
            raise ValueError(msg)
        if self.resize_mode == "shortest" and self.resize_size < self.size:
            msg = "resize_size must not be smaller than size: the crop would leave the picture"
            raise ValueError(msg)
        return self


class TextSpec(_Frozen):
    """From a string to the text tower's input.

    `clean` names the checkpoint's own clean-up before the tokenizer: `none`; `clip_lower` (ftfy, HTML unescape,
    white space folded, lower case: CLIP); `clip_whitespace` (the same without lower-casing); `canonicalize`
    (SigLIP: punctuation removed, lower case).
    """

    tokenizer: str = "tokenizer.json"
    clean: Literal["none", "clip_lower", "clip_whitespace", "canonicalize"] = "none"
    context_length: int = Field(gt=0)
    pad_id: int = Field(ge=0)
    # True: every row is padded to context_length (towers that attend to padding, or a fixed graph).
    # False: rows are padded to the longest of the batch only.
    pad_to_context: bool
    # Whether the graph takes attention_mask beside input_ids.
    attention_mask: bool


class Agreement(_Frozen):
    """How the vectors of a reduced-precision file compare with those of fp32, measured when it was made."""

    mean_cosine: float
    worst_cosine: float
    # Points of 100, fp32 minus this file; None where it could not be measured.
    recall_at_10_drop: float | None = None
    top1_drop: float | None = None
    # How many inputs were compared.
    items: int = Field(gt=0)
    # Nodes that stay in fp32, because rounding them cost too much.
    fp32_nodes: tuple[str, ...] = ()
    # What it was measured on, for people.
    data: str = ""

    @model_validator(mode="after")
    def _worst_is_not_above_the_mean(self) -> Self:
        if self.worst_cosine > self.mean_cosine + _ROUNDING:
            msg = f"the worst cosine {self.worst_cosine} is above the mean {self.mean_cosine}"
            raise ValueError(msg)
        return self


class TowerFiles(_Frozen):
    """The ONNX files of one tower by precision; `fp32` is always there, the others come with their agreement.

    `side_files` are what the fp32 graph reads its weights from beside itself. Publishing finds them in the graph, and
    verifying compares: nobody has to name them, and nobody can leave one out.
    """

    fp32: str
    fp16: str | None = None
    int8: str | None = None
    agreement: dict[Precision, Agreement] = Field(default_factory=dict)
    side_files: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _agreement_fits(self) -> Self:
        named = self.by_precision()
        if len(set(named.values())) < len(named):
            msg = f"two precisions name one file: {', '.join(named.values())}"
            raise ValueError(msg)
        for precision in named:
            if precision != "fp32" and precision not in self.agreement:
                msg = f"{named[precision]} has no agreement: say how its vectors compare with fp32"
                raise ValueError(msg)
        for precision in self.agreement:
            if precision == "fp32" or precision not in named:
                msg = f"agreement for {precision}, but no reduced file of that precision"
                raise ValueError(msg)
        return self

    def by_precision(self) -> dict[Precision, str]:
        """The files there are, fp32 first."""
        files: dict[Precision, str] = {"fp32": self.fp32}
        if self.fp16 is not None:
            files["fp16"] = self.fp16
        if self.int8 is not None:
            files["int8"] = self.int8
        return files


class ImageTower(_Frozen):
    """Graph: `pixels` float32 (n, 3, size, size) to `embedding` float32 (n, dimension), not yet normalised."""

    files: TowerFiles
    preprocess: PreprocessSpec
    architecture: str = ""
    pooling: str = ""
    activation: str = ""


class TextTower(_Frozen):
    """Graph: `input_ids`, `attention_mask` int64 (n, length) to `embedding` float32 (n, dimension), not normalised."""

    files: TowerFiles
    text: TextSpec
    architecture: str = ""
    pooling: str = ""
    activation: str = ""


class ScoringRule(_Frozen):
    """How cosines become probabilities: the checkpoint's own rule.

    `softmax`: softmax(scale * cosine) over the labels (CLIP).
    `sigmoid`: sigmoid(scale * cosine + bias) a label (SigLIP).
    """

    rule: Literal["softmax", "sigmoid"] = "softmax"
    scale: float = Field(default=100.0, gt=0)
    bias: float = 0.0


class FileEntry(_Frozen):
    """A file of the bundle; `path` is relative to the bundle, with forward slashes."""

    path: str = Field(min_length=1)
    sha256: Digest
    size: int = Field(ge=0, lt=2**63)

    @model_validator(mode="after")
    def _stays_inside(self) -> Self:
        parts = self.path.split("/")
        if self.path.startswith("/") or "\\" in self.path or any(p in {"", ".", ".."} for p in parts):
            msg = f"path {self.path!r} leaves the bundle"
            raise ValueError(msg)
        if not self.path.isprintable():
            msg = f"path {self.path!r} holds characters that no file should be named with"
            raise ValueError(msg)
        return self


class Lineage(_Frozen):
    """Where the weights came from."""

    method: str = ""
    config_sha256: str = ""
    data_sha256: str = ""
    parent_space_id: str = ""
    packages: dict[str, str] = Field(default_factory=dict)


class Manifest(_Frozen):
    """bundle.json."""

    schema_version: int = SCHEMA_VERSION
    name: str = Field(pattern=NAME_PATTERN)
    version: str = Field(pattern=NAME_PATTERN)
    dimension: int = Field(gt=0)
    image: ImageTower | None = None
    text: TextTower | None = None
    scoring: ScoringRule = ScoringRule()
    files: tuple[FileEntry, ...]
    space_id: Digest
    lineage: Lineage = Lineage()
    metrics: dict[str, float] = Field(default_factory=dict)
    licence: str = ""
    languages: tuple[str, ...] = ()
    description: str = ""

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        if self.image is None and self.text is None:
            msg = "a bundle needs at least one tower"
            raise ValueError(msg)
        listed = {entry.path for entry in self.files}
        if len(listed) < len(self.files):
            msg = "files lists a path twice"
            raise ValueError(msg)
        for path in _named_files(self.image, self.text):
            if path not in listed:
                msg = f"{path} is used but not listed in files"
                raise ValueError(msg)
        expected = compute_space_id(self.dimension, self.image, self.text, self.files)
        if self.space_id != expected:
            msg = f"space_id {self.space_id[:12]} does not match the contents ({expected[:12]})"
            raise ValueError(msg)
        return self


def _named_files(image: ImageTower | None, text: TextTower | None) -> list[str]:
    paths: list[str] = []
    for tower in (image, text):
        if tower is not None:
            paths += (*tower.files.by_precision().values(), *tower.files.side_files)
    if text is not None:
        paths.append(text.text.tokenizer)
    return paths


def compute_space_id(
    dimension: int, image: ImageTower | None, text: TextTower | None, files: tuple[FileEntry, ...]
) -> str:
    """SHA-256 over everything that changes a vector: fp32 weights, preprocessing, tokenizer.

    The files that a graph reads its weights from belong to the weights. Reduced-precision variants do not: those that
    passed the agreement gate share the space.
    """
    digests = {entry.path: entry.sha256 for entry in files}
    content: dict[str, Any] = {"dimension": dimension}
    for tower in (image, text):
        if tower is None:
            continue
        key = "image" if isinstance(tower, ImageTower) else "text"
        spec = tower.preprocess if isinstance(tower, ImageTower) else tower.text
        beside = weights_beside(tower.files, files)
        weights = [digests.get(path, "") for path in (tower.files.fp32, *beside)]
        content[key] = {"weights": sorted(weights), "spec": spec.model_dump(mode="json")}
        if len(beside) > 1:
            # The graph tells them apart by name: two that change places change every vector.
            content[key]["side_files"] = {path: digests.get(path, "") for path in beside}
        if isinstance(tower, TextTower):
            content[key]["tokenizer"] = digests.get(tower.text.tokenizer, "")
            # Where the tokenizer file lies does not change a vector.
            del content[key]["spec"]["tokenizer"]
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def weights_beside(tower: TowerFiles, files: tuple[FileEntry, ...]) -> list[str]:
    """What counts as weights beside the fp32 graph: what it reads, and whatever is called `<graph>.data…`."""
    called = {entry.path for entry in files if entry.path.startswith(tower.fp32 + ".data")}
    return sorted({*tower.side_files, *called})


def served_files(manifest: Manifest) -> dict[str, str]:
    """The digests of what a server may run: graphs of every precision, the weights beside them, the tokenizer."""
    names = set(_named_files(manifest.image, manifest.text))
    for tower in (manifest.image, manifest.text):
        if tower is not None:
            names.update(weights_beside(tower.files, manifest.files))
    return {entry.path: entry.sha256 for entry in manifest.files if entry.path in names}
