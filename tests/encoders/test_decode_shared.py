"""Every awkward file of the shared sets, real and made, against the outcome its list names."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidImage
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.preprocess import load_pixels, preprocess

pytestmark = pytest.mark.shared

# Pillow reads these two; they are not on the list of formats, and the refusal names them.
NOT_READ = {"images/hopper.ico": "ICO", "images/balloon.jpf": "JPEG 2000"}
# Pillow refuses these for what surrounds the pixels; the pixels themselves are sound, and only they are wanted.
REPAIRED = {"images/unknown_compression_method.png", "images/png_decompression_dos.png"}

SPEC = PreprocessSpec(size=32, resize_size=32, mean=(0.3, 0.3, 0.3), std=(0.3, 0.3, 0.3))


def embedding(file: Path, spec: PreprocessSpec = SPEC) -> np.ndarray:
    """The prepared pixels themselves, as a unit vector: no model hides a difference."""
    pixels = load_pixels(file.read_bytes(), spec).astype(np.float64).ravel()
    return pixels / np.linalg.norm(pixels)


def distance(a: np.ndarray, b: np.ndarray) -> float:
    return float(1.0 - a @ b)


@pytest.fixture(scope="module")
def made(shared_data: Path) -> Path:
    return shared_data / "awkward_made"


def test_made_files_have_the_outcome_listed(made: Path) -> None:
    rows = json.loads((made / "expected.json").read_text(encoding="utf-8"))["images"]
    assert len(rows) > 50
    wrong = [problem for row in rows if (problem := _judge(made, row))]
    assert not wrong, "\n".join(wrong)


def _judge(made: Path, row: dict[str, Any]) -> str:
    check, name = row["check"], row["file"]
    try:
        found = embedding(made / name)
    except InvalidImage as error:
        allowed = check["kind"] in {"error", "ok_or_error"}
        return "" if allowed else f"{name}: refused: {error}"
    match check["kind"]:
        case "error":
            return f"{name}: not refused"
        case "same_as" | "ok_or_error" if "ref" in check:
            ref = embedding(made / check["ref"])
            off = distance(found, ref)
            if off > check["max_cosine_distance"]:
                return f"{name}: {off:.4f} from {check['ref']}"
            if "decoy" in check:
                usual_mistake = distance(embedding(made / check["decoy"]), ref)
                if off > check["max_fraction_of_decoy_distance"] * usual_mistake:
                    return f"{name}: {off:.4f}, the decoy is at {usual_mistake:.4f}"
        case "not_same_as":
            off = distance(found, embedding(made / check["ref"]))
            return "" if off >= check["min_cosine_distance"] else f"{name}: only {off:.5f} from {check['ref']}"
        case "one_of":
            # Our starter encoder crops the centre: the outer bands must not show.
            middle = np.asarray(Image.open(made / name).convert("RGB").resize((96, 32)))[:, 32:64]
            prepared = found.reshape(3, 32, 32)
            wanted = preprocess(middle.copy(), SPEC).ravel()
            off = distance(prepared.ravel(), wanted / np.linalg.norm(wanted))
            if off > check["max_cosine_distance"]:
                return f"{name}: {off:.4f} from its centre"
    return "" if np.isfinite(found).all() else f"{name}: not finite"


def test_real_files_open_or_are_refused_as_listed(shared_data: Path) -> None:
    folder = shared_data / "awkward_a"
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()]
    assert len(rows) > 100
    wrong = []
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for row in rows:
            name = row["image"]
            try:
                pixels = decode_image((folder / name).read_bytes())
            except InvalidImage as error:
                if name in NOT_READ:
                    assert NOT_READ[name] in str(error)  # noqa: PT017
                elif row["opens"]:
                    wrong.append(f"{name}: refused: {error}")
                continue
            if row["opens"] is not True and name not in REPAIRED:
                wrong.append(f"{name}: not refused")
            if row.get("upright_size") not in (None, list(pixels.shape[1::-1])):
                wrong.append(f"{name}: {pixels.shape[1::-1]}, upright is {row['upright_size']}")
    assert not wrong, "\n".join(wrong)


def test_real_files_of_one_picture_agree(shared_data: Path) -> None:
    folder = shared_data / "awkward_a"
    groups: dict[str, list[tuple[str, np.ndarray]]] = {}
    for line in (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if row["group"] and row["image"] not in NOT_READ:
            small = Image.fromarray(decode_image((folder / row["image"]).read_bytes())).resize((32, 32))
            groups.setdefault(row["group"], []).append((row["image"], np.asarray(small, dtype=np.float64)))
    assert len(groups) >= 3
    for members in groups.values():
        for name, pixels in members[1:]:
            off = float(np.abs(pixels - members[0][1]).mean())
            assert off < 3, f"{name} differs from {members[0][0]} by {off:.1f} levels"
