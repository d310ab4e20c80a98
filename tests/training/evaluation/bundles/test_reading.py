"""The files that an evaluation reads: right and wrong captions, pairs of pictures, configurations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.training.evaluation.bundles.coloured import write_rows
from twinlens.training.data.errors import DataError
from twinlens.training.data.listed_pictures import ListedPicture
from twinlens.training.data.scenes import generate, write_scenes
from twinlens.training.errors import ConfigError
from twinlens.training.evaluation.bundles.config import check_there, eval_config, read_eval_config
from twinlens.training.evaluation.bundles.picture_pairs import PicturePair, read_picture_pairs
from twinlens.training.evaluation.bundles.wrong_captions import read_wrong_captions

ROW = {"image": "a.png", "caption": "right", "negative_caption": "wrong"}


def test_a_wrong_caption_knows_its_kind_and_may_be_several(tmp_path: Path) -> None:
    rows: list[dict[str, Any]] = [{**ROW, "type": "swap_att"}, {**ROW, "negative_caption": ["wrong", "false"]}]
    choices = read_wrong_captions(write_rows(tmp_path / "rows.jsonl", rows))
    assert [(each.negative_caption, each.kind) for each in choices] == [
        ("wrong", "swap_att"),
        ("wrong", "all"),
        ("false", "all"),
    ]
    assert choices[0].picture == ListedPicture("a.png", None, tmp_path / "a.png")


def test_an_object_of_wrong_captions_tells_their_kinds_as_drawn_scenes_have_it(tmp_path: Path) -> None:
    captions = write_scenes(tmp_path, 3, seed=1, size=16)
    choices = read_wrong_captions(captions)
    (scene, *_) = generate(3, seed=1, size=16)
    assert [(each.caption, each.kind, each.negative_caption) for each in choices[: len(scene.negatives)]] == [
        (scene.caption, kind, wrong) for kind, wrong in scene.negatives.items()
    ]


def test_parquet_may_hold_the_pictures_themselves(tmp_path: Path) -> None:
    of = {"bytes": b"1", "path": None}
    table = {"image_0": [of, of], "image_1": [{"bytes": b"2", "path": "x.png"}] * 2}
    captions = {"caption_0": ["a", "b"], "caption_1": ["c", "d"], "tag": [1, 2]}
    pq.write_table(pa.table({**table, **captions}), tmp_path / "pairs.parquet")
    first, second = read_picture_pairs(tmp_path / "pairs.parquet")
    assert [picture.read() for pair in (first, second) for picture in pair.pictures] == [b"1", b"2", b"1", b"2"]
    assert len({picture.name for pair in (first, second) for picture in pair.pictures}) == 4
    assert second.captions == ("b", "d")
    choices = {"image": ["a.png"], "caption": ["right"], "negative_caption": ["wrong"]}
    pq.write_table(pa.table(choices), tmp_path / "choices.parquet")
    (choice,) = read_wrong_captions(tmp_path / "choices.parquet")
    assert (choice.picture.file, choice.negative_caption) == (tmp_path / "a.png", "wrong")


def test_tables_and_another_folder_of_pictures_will_do(tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("image,caption,negative_caption,type\na.png,right,wrong,replace_obj\n")
    (choice,) = read_wrong_captions(tmp_path / "rows.csv", images=Path("elsewhere"))
    assert (choice.picture.file, choice.kind) == (Path("elsewhere/a.png"), "replace_obj")


def test_the_files_of_sugarcrepe_are_read_as_they_are(tmp_path: Path) -> None:
    for kind in ("swap_obj", "add_att"):
        rows = {str(i): {"filename": f"{i}.jpg", "caption": "right", "negative_caption": "wrong"} for i in range(2)}
        (tmp_path / f"{kind}.json").write_text(json.dumps(rows))
    assert {each.kind for each in read_wrong_captions(tmp_path / "swap_obj.json")} == {"swap_obj"}
    every = read_wrong_captions(tmp_path, images=Path("coco"))
    assert [each.kind for each in every] == ["add_att", "add_att", "swap_obj", "swap_obj"]
    assert every[1].picture.file == Path("coco/1.jpg")


@pytest.mark.shared
def test_all_of_sugarcrepe_is_read(shared_data: Path) -> None:
    choices = read_wrong_captions(shared_data / "sugarcrepe_text")
    assert len(choices) == 7511
    assert len({each.kind for each in choices}) == 7


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"image": "a.png", "caption": "right"}, "line 1 has no column 'negative_caption'"),
        ({**ROW, "negative_caption": ""}, "negative_caption is empty"),
        ({**ROW, "negative_caption": 3}, "must be a text"),
        ({**ROW, "negative_caption": "right"}, "is the caption itself"),
        ({"caption": "right", "negative_caption": "wrong"}, "no column 'image'"),
        ({**ROW, "type": "x" * 81}, "type has 81 characters"),
    ],
)
def test_a_broken_choice_is_named_by_its_line(tmp_path: Path, row: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        read_wrong_captions(write_rows(tmp_path / "rows.jsonl", [row]))


@pytest.mark.parametrize(
    ("text", "message"), [("{", "cannot be read as JSON"), ("3", "object or list of rows"), ("{}", "no rows")]
)
def test_a_json_file_of_something_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "rows.json").write_text(text)
    with pytest.raises(DataError, match=message):
        read_wrong_captions(tmp_path / "rows.json")


def test_a_folder_without_choices_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"holds no \.json"):
        read_wrong_captions(tmp_path)


def test_pairs_have_one_caption_or_two(tmp_path: Path) -> None:
    two = {"image_0": "a", "image_1": "b", "caption_0": "of a", "caption_1": "of b"}
    one = {"caption": "of a", "image_true": "a", "image_false": "b"}
    pictures = (ListedPicture("a", None, tmp_path / "a"), ListedPicture("b", None, tmp_path / "b"))
    assert read_picture_pairs(write_rows(tmp_path / "2.jsonl", [two])) == [PicturePair(pictures, ("of a", "of b"))]
    assert read_picture_pairs(write_rows(tmp_path / "1.jsonl", [one])) == [PicturePair(pictures, ("of a",))]
    with pytest.raises(DataError, match="line 2: rows of one caption and rows of two"):
        read_picture_pairs(write_rows(tmp_path / "both.jsonl", [two, one]))
    with pytest.raises(DataError, match="no column 'caption_1'"):
        read_picture_pairs(write_rows(tmp_path / "less.jsonl", [{k: v for k, v in two.items() if k != "caption_1"}]))
    with pytest.raises(DataError, match="no column 'image_false'"):
        read_picture_pairs(write_rows(tmp_path / "less.jsonl", [{"caption": "x", "image_true": "a"}]))
    with pytest.raises(DataError, match="no rows"):
        read_picture_pairs(write_rows(tmp_path / "none.jsonl", []))


def test_paths_of_a_configuration_start_from_its_folder(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("a {}\n")
    (tmp_path / "eval.toml").write_text(
        '[model]\nserver = "localhost:1"\n'
        '[[retrieval]]\npath = "c.jsonl"\nimages = "pictures"\n'
        '[[zero_shot]]\npath = "/elsewhere/classes"\ntemplates = ["mine.txt", "openai"]\n'
        '[[pairs]]\npath = "p.jsonl"\n'
    )
    config = read_eval_config(tmp_path / "eval.toml")
    assert config.retrieval[0].path == tmp_path / "c.jsonl"
    assert config.retrieval[0].images == tmp_path / "pictures"
    assert config.zero_shot[0].path == Path("/elsewhere/classes")
    assert config.zero_shot[0].templates == (str(tmp_path / "mine.txt"), "openai")
    assert config.pairs[0].path == tmp_path / "p.jsonl"
    assert config.model.server == "localhost:1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[retrieval]]\npath = "x"\nimage = "y"\n', "unknown key retrieval.0.image; perhaps"),
        ("[[retrieval]]\n", "retrieval.0.path is missing"),
        ('[retrieval]\npath = "x"\n', "retrieval"),
        ('[[pairs]]\npath = ""\n', "names nothing"),
        ('[[zero_shot]]\npath = "x"\nk = 0\n', "zero_shot.0.k"),
        ("max_unreadable_share = 2\n", "max_unreadable_share"),
    ],
)
def test_a_configuration_that_says_something_else_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "eval.toml").write_text(text)
    with pytest.raises(ConfigError, match=message):
        read_eval_config(tmp_path / "eval.toml")


@pytest.mark.parametrize(
    "sets",
    [
        {"retrieval": [{"path": "gone.jsonl"}]},
        {"zero_shot": [{"path": "gone"}]},
        {"zero_shot": [{"path": ".", "templates": ["gone"]}]},
        {"zero_shot": [{"path": ".", "prompts": ["no place"]}]},
        {"compositional": [{"path": "gone.jsonl"}]},
        {"pairs": [{"path": "gone.jsonl"}]},
        {"pairs": [{"path": ".", "images": "gone"}]},
    ],
)
def test_what_is_not_there_is_told_before_anything_is_measured(sets: dict[str, Any]) -> None:
    with pytest.raises((ConfigError, DataError), match=r"gone|no place"):
        check_there(eval_config(sets, "options"))
