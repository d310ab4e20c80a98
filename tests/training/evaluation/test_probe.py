"""`twinlens probe` end to end on a tiny encoder: numbers, report, and what it says of bad input."""

from __future__ import annotations

import json
import re
from contextlib import nullcontext
from pathlib import Path

import click
import numpy as np
import pytest
import torch
import typer
from PIL import Image
from typer.testing import CliRunner

from tests.support.without_torch import assert_refused_without_torch
from twinlens.encoders.manifest import Lineage, PreprocessSpec
from twinlens.training.checkpoint import CheckpointMeta
from twinlens.training.csv_rows import append_row
from twinlens.training.evaluation.cli import probe
from twinlens.training.evaluation.probe import ProbeRequest, _pictures
from twinlens.training.evaluation.probe import probe as measure
from twinlens.training.evaluation.report import read_record
from twinlens.training.image_checkpoint import ImageEncoderSpec, save_image_checkpoint
from twinlens.training.modules.backbone import build_backbone
from twinlens.training.modules.backbone_config import BackboneConfig

TINY = BackboneConfig(
    timm="resnet18", stem="cifar_stride2", arguments={"channels": [8, 8, 8, 16], "layers": [1, 1, 1, 1]}
)
SPEC = PreprocessSpec(size=16, resize_size=16, mean=(0.5, 0.5, 0.5), std=(0.25, 0.25, 0.25))


@pytest.fixture(scope="module")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    spec = ImageEncoderSpec(TINY, SPEC, "simclr", "tiny <b>")
    meta = CheckpointMeta(40, Lineage(method="simclr"))
    save_image_checkpoint(folder / "checkpoint.pt", spec, build_backbone(TINY, 16), meta)
    (folder / "config.json").write_text(json.dumps({"method": "simclr", "note": "</pre><script>"}))
    append_row(folder / "metrics.csv", {"step": 20, "loss": 2.0})
    append_row(folder / "metrics.csv", {"step": 40, "loss": 1.0})
    return folder


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    for part, count in (("train", 12), ("test", 5)):
        for channel, name in enumerate(("red", "green", "blue")):
            (folder / part / name).mkdir(parents=True)
            for i in range(count):
                pixels = rng.integers(0, 60, (16, 20, 3), dtype=np.uint8)
                pixels[:, :, channel] += 150
                Image.fromarray(pixels).save(folder / part / name / f"{i}.png")
    return folder


def call(*arguments: object) -> tuple[int, str, str]:
    app = typer.Typer()
    app.command()(probe)
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if isinstance(result.exception, click.ClickException):
        return 1, result.stdout, result.exception.message
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stdout, result.stderr


def test_json_tells_every_measure(run_folder: Path, pictures: Path) -> None:
    code, out, _ = call(run_folder, "--train", pictures / "train", "--test", pictures / "test", "--json")
    found = json.loads(out)
    assert code == 0
    assert found["knn"] == found["linear"] == 1.0
    assert found["per_class"] == {"red": 1.0, "green": 1.0, "blue": 1.0}
    assert (found["train_pictures"], found["test_pictures"], found["classes"]) == (36, 15, 3)
    assert (found["method"], found["steps"], found["dimension"]) == ("simclr", 40, 16)
    assert 0 < found["feature_std"] < 0.25
    assert 1 <= found["feature_rank"] <= 15
    assert found["low_shot"] == []


def test_what_training_spoiled_is_told_by_fresh_weights(pictures: Path, tmp_path: Path) -> None:
    backbone = build_backbone(TINY, 16)
    for weights in backbone.parameters():
        weights.data.zero_()
    meta = CheckpointMeta(40, Lineage(method="simclr"))
    save_image_checkpoint(tmp_path / "c.pt", ImageEncoderSpec(TINY, SPEC, "simclr", "spoiled"), backbone, meta)
    arguments = (tmp_path / "c.pt", "--train", pictures / "train", "--test", pictures / "test")
    found = json.loads(call(*arguments, "--json")[1])
    assert found["knn"] < 0.5
    assert found["knn_untrained"] == 1.0
    assert re.search(r"kNN accuracy +\S? *0\.\d{3} \(with fresh weights 1\.000\)", call(*arguments)[1])


def test_fresh_weights_are_those_that_a_run_of_the_seed_starts_with(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for i in range(36):  # of noise, so that no two networks are right alike
        file = tmp_path / "photos" / "abc"[i % 3] / f"{i}.png"
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 256, (16, 16, 3), dtype=np.uint8)).save(file)
    torch.manual_seed(5)
    spec, meta = ImageEncoderSpec(TINY, SPEC, "random", "fresh"), CheckpointMeta(0, Lineage(method="random"))
    save_image_checkpoint(tmp_path / "c.pt", spec, build_backbone(TINY, 16), meta)
    found = [
        measure(
            ProbeRequest(tmp_path / "c.pt", tmp_path / "photos", test=tmp_path / "photos", k=9, seed=seed),
            lambda *_: nullcontext(lambda *_: None),
        ).result
        for seed in (5, 6)
    ]
    assert found[0].knn_untrained == found[0].knn == found[1].knn
    assert found[1].knn_untrained != found[1].knn


def test_a_checkpoint_file_is_as_good_as_its_folder_and_a_fifth_is_held_out(run_folder: Path, pictures: Path) -> None:
    code, out, _ = call(run_folder / "checkpoint.pt", "--train", pictures / "train", "--json")
    found = json.loads(out)
    assert code == 0
    assert (found["train_pictures"], found["test_pictures"]) == (30, 6)


def test_pictures_of_one_name_that_cannot_be_used_are_all_counted(tmp_path: Path) -> None:
    good = Image.new("RGB", (16, 16))
    for part in ("train", "test"):
        for name in ("red", "green"):
            (tmp_path / part / name).mkdir(parents=True)
            for i in range(60):
                good.save(tmp_path / part / name / f"{i}.png")
        (tmp_path / part / "red" / "broken.png").write_bytes(b"no picture")
    request = ProbeRequest(tmp_path, tmp_path / "train", tmp_path / "test")
    train, test, unreadable = _pictures(request, ImageEncoderSpec(TINY, SPEC, "simclr", "tiny"))
    assert (len(train), len(test)) == (120, 120)
    assert [name.split(": ")[0] for name in unreadable] == [str(tmp_path / part) for part in ("train", "test")]


def test_the_report_stands_alone(run_folder: Path, pictures: Path, tmp_path: Path) -> None:
    out = tmp_path / "report"
    arguments = (run_folder, "--train", pictures / "train", "--test", pictures / "test", "--map", "--out", out)
    code, told, _ = call(*arguments)
    assert code == 0
    assert "kNN accuracy" in told
    assert {path.name for path in out.iterdir()} == {
        "report.html", "probe.json", "curves.png", "map_pca.png", "map_tsne.png",
    }  # fmt: skip
    page = (out / "report.html").read_text(encoding="utf-8")
    assert "tiny &lt;b&gt;" in page
    assert "<script" not in page
    assert len(re.findall(r'<img [^>]*src="data:image/png;base64,', page)) == 3
    assert not re.search(r'(src|href)="(?!data:)', page)
    with Image.open(out / "map_tsne.png") as picture:
        assert picture.width == 1400
    assert call(*arguments)[0] == 0  # over itself


def test_a_checkpoint_without_its_run_is_reported_without_curves(
    run_folder: Path, pictures: Path, tmp_path: Path
) -> None:
    alone = tmp_path / "alone"
    alone.mkdir()
    (alone / "c.pt").write_bytes((run_folder / "checkpoint.pt").read_bytes())
    assert call(alone / "c.pt", "--train", pictures / "train", "--out", tmp_path / "r")[0] == 0
    assert {path.name for path in (tmp_path / "r").iterdir()} == {"report.html", "probe.json"}


def test_low_shot_is_done_for_both_shares(run_folder: Path, pictures: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("twinlens.training.evaluation.low_shot.FineTuning.steps", lambda *_: 2)
    code, out, err = call(
        run_folder, "--train", pictures / "train", "--test", pictures / "test", "--low-shot", "--json"
    )
    assert code == 0
    shots = json.loads(out)["low_shot"]
    assert [(shot["share"], shot["pictures"]) for shot in shots] == [(0.01, 3), (0.1, 3)]
    assert "fine-tuning on 3 pictures (1%)" in err


def test_bad_input_is_one_line(run_folder: Path, pictures: Path, tmp_path: Path) -> None:
    train = pictures / "train"
    (tmp_path / "flat").mkdir()
    Image.new("RGB", (16, 16)).save(tmp_path / "flat" / "a.png")
    for name in ("pink", "red"):
        (tmp_path / "test" / name).mkdir(parents=True)
        Image.new("RGB", (16, 16)).save(tmp_path / "test" / name / "a.png")
    (tmp_path / "file").write_text("x")
    for arguments, message in (
        ((tmp_path / "none.pt", "--train", train), "no checkpoint at"),
        ((tmp_path, "--train", train), "no checkpoint at"),
        ((tmp_path / "file", "--train", train), "not a readable checkpoint"),
        ((run_folder, "--train", tmp_path / "nowhere"), "nowhere"),
        ((run_folder, "--train", tmp_path / "flat"), "one folder per class"),
        ((run_folder, "--train", train, "--test", tmp_path / "test"), "'pink' is not among"),
        ((run_folder, "--train", train, "--map"), "--out"),
        ((run_folder, "--train", train, "--out", tmp_path / "file"), "is a file"),
        ((run_folder, "--train", train, "--out", tmp_path / "file" / "report"), "cannot be made"),
        ((run_folder, "--train", tmp_path / "nowhere", "--out", tmp_path / "new"), "nowhere"),
    ):
        code, _, err = call(*arguments)
        assert code == 1, arguments
        assert message in err
    assert not (tmp_path / "new").exists()


def test_what_a_report_lacks_is_told_before_anything_is_measured(
    run_folder: Path, pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("twinlens.training.evaluation.probe.probe", lambda *_: pytest.fail("measured"))
    damaged = tmp_path / "damaged"
    damaged.mkdir()
    (damaged / "checkpoint.pt").write_bytes((run_folder / "checkpoint.pt").read_bytes())
    (damaged / "metrics.csv").write_text("step,loss\none,two\n")
    code, _, err = call(damaged, "--train", pictures / "train", "--out", tmp_path / "report")
    assert code == 1
    assert "metrics.csv is no table of numbers" in err


def test_a_map_of_two_pictures_is_refused(run_folder: Path, pictures: Path, tmp_path: Path) -> None:
    few = ("--train", pictures / "train", "--test", pictures / "test", "--limit", "2")
    code, _, err = call(run_folder, *few, "--map", "--out", tmp_path / "report")
    assert (code, err) == (1, "a map needs at least 3 test pictures, found 2")


def test_records_that_are_damaged_count_as_absent(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text("[1")
    assert read_record(tmp_path, "config.json") is None
    (tmp_path / "config.json").write_text("[1]")
    assert read_record(tmp_path, "config.json") is None


def test_what_is_not_there_is_told_before_torch_is_loaded(run_folder: Path, tmp_path: Path) -> None:
    mistakes = (
        ["probe", "nowhere", "--train", "."],
        ["probe", ".", "--train", "."],
        ["probe", str(run_folder), "--train", "nowhere"],
        ["probe", str(run_folder), "--train", ".", "--test", "nowhere-*.tar"],
        ["augment", "preview", "simclr", "--images", "nowhere", "--out", "sheet.png"],
        ["augment", "preview", "nowhere.toml", "--images", ".", "--out", "sheet.png"],
    )
    assert_refused_without_torch(mistakes, tmp_path)
