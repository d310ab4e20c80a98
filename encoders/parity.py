"""The awkward inputs a bundle carries with the vectors its trainer got for them, and the check on loading."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.errors import BundleError, InvalidImage, InvalidText, first_line
from twinlens.encoders.parity_inputs import DEFAULT_PARITY_TEXTS, default_parity_images
from twinlens.encoders.protocol import EncoderLike

__all__ = [
    "DEFAULT_PARITY_TEXTS",
    "MIN_COSINE_FP32",
    "ParityReport",
    "check_parity",
    "default_parity_images",
    "write_parity",
]

MIN_COSINE_FP32: Final = 0.9999


@dataclass(frozen=True, slots=True)
class ParityReport:
    """The worst cosine to the trainer's vectors a tower; None for a tower the bundle does not have."""

    image: float | None
    text: float | None


def write_parity(
    folder: Path,
    images: Mapping[str, bytes],
    texts: Sequence[str],
    image_embeddings: NDArray[np.floating[Any]] | None,
    text_embeddings: NDArray[np.floating[Any]] | None,
) -> None:
    """Writes the parity folder of a bundle.

    Args:
        folder: The folder itself, `<staging>/parity`; created.
        images: Encoded pictures by file name; empty for a text-only bundle.
        texts: Texts; empty for an image-only bundle.
        image_embeddings: The trainer's vectors in the order of `images`, shape (len(images), d); any length of vector.
        text_embeddings: The same for `texts`.

    Raises:
        ValueError: if a number of vectors does not match, or a vector is zero or not finite.
    """
    arrays = {
        "image_embeddings": _unit(image_embeddings, len(images)),
        "text_embeddings": _unit(text_embeddings, len(texts)),
    }
    (folder / "images").mkdir(parents=True, exist_ok=True)
    for name, data in images.items():
        (folder / "images" / name).write_bytes(data)
    listing = {"images": list(images), "texts": list(texts)}
    (folder / "manifest.json").write_text(json.dumps(listing, indent=2) + "\n", encoding="utf-8")
    np.savez(folder / "embeddings.npz", **arrays)  # type: ignore[arg-type]


def check_parity(encoder: EncoderLike, folder: Path, *, min_cosine: float = MIN_COSINE_FP32) -> ParityReport:
    """Re-embeds the parity inputs from raw bytes and compares with the trainer's vectors.

    Args:
        encoder: The encoder just loaded.
        folder: The parity folder, `<bundle>/parity`.
        min_cosine: 0.9999 for fp32; reduced-precision variants are held to less.

    Raises:
        BundleError: if the folder is missing or damaged, or a cosine is too low; names tower and input.
    """
    listing, embeddings = _read(folder)
    manifest = encoder.manifest
    image = text = None
    try:
        if manifest.image is not None:
            names = listing["images"]
            found = _each(
                [_embed(encoder, folder, part) for part in (names[:1], names[1:]) if part], manifest.dimension
            )
            image = _worst("image", names, found, embeddings["image_embeddings"], min_cosine)
        if manifest.text is not None:
            texts = listing["texts"]
            # One by one, as queries come: beside a long text a short one has as much padding as the window allows, and
            # a tower that needs it would be right here and wrong ever after.
            tokens = [encoder.prepare_text(text) for text in texts]
            found = _each([encoder.encode_texts([each]) for each in tokens], manifest.dimension)
            text = _worst("text", texts, found, embeddings["text_embeddings"], min_cosine)
    except (OSError, InvalidImage, InvalidText) as error:
        msg = f"parity: an input of {folder} cannot be read: {error}"
        raise BundleError(msg) from error
    except BundleError:
        raise
    except Exception as error:  # tokenizers and runtimes each have their own, for a bundle that is not sound
        msg = f"parity: {manifest.name}/{manifest.version} cannot embed its inputs: {first_line(error)}"
        raise BundleError(msg) from error
    return ParityReport(image=image, text=text)


def _embed(encoder: EncoderLike, folder: Path, names: Sequence[str]) -> NDArray[np.float32]:
    """A batch of pictures. The first comes alone, then the rest: a tower that looks at its neighbours is found out.

    And a graph that does not take what the manifest makes of a picture says so before the rest is made.
    """
    pixels = [encoder.prepare_image((folder / "images" / name).read_bytes()) for name in names]
    return encoder.encode_images(np.stack(pixels))


def _each(found: list[NDArray[np.float32]], dimension: int) -> NDArray[np.float32]:
    return np.concatenate(found) if found else np.zeros((0, dimension), np.float32)


def _read(folder: Path) -> tuple[dict[str, list[str]], dict[str, NDArray[np.float32]]]:
    try:
        listing = json.loads((folder / "manifest.json").read_bytes())
        # Opened here, because NumPy leaves a damaged archive open.
        with (folder / "embeddings.npz").open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            embeddings = {name: archive[name] for name in ("image_embeddings", "text_embeddings")}
        names = {key: [str(entry) for entry in listing[key]] for key in ("images", "texts")}
    except Exception as error:  # a damaged archive may raise anything
        msg = f"parity: {folder} is missing or damaged: {(str(error).splitlines() or [''])[0]}"
        raise BundleError(msg) from error
    if odd := [str(array.dtype) for array in embeddings.values() if array.dtype.kind != "f"]:
        msg = f"parity: {folder} is damaged: its vectors are {odd[0]}, not floats"
        raise BundleError(msg)
    if any("/" in name or "\0" in name or name in {"", ".", ".."} for name in names["images"]):
        msg = f"parity: {folder} names a picture outside itself"
        raise BundleError(msg)
    return names, embeddings


def _worst(
    tower: str, names: Sequence[str], found: NDArray[np.float32], wanted: NDArray[np.float32], min_cosine: float
) -> float:
    if not names:
        msg = f"parity: the bundle has no inputs for its {tower} tower"
        raise BundleError(msg)
    if found.shape != wanted.shape:
        msg = f"parity: the {tower} tower gives vectors of shape {found.shape}, the bundle lists {wanted.shape}"
        raise BundleError(msg)
    wide = wanted.astype(np.float64)
    with np.errstate(invalid="ignore", divide="ignore"):  # a vector of no length has no cosine: NaN, which is refused
        cosines = np.sum(found.astype(np.float64) * wide, axis=1) / np.linalg.norm(wide, axis=1)
    worst = int(np.argmin(np.nan_to_num(cosines, nan=-1.0)))
    if not cosines[worst] >= min_cosine:
        msg = (
            f"parity: the {tower} tower does not reproduce the trainer's vector of {names[worst]!r}: "
            f"cosine {cosines[worst]:.6f}, at least {min_cosine} wanted"
        )
        raise BundleError(msg)
    return float(cosines[worst])


def _unit(vectors: NDArray[np.floating[Any]] | None, count: int) -> NDArray[np.float32]:
    if vectors is None:
        vectors = np.zeros((0, 0), dtype=np.float32)
    if len(vectors) != count:
        msg = f"{len(vectors)} parity vectors for {count} inputs"
        raise ValueError(msg)
    if not count:
        return np.zeros((0, 0), dtype=np.float32)
    norms = np.linalg.norm(vectors.astype(np.float64), axis=1, keepdims=True)
    if not np.isfinite(norms).all() or (norms == 0).any():
        raise ValueError("a parity vector is zero or not finite")
    return np.asarray(vectors / norms, dtype=np.float32)
