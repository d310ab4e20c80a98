from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.support.tiny_bundle import TinyTowers
from tests.support.variant_bundle import image_graph, publish_with, text_graph, write_pictures
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.tokenise import TokenisedText
from twinlens.training.export.errors import ExportError
from twinlens.training.export.variants.calibration import CalibrationData, read_calibration
from twinlens.training.export.variants.enough import refuse_too_little
from twinlens.training.export.variants.samples import Pixels, Samples, by_length, prepare_samples
from twinlens.training.export.variants.sentences import varied_sentences


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Encoder:
    folder = tmp_path_factory.mktemp("bundle") / "1"
    publish_with(folder, image_graph(), text_graph(len(TinyTowers().vocabulary)))
    return Encoder.load(folder, provider="cpu")


def rows(pixels: Pixels) -> set[bytes]:
    return {picture.tobytes() for picture in pixels[:]}


def split(encoder: Encoder, data: CalibrationData, folder: Path) -> Samples:
    folder.mkdir()
    return prepare_samples(encoder, data, folder)


def test_what_is_calibrated_on_never_judges(encoder: Encoder, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 150, captions=True)
    samples = split(encoder, read_calibration([folder]), tmp_path / "scratch")
    assert (len(samples.calibration_pixels), len(samples.gate_pixels)) == (50, 100)
    assert not rows(samples.calibration_pixels) & rows(samples.gate_pixels)
    ids = [{text.ids for text in texts} for texts in (samples.calibration_texts, samples.gate_texts)]
    assert not ids[0] & ids[1]
    assert samples.caption_of.tolist() == list(range(100)), "a caption for each picture, in order"


def test_copies_and_reencoded_pictures_stay_on_one_side(encoder: Encoder, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 120)
    for file in sorted(folder.glob("*.png")):
        with Image.open(file) as picture:
            picture.save(file.with_suffix(".jpg"), quality=90)
    samples = split(encoder, read_calibration([folder]), tmp_path / "scratch")
    assert len(samples.calibration_pixels) + len(samples.gate_pixels) == 240
    difference = np.abs(samples.calibration_pixels[:][:, None] - samples.gate_pixels[:][None]).mean(axis=(2, 3, 4))
    assert difference.min() > 0.1, "no picture has its copy on the other side"


def test_the_split_depends_on_contents_alone(encoder: Encoder, tmp_path: Path) -> None:
    first = write_pictures(tmp_path / "first", 120)
    second = tmp_path / "second"
    second.mkdir()
    for i, file in enumerate(sorted(first.glob("*.png"), reverse=True)):
        (second / f"x{i}.png").write_bytes(file.read_bytes())
    found = [split(encoder, read_calibration([f]), tmp_path / f"{f.name}-s") for f in (first, second)]
    assert rows(found[0].calibration_pixels) == rows(found[1].calibration_pixels)


def test_a_labelled_picture_that_is_calibrated_on_does_not_judge(encoder: Encoder, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 120)
    names = sorted(file.name for file in folder.glob("*.png"))
    labels = [{"image": name, "label": "cat" if i % 2 else "dog"} for i, name in enumerate(names)]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, labels)))
    samples = split(encoder, read_calibration([folder], None, [folder]), tmp_path / "scratch")
    (labelled,) = samples.labelled
    assert len(labelled.labels) == 80
    assert not rows(labelled.pixels) & rows(samples.calibration_pixels)
    assert len(labelled.prompts) == 2


def test_texts_of_a_file_are_split_and_their_doubles_dropped(encoder: Encoder, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 120)
    lines = [f"{word} {number}" for word in ("Cat", "dog") for number in range(100)]
    (tmp_path / "texts.txt").write_text("\n".join([*lines, "cat  7", " ", "DOG 3"]))
    samples = split(encoder, read_calibration([folder], tmp_path / "texts.txt"), tmp_path / "scratch")
    sides = [{text.ids for text in texts} for texts in (samples.calibration_texts, samples.gate_texts)]
    assert not sides[0] & sides[1]
    of_the_file = {encoder.prepare_text(line).ids for line in lines}
    assert len((sides[0] | sides[1]) & of_the_file) == 200


def test_texts_that_are_all_short_are_calibrated_on_in_longer_rows_too(encoder: Encoder, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 120, captions=True)
    samples = split(encoder, read_calibration([folder]), tmp_path / "scratch")
    window = encoder.manifest.text
    assert window is not None
    assert max(len(text.ids) for text in samples.calibration_texts) == window.text.context_length


def test_a_few_captions_leave_the_judging_to_other_texts(encoder: Encoder, tmp_path: Path) -> None:
    plain = write_pictures(tmp_path / "plain", 120)
    few = write_pictures(tmp_path / "few", 60, seed=3, captions=True)
    (tmp_path / "texts.txt").write_text("\n".join(f"text {i} of a cat" for i in range(200)))
    samples = split(encoder, read_calibration([plain, few], tmp_path / "texts.txt"), tmp_path / "scratch")
    assert len(samples.caption_of) == 0, "recall over fewer than 64 says little; neighbours judge instead"
    assert len(samples.gate_texts) > 130


def test_pictures_without_a_caption_count_beside_those_with_one(encoder: Encoder, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 120)
    names = sorted(file.name for file in folder.glob("*.png"))
    row = {"image": f"./{names[5]}", "caption": "a lone caption"}
    (folder / "captions.jsonl").write_text(json.dumps(row))
    data = read_calibration([folder])
    assert sorted(photo.path.name for photo in data.photos) == names
    assert [photo.captions for photo in data.photos if photo.captions] == [("a lone caption",)]
    samples = split(encoder, data, tmp_path / "scratch")
    assert len(samples.calibration_pixels) + len(samples.gate_pixels) == 120
    assert len(samples.caption_of) == 0
    assert len(samples.calibration_texts) + len(samples.gate_texts) == 513 + 6, (
        "the program's own sentences and the caption, each on one side, and six that are joined"
    )


def test_rows_that_name_what_cannot_exist_are_unreadable_pictures(encoder: Encoder, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 120)
    names = ["gone.png", "nul\0.png", "half\ud800.png"]
    rows_ = [json.dumps({"image": name, "caption": "x"}) for name in names]
    (folder / "captions.jsonl").write_text("\n".join(rows_))
    data = read_calibration([folder])
    refuse_too_little(data)
    assert split(encoder, data, tmp_path / "scratch").unreadable == 3


def test_captions_named_for_pictures_that_are_gone_do_not_count(tmp_path: Path) -> None:
    rows_ = [{"image": f"{i}.jpg", "caption": "x"} for i in range(200)]
    (tmp_path / "captions.jsonl").write_text("\n".join(map(json.dumps, rows_)))
    data = read_calibration([tmp_path])
    with pytest.raises(ExportError, match=r"^0 pictures \(200 more are named and not there\) are too few"):
        refuse_too_little(data)
    refuse_too_little(data, image=False)


def test_prompts_that_judge_never_calibrate(encoder: Encoder, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 120)
    for name in ("cat", "dog"):
        write_pictures(tmp_path / "labelled" / name, 50, seed=len(name))
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(["A photo of a  cat.", "a photo of a dog.", *(f"word {i}" for i in range(120))]))
    samples = split(encoder, read_calibration([folder], texts, [tmp_path / "labelled"]), tmp_path / "scratch")
    prompts = {text.ids for text in samples.labelled[0].prompts}
    assert not prompts & {text.ids for text in samples.calibration_texts}


def test_pictures_stay_on_disk(encoder: Encoder, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 120)
    samples = split(encoder, read_calibration([folder]), tmp_path / "scratch")
    assert isinstance(samples.gate_pixels.file, np.memmap)
    assert samples.gate_pixels[3:5].shape == (2, 3, 32, 32)


def test_too_few_labelled_pictures_are_refused(encoder: Encoder, tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 120)
    for name in ("cat", "dog"):
        write_pictures(tmp_path / "few" / name, 10, seed=9)
    with pytest.raises(ExportError, match=r"few has \d+ labelled pictures of use, at least 64"):
        split(encoder, read_calibration([folder], None, [tmp_path / "few"]), tmp_path / "scratch")


@pytest.mark.parametrize(
    ("content", "line"),
    [
        ("{}", "captions.jsonl, line 1: an object with the texts image and caption"),
        ('\n{"image": 3, "caption": "x"}', "line 2: an object"),
        ("not json", "line 1: not JSON"),
    ],
)
def test_a_wrong_row_is_named(content: str, line: str, tmp_path: Path) -> None:
    (tmp_path / "captions.jsonl").write_text(content)
    with pytest.raises(ExportError, match=line):
        read_calibration([tmp_path])


def test_missing_and_empty_sources_are_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "blank.txt").write_text(" \n")
    with pytest.raises(ExportError, match="no pictures in"):
        read_calibration([tmp_path / "empty"])
    with pytest.raises(ExportError, match="gone is not there"):
        read_calibration([tmp_path / "gone"])
    with pytest.raises(ExportError, match="is not a folder"):
        read_calibration([tmp_path / "blank.txt"])
    with pytest.raises(ExportError, match="no texts in"):
        read_calibration(texts=tmp_path / "blank.txt")
    with pytest.raises(ExportError, match="labels no pictures of two classes"):
        read_calibration(labels=[tmp_path / "empty"])


def test_batches_hold_texts_of_one_length() -> None:
    tokens = [TokenisedText(ids=tuple(range(1 + i % 3)), truncated=False) for i in range(100)]
    batches = list(by_length(tokens, most=10))
    assert sum(map(len, batches)) == 100
    assert all(len({len(text.ids) for text in batch}) == 1 and len(batch) <= 10 for batch in batches)


def test_batches_of_long_texts_are_smaller() -> None:
    tokens = [TokenisedText(ids=tuple(range(length)), truncated=False) for length in (16, 256, 4096) for _ in range(40)]
    sizes = [(len(batch[0].ids), len(batch)) for batch in by_length(tokens)]
    assert sizes == [(16, 32), (16, 8), *[(256, 4)] * 10, *[(4096, 1)] * 40]


def test_the_built_in_sentences_are_varied_and_always_the_same() -> None:
    sentences = varied_sentences(512)
    assert len(set(sentences)) == 512
    assert sentences == varied_sentences(512)
    assert len({len(sentence.split()) for sentence in sentences}) > 8
