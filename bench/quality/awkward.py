"""Awkward pictures, real and made: how many of each kind come out right, by our decoding and by Pillow's plain one.

    python bench/quality/awkward.py [--data DIR] [--json FILE] [--show]

The folder holds `awkward_made` (`expected.json` names for each file what it has to equal, and a decoy that shows the
usual mistake) and `awkward_a` (`manifest.jsonl` says what each file is). `plain` is
`Image.open(file).convert("RGB")`, what most programs do. A file counts as right if it equals what it should, or is
refused where it has to be; how long that takes is not counted here.
"""

from __future__ import annotations

import argparse
import io
import json
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from twinlens.encoders.decode import decode_image
from twinlens.encoders.errors import InvalidImage
from twinlens.encoders.manifest import PreprocessSpec
from twinlens.encoders.preprocess import preprocess

DATA = Path(__file__).resolve().parents[3] / "shared" / "data"

Pixels = NDArray[np.uint8]
Decode = Callable[[bytes], Pixels]

# The pixels of a picture made this small stand for its embedding: no model hides a difference.
SPEC = PreprocessSpec(size=32, resize_size=32, mean=(0.3, 0.3, 0.3), std=(0.3, 0.3, 0.3))
# Pillow reads these two; they are not on the list of formats, and the refusal names them.
NOT_READ = {"images/hopper.ico": "ICO", "images/balloon.jpf": "JPEG 2000"}
# Pillow refuses these for what surrounds the pixels; the pixels themselves are sound, and only they are wanted.
REPAIRED = {"images/unknown_compression_method.png", "images/png_decompression_dos.png"}

KINDS = {
    "-": "ordinary",
    "B01": "EXIF orientation",
    "B02": "broken EXIF",
    "B03": "CMYK, Lab, YCbCr",
    "B04": "16 bits, integers, floats",
    "B05": "grey, palette, transparency",
    "B06": "animations, pages",
    "B07": "damage",
    "B09": "names",
    "B10": "other formats",
    "B11": "colour profiles, metadata",
    "B12": "bombs, very large",
    "B13": "thin and tiny",
    "B14": "ordinary",
    "B15": "scaling",
    "B16": "ordinary",
    "B47": "ordinary",
    "B61": "ordinary",
    "exif_orientation": "EXIF orientation",
    "avif": "other formats",
    "cmyk_lab_ycbcr": "CMYK, Lab, YCbCr",
    "sixteen_bit_float": "16 bits, integers, floats",
    "one_bit_gray_alpha": "grey, palette, transparency",
    "transparency_palette": "grey, palette, transparency",
    "gray": "grey, palette, transparency",
    "animated_multiframe": "animations, pages",
    "icc_metadata": "colour profiles, metadata",
    "other_formats": "other formats",
    "same_photo": "other formats",
    "truncated_corrupt": "damage",
    "not_an_image": "damage",
    "wrong_suffix": "names",
    "odd_name": "names",
    "extreme_size": "thin and tiny",
    "decompression_bomb": "bombs, very large",
}


@dataclass(frozen=True)
class Outcome:
    """What became of one file; `wrong` is empty where that is right."""

    kind: str
    file: str
    wrong: str


class Refused(Exception):  # noqa: N818 - reads as what it is
    """A decoder would not or could not read a file."""


def ours(data: bytes) -> Pixels:
    """The decode contract."""
    try:
        return decode_image(data)
    except InvalidImage as error:
        raise Refused(str(error)) from None


def plain(data: bytes) -> Pixels:
    """What most programs do; whatever it raises counts as a refusal."""
    try:
        return np.asarray(Image.open(io.BytesIO(data)).convert("RGB"))
    except Exception as error:
        raise Refused(f"{type(error).__name__}: {error}") from None


def judge_made(folder: Path, decode: Decode) -> Iterator[Outcome]:
    """Every picture of `expected.json`."""
    for row in json.loads((folder / "expected.json").read_text(encoding="utf-8"))["images"]:
        yield Outcome(KINDS[row["case"]], row["file"], _made_wrong(folder, row, decode))


def _made_wrong(folder: Path, row: dict[str, Any], decode: Decode) -> str:
    check = row["check"]
    try:
        pixels = decode((folder / row["file"]).read_bytes())
    except Refused as refusal:
        return "" if check["kind"] in {"error", "ok_or_error"} else f"refused: {refusal}"
    if row["case"] == "B04" and pixels.std() < 10:
        return "nothing is left of the picture"
    found = _embedding(pixels)
    match check["kind"]:
        case "error":
            return "not refused"
        case "same_as" | "ok_or_error" if "ref" in check:
            return _differs(folder, check, found)
        case "not_same_as":
            off = _distance(found, _reference(folder / check["ref"]))
            return "" if off >= check["min_cosine_distance"] else f"only {off:.5f} from {check['ref']}"
        case "one_of":
            # The prepared picture is cropped to the centre: the outer bands must not show.
            middle = np.asarray(Image.open(folder / row["file"]).convert("RGB").resize((96, 32)))[:, 32:64]
            off = _distance(found, _embedding(middle))
            return "" if off <= check["max_cosine_distance"] else f"{off:.4f} from its centre"
    return "" if np.isfinite(found).all() else "not finite"


def _differs(folder: Path, check: dict[str, Any], found: NDArray[np.float64]) -> str:
    reference = _reference(folder / check["ref"])
    off = _distance(found, reference)
    if off > check["max_cosine_distance"]:
        return f"{off:.4f} from {check['ref']}"
    if "decoy" in check:
        usual_mistake = _distance(_reference(folder / check["decoy"]), reference)
        if off > check["max_fraction_of_decoy_distance"] * usual_mistake:
            return f"{off:.4f} from {check['ref']}, the usual mistake is {usual_mistake:.4f}"
    return ""


def judge_real(folder: Path, decode: Decode) -> Iterator[Outcome]:
    """Every picture of `manifest.jsonl`: read or refused as listed, upright, like an upright one of its group."""
    rows = [json.loads(line) for line in (folder / "manifest.jsonl").read_text(encoding="utf-8").splitlines()]
    groups: dict[str, NDArray[np.float64]] = {}
    for row in rows:
        if row["group"] and row.get("exif_orientation") in {None, 1} and row["image"] not in NOT_READ:
            groups.setdefault(row["group"], _small(ours((folder / row["image"]).read_bytes())))
    for row in rows:
        kind, name = KINDS[row["category"]], row["image"]
        data = (folder / name).read_bytes()
        try:
            pixels = decode(data)
        except Refused as refusal:
            expected = row["opens"] is not True or name in NOT_READ
            if expected and name in NOT_READ and decode is ours:
                expected = NOT_READ[name] in str(refusal)
            yield Outcome(kind, name, "" if expected else f"refused: {refusal}")
            continue
        wrong = _real_wrong(row, data, pixels)
        if not wrong and row["group"] and name not in NOT_READ:
            off = float(np.abs(_small(pixels) - groups[row["group"]]).mean())
            wrong = f"{off:.1f} levels from the others of its group" if off > 3 else ""
        yield Outcome(kind, name, wrong)


def _real_wrong(row: dict[str, Any], data: bytes, pixels: Pixels) -> str:
    if row["opens"] is not True and row["image"] not in REPAIRED:
        return "not refused"
    if row.get("upright_size") not in (None, list(pixels.shape[1::-1])):
        return f"{pixels.shape[1]} x {pixels.shape[0]}, upright it is {row['upright_size']}"
    if row["image"] in REPAIRED:
        return ""
    with Image.open(io.BytesIO(data)) as picture:
        if row["category"] == "sixteen_bit_float" and picture.mode != "L":
            samples = np.asarray(picture, dtype=np.float64)
            shown = pixels[..., 0].astype(np.float64)
            visible = shown < 255 if "transparency" in picture.info else np.ones(shown.shape, dtype=bool)
            clipped = (shown[visible] == 255) & (samples[visible] < 0.99 * samples.max())
            lost = clipped.mean() > 0.01 or len(np.unique(shown)) < min(3, len(np.unique(samples)))
            return "its values are clipped" if lost else ""
        if row["category"] in {"transparency_palette", "one_bit_gray_alpha", "animated_multiframe"}:
            off = np.abs(_over_white(picture) - pixels).mean()
            return "" if off < 2 else f"{off:.0f} levels from the picture over white"
    return ""


def _small(pixels: Pixels) -> NDArray[np.float64]:
    return np.asarray(Image.fromarray(pixels).resize((32, 32)), dtype=np.float64)


def _over_white(picture: Image.Image) -> NDArray[np.float64]:
    rgba = np.asarray(picture.convert("RGBA"), dtype=np.float64)
    weight = rgba[..., 3:] / 255.0
    return np.asarray(rgba[..., :3] * weight + 255.0 * (1.0 - weight))


def _reference(file: Path) -> NDArray[np.float64]:
    """References and decoys are ordinary files: they are read one way, whatever is judged."""
    return _embedding(decode_image(file.read_bytes()))


def _embedding(pixels: Pixels) -> NDArray[np.float64]:
    prepared = preprocess(pixels, SPEC).astype(np.float64).ravel()
    return prepared / np.linalg.norm(prepared)


def _distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    return float(1.0 - a @ b)


def judge(data: Path, decode: Decode) -> list[Outcome]:
    """Both sets."""
    return [*judge_made(data / "awkward_made", decode), *judge_real(data / "awkward_a", decode)]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--data", type=Path, default=DATA, help="the folder of photo sets")
    parser.add_argument("--show", action="store_true", help="name the files that came out wrong, and how")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    arguments = parser.parse_args()
    if not (arguments.data / "awkward_made").is_dir():
        if arguments.data != DATA:
            parser.error(f"no awkward pictures at {arguments.data}")
        print(f"skipped: no awkward pictures at {DATA}; name a folder of yours with --data")
        return 0
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Pillow's, about bombs and broken tags
        found = {"ours": judge(arguments.data, ours), "plain": judge(arguments.data, plain)}
    table = Table("kind", "files", "ours right", "plain right", box=SIMPLE, title="Awkward pictures")
    kinds = [*dict.fromkeys(KINDS.values()), ""]
    for kind in kinds:
        chosen = {way: [each for each in outcomes if kind in ("", each.kind)] for way, outcomes in found.items()}
        counts = [str(sum(not each.wrong for each in chosen[way])) for way in ("ours", "plain")]
        table.add_row(kind or "all", str(len(chosen["ours"])), *counts)
    Console().print(table)
    wrong = [each for each in found["ours"] if each.wrong]
    for way in ("ours", "plain") if arguments.show else ("ours",):
        for each in found[way]:
            if each.wrong:
                print(f"{way}: {each.file}: {each.wrong[:100]}")
    if arguments.json is not None:
        report = {way: [asdict(each) for each in outcomes] for way, outcomes in found.items()}
        arguments.json.write_text(json.dumps(report, indent=2) + "\n", encoding="utf-8")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
