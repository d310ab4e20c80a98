"""The encoder of a bundle: raw pictures and texts in, unit vectors of its space out."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.agreement_limits import MIN_WORST_COSINE
from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.decode import DECODE_CONTRACT, DEFAULT_LIMITS, DecodeLimits
from twinlens.encoders.errors import BundleError, InvalidImage, InvalidText
from twinlens.encoders.free_memory import return_free_memory
from twinlens.encoders.manifest import ImageTower, Manifest, TextTower, TowerFiles
from twinlens.encoders.parity import MIN_COSINE_FP32, ParityReport, check_parity
from twinlens.encoders.preprocess import load_pixels
from twinlens.encoders.runtime import Provider, RunPrecision, Tower, TowerSession, open_tower
from twinlens.encoders.shapes import bucketed_length, length_buckets
from twinlens.encoders.tokenise import TextTokenizer, TokenisedText, collate

# Bounds the memory of one run whatever the caller brings.
_CHUNK = 64


class Encoder:
    """An `EncoderLike` over the ONNX towers of a bundle. Thread-safe.

    Attributes:
        process: The process that holds its sessions, which do not survive a fork.
    """

    def __init__(
        self,
        manifest: Manifest,
        image: TowerSession | None,
        text: TowerSession | None,
        tokenizer: TextTokenizer | None,
        limits: DecodeLimits = DEFAULT_LIMITS,
        precisions: Mapping[Tower, RunPrecision] | None = None,
    ) -> None:
        """Use `load`; this takes parts that are known to fit."""
        self.process = os.getpid()
        self._manifest = manifest
        self._image = image
        self._text = text
        self._tokenizer = tokenizer
        self._limits = limits
        self._precisions = MappingProxyType(dict(precisions or {}))
        sessions: dict[Tower, TowerSession | None] = {"image": image, "text": text}
        self._variant = ", ".join(
            f"{name} {precision} on {session.provider}"
            for name, precision in self._precisions.items()
            if (session := sessions[name]) is not None
        )

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        provider: Provider | Mapping[Tower, Provider] = "auto",
        precision: RunPrecision | Mapping[Tower, RunPrecision] = "fp32",
        threads: int | None = None,
        verify: bool = True,
        limits: DecodeLimits = DEFAULT_LIMITS,
    ) -> Self:
        """Loads the bundle at `path`.

        Args:
            path: The bundle's folder.
            provider: Where the towers run; one for both, or one a tower.
            precision: What they compute in; one for both, and a tower without that file runs its fp32 file (see
                `precisions`); or one a tower. `bf16` is the fp32 file computed in bfloat16 by OpenVINO.
            threads: Threads for each tower, never more than the CPUs this process may use.
            verify: Check the digests, then re-embed `parity/` from raw bytes and compare: cosine at least 0.9999 for
                fp32, 0.98 for the rest.
            limits: Caps on the pictures to come.

        Raises:
            BundleError: if the bundle is missing, corrupt, of another contract, has no tower in this precision, or
                does not reproduce its vectors.
            RuntimeUnavailable: if there is no runtime, or what was asked for is not to be had on this machine.
        """
        folder = Path(path)
        manifest = read_manifest(folder)
        if manifest.image is not None and manifest.image.preprocess.decode_contract != DECODE_CONTRACT:
            msg = (
                f"bundle {folder} was made for decode contract {manifest.image.preprocess.decode_contract}; "
                f"this program has {DECODE_CONTRACT}, its vectors would differ"
            )
            raise BundleError(msg)
        files = tower_files(manifest)
        precisions = _precisions(folder, files, precision)
        if verify:
            verify_digests(folder, manifest, without_training=True)
        towers: dict[Tower, TowerSession] = {}
        try:
            for name, runs in precisions.items():
                where = provider if isinstance(provider, str) else provider.get(name, "auto")
                graph = folder / (files[name].fp32 if runs == "bf16" else files[name].by_precision()[runs])
                towers[name] = open_tower(graph, provider=where, bf16=runs == "bf16", threads=threads)
            tokenizer = None
            if manifest.text is not None:
                tokenizer = TextTokenizer(folder / manifest.text.text.tokenizer, manifest.text.text)
            encoder = cls(manifest, towers.get("image"), towers.get("text"), tokenizer, limits, precisions)
            if verify:
                encoder.verify(folder)
        except BaseException:
            _close(towers.values())
            raise
        return encoder

    @property
    def manifest(self) -> Manifest:
        """The bundle's manifest."""
        return self._manifest

    @property
    def provider(self) -> str:
        """Where the towers run, such as `cpu`; `cpu+openvino` where each has its own; empty after `close`."""
        return "+".join(sorted({session.provider for session in (self._image, self._text) if session is not None}))

    @property
    def precisions(self) -> Mapping[Tower, RunPrecision]:
        """What each tower computes in."""
        return self._precisions

    @property
    def precision(self) -> RunPrecision:
        """What was asked for: the precision of the towers that have it."""
        return next((precision for precision in self._precisions.values() if precision != "fp32"), "fp32")

    @property
    def variant(self) -> str:
        """What made the vectors, for records and logs: `image fp32 on cpu, text int8 on cpu`."""
        return self._variant

    def verify(self, folder: Path) -> ParityReport:
        """Re-embeds `parity/` of the bundle's folder and compares, each tower by the rule for its precision.

        Raises:
            BundleError: if a vector is too far off.
        """
        exact = set(self._precisions.values()) <= {"fp32"}
        report = check_parity(self, folder / "parity", min_cosine=MIN_COSINE_FP32 if exact else MIN_WORST_COSINE)
        cosines: dict[Tower, float | None] = {"image": report.image, "text": report.text}
        for tower, precision in self._precisions.items():
            cosine = cosines[tower]
            if precision == "fp32" and cosine is not None and cosine < MIN_COSINE_FP32:
                msg = (
                    f"parity: the {tower} tower, which runs in fp32, does not reproduce the trainer's vectors: "
                    f"cosine {cosine:.6f}, at least {MIN_COSINE_FP32} wanted"
                )
                raise BundleError(msg)
        return report

    def prepare_image(self, data: bytes) -> NDArray[np.float32]:
        """Decodes and preprocesses one encoded picture; thread-safe.

        Returns:
            Pixels, shape (3, size, size).

        Raises:
            InvalidImage: if the bytes are not a picture we read, break a limit, or the model takes no pictures.
        """
        if self._manifest.image is None:
            raise InvalidImage("this model embeds texts only")
        return load_pixels(data, self._manifest.image.preprocess, self._limits)

    def prepare_text(self, text: str) -> TokenisedText:
        """Cleans and tokenises one text; thread-safe.

        Raises:
            InvalidText: if the text is empty, holds characters no tokenizer can take, or the model takes no texts.
        """
        if self._tokenizer is None:
            raise InvalidText("this model embeds pictures only")
        return self._tokenizer(text)

    def encode_images(self, pixels_nchw: NDArray[np.float32]) -> NDArray[np.float32]:
        """Embeds prepared pictures.

        Args:
            pixels_nchw: Shape (n, 3, size, size).

        Returns:
            Unit vectors, shape (n, d).

        Raises:
            BundleError: if the tower fails, or gives a vector that is zero or not finite.
        """
        tower = self._image  # it may be closed meanwhile, and then says so itself
        if tower is None:
            raise BundleError("this model has no image tower, or was closed")
        rows = [
            self._unit("image", tower.run({"pixels": pixels_nchw[part]}), part) for part in _chunks(len(pixels_nchw))
        ]
        return self._stack(rows)

    def encode_texts(self, tokens: Sequence[TokenisedText]) -> NDArray[np.float32]:
        """Embeds prepared texts.

        Returns:
            Unit vectors in the order given, shape (n, d).

        Raises:
            BundleError: if the tower fails, or gives a vector that is zero or not finite.
        """
        tower = self._text  # as above
        if tower is None or self._manifest.text is None:
            raise BundleError("this model has no text tower, or was closed")
        spec = self._manifest.text.text
        order = sorted(range(len(tokens)), key=lambda i: len(tokens[i].ids))
        lengths = [spec.context_length if spec.pad_to_context else len(tokens[i].ids) for i in order]
        rows = []
        for part in length_buckets(lengths, _CHUNK):
            ids, mask = collate([tokens[i] for i in order[part]], spec)
            if tower.compiles_shapes and not spec.pad_to_context:
                more = ((0, 0), (0, bucketed_length(ids.shape[1], spec.context_length) - ids.shape[1]))
                ids = np.pad(ids, more, constant_values=spec.pad_id)
                mask = np.pad(mask, more)
            inputs = {"input_ids": ids, "attention_mask": mask} if spec.attention_mask else {"input_ids": ids}
            rows.append(self._unit("text", tower.run(inputs), part))
        vectors = np.empty((len(tokens), self._manifest.dimension), dtype=np.float32)
        vectors[order] = self._stack(rows)
        return vectors

    def close(self) -> None:
        """Lets go of the towers and gives their memory back; encoding afterwards is an error."""
        towers = [tower for tower in (self._image, self._text) if tower is not None]
        self._image = self._text = None
        _close(towers)

    def _unit(self, tower: str, raw: NDArray[np.float32], part: slice) -> NDArray[np.float32]:
        wanted = (part.stop - part.start, self._manifest.dimension)
        if raw.shape != wanted:
            msg = f"the {tower} tower gave vectors of shape {raw.shape}, {wanted} expected"
            raise BundleError(msg)
        # In float64: the squares of large float32 outputs may overflow.
        norms = np.linalg.norm(raw.astype(np.float64), axis=1, keepdims=True)
        bad = ~np.isfinite(norms[:, 0]) | (norms[:, 0] == 0.0)
        if bad.any():
            msg = f"the {tower} tower gave a vector that is zero or not finite (item {part.start + int(bad.argmax())})"
            raise BundleError(msg)
        return np.asarray(raw / norms, dtype=np.float32)

    def _stack(self, rows: list[NDArray[np.float32]]) -> NDArray[np.float32]:
        if not rows:
            return np.zeros((0, self._manifest.dimension), dtype=np.float32)
        return np.concatenate(rows)


def _chunks(total: int) -> Iterator[slice]:
    for start in range(0, total, _CHUNK):
        yield slice(start, min(start + _CHUNK, total))


def tower_files(manifest: Manifest) -> dict[Tower, TowerFiles]:
    """The files of the towers there are."""
    towers: dict[Tower, ImageTower | TextTower | None] = {"image": manifest.image, "text": manifest.text}
    return {name: tower.files for name, tower in towers.items() if tower is not None}


def _precisions(
    folder: Path, files: Mapping[Tower, TowerFiles], wanted: RunPrecision | Mapping[Tower, RunPrecision]
) -> dict[Tower, RunPrecision]:
    """What each tower runs in.

    Raises:
        BundleError: if what was asked for is not there.
    """
    found: dict[Tower, RunPrecision] = {}
    for name, of in files.items():
        asked = wanted if isinstance(wanted, str) else wanted.get(name, "fp32")
        has_it = asked == "bf16" or asked in of.by_precision()
        if not has_it and not isinstance(wanted, str):
            msg = f"the {name} tower of bundle {folder} has no {asked} file"
            raise BundleError(msg)
        found[name] = asked if has_it else "fp32"
    if isinstance(wanted, str) and wanted not in found.values():
        has = sorted({precision for of in files.values() for precision in of.by_precision()})
        msg = f"bundle {folder} has no {wanted} tower, only {', '.join(has)}; `twinlens quantize` makes such files"
        raise BundleError(msg)
    return found


def _close(towers: Iterable[TowerSession]) -> None:
    for tower in towers:
        tower.close()
    return_free_memory()
