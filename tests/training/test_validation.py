"""Held-out pairs, and weights between a parent and the trained ones, through whole runs of `twinlens train clip`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.clip_result import TrainResult
from twinlens.training.config import TrainConfig, read_config
from twinlens.training.csv_rows import read_columns
from twinlens.training.data.errors import DataError
from twinlens.training.data.scenes import write_scenes
from twinlens.training.errors import ConfigError
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.sections.validation import ValidationConfig
from twinlens.training.train import train
from twinlens.training.validation import HeldOutMeasures

SCENES = {"source": "scenes", "count": 64, "seed": 3}
OTHERS = {"source": "scenes", "count": 16, "seed": 4}


def config(validation: dict[str, Any], **sections: dict[str, Any]) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "data": SCENES,
            "model": {"config": TINY_TOWERS},
            "validation": validation,
            **sections,
            "train": {"steps": 4, "batch_size": 16, "warmup_steps": 0, "log_every": 4, **sections.get("train", {})},
        }
    )


def run(out: Path, validation: dict[str, Any], **sections: dict[str, Any]) -> Any:
    return train(config(validation, **sections), out, lambda *_: None)


def weights(checkpoint: Path) -> dict[str, torch.Tensor]:
    return load_checkpoint(checkpoint)[1].state_dict()


@pytest.fixture(scope="module")
def parent(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("parent") / "run"
    run(out, {"share": 0.25, "every": 2})
    return out


@pytest.fixture(scope="module")
def tuned(parent: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("tuned") / "run"
    validation = {"data": OTHERS, "every": 0, "interpolate": True, "interpolation_steps": 4, "forgetting": OTHERS}
    run(out, validation, model={"from_checkpoint": parent}, train={"learning_rate": 3e-3})
    return out


def test_held_out_pictures_are_measured_and_not_trained_on(parent: Path) -> None:
    data = json.loads((parent / "data.json").read_text())
    held = data["held_out"]["pairs"]
    assert (data["pairs"], held["pairs"], held["pictures"]) == (48, 16, 16)
    rows = read_columns(parent / "evaluations.csv")
    assert rows["step"] == [0, 2, 4]
    assert {"mean_recall", "text_to_image_r10", "image_to_text_median_rank", "alignment"} <= rows.keys()


def test_the_best_look_is_kept(parent: Path) -> None:
    rows = read_columns(parent / "evaluations.csv")
    best = rows["step"][1:][rows["mean_recall"][1:].index(max(rows["mean_recall"][1:]))]
    assert load_checkpoint(parent / "best.pt")[2].step == best


def test_validating_does_not_change_what_is_trained(parent: Path, tmp_path: Path) -> None:
    run(tmp_path / "run", {"share": 0.25, "every": 0})
    first, second = weights(parent / "checkpoint.pt"), weights(tmp_path / "run" / "checkpoint.pt")
    assert all(torch.equal(first[name], second[name]) for name in first)


def test_the_checkpoint_is_the_chosen_share_of_the_way_from_the_parent(parent: Path, tuned: Path) -> None:
    rows = read_columns(tuned / "interpolation.csv")
    assert rows["alpha"] == [0, 0.25, 0.5, 0.75, 1]
    meta = load_checkpoint(tuned / "checkpoint.pt")[2]
    alpha = meta.metrics["alpha"]
    assert rows["mean_recall"][rows["alpha"].index(alpha)] == pytest.approx(meta.metrics["mean_recall"], abs=1e-5)
    start, end = weights(parent / "checkpoint.pt"), weights(tuned / "tuned.pt")
    for name, value in weights(tuned / "checkpoint.pt").items():
        if value.is_floating_point():
            torch.testing.assert_close(value, torch.lerp(start[name], end[name], alpha))


def test_the_ends_of_the_table_are_what_the_run_started_and_ended_with(tuned: Path) -> None:
    table, looks = read_columns(tuned / "interpolation.csv"), read_columns(tuned / "evaluations.csv")
    for name in ("mean_recall", "alignment", "forgetting_mean_recall"):
        assert [table[name][0], table[name][-1]] == pytest.approx([looks[name][0], looks[name][-1]], abs=1e-5)


def test_what_must_not_be_forgotten_bounds_the_share(
    parent: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The more of the trained weights, the better on the held-out pairs, and the more is forgotten."""
    shares = iter([0.0, 1.0, 0.0, 0.25, 0.5, 0.75, 1.0])  # two looks, then the shares

    def measure(measures: HeldOutMeasures, towers: DualEncoder) -> dict[str, float]:
        share = next(shares)
        return {"mean_recall": 0.5 + share, "forgetting_text_to_image_r1": 0.9 - 0.04 * share}

    monkeypatch.setattr(HeldOutMeasures, "__call__", measure)
    validation = {"data": OTHERS, "every": 0, "interpolate": True, "interpolation_steps": 4, "kept_gain": 1.0}
    result = run(tmp_path / "run", {**validation, "forgetting": OTHERS}, model={"from_checkpoint": parent})
    assert result.interpolated["alpha"] == 0.5
    assert result.summary()["interpolated"]["alpha"] == 0.5
    assert "; 50% of the way from its parent" in result.told()


def test_the_average_of_the_weights_is_what_is_mixed(parent: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    validation = {"data": OTHERS, "every": 0, "interpolate": True, "interpolation_steps": 1}
    result = run(out, validation, model={"from_checkpoint": parent}, train={"learning_rate": 1e-3, "ema_decay": 0.5})
    start, average, last = (
        weights(path) for path in (parent / "checkpoint.pt", out / "tuned.pt", out / "unaveraged.pt")
    )
    assert any(not torch.equal(average[name], last[name]) for name in average)
    ends = {0.0: start, 1.0: average}
    found = weights(out / "checkpoint.pt")
    end = ends[result.interpolated["alpha"]]
    assert all(torch.equal(found[name], end[name]) for name in found if found[name].is_floating_point())


def test_a_run_that_was_interrupted_chooses_as_one_that_was_not(parent: Path, tuned: Path, tmp_path: Path) -> None:
    validation = {"data": OTHERS, "every": 0, "interpolate": True, "interpolation_steps": 4, "forgetting": OTHERS}
    settings = {"learning_rate": 3e-3, "log_every": 2, "state_every": 2}
    again = config(validation, model={"from_checkpoint": parent}, train=settings)

    def stop(step: int, values: dict[str, float]) -> None:
        if step == 3 or (step == 4 and values):
            raise KeyError("stopped")

    out = tmp_path / "run"
    with pytest.raises(KeyError, match="stopped"):
        train(again, out, stop)
    assert not (out / "checkpoint.pt").exists()
    train(again, out, lambda *_: None, resume=True)
    assert read_columns(out / "interpolation.csv") == read_columns(tuned / "interpolation.csv")
    found, expected = weights(out / "checkpoint.pt"), weights(tuned / "checkpoint.pt")
    assert all(torch.equal(found[name], expected[name]) for name in expected)


def test_data_that_is_streamed_is_measured_on_data_of_its_own(tmp_path: Path) -> None:
    shards = {"source": "shards", "path": str(tmp_path / "none-{0..1}.tar"), "streaming": True}
    with pytest.raises(ConfigError, match=r"leave streaming out of it"):
        run(tmp_path / "run", {"data": shards})


def test_the_example_of_fine_tuning_is_a_configuration() -> None:
    found = read_config(Path(__file__).parents[2] / "docs/examples/clip-finetune.toml")
    assert found.validation is not None
    assert found.validation.interpolate
    assert found.tuning.image_residual


def test_captions_that_name_classes_are_measured_by_the_nearest_class(tmp_path: Path) -> None:
    write_scenes(tmp_path / "scenes", 24, seed=5, size=SIZE)
    rows = [json.loads(line) for line in (tmp_path / "scenes" / "captions.jsonl").read_text().splitlines()]
    named = [{"image": row["image"], "caption": f"class {k % 6}"} for k, row in enumerate(rows)]
    (tmp_path / "scenes" / "classes.jsonl").write_text("".join(json.dumps(row) + "\n" for row in named))
    own = {"source": "captions", "path": tmp_path / "scenes" / "classes.jsonl"}
    run(tmp_path / "run", {"data": own, "every": 0})
    rows_of = read_columns(tmp_path / "run" / "evaluations.csv")
    assert {"top_1", "top_5"} <= rows_of.keys()
    assert "mean_recall" not in rows_of


@pytest.mark.parametrize(
    ("validation", "message"),
    [
        ({"interpolate": True}, r"set model\.from_checkpoint"),
        ({"best_by": "accuracy"}, r"validation\.best_by: nothing is called 'accuracy': mean_recall, text_to_image_r1"),
    ],
)
def test_what_cannot_be_is_said_before_the_first_step(validation: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        run(tmp_path / "run", validation)
    assert "\n" not in str(caught.value)


def test_a_measure_that_every_model_reaches_decides_nothing(tmp_path: Path) -> None:
    message = r"text_to_image_r10 is 1 for every model, as only 8 pictures are held out: hold out more"
    with pytest.raises(DataError, match=message):
        run(tmp_path / "run", {"share": 0.125, "best_by": "text_to_image_r10"})
    run(tmp_path / "run", {"share": 0.125, "best_by": "text_to_image_r5", "every": 0})


def test_a_run_says_that_it_keeps_its_parents_weights() -> None:
    result = TrainResult(Path("checkpoint.pt"), 4, 48, {}, 0, {}, interpolated={"alpha": 0.0})
    assert result.told().endswith(
        "no share of the trained weights is better on what is held out: those of its parent stay"
    )


def test_a_bound_on_what_is_forgotten_needs_what_must_not_be() -> None:
    with pytest.raises(ValueError, match="name a source as forgetting"):
        ValidationConfig(interpolate=True, max_forgotten=0.01)


def test_keys_of_interpolation_alone_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text('data = { source = "scenes" }\nmodel = { open_clip = "RN50" }\nvalidation = { kept_gain = 0.5 }\n')
    with pytest.raises(ConfigError, match="kept_gain is for interpolate = true"):
        read_config(path)


def test_paths_of_held_out_data_are_relative_to_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text(
        'data = { source = "scenes" }\nmodel = { open_clip = "RN50" }\n[validation.data]\nsource = "captions"\n'
        'path = "held.jsonl"\n[validation.forgetting]\nsource = "captions"\npath = "known.jsonl"\nimages = "photos"\n'
    )
    validation = read_config(path).validation
    assert validation is not None
    assert validation.model_dump(include={"data": {"path"}, "forgetting": {"path", "images"}}) == {
        "data": {"path": tmp_path / "held.jsonl"},
        "forgetting": {"path": tmp_path / "known.jsonl", "images": tmp_path / "photos"},
    }
