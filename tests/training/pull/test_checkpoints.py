from __future__ import annotations

import os
import pickle
import random
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from twinlens.training.export.errors import ExportError
from twinlens.training.pull.checkpoints import Weights, fit_weights, read_weights


def model(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Linear(4, 2))


def state(prefix: str = "", seed: int = 0) -> dict[str, torch.Tensor]:
    return {f"{prefix}{name}": value for name, value in model(seed).state_dict().items()}


def assert_loaded(path: Path, **options: Any) -> None:
    other = model(seed=1)
    fit_weights(other, read_weights(path), **options)
    for name, value in model().state_dict().items():
        torch.testing.assert_close(other.state_dict()[name], value)


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(state(), id="plain"),
        pytest.param(state("module."), id="DataParallel"),
        pytest.param({"epoch": 3, "name": "run", "state_dict": state("module.")}, id="open_clip's trainer"),
        pytest.param(
            {
                "state_dict": {**state("model."), "criterion.weight": torch.ones(3)},
                "global_step": 7,
                "hyper": {"lr": 1},
            },
            id="Lightning",
        ),
        pytest.param({"model_state_dict": state("_orig_mod.")}, id="torch.compile"),
        pytest.param({"model": state(), "optimizer": {"state": {}}}, id="model"),
        pytest.param({"state_dict": state(seed=5), "state_dict_ema": state()}, id="the average comes first"),
        pytest.param({"state_dict": state("module.model.net.")}, id="wrapped thrice"),
    ],
)
@pytest.mark.parametrize("suffix", [".pt", ".bin", ".ckpt"])
def test_trainers_wrappings_are_taken_off(payload: dict[str, Any], suffix: str, tmp_path: Path) -> None:
    torch.save(payload, tmp_path / f"weights{suffix}")
    assert_loaded(tmp_path / f"weights{suffix}")


def test_safetensors_and_old_torch_files_are_read(tmp_path: Path) -> None:
    save_file(state(), tmp_path / "model.safetensors")
    assert_loaded(tmp_path / "model.safetensors")
    torch.save(state(), tmp_path / "old.pth", _use_new_zipfile_serialization=False)
    assert_loaded(tmp_path / "old.pth")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_weights_of_another_precision_become_float32(dtype: torch.dtype, tmp_path: Path) -> None:
    halved = {name: value.to(dtype) if value.is_floating_point() else value for name, value in state().items()}
    torch.save(halved, tmp_path / "half.pt")
    other = model(seed=1)
    fit_weights(other, read_weights(tmp_path / "half.pt"))
    assert {value.dtype for value in other.state_dict().values()} == {torch.float32, torch.int64}
    torch.testing.assert_close(other.state_dict()["0.weight"], halved["0.weight"].float())


def test_counters_that_only_training_reads_may_be_missing() -> None:
    without = {name: value for name, value in state().items() if not name.endswith("num_batches_tracked")}
    fit_weights(model(seed=1), Weights(without, "old.pth"))


class Hostile:
    def __reduce__(self) -> Any:
        return os.system, ("touch owned",)


def test_a_pickle_that_would_run_code_is_refused_and_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"state_dict": {"weight": Hostile()}}, tmp_path / "a.pt")
    (tmp_path / "b.pt").write_bytes(pickle.dumps(Hostile()))
    for name in ("a.pt", "b.pt"):
        with pytest.raises(ExportError, match="cannot be read as plain weights") as caught:
            read_weights(tmp_path / name)
        assert "\n" not in str(caught.value)
        assert "weights_only=False" not in str(caught.value)
    assert not (tmp_path / "owned").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"0.weight": torch.zeros(4, 5)}, r"0\.weight has shape \(4, 5\) instead of \(4, 3\)"),
        ({"2.weight": None}, r"2\.weight is missing"),
        ({"extra.weight": torch.zeros(1)}, r"extra\.weight is unknown"),
        ({"0.weight": None, "0.bias": None}, r"0\.weight is missing \(and 1 more\)"),
    ],
)
def test_what_does_not_fit_is_named_in_one_line(
    change: dict[str, torch.Tensor | None], message: str, tmp_path: Path
) -> None:
    changed = {name: value for name, value in {**state(), **change}.items() if value is not None}
    torch.save(changed, tmp_path / "other.pt")
    with pytest.raises(ExportError, match=message) as caught:
        fit_weights(model(), read_weights(tmp_path / "other.pt"))
    assert "\n" not in str(caught.value)


def test_of_several_models_in_a_file_one_is_chosen(tmp_path: Path) -> None:
    path = tmp_path / "moco.ckpt"
    torch.save({"state_dict": {**state("encoder_q."), **state("encoder_k.", seed=3)}}, path)
    with pytest.raises(ExportError, match=r"holds 2 models that fit \(encoder_k\., encoder_q\.\): .*--weights-prefix"):
        fit_weights(model(), read_weights(path))
    assert_loaded(path, prefix="encoder_q.")
    with pytest.raises(ExportError, match=r"holds no weights whose names start with 'decoder\.'"):
        fit_weights(model(), read_weights(path), prefix="decoder.")


def test_only_what_is_named_may_be_left_over() -> None:
    extra = {**state(), "head.weight": torch.zeros(2), "header": torch.zeros(1)}
    with pytest.raises(ExportError, match="header is unknown"):
        fit_weights(model(), Weights(extra, "x"), drop=["head."])
    del extra["header"]
    fit_weights(model(), Weights(extra, "x"), drop=["head."])


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        ([1, 2], "holds no state_dict but list"),
        ({"epoch": 3}, "holds no weights"),
        ({"weight": torch.zeros(2, 2).to_sparse()}, "weight is quantised, sparse"),
        ({"weight": torch.zeros(2, 2, dtype=torch.complex64)}, "weight is quantised, sparse, complex"),
        ({"weight": torch.zeros(2, 2, device="meta")}, "complex or without numbers"),
    ],
)
def test_a_file_without_plain_weights_is_refused(payload: Any, message: str, tmp_path: Path) -> None:
    torch.save(payload, tmp_path / "odd.pt")
    with pytest.raises(ExportError, match=message):
        read_weights(tmp_path / "odd.pt")


def test_a_small_file_that_unpacks_to_a_large_one_is_refused_unread(tmp_path: Path) -> None:
    torch.save({"weight": torch.zeros(1_000_000)}, tmp_path / "plain.pt")
    with (
        zipfile.ZipFile(tmp_path / "plain.pt") as plain,
        zipfile.ZipFile(tmp_path / "bomb.pt", "w", zipfile.ZIP_DEFLATED) as bomb,
    ):
        for entry in plain.infolist():
            bomb.writestr(entry.filename, plain.read(entry))
    assert (tmp_path / "bomb.pt").stat().st_size < 100_000
    with pytest.raises(ExportError, match=r"bomb\.pt is compressed"):
        read_weights(tmp_path / "bomb.pt")


def test_missing_and_damaged_files_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="no checkpoint at"):
        read_weights(tmp_path / "none.pt")
    for name in ("broken.pt", "broken.safetensors"):
        (tmp_path / name).write_bytes(b"not a checkpoint at all")
        with pytest.raises(ExportError, match=r"broken") as caught:
            read_weights(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_state_dict_inside_itself_is_refused(tmp_path: Path) -> None:
    inside_itself: dict[str, Any] = {}
    inside_itself["model"] = inside_itself
    torch.save(inside_itself, tmp_path / "endless.pt")
    with pytest.raises(ExportError, match="holds no weights"):
        read_weights(tmp_path / "endless.pt")


@pytest.mark.parametrize("kind", ["zip", "old", "safetensors"])
def test_flipped_bytes_are_refused_in_one_line_or_change_numbers_only(kind: str, tmp_path: Path) -> None:
    suffix = ".safetensors" if kind == "safetensors" else ".pt"
    if kind == "safetensors":
        save_file(state(), tmp_path / "whole.safetensors")
    else:
        torch.save(state(), tmp_path / "whole.pt", _use_new_zipfile_serialization=kind == "zip")
    whole = (tmp_path / f"whole{suffix}").read_bytes()
    chance = random.Random(0)
    refusals = []
    for _ in range(300):
        flipped = bytearray(whole)
        for _ in range(chance.choice((1, 2, 5))):
            flipped[chance.randrange(len(flipped))] = chance.choice((0, 255, chance.randrange(256)))
        (tmp_path / f"flipped{suffix}").write_bytes(flipped)
        try:
            read_weights(tmp_path / f"flipped{suffix}")
        except ExportError as error:
            refusals.append(str(error))
    assert len(refusals) > 30
    assert not any("\n" in refusal for refusal in refusals)
