from __future__ import annotations

import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.tiny_bundle import TinyTowers
from tests.support.variant_bundle import (
    PLANTED_CONV,
    PLANTED_LINEAR,
    image_graph,
    publish_with,
    text_graph,
    write_pictures,
)
from twinlens.encoders.bundle import read_manifest, verify_digests
from twinlens.encoders.encoder import Encoder
from twinlens.encoders.parity import ParityReport
from twinlens.encoders.runtime import Tower, TowerSession
from twinlens.training.export.errors import ExportError
from twinlens.training.export.variants import make
from twinlens.training.export.variants.add import add_variants
from twinlens.training.export.variants.calibration import CalibrationData, read_calibration
from twinlens.training.export.variants.gate import Judgement
from twinlens.training.export.variants.judge import Judge
from twinlens.training.export.variants.observe import Feed
from twinlens.training.export.variants.report import VariantReport

VOCABULARY = len(TinyTowers().vocabulary)


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_pictures(tmp_path_factory.mktemp("photos"), 140)


@pytest.fixture(scope="module")
def data(photos: Path) -> CalibrationData:
    return read_calibration([photos])


@dataclass(frozen=True)
class Made:
    """A bundle, the one with variants, and what was said of it; read-only for tests."""

    plain: Path
    full: Path
    report: VariantReport


@pytest.fixture(scope="module")
def made(data: CalibrationData, tmp_path_factory: pytest.TempPathFactory) -> Made:
    """Both towers in both precisions."""
    folder = tmp_path_factory.mktemp("models")
    publish_with(folder / "1", image_graph(), text_graph(VOCABULARY))
    report = add_variants(folder / "1", folder / "2", ["int8", "fp16"], data, version="2", min_speedup=0)
    return Made(folder / "1", folder / "2", report)


def test_both_towers_get_int8_and_fp16_files_of_the_same_space(made: Made) -> None:
    before, report = read_manifest(made.plain), made.report
    assert len(report.written) == 4
    after = read_manifest(made.full)
    assert after == report.manifest
    assert (after.space_id, after.version, after.name) == (before.space_id, "2", before.name)
    assert (before.version, [file.path for file in before.files if "int8" in file.path]) == ("1", [])
    verify_digests(made.full, after)
    assert after.image is not None
    assert after.text is not None
    for files in (after.image.files, after.text.files):
        assert set(files.by_precision()) == {"fp32", "int8", "fp16"}
        assert set(files.agreement) == {"int8", "fp16"}
    measured = after.image.files.agreement["int8"]
    outcome = report.outcomes[0]
    assert measured.mean_cosine == pytest.approx(outcome.judgement.mean_cosine, abs=1e-6)
    assert measured.worst_cosine == pytest.approx(outcome.judgement.worst_cosine, abs=1e-6)
    assert measured.items == 140 - 140 // 3
    assert "94 held-out pictures" in measured.data
    assert "1.06 points" in measured.data, "how finely recall can be told"
    verify_digests(made.plain, before)
    for precision in ("int8", "fp16"):
        loaded = Encoder.load(made.full, provider="cpu", precision=precision)
        assert set(loaded.precisions.values()) == {precision}


@pytest.mark.parametrize("precision", ["int8", "fp16"])
def test_what_the_manifest_says_is_what_the_file_does(precision: Any, photos: Path, made: Made) -> None:
    pictures = [file.read_bytes() for file in sorted(photos.iterdir())]
    exact = Encoder.load(made.full, provider="cpu")
    reduced = Encoder.load(made.full, provider="cpu", precision=precision)
    pixels = np.stack([exact.prepare_image(picture) for picture in pictures])
    cosines = (exact.encode_images(pixels) * reduced.encode_images(pixels)).sum(axis=1)
    image = reduced.manifest.image
    assert image is not None
    assert cosines.min() >= image.files.agreement[precision].worst_cosine - 0.01
    assert cosines.mean() == pytest.approx(image.files.agreement[precision].mean_cosine, abs=0.002)


def test_an_int8_vector_does_not_depend_on_its_batch(photos: Path, made: Made) -> None:
    encoder = Encoder.load(made.full, provider="cpu", precision="int8")
    pixels = np.stack([encoder.prepare_image(file.read_bytes()) for file in sorted(photos.iterdir())[:9]])
    tokens = [encoder.prepare_text(text) for text in ("a red cat", "a blue dog", "square circle!")]
    together, alone = encoder.encode_images(pixels), encoder.encode_images(pixels[4:5])
    np.testing.assert_allclose(together[4], alone[0], atol=1e-5)
    np.testing.assert_allclose(encoder.encode_texts(tokens)[1], encoder.encode_texts(tokens[1:2])[0], atol=1e-5)


def test_the_search_leaves_exactly_the_layers_in_fp32_that_int8_spoils(data: CalibrationData, tmp_path: Path) -> None:
    publish_with(tmp_path / "a", image_graph(planted=True), text_graph(VOCABULARY, planted=True))
    report = add_variants(tmp_path / "a", tmp_path / "b", ["int8"], data, min_speedup=0)
    image, text = report.outcomes
    assert (image.kept, text.kept) == ((PLANTED_CONV,), (PLANTED_LINEAR,))
    assert image.share == pytest.approx(0.82, abs=0.01)
    assert report.manifest is not None
    assert report.manifest.image is not None
    assert report.manifest.image.files.agreement["int8"].fp32_nodes == (PLANTED_CONV,)


def test_a_tower_that_cannot_pass_is_not_written_and_the_report_says_why(data: CalibrationData, tmp_path: Path) -> None:
    publish_with(tmp_path / "a", image_graph(hopeless=True), text_graph(VOCABULARY))
    report = add_variants(tmp_path / "a", tmp_path / "b", ["int8"], data, min_speedup=0)
    image, text = report.outcomes
    assert "with 1 nodes in fp32, worst cosine" in image.refused
    assert not text.refused
    manifest = read_manifest(tmp_path / "b")
    assert manifest.image is not None
    assert set(manifest.image.files.by_precision()) == {"fp32"}
    assert not (tmp_path / "b" / "image.int8.onnx").exists()
    loaded = Encoder.load(tmp_path / "b", provider="cpu", precision="int8")
    assert dict(loaded.precisions) == {"image": "fp32", "text": "int8"}


def test_nothing_is_published_if_nothing_passes(data: CalibrationData, tmp_path: Path) -> None:
    publish_with(tmp_path / "a", image_graph(hopeless=True), None)
    report = add_variants(tmp_path / "a", tmp_path / "b", ["int8"], data, min_speedup=0)
    assert (report.written, report.manifest) == ((), None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_an_int8_file_that_is_not_faster_is_not_written(data: CalibrationData, tmp_path: Path) -> None:
    publish_with(tmp_path / "a", image_graph(), None)
    report = add_variants(tmp_path / "a", tmp_path / "b", ["int8"], data, min_speedup=1e6)
    (image,) = report.outcomes
    assert "as fast as fp32, at least ×1000000.0 is wanted" in image.refused
    assert set(image.speedups) == {1, 8, 32}


def test_the_same_data_gives_the_same_bytes(data: CalibrationData, made: Made, tmp_path: Path) -> None:
    add_variants(made.plain, tmp_path / "again", ["int8", "fp16"], data, version="2", min_speedup=0)
    digests = [
        {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.*")}
        for folder in (made.full, tmp_path / "again")
    ]
    assert digests[0] == digests[1]
    assert "image.int8.onnx" in digests[0]


def test_weights_beside_the_graph_are_read_and_stay_what_the_space_counts(
    data: CalibrationData, tmp_path: Path
) -> None:
    before = publish_with(tmp_path / "a", image_graph(), text_graph(VOCABULARY), external=True)
    assert (tmp_path / "a" / "image.onnx.data").is_file()
    report = add_variants(tmp_path / "a", tmp_path / "b", ["int8", "fp16"], data, min_speedup=0)
    assert report.manifest is not None
    assert report.manifest.space_id == before.space_id
    assert len(report.written) == 4
    Encoder.load(tmp_path / "b", provider="cpu", precision="int8")


@pytest.mark.parametrize("towers", [("image",), ("text",)])
def test_bundles_of_one_tower_get_variants(towers: tuple[str, ...], data: CalibrationData, tmp_path: Path) -> None:
    publish_with(
        tmp_path / "a",
        image_graph() if "image" in towers else None,
        text_graph(VOCABULARY) if "text" in towers else None,
    )
    given = data if "image" in towers else CalibrationData()
    report = add_variants(tmp_path / "a", tmp_path / "b", ["int8"], given, min_speedup=0)
    assert [outcome.tower for outcome in report.written] == list(towers)
    assert not report.outcomes[0].judgement.by_captions
    assert report.outcomes[0].judgement.recall_drop is not None


def test_captions_and_labels_judge_by_recall_and_accuracy(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 140, captions=True)
    labelled = tmp_path / "labelled"
    write_pictures(labelled / "cat", 50, seed=1)
    write_pictures(labelled / "dog", 50, seed=2)
    publish_with(tmp_path / "a", image_graph(), text_graph(VOCABULARY))
    data = read_calibration([folder], None, [labelled])
    report = add_variants(tmp_path / "a", tmp_path / "b", ["fp16"], data, min_speedup=0)
    for outcome in report.outcomes:
        assert outcome.judgement.by_captions
        assert outcome.judgement.recall_queries == 94
        assert outcome.judgement.top1_drops["labelled"][1] == 100
    assert report.manifest is not None
    assert report.manifest.text is not None
    agreement = report.manifest.text.files.agreement["fp16"]
    assert agreement.top1_drop is not None
    assert "100 labelled pictures of labelled" in agreement.data


def test_variants_can_be_added_to_a_bundle_that_has_some(data: CalibrationData, tmp_path: Path) -> None:
    publish_with(tmp_path / "a", image_graph(), None)
    add_variants(tmp_path / "a", tmp_path / "b", ["fp16"], data)
    report = add_variants(tmp_path / "b", tmp_path / "c", ["int8"], data, min_speedup=0)
    assert report.manifest is not None
    assert report.manifest.image is not None
    assert set(report.manifest.image.files.agreement) == {"int8", "fp16"}


def test_an_older_file_of_a_precision_that_no_longer_passes_does_not_stay(
    data: CalibrationData, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Judge.__call__

    def without_image(judge: Judge, reduced: dict[Tower, TowerSession]) -> Judgement:
        return Judgement(0.9, 0.5, 1, problems=("too far",)) if "image" in reduced else judged(judge, reduced)

    monkeypatch.setattr(Judge, "__call__", without_image)
    report = add_variants(made.full, tmp_path / "next", ["int8"], data, min_speedup=0)
    assert [outcome.tower for outcome in report.written] == ["text"]
    assert report.manifest is not None
    assert report.manifest.image is not None
    assert set(report.manifest.image.files.by_precision()) == {"fp32", "fp16"}
    assert set(report.manifest.image.files.agreement) == {"fp16"}
    assert not (tmp_path / "next" / "image.int8.onnx").exists()


def test_the_worst_cosine_is_also_that_of_the_parity_inputs(
    data: CalibrationData, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Encoder, "verify", lambda *_: ParityReport(image=0.9812, text=0.9))
    report = add_variants(made.plain, tmp_path / "out", ["fp16"], CalibrationData(data.photos))
    image, text = report.outcomes
    assert (image.judgement.worst_cosine, text.judgement.worst_cosine) == (0.9812, 0.9)
    assert image.judgement.mean_cosine > 0.99


@pytest.mark.parametrize("tower", ["image", "text"])
def test_of_two_towers_that_pass_one_by_one_only_the_one_that_gains_more_stays_if_together_they_fail(
    tower: Tower, data: CalibrationData, made: Made, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged = Judge.__call__

    def not_together(judge: Judge, reduced: dict[Tower, TowerSession]) -> Judgement:
        return Judgement(1.0, 1.0, 1, problems=("recall falls",)) if len(reduced) > 1 else judged(judge, reduced)

    def gain(exact: TowerSession, reduced: TowerSession, feed: Feed) -> dict[int, float]:
        return {1: 3.0 if ("pixels" in feed) == (tower == "image") else 2.0}

    monkeypatch.setattr(Judge, "__call__", not_together)
    monkeypatch.setattr(make, "speedups", gain)
    report = add_variants(made.plain, tmp_path / "out", ["int8"], data)
    assert [outcome.tower for outcome in report.written] == [tower]
    (refused,) = (outcome for outcome in report.outcomes if outcome.refused)
    assert refused.refused == "beside the other int8 tower: recall falls"


@pytest.mark.parametrize(
    ("change", "line"),
    [
        (lambda data: CalibrationData(data.photos[:0]), "^0 pictures are too few .* at least 96 .*--photos"),
        (lambda data: CalibrationData(data.photos[:60]), "^60 pictures are too few"),
        (lambda data: CalibrationData(data.photos[:1] * 300), "of 300 pictures .* 0 judge"),
        (lambda data: CalibrationData(data.photos, ("a", "b")), "2 texts are too few"),
    ],
)
def test_too_little_data_is_one_clear_line(
    change: Callable[[CalibrationData], CalibrationData], line: str, data: CalibrationData, tmp_path: Path
) -> None:
    publish_with(tmp_path / "a", image_graph(), text_graph(VOCABULARY))
    with pytest.raises(ExportError, match=line):
        add_variants(tmp_path / "a", tmp_path / "b", ["int8"], change(data))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_a_full_disk_is_one_clear_line_and_leaves_nothing(
    data: CalibrationData, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "some file")

    publish_with(tmp_path / "a", image_graph(), None)
    for place in ("os.posix_fallocate", "shutil.copyfile"):
        with monkeypatch.context() as patch:
            patch.setattr(place, full)
            with pytest.raises(ExportError, match=r"^cannot write .*b: No space left on device$"):
                add_variants(tmp_path / "a", tmp_path / "b", ["fp16"], data)
        assert sorted(path.name for path in tmp_path.iterdir()) == ["a"]


def test_every_long_stage_tells_how_far_it_is_one_stage_at_a_time(data: CalibrationData, tmp_path: Path) -> None:
    stages: list[tuple[str, int | None, int]] = []
    open_now = 0

    class Counting:
        done = 0

        def advance(self, *, failed: bool = False) -> None:
            assert not failed
            self.done += 1

    @contextmanager
    def watch(what: str, total: int | None = None) -> Iterator[Counting]:
        nonlocal open_now
        assert open_now == 0, "two bars at once"
        open_now = 1
        counting = Counting()
        try:
            yield counting
        finally:
            open_now = 0
            stages.append((what, total, counting.done))

    publish_with(tmp_path / "a", image_graph(planted=True), text_graph(VOCABULARY))
    add_variants(tmp_path / "a", tmp_path / "b", ["int8"], data, min_speedup=0, watch=watch)
    assert {what for what, *_ in stages} == {
        "reading photos",
        "embedding",
        "observing",
        "rounding weights",
        "ranking",
    }
    ended = {what for what, total, done in stages if done == total}
    assert ended == {what for what, *_ in stages}, "each got to its end at least once"
    assert all(total is not None and done <= total for _, total, done in stages)


def test_unreadable_pictures_are_left_out_and_counted(tmp_path: Path) -> None:
    folder = write_pictures(tmp_path / "photos", 120)
    (folder / "torn.jpg").write_bytes(b"\xff\xd8\xff\xe0 torn")
    publish_with(tmp_path / "a", image_graph(), None)
    report = add_variants(tmp_path / "a", tmp_path / "b", ["fp16"], read_calibration([folder]))
    assert report.unreadable == 1


def test_what_cannot_be_made_is_refused_before_any_work(data: CalibrationData, tmp_path: Path) -> None:
    publish_with(tmp_path / "a", image_graph(), None)
    with pytest.raises(ExportError, match="no variant 'int4': int8 and fp16"):
        add_variants(tmp_path / "a", tmp_path / "b", ["int4"], data)  # type: ignore[list-item]
    with pytest.raises(ExportError, match=r"no bundle can have the version '\.\.'"):
        add_variants(tmp_path / "a", tmp_path / "b", ["int8"], data, version="..")
    with pytest.raises(ExportError, match="no variant named"):
        add_variants(tmp_path / "a", tmp_path / "b", [], data)
    with pytest.raises(ExportError, match="is in use; bundles are immutable"):
        add_variants(tmp_path / "a", tmp_path / "a", ["int8"], data)
