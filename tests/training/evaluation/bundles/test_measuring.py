"""What is measured on sets whose answers are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.support.fake_encoder import FakeEncoder
from tests.support.pictures import COLOURS, solid
from tests.training.evaluation.bundles.coloured import (
    write_captions,
    write_choices,
    write_classes,
    write_pairs,
    write_pictures,
    write_rows,
)
from twinlens.encoders.embed_sources import SourceItem
from twinlens.encoders.embed_stream import embed_stream
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pictures import ListedPicture
from twinlens.training.errors import ConfigError
from twinlens.training.evaluate import retrieval
from twinlens.training.evaluation.bundles.bundle_embedder import BundleEmbedder
from twinlens.training.evaluation.bundles.config import eval_config
from twinlens.training.evaluation.bundles.figures import (
    Bars,
    Confusion,
    Histogram,
    RankCurve,
    RankCurves,
    Sheet,
    draw,
)
from twinlens.training.evaluation.bundles.guessing import found_by_guessing
from twinlens.training.evaluation.bundles.measure import evaluate_model
from twinlens.training.evaluation.bundles.results import Evaluation, SetResult
from twinlens.training.evaluation.confusions import Confusions


def measured(encoder: FakeEncoder, **sets: object) -> Evaluation:
    return evaluate_model(BundleEmbedder(encoder), eval_config(sets, "the test"))


def test_retrieval_is_that_of_the_vectors_that_serving_gives(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    captions = write_captions(tmp_path)
    (result,) = measured(fake_encoder, retrieval=[{"path": captions}]).sets
    items = [SourceItem(c, image=tmp_path / f"{c}.png") for c in COLOURS]
    items += [SourceItem(t, text=t) for c in COLOURS for t in (f"a {c} thing", f"something {c}")]
    rows = np.stack([each.vector for each in embed_stream(fake_encoder, items) if each.vector is not None])
    wanted = retrieval(rows[:8], rows[8:], np.repeat(np.arange(8), 2))
    assert result.counts == {"pictures": 8, "captions": 16}
    assert {k: result.value(f"text_to_image_r{k}") for k in (1, 5, 10)} == wanted.text_to_image
    assert {k: result.value(f"image_to_text_r{k}") for k in (1, 5, 10)} == wanted.image_to_text
    assert result.value("text_to_image_r1") == 1.0
    assert result.value("positive_cosine") > result.value("negative_cosine")


def test_a_folder_is_measured_by_the_captions_in_it(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    captions = write_captions(tmp_path)
    by_file, by_folder = measured(fake_encoder, retrieval=[{"path": captions}, {"path": tmp_path}]).sets
    assert by_folder.measures == by_file.measures


def test_guessing_is_drawn_for_searches_with_several_right_answers(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    (result,) = measured(fake_encoder, retrieval=[{"path": write_captions(tmp_path)}]).sets
    (figure,) = [figure for figure in result.figures if isinstance(figure, RankCurves)]
    for curve, way in zip(figure.curves, ("text_to_image", "image_to_text"), strict=True):
        chance = next(each.chance for each in result.measures if each.name == f"{way}_r5")
        assert found_by_guessing(curve.right, curve.of, 5) == chance


@pytest.mark.parametrize("kind", ["retrieval", "compositional", "pairs"])
def test_without_a_text_tower_captions_are_refused(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match="no text tower"):
        measured(FakeEncoder(text=False), **{kind: [{"path": write_captions(tmp_path)}]})


def test_right_captions_are_chosen_by_kind_and_a_tie_is_wrong(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    (result,) = measured(fake_encoder, compositional=[{"path": write_choices(tmp_path)}]).sets
    assert result.value("accuracy/colour") == 1.0
    assert result.value("accuracy/blind") == 0.0
    assert result.value("mean_accuracy") == 0.5
    assert result.value("accuracy") == pytest.approx(2 / 3)
    assert result.details["rows_by_kind"] == {"blind": 1, "colour": 2}


def test_pairs_of_two_captions_have_winogrounds_scores(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    (result,) = measured(fake_encoder, pairs=[{"path": write_pairs(tmp_path)}]).sets
    assert [result.value(name) for name in ("text", "image", "group")] == [0.5, 0.5, 0.5]


def test_pairs_of_one_caption_ask_for_its_picture(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    write_pictures(tmp_path)
    rows = [
        {"caption": "red", "image_true": "red.png", "image_false": "blue.png"},
        {"caption": "green", "image_true": "red.png", "image_false": "green.png"},
        {"caption": "green", "image_true": "green.png", "image_false": "black.png"},
    ]
    (result,) = measured(fake_encoder, pairs=[{"path": write_rows(tmp_path / "nlvr.jsonl", rows)}]).sets
    assert result.value("accuracy") == pytest.approx(2 / 3)
    assert result.counts == {"rows": 3}


def test_a_broken_picture_is_left_out_with_its_captions_and_named(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    captions = write_captions(tmp_path)
    (tmp_path / "red.png").write_bytes(b"no picture")
    (result,) = measured(fake_encoder, retrieval=[{"path": captions}]).sets
    assert result.counts == {"pictures": 7, "captions": 14}
    assert list(result.unusable) == ["red.png"]


def test_too_many_broken_pictures_stop_the_run(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    captions = write_captions(tmp_path)
    for colour in ("red", "green", "blue", "cyan"):
        (tmp_path / f"{colour}.png").unlink()
    with pytest.raises(DataError, match=r"4 of 8 pictures cannot be used.*max-unreadable-share.*does not exist"):
        measured(fake_encoder, retrieval=[{"path": captions}])
    (result,) = measured(fake_encoder, retrieval=[{"path": captions}], max_unreadable_share=0.5).sets
    assert result.counts["pictures"] == 4


def test_texts_that_mean_nothing_are_left_out_like_pictures(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    captions = write_captions(tmp_path)
    with captions.open("a") as file:
        file.write('{"image": "red.png", "caption": " "}\n')
    (result,) = measured(fake_encoder, retrieval=[{"path": captions}]).sets
    assert result.counts["captions"] == 16
    assert list(result.unusable) == ["' '"]


def test_a_caption_of_several_pictures_and_a_cut_one_are_told(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    write_pictures(tmp_path)
    rows = [{"image": f"{colour}.png", "caption": "a thing"} for colour in ("red", "blue")]
    rows.append({"image": "red.png", "caption": "red " * 40})
    captions = write_rows(tmp_path / "captions.jsonl", rows)
    (result,) = measured(fake_encoder, retrieval=[{"path": captions}]).sets
    assert any("1 caption(s) belong to several pictures" in note for note in result.notes)
    assert any("1 of 2 texts are longer" in note for note in result.notes)


def test_a_limit_takes_pictures_from_all_over(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    captions = write_captions(tmp_path / "pictures")
    folder = write_classes(tmp_path / "classes", ["red", "green", "blue"])
    found = measured(fake_encoder, retrieval=[{"path": captions, "limit": 4}], zero_shot=[{"path": folder, "limit": 3}])
    assert found.sets[0].counts == {"pictures": 4, "captions": 8}
    assert found.sets[1].counts == {"pictures": 3, "classes": 3}
    assert any("at most 4 were taken" in note for note in found.sets[0].notes)


def test_sets_of_one_name_are_told_apart(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    captions = write_captions(tmp_path)
    sets = [{"path": captions}, {"path": captions}, {"path": captions, "name": "mine"}]
    found = measured(fake_encoder, retrieval=sets)
    assert [each.name for each in found.sets] == [f"{tmp_path.name} (1)", f"{tmp_path.name} (2)", "mine"]


def test_copies_of_a_picture_are_told(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    captions = write_captions(tmp_path)
    (tmp_path / "copy.png").write_bytes((tmp_path / "red.png").read_bytes())
    with captions.open("a") as file:
        file.write('{"image": "copy.png", "caption": "red again"}\n')
    (result,) = measured(fake_encoder, retrieval=[{"path": captions}]).sets
    assert any("1 picture(s) look like another" in note for note in result.notes)
    assert result.value("text_to_image_r1") == pytest.approx(14 / 17)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([], "holds no rows"),
        ([{"image": "red.png", "caption": "red"}], "at least two$"),
        (
            [{"image": "red.png", "caption": "red"}, {"image": "gone.png", "caption": "x"}],
            "at least two; the first of 1 left out is gone.png: the file does not exist",
        ),
        ([{"picture": "red.png", "caption": "red"}], "no column 'image'"),
        ([{"image": "gone.png", "caption": "red"}, {"image": "away.png", "caption": "x"}], "2 of 2 pictures"),
    ],
)
def test_captions_that_cannot_be_searched_are_refused(
    fake_encoder: FakeEncoder, tmp_path: Path, rows: list[dict[str, str]], message: str
) -> None:
    write_pictures(tmp_path)
    with pytest.raises(DataError, match=message):
        measured(fake_encoder, retrieval=[{"path": write_rows(tmp_path / "captions.jsonl", rows)}])


@pytest.mark.parametrize("kind", ["compositional", "pairs"])
def test_rows_that_all_lack_something_say_what(fake_encoder: FakeEncoder, tmp_path: Path, kind: str) -> None:
    write_pictures(tmp_path)
    row = {"image": "red.png", "image_true": "red.png", "image_false": "blue.png", "negative_caption": "x"}
    gone = {**row, "image": "gone.png", "image_false": "gone.png"}
    rows = write_rows(tmp_path / "rows.jsonl", [{**row, "caption": " "}, {**gone, "caption": "y"}])
    with pytest.raises(
        DataError, match=r"no row that can be used; the first of 2 left out is gone\.png: the file does"
    ):
        measured(fake_encoder, **{kind: [{"path": rows}]})


def test_every_figure_is_a_picture() -> None:
    classes = tuple(f"class $x^{i}" for i in range(70))
    labels = np.arange(70)
    confusion = Confusion("many", classes, Confusions(labels, np.where(labels == 3, 69, labels), 70))
    one = np.ones(1, dtype=np.int64)
    for figure in (
        confusion,
        Confusion("few", ("a", "b"), Confusions(np.zeros(3, int), np.array([0, 1, 1]), 2)),
        Bars("bars $", {"a $x": 0.3, "b": 1.0}, 0.5),
        Histogram("values", {"a": np.zeros(3), "b": np.ones(1)}, "cosine"),
        RankCurves("ranks", (RankCurve("a", np.array([1, 2]), np.ones(2, int), 2), RankCurve("b", one, one, 1))),
    ):
        assert draw(figure).startswith(b"\x89PNG")
    gone = ListedPicture("gone", None, Path("gone.png"))
    sheet = Sheet(
        "pictures", (("a title", ((gone, "gone"), (ListedPicture("", None, gone.file, data=solid("red")), "red"))),)
    )
    assert draw(sheet).startswith(b"\xff\xd8")


def test_a_wrong_line_in_the_last_list_is_told_before_anything_is_embedded(tmp_path: Path) -> None:
    class Untouched(FakeEncoder):
        def encode_images(self, pixels_nchw: NDArray[np.float32]) -> NDArray[np.float32]:
            raise AssertionError(f"{len(pixels_nchw)} pictures were embedded")

    wrong = write_rows(tmp_path / "wrong.jsonl", [{"image": "red.png"}])
    with pytest.raises(DataError, match="no column 'image_true'"):
        measured(Untouched(), retrieval=[{"path": write_captions(tmp_path)}], pairs=[{"path": wrong}])


def sheets(result: SetResult) -> list[Sheet]:
    return [figure for figure in result.figures if isinstance(figure, Sheet)]


def test_captions_are_shown_with_their_own_and_the_nearest_pictures(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    (result,) = measured(fake_encoder, retrieval=[{"path": write_captions(tmp_path)}]).sets
    (sheet,) = sheets(result)
    assert len(sheet.rows) == 10
    title, cells = sheet.rows[0]
    assert title == "place 1: a black thing"
    assert [picture.name for picture, _ in cells[:2]] == ["black.png", "black.png"]
    assert len(cells) == 5


def test_no_picture_is_its_own_neighbour(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    write_classes(tmp_path, ["red", "blue"], each=2)
    (tmp_path / "red" / "1.png").rename(tmp_path / "blue" / "stranger.png")
    (tmp_path / "blue" / "1.png").rename(tmp_path / "red" / "stranger.png")
    (result,) = measured(fake_encoder, zero_shot=[{"path": tmp_path, "k": 1}]).sets
    assert result.value("knn") == 0.0


def test_the_only_picture_of_a_class_is_not_asked_for_its_neighbours(fake_encoder: FakeEncoder, tmp_path: Path) -> None:
    write_classes(tmp_path, ["red", "blue"], each=2)
    (tmp_path / "blue" / "1.png").unlink()
    (result,) = measured(fake_encoder, zero_shot=[{"path": tmp_path, "k": 1}]).sets
    assert result.value("knn") == 1.0
