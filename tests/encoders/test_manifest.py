from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from pydantic import ValidationError

from tests.support.tiny_bundle import PREPROCESS, TEXT
from twinlens.encoders.manifest import (
    Agreement,
    FileEntry,
    ImageTower,
    Manifest,
    PreprocessSpec,
    TextTower,
    TowerFiles,
    compute_space_id,
)

A, B = "a" * 64, "b" * 64
IMAGE = ImageTower(files=TowerFiles(fp32="image.onnx"), preprocess=PREPROCESS)
TOWER = TextTower(files=TowerFiles(fp32="text.onnx"), text=TEXT)
FILES = {"image.onnx": A, "text.onnx": A, "tokenizer.json": A, "parity/manifest.json": A}


def space(
    changed: Mapping[str, str] | None = None,
    *,
    image: ImageTower | None = IMAGE,
    text: TextTower | None = TOWER,
    dimension: int = 4,
) -> str:
    listed = {**FILES, **(changed or {})}
    files = tuple(FileEntry(path=path, sha256=digest, size=1) for path, digest in listed.items())
    return compute_space_id(dimension, image, text, files)


@pytest.mark.parametrize("name", ["image.onnx", "text.onnx", "tokenizer.json", "image.onnx.data", "text.onnx.data"])
def test_weights_and_tokenizer_make_the_space(name: str) -> None:
    assert space({name: B}) != space()


@pytest.mark.parametrize("name", ["parity/manifest.json", "image.fp16.onnx", "image.int8.onnx", "LICENSE"])
def test_parity_precision_variants_and_papers_do_not(name: str) -> None:
    assert space({name: B}) == space()


@pytest.mark.parametrize(
    "change",
    [
        {"decode_contract": 2},
        {"size": 24},
        {"resize_size": 40},
        {"resize_mode": "squash"},
        {"interpolation": "bilinear"},
        {"mean": (0.1, 0.5, 0.5)},
        {"std": (0.5, 0.5, 0.6)},
        {"fill": 9},
    ],
)
def test_every_part_of_preprocessing_makes_the_space(change: dict[str, Any]) -> None:
    changed = IMAGE.model_copy(update={"preprocess": PREPROCESS.model_copy(update=change)})
    assert space(image=changed) != space()


@pytest.mark.parametrize(
    "change",
    [{"clean": "none"}, {"context_length": 9}, {"pad_id": 1}, {"pad_to_context": True}, {"attention_mask": False}],
)
def test_every_part_of_tokenising_makes_the_space(change: dict[str, Any]) -> None:
    assert space(text=TOWER.model_copy(update={"text": TEXT.model_copy(update=change)})) != space()


def test_where_the_tokenizer_lies_does_not_matter() -> None:
    moved = TOWER.model_copy(update={"text": TEXT.model_copy(update={"tokenizer": "words.json"})})
    assert space({"words.json": A, "tokenizer.json": B}, text=moved) == space()


def test_towers_and_dimension_make_the_space() -> None:
    assert len({space(), space(image=None), space(text=None), space(dimension=5)}) == 4


def test_descriptions_of_a_tower_do_not() -> None:
    assert space(image=IMAGE.model_copy(update={"architecture": "ViT", "pooling": "cls"})) == space()


@pytest.mark.parametrize(
    "change",
    [
        {"size": 0},
        {"resize_size": 31},
        {"std": (0.5, 0.0, 0.5)},
        {"std": (1e-300,) * 3},
        {"mean": (float("nan"), 0.5, 0.5)},
    ],
)
def test_preprocessing_that_could_not_run_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        PreprocessSpec(**{**PREPROCESS.model_dump(), **change})


@pytest.mark.parametrize("path", ["/abs", "../up", "a/../b", "a//b", "./a", "a\\b", "", "a/"])
def test_a_path_that_leaves_the_bundle_is_refused(path: str) -> None:
    with pytest.raises(ValidationError):
        FileEntry(path=path, sha256=A, size=0)


AGREEMENT = Agreement(mean_cosine=0.999, worst_cosine=0.99, items=100)


class TestReducedPrecision:
    files = TowerFiles(fp32="image.onnx", int8="image.int8.onnx", agreement={"int8": AGREEMENT})

    def test_files_are_told_by_precision_with_fp32_first(self) -> None:
        assert list(self.files.by_precision().items()) == [("fp32", "image.onnx"), ("int8", "image.int8.onnx")]

    def test_what_is_written_is_read_back(self) -> None:
        assert TowerFiles.model_validate_json(self.files.model_dump_json()) == self.files

    @pytest.mark.parametrize(
        ("change", "reason"),
        [
            ({"agreement": {}}, "image.int8.onnx has no agreement"),
            ({"fp16": "image.fp16.onnx"}, "image.fp16.onnx has no agreement"),
            ({"agreement": {"int8": AGREEMENT, "fp16": AGREEMENT}}, "no reduced file"),
            ({"agreement": {"int8": AGREEMENT, "fp32": AGREEMENT}}, "no reduced file"),
            ({"agreement": {"int4": AGREEMENT}}, "int4"),
            ({"int8": "image.onnx"}, "two precisions name one file"),
        ],
    )
    def test_a_reduced_file_has_an_agreement_and_nothing_else_has(self, change: dict[str, Any], reason: str) -> None:
        with pytest.raises(ValidationError, match=reason):
            TowerFiles(**{**dict(self.files), **change})

    @pytest.mark.parametrize(
        "change", [{"mean_cosine": float("nan")}, {"items": 0}, {"worst_cosine": 0.9999}, {"top1_drop": float("inf")}]
    )
    def test_an_agreement_that_measured_nothing_is_refused(self, change: dict[str, Any]) -> None:
        with pytest.raises(ValidationError):
            Agreement(**{**dict(AGREEMENT), **change})

    def test_it_does_not_make_the_space(self) -> None:
        reduced = IMAGE.model_copy(update={"files": self.files})
        assert space({"image.int8.onnx": A}, image=reduced) == space()

    def test_its_file_must_be_listed(self) -> None:
        reduced = IMAGE.model_copy(update={"files": self.files})
        files = tuple(FileEntry(path=path, sha256=digest, size=1) for path, digest in FILES.items())
        space_id = compute_space_id(4, reduced, TOWER, files)
        with pytest.raises(ValidationError, match=r"image\.int8\.onnx is used but not listed"):
            Manifest(name="m", version="1", dimension=4, image=reduced, text=TOWER, files=files, space_id=space_id)


def test_a_metric_that_json_cannot_hold_is_refused() -> None:
    files = tuple(FileEntry(path=path, sha256=digest, size=1) for path, digest in FILES.items())
    with pytest.raises(ValidationError, match="finite"):
        Manifest(
            name="m",
            version="1",
            dimension=4,
            image=IMAGE,
            text=TOWER,
            files=files,
            space_id=space(),
            metrics={"recall": float("nan")},
        )
