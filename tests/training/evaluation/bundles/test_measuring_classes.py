"""What is measured on pictures of known classes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import COLOURS, solid
from tests.training.evaluation.bundles.coloured import write_classes, write_pictures, write_rows
from twinlens.training.data.errors import DataError
from twinlens.training.evaluation.bundles.bundle_embedder import BundleEmbedder
from twinlens.training.evaluation.bundles.config import eval_config
from twinlens.training.evaluation.bundles.figures import Sheet
from twinlens.training.evaluation.bundles.measure import evaluate_model
from twinlens.training.evaluation.bundles.results import SetResult


def measured(encoder: FakeEncoder, **section: object) -> SetResult:
    (result,) = evaluate_model(BundleEmbedder(encoder), eval_config({"zero_shot": [section]}, "the test")).sets
    return result


def sheets(result: SetResult) -> list[Sheet]:
    return [figure for figure in result.figures if isinstance(figure, Sheet)]


def test_classes_are_found_by_their_names_and_by_their_neighbours(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "classes", ["red", "green", "blue", "yellow", "cyan", "magenta"])
    result = measured(fake_encoder, path=folder, templates=["plain", "openai"], k=2)
    assert result.counts == {"pictures": 18, "classes": 6}
    assert [result.value(f"{name}/top_1") for name in ("plain", "openai")] == [1.0, 1.0]
    assert result.value("openai/top_5") == 1.0
    assert result.value("knn") == 1.0
    assert result.details["templates"]["plain"]["per_class"] == dict.fromkeys(
        sorted(COLOURS.keys() - {"black", "white"}), 1.0
    )
    assert len(result.details["templates"]["openai"]["prompts"]) == 80
    assert result.details["templates"]["plain"]["confusion"] == (3 * np.eye(6, dtype=int)).tolist()


def test_classes_with_exchanged_names_are_confused_both_ways(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    write_classes(tmp_path, ["red", "green", "blue"])
    (tmp_path / "red").rename(tmp_path / "none")
    (tmp_path / "green").rename(tmp_path / "red")
    (tmp_path / "none").rename(tmp_path / "green")
    result = measured(fake_encoder, path=tmp_path)
    assert result.value("photo/top_1") == pytest.approx(1 / 3)
    assert result.details["templates"]["photo"]["confused"] == [
        {"is": "green", "went_to": "red", "pictures": 3},
        {"is": "red", "went_to": "green", "pictures": 3},
    ]
    assert result.value("knn") == 1.0


def test_without_a_text_tower_neighbours_are_measured_alone(tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "classes", ["red", "green"])
    result = measured(FakeEncoder(text=False), path=folder)
    assert result.value("knn") == 1.0
    assert not any(measure.name.endswith("top_1") for measure in result.measures)
    assert any("no zero-shot" in note for note in result.notes)


def test_one_picture_a_class_has_no_neighbours(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    write_pictures(tmp_path)
    rows = [{"image": f"{colour}.png", "label": colour} for colour in COLOURS]
    labels = write_rows(tmp_path / "labels.jsonl", rows)
    result = measured(fake_encoder, path=labels)
    assert "knn" not in {measure.name for measure in result.measures}
    assert result.value("photo/top_1") == 1.0


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "there are no pictures in"),
        ([{"image": "red.png", "label": "red"}], r"of one class \(red\)"),
        ([{"image": "red.png", "class": "red"}], "the column 'label' of labels.jsonl, red.png for one"),
    ],
)
def test_pictures_without_two_classes_are_refused(
    fake_encoder: FakeEncoder, tmp_path: Path, rows: list[dict[str, str]], message: str
) -> None:
    write_pictures(tmp_path)
    with pytest.raises(DataError, match=message):
        measured(fake_encoder, path=write_rows(tmp_path / "labels.jsonl", rows))


def test_a_limit_leaves_out_pictures_and_no_classes(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "classes", list(COLOURS), each=1)
    result = measured(fake_encoder, path=folder, limit=2)
    assert result.counts == {"pictures": 2, "classes": 8}
    assert result.value("photo/top_5") == 1.0
    assert any("at most 2" in note for note in result.notes)


def test_classes_that_are_numbers_are_told(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    write_pictures(tmp_path)
    rows = [{"image": "red.png", "label": 0}, {"image": "blue.png", "label": 1}]
    labels = write_rows(tmp_path / "labels.jsonl", rows)
    result = measured(fake_encoder, path=labels)
    assert any("classes are numbers" in note for note in result.notes)
    (tmp_path / "classes.json").write_text('["red", "blue"]')
    result = measured(fake_encoder, path=labels)
    assert result.value("photo/top_1") == 1.0
    assert not any("numbers" in note for note in result.notes)


def test_a_picture_without_a_class_is_left_aside(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    write_pictures(tmp_path)
    rows = [
        {"image": "red.png", "label": "red"},
        {"image": "blue.png", "label": "blue"},
        {"image": "cyan.png", "label": ""},
    ]
    result = measured(fake_encoder, path=write_rows(tmp_path / "labels.jsonl", rows))
    assert result.counts["pictures"] == 2
    assert any("1 picture(s) without a class" in note for note in result.notes)


def test_a_class_whose_name_is_no_text_is_named(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    write_pictures(tmp_path)
    rows = [{"image": "red.png", "label": "..."}, {"image": "blue.png", "label": "blue"}]
    labels = write_rows(tmp_path / "labels.jsonl", rows)
    with pytest.raises(DataError, match=r"the prompt '\.\.\.' cannot be embedded"):
        measured(fake_encoder, path=labels, templates=["plain"])


def test_classes_that_were_confused_are_shown(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    write_classes(tmp_path, ["red", "green", "blue"])
    assert sheets(measured(fake_encoder, path=tmp_path)) == []
    (tmp_path / "red" / "0.png").rename(tmp_path / "green" / "wrong.png")
    (sheet,) = sheets(measured(fake_encoder, path=tmp_path))
    ((title, ((picture, told),)),) = sheet.rows
    assert title == "green → red (1)"
    assert picture.read() == (tmp_path / "green" / "wrong.png").read_bytes()
    assert told == "green/wrong.png"


def test_classes_that_read_alike_are_told(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    folder = write_classes(tmp_path / "classes", ["red", "green"])
    (folder / "RED").mkdir()
    (folder / "RED" / "0.png").write_bytes(solid("red"))
    result = measured(fake_encoder, path=folder, templates=["plain", "photo"])
    assert result.value("plain/mean_per_class") == pytest.approx(1 / 3)
    assert result.notes == ("1 class(es) read like another to the model, and cannot be told from it",)
