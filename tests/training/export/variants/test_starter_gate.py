"""The starter's int8 towers, judged once more by other code and on pictures that only judge."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from twinlens.encoders.encoder import Encoder
from twinlens.encoders.manifest import Precision
from twinlens.training.export.variants.add import add_variants
from twinlens.training.export.variants.calibration import read_calibration

pytestmark = [pytest.mark.slow, pytest.mark.shared]
PRECISIONS: tuple[Precision, ...] = ("fp32", "int8")


@pytest.fixture(scope="module")
def quantised(starter_bundle: Path, shared_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("models") / "starter" / "2"
    data = read_calibration([shared_data / "imagenet_names"], None, [shared_data / "clothing10"])
    report = add_variants(starter_bundle, out, ["int8"], data, min_speedup=0)
    assert not [outcome.line() for outcome in report.outcomes if outcome.refused]
    return out


def rows_of(file: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in file.read_text().splitlines()]


def embedded(encoder: Encoder, paths: list[Path]) -> NDArray[np.float32]:
    return np.concatenate(
        [
            encoder.encode_images(np.stack([encoder.prepare_image(path.read_bytes()) for path in paths[i : i + 50]]))
            for i in range(0, len(paths), 50)
        ]
    )


def test_labels_and_vectors_of_photos_that_did_not_calibrate(quantised: Path, shared_data: Path) -> None:
    folder = shared_data / "clothing10"
    rows = rows_of(folder / "labels.jsonl")
    names = sorted({row["label"] for row in rows})
    labels = np.array([names.index(row["label"]) for row in rows])
    pictures, right = {}, {}
    for precision in PRECISIONS:
        encoder = Encoder.load(quantised, provider="cpu", precision=precision)
        assert set(encoder.precisions.values()) == {precision}
        pictures[precision] = embedded(encoder, [folder / row["image"] for row in rows])
        prompts = encoder.encode_texts([encoder.prepare_text(f"a photo of a {name}.") for name in names])
        right[precision] = 100.0 * ((pictures[precision] @ prompts.T).argmax(axis=1) == labels).mean()
    cosines = (pictures["fp32"] * pictures["int8"]).sum(axis=1)
    assert cosines.mean() >= 0.995
    assert cosines.min() >= 0.98
    assert right["fp32"] - right["int8"] <= 0.5


def test_captions_find_photos_that_no_part_of_the_making_saw(quantised: Path, shared_data: Path) -> None:
    folder = shared_data / "tuxpaint_stamps"
    rows = rows_of(folder / "captions.jsonl")
    found = {}
    for precision in PRECISIONS:
        encoder = Encoder.load(quantised, provider="cpu", precision=precision)
        images = embedded(encoder, [folder / row["image"] for row in rows])
        texts = encoder.encode_texts([encoder.prepare_text(row["caption"]) for row in rows])
        scores = texts @ images.T
        found[precision] = 100.0 * ((scores > np.diagonal(scores)[:, None]).sum(axis=1) < 10).mean()
    # A set of another kind (drawings on transparency) than what calibrated and judged: the gate promises nothing here.
    # Three builds from different photos lost 3, 4 and 6 captions of 537.
    assert found["fp32"] - found["int8"] <= 1.5
