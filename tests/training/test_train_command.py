"""`twinlens train METHOD` as a person types it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.drawn_pictures import write_classes
from tests.support.small_image_runs import SMALL_RESNET
from tests.support.without_torch import assert_refused_without_torch
from twinlens.__main__ import main
from twinlens.training.augment.ablation import Ablation
from twinlens.training.config import read_config
from twinlens.training.image_config import read_image_config
from twinlens.training.sections.data import CaptionsData

SMALL = (*SMALL_RESNET, "augment.size=32", "train.batch_size=8", "train.steps=2", "train.state_every=1")


@pytest.fixture(scope="module")
def photos(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_classes(tmp_path_factory.mktemp("pictures") / "photos", 6)


def settings(*given: str) -> list[str]:
    return [part for setting in given for part in ("--set", setting)]


def test_a_run_from_options_alone(photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "runs" / "simclr"
    arguments = ["train", "simclr", "--images", str(photos), "--out", str(out), "--ablate", "crop"]
    assert main([*arguments, *settings(*SMALL), "--json"]) == 0
    told = capsys.readouterr()
    summary = json.loads(told.out)
    assert (summary["checkpoint"], summary["pictures"], summary["steps"]) == (str(out / "checkpoint.pt"), 24, 2)
    assert 0 <= summary["knn"] <= 1
    assert told.err.startswith(f"reading the pictures of {photos}\nclasses: amber, jade, plum, slate")
    assert "\nsimclr on " in told.err
    assert ": 24 pictures (4 classes), crops of 32 px, 2 steps of 8 = 0.667 epochs\n" in told.err
    assert "training simclr: 0/2\n" in told.err
    assert "training simclr: 2/2, " in told.err
    assert json.loads((out / "config.json").read_text())["augment"]["views"][0]["jitter"] is None


def test_a_run_from_a_file_tells_what_it_left_out(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (photos / "jade/broken.png").write_bytes(b"")
    try:
        file = tmp_path / "mine.toml"
        file.write_text(f'[data]\npath = "{photos}"\nmax_unreadable_share = 0.1\n')
        small = settings(*SMALL_RESNET, "augment.size=32")
        assert main(["train", "random", str(file), "--out", str(tmp_path / "run"), *small]) == 0
    finally:
        (photos / "jade/broken.png").unlink()
    told = capsys.readouterr()
    assert told.out.startswith(f"{tmp_path / 'run/checkpoint.pt'}: 0 steps on 24 pictures, kNN accuracy 0.")
    assert "\nrandom on " in told.err
    assert ": 24 pictures (4 classes), crops of 32 px; nothing is trained\n" in told.err
    assert "\nleft out 1 unusable picture(s); the first is jade/broken.png: " in told.err


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["simclr", *settings("train.batch_size=1")], "train.batch_size: a batch of one has no negatives"),
        (
            ["simclr", *settings("augment.size=64")],
            "24 of 24 pictures cannot be used; the first is amber/000.png: is 32",
        ),
        (["moco", *settings("method.queue_size=12")], "method.queue_size: "),
        (["moco", *settings("method.queue_size=8")], "method.queue_size: "),
        (["swav", *settings("method.prototypes=3")], "method.prototypes: 3 prototypes cannot tell the 4 classes"),
        (["byol", *settings("model.timm=resnet81")], "model.timm: timm has no model 'resnet81'; perhaps "),
        (["simclr", *settings("train.steps=many")], "simclr: train.steps: input should be a valid integer"),
        (["simlcr"], "there is no method 'simlcr'; perhaps simclr"),
        (["mine.toml"], "name the method first: twinlens train clip mine.toml"),
        (["simclr", "missing.toml"], "no configuration at missing.toml"),
        (["simclr", "--resume"], "{out} holds no run to go on with"),
    ],
)
def test_mistakes_are_one_line_before_the_first_step(
    arguments: list[str], line: str, photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    small = settings(*SMALL) if arguments[0] not in {"clip", "simlcr"} else []
    command = ["train", arguments[0], *small, "--images", str(photos), "--out", str(out), *arguments[1:]]
    assert main(command) == 1
    told = capsys.readouterr()
    *before, last = told.err.splitlines()
    assert last.startswith(f"twinlens: {line.format(out=out)}")
    assert before in ([], [f"reading the pictures of {photos}"])
    assert not out.exists()


@pytest.mark.parametrize(
    "command", [["train", "simclr", "--images"], ["augment", "preview", "--images"], ["probe", "run", "--train"]]
)
def test_an_empty_name_is_not_the_current_folder(
    command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "", "--out", str(tmp_path / "out.png")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"twinlens: Invalid value for '{command[-1]}': it names nothing; give a file or a folder")
    assert not (tmp_path / "out.png").exists()


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["--images", "."], "--images and --ablate are for methods on pictures alone; clip's file names its data"),
        (["mine.toml", "--ablate", "crop"], "--images and --ablate are for methods on pictures alone"),
        ([], "clip takes a file (an example is docs/examples/clip.toml)"),
        (["--show-config"], "clip takes a file"),
    ],
)
def test_what_clip_cannot_take_is_wrong_usage(
    arguments: list[str], line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["train", "clip", *arguments, "--out", str(tmp_path / "run")]) == 2
    told = capsys.readouterr().err
    assert told.startswith(f"twinlens: {line}")
    assert told.endswith("(see `twinlens train --help`)\n")


def test_mistakes_are_told_before_torch_is_loaded(tmp_path: Path) -> None:
    mistakes = (
        ["simlcr", "--images", "."],
        ["simclr", "--images", "nowhere"],
        ["simclr", "missing.toml"],
        ["simclr", "--images", ".", "--set", "train.step=5"],
        ["simclr", "--images", ".", "--set", "train.steps=many"],
        ["simclr"],
        ["simclr", "--resume"],
        ["clip", "--resume"],
        ["clip", "missing.toml"],
        ["clip", "wrong.toml"],
        ["clip", "captions.toml"],
        ["clip", "folder.toml"],
        ["clip", "shards.toml"],
    )
    (tmp_path / "wrong.toml").write_text("[train]\nstep = 3\n")
    for source in ("captions", "folder", "shards"):
        text = f'[data]\nsource = "{source}"\npath = "nowhere"\n[model]\nopen_clip = "RN50"\n'
        (tmp_path / f"{source}.toml").write_text(text)
    assert_refused_without_torch([["train", *each, "--out", "run"] for each in mistakes], tmp_path)


def test_a_configuration_that_is_shown_gives_the_same_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = settings(*SMALL, "data.path=photos", "knn.test=held-out", "method.temperature=0.3")
    assert main(["train", "simclr", *given, "--ablate", "both", "--show-config"]) == 0
    file = tmp_path / "shown" / "mine.toml"
    file.parent.mkdir()
    file.write_text(capsys.readouterr().out)
    config = read_image_config("simclr", file)
    assert config == read_image_config(
        "simclr",
        pictures=Path("photos").absolute(),
        settings=[*SMALL, f"knn.test={Path('held-out').absolute()}", "method.temperature=0.3"],
        ablate=Ablation.BOTH,
    )
    assert main(["train", "byol", "--show-config"]) == 0
    assert "[data]\n# path is not set\n" in capsys.readouterr().out


def test_settings_go_over_the_file_of_clip(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    example = Path(__file__).parents[2] / "docs/examples/clip-captions.toml"
    changed = settings("train.steps=7", "data.limit=5", "data.path=mine.csv")
    assert main(["train", "clip", str(example), *changed, "--show-config"]) == 0
    file = tmp_path / "mine.toml"
    file.write_text(capsys.readouterr().out)
    config = read_config(file)
    assert isinstance(config.data, CaptionsData)
    assert (config.train.steps, config.data.limit, config.data.path) == (7, 5, Path("mine.csv").absolute())
    assert config.model == read_config(example).model


def test_a_run_needs_its_folder_and_its_pictures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["train", "simclr"]) == 1
    assert capsys.readouterr().err == "twinlens: name the run folder with --out\n"
    assert main(["train", "simclr", "--out", str(tmp_path / "run")]) == 1
    assert "data.path is missing: name the pictures in the file or with --images" in capsys.readouterr().err


def test_a_run_is_not_resumed_as_another_method(
    photos: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from twinlens.training import train_images

    def full(*_: object) -> None:
        raise KeyError("interrupted after the last state")

    monkeypatch.setattr(train_images, "save_image_checkpoint", full)
    out = ["--out", str(tmp_path / "run")]
    with pytest.raises(KeyError):
        main(["train", "simclr", "--images", str(photos), *out, *settings(*SMALL)])
    capsys.readouterr()
    for method, *others in (["byol"], ["byol", "--images", str(photos), *settings(*SMALL)], ["clip"]):
        assert main(["train", method, *others, *out, "--resume"]) == 1
        told = capsys.readouterr().err
        assert told == f"twinlens: {tmp_path / 'run'} is a run of simclr; it cannot go on as {method}\n"
    monkeypatch.undo()
    assert main(["train", "simclr", *out, "--resume", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"] == 2
