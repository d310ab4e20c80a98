from __future__ import annotations

import csv
import errno
import json
import os
from pathlib import Path

import pytest
import torch

from tests.support.drawn_pictures import write_classes
from tests.support.small_image_runs import Reports, small_run
from twinlens.training.data.errors import DataError
from twinlens.training.errors import CheckpointError, ConfigError, TrainingError
from twinlens.training.evaluation import curves
from twinlens.training.image_checkpoint import load_image_checkpoint
from twinlens.training.image_config import ImageTrainConfig
from twinlens.training.image_plan import load, plan_of
from twinlens.training.image_result import ImageTrainResult
from twinlens.training.methods.registry import IMAGE_METHODS
from twinlens.training.methods.simclr import SimCLR
from twinlens.training.train_images import train_images


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classes(tmp_path_factory.mktemp("pictures") / "photos", 8)


@pytest.fixture(scope="module")
def trained(pictures: Path, tmp_path_factory: pytest.TempPathFactory) -> ImageTrainResult:
    return train_images(small_run("simclr", pictures), tmp_path_factory.mktemp("runs") / "simclr", Reports())


def rows_of(path: Path) -> list[dict[str, str]]:
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_run_folder_holds_all_that_the_run_was(pictures: Path, trained: ImageTrainResult) -> None:
    out = trained.checkpoint.parent
    assert {file.name for file in out.iterdir()} == {
        *("config.json", "environment.json", "data.json", "metrics.csv", "evaluations.csv", "curves.png"),
        "checkpoint.pt",
    }
    assert ImageTrainConfig.model_validate(json.loads((out / "config.json").read_text())) == small_run(
        "simclr", pictures
    )
    data = json.loads((out / "data.json").read_text())
    assert (data["pictures"], data["classes"]) == (32, ["amber", "jade", "plum", "slate"])
    rows = rows_of(out / "metrics.csv")
    assert [float(row["step"]) for row in rows] == [1, 2, 3, 4]
    assert {"loss", "std", "effective_rank", "alignment", "uniformity", "samples_per_s"} <= rows[0].keys()
    assert [float(row["step"]) for row in rows_of(out / "evaluations.csv")] == [0, 4]
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")


def test_the_checkpoint_tells_where_it_came_from_and_what_was_measured(
    pictures: Path, trained: ImageTrainResult
) -> None:
    spec, _, meta = load_image_checkpoint(trained.checkpoint)
    config = small_run("simclr", pictures)
    assert (spec.name, spec.method, spec.backbone) == ("simclr", "simclr", config.model.backbone())
    assert (spec.preprocess.size, spec.preprocess.mean) == (32, config.model.mean)
    assert meta.step == 4
    assert meta.lineage.config_sha256 == config.digest()
    assert meta.lineage.data_sha256 == json.loads((trained.checkpoint.parent / "data.json").read_text())["sha256"]
    assert meta.metrics["knn_accuracy"] == trained.knn
    assert trained.knn is not None
    assert 0 <= trained.knn <= 1
    first = rows_of(trained.checkpoint.parent / "evaluations.csv")[0]
    assert trained.told() == (
        f"4 steps on 32 pictures, kNN accuracy {trained.knn:.3f} (before training {float(first['knn_accuracy']):.3f}) "
        "on the training pictures, each by the others"
    )


def test_the_same_configuration_gives_the_same_weights(
    pictures: Path, trained: ImageTrainResult, tmp_path: Path
) -> None:
    again = train_images(small_run("simclr", pictures), tmp_path / "again", Reports())
    other = train_images(small_run("simclr", pictures, "train.seed=1"), tmp_path / "other", Reports())
    states = [load_image_checkpoint(run.checkpoint)[1].state_dict() for run in (trained, again, other)]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert not torch.equal(states[0]["trunk.conv1.weight"], states[2]["trunk.conv1.weight"])


@pytest.mark.parametrize("method", [name for name in IMAGE_METHODS if name != "simclr"])
def test_every_method_leaves_a_checkpoint(method: str, pictures: Path, tmp_path: Path) -> None:
    result = train_images(small_run(method, pictures), tmp_path / "run", Reports())
    spec, backbone, meta = load_image_checkpoint(result.checkpoint)
    assert (spec.method, meta.step) == (method, 0 if method == "random" else 4)
    assert backbone(torch.zeros(2, 3, 32, 32)).shape == (2, 16)
    assert result.knn is not None


def test_no_steps_leave_the_weights_that_the_seed_gives(pictures: Path, tmp_path: Path) -> None:
    config = small_run("random", pictures, "train.batch_size=256")
    runs = [train_images(config, tmp_path / name, Reports()) for name in ("a", "b")]
    states = [load_image_checkpoint(run.checkpoint)[1].state_dict() for run in runs]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])
    assert runs[0].last == {}
    assert runs[0].summary()["knn"] == runs[0].knn
    assert (
        runs[0].told()
        == f"0 steps on 32 pictures, kNN accuracy {runs[0].knn:.3f} on the training pictures, each by the others"
    )
    assert [float(row["step"]) for row in rows_of(tmp_path / "a/evaluations.csv")] == [0]


def test_pictures_without_classes_train_without_looks(pictures: Path, tmp_path: Path) -> None:
    result = train_images(small_run("simclr", pictures / "jade"), tmp_path / "run", Reports())
    assert result.knn is None
    assert not (tmp_path / "run/evaluations.csv").exists()
    assert result.told() == "4 steps on 8 pictures"


def test_a_test_set_is_told_by_the_training_pictures(pictures: Path, tmp_path: Path) -> None:
    test = write_classes(tmp_path / "test", 3, seed=9)
    config = small_run("simclr", pictures, f"knn.test={test}", "knn.every_epochs=0.5", "knn.k=3")
    result = train_images(config, tmp_path / "run", Reports())
    assert [float(row["step"]) for row in rows_of(tmp_path / "run/evaluations.csv")] == [0, 2, 4]
    assert result.told().endswith(f"(before training {result.knn_before:.3f}) on knn.test")
    with pytest.raises(ConfigError, match=r"knn.test: the training pictures are of no two classes"):
        train_images(small_run("simclr", pictures / "jade", f"knn.test={test}"), tmp_path / "other", Reports())


def test_a_short_run_has_enough_rows_for_curves(pictures: Path, tmp_path: Path) -> None:
    config = small_run("simclr", pictures)
    run = config.train.model_copy(update={"log_every": None})
    train_images(config.model_copy(update={"train": run}), tmp_path / "run", Reports())
    assert len(rows_of(tmp_path / "run/metrics.csv")) == 4
    found = load(config, pictures)
    for steps, expected in ((1, 1), (19, 1), (60, 3), (399, 19), (400, 20), (10_000, 20)):
        asked = run.model_copy(update={"steps": steps})
        assert plan_of(config.model_copy(update={"train": asked}), found).log_every == expected


def test_what_a_run_says_ends_with_what_it_does(pictures: Path, tmp_path: Path) -> None:
    said: list[str] = []
    train_images(small_run("mae", pictures), tmp_path / "run", Reports(), say=said.append)
    first, classes, advice, opening = said
    assert first == f"reading the pictures of {pictures}"
    assert classes.startswith("classes: amber, ")
    assert "model.arguments.patch_size=4 makes 64" in advice
    assert opening.startswith("mae on ")


def test_epochs_count_walks_through_the_data(pictures: Path, tmp_path: Path) -> None:
    config = small_run("simclr", pictures)
    run = config.train.model_copy(update={"steps": None, "epochs": 1.5})
    result = train_images(config.model_copy(update={"train": run}), tmp_path / "run", Reports())
    assert result.steps == 6


def test_unusable_pictures_are_counted_and_named_once(tmp_path: Path) -> None:
    photos = write_classes(tmp_path / "photos", 8)
    (photos / "jade/000.png").write_bytes(b"broken")
    config = small_run("simclr", photos, "data.max_unreadable_share=0.1")
    result = train_images(config, tmp_path / "run", Reports())
    assert (result.pictures, list(result.unreadable)) == (31, ["jade/000.png"])
    assert result.warnings()[0].startswith("left out 1 unusable picture(s); the first is jade/000.png: ")
    assert json.loads((tmp_path / "run/data.json").read_text())["unreadable"] == result.unreadable


def test_a_loss_that_is_not_finite_stops_the_run(pictures: Path, tmp_path: Path) -> None:
    config = small_run("simclr", pictures, "train.learning_rate=1e30", "train.warmup_share=0", "train.steps=30")
    with pytest.raises(TrainingError, match=r"not finite|the loss is"):
        train_images(config, tmp_path / "run", Reports())
    assert not (tmp_path / "run/checkpoint.pt").exists()


def test_a_step_that_does_not_fit_into_memory_is_one_line(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_much(*_: object) -> None:
        torch.empty(2**55)  # petabytes

    def on_a_gpu(*_: object) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    def otherwise(*_: object) -> None:
        raise RuntimeError("of another kind")

    for name, step in (("cpu", too_much), ("gpu", on_a_gpu)):
        monkeypatch.setattr(SimCLR, "step", step)
        with pytest.raises(TrainingError, match=r"^a step does not fit into memory: lower train.batch_size, or"):
            train_images(small_run("simclr", pictures), tmp_path / name, Reports())
    monkeypatch.setattr(SimCLR, "step", otherwise)
    with pytest.raises(RuntimeError, match="of another kind"):
        train_images(small_run("simclr", pictures), tmp_path / "other", Reports())


@pytest.mark.parametrize(
    ("method", "settings", "error", "message"),
    [
        ("simclr", ["train.batch_size=1"], ConfigError, "train.batch_size: a batch of one has no negatives"),
        ("simclr", ["train.batch_size=64"], DataError, r"batch_size 64 is larger than the data \(32 pictures\)"),
        ("simclr", ["augment.size=64"], DataError, "32 of 32 pictures .* is 32x32, smaller than the crop of 64"),
        ("simclr", ["data.side=24"], ConfigError, "data.side: 24 is smaller than the crop of 32"),
        ("simclr", ["data.labels=false", "knn.test=nowhere"], ConfigError, "knn.test: .*, and data.labels is false"),
        ("simclr", ["model.timm=resnet81"], ConfigError, "timm has no model 'resnet81'; perhaps"),
        ("simclr", ["data.path=nowhere"], DataError, "no pictures at nowhere"),
        ("simclr", ["augment.views=[{count = 3}]"], ConfigError, "simclr takes 2 full view"),
        ("simclr", ["augment.views=[{count = 2}, {size = 0.5}]"], ConfigError, "simclr takes no small views, found 2"),
        ("mae", ["train.chunk_size=4"], ConfigError, "train.chunk_size: mae encodes a batch at once"),
        ("moco", ["method.queue_size=12"], ConfigError, "method.queue_size"),
        ("moco", ["method.queue_size=8"], ConfigError, "method.queue_size"),
        ("simclr", ["method.dim=1000000000"], ConfigError, "method: simclr cannot be built so large: "),
        ("simclr", ["method.dim=1000000000000000000000"], ConfigError, "method: simclr cannot be built so large: "),
        ("swav", ["method.prototypes=3"], ConfigError, "3 prototypes cannot tell the 4 classes"),
    ],
)
def test_mistakes_stop_the_run_before_its_first_step(
    method: str, settings: list[str], error: type[Exception], message: str, pictures: Path, tmp_path: Path
) -> None:
    with pytest.raises(error, match=message) as raised:
        train_images(small_run(method, pictures, *settings), tmp_path / "run", Reports())
    assert len(str(raised.value).splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_classes_are_asked_for_where_a_method_needs_them(pictures: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="supervised needs a class for every picture, and 8 of 8 have none: put"):
        train_images(small_run("supervised", pictures / "jade"), tmp_path / "run", Reports())


def test_a_folder_that_cannot_be_made_is_one_line(pictures: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match="cannot be made: Not a directory"):
        train_images(small_run("simclr", pictures), tmp_path / "file/run", Reports())


def test_curves_that_cannot_be_written_are_told_beside_the_checkpoint(
    pictures: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> bytes:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(curves, "draw_curves", full)
    with pytest.raises(
        CheckpointError, match=r"cannot write .*/curves.png: No space left on device; the checkpoint is"
    ):
        train_images(small_run("random", pictures), tmp_path / "run", Reports())
    assert (tmp_path / "run/checkpoint.pt").exists()


def test_a_folder_in_use_is_refused(pictures: Path, trained: ImageTrainResult) -> None:
    with pytest.raises(ConfigError, match="holds a finished run; name a new folder"):
        train_images(small_run("simclr", pictures), trained.checkpoint.parent, Reports())
