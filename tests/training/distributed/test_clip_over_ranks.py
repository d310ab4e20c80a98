"""A dual encoder that two processes train is the one that a single process trains with the whole batch."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.support.ranks import as_torchrun_starts_it, on_ranks
from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.training.config import TrainConfig
from twinlens.training.data.batches import Batch, PairBatches
from twinlens.training.data.hard_share import HardShare
from twinlens.training.data.mined import MinedTable
from twinlens.training.data.pairs import from_scenes, tokenise
from twinlens.training.data.scenes import make_scene
from twinlens.training.losses.pair_loss import pair_loss_of, starting_scale
from twinlens.training.methods.clip import Clip
from twinlens.training.modules.dual_encoder import DualEncoder
from twinlens.training.modules.gather import world_size
from twinlens.training.optimiser import Schedule
from twinlens.training.sections.loss import LossConfig
from twinlens.training.sections.model import ModelConfig
from twinlens.training.start import start_of

N, RANKS = 16, 2
VIT = {"image_size": SIZE, "layers": 1, "width": 16, "head_width": 8, "patch_size": 16}
LOSSES = {"info_nce": LossConfig(), "sigmoid": LossConfig(name="sigmoid", chunk_size=5)}


class Stepping(nn.Module):
    """A method's step as a forward pass, which is what data-parallel training wraps."""

    def __init__(self, method: Clip) -> None:
        super().__init__()
        self.method = method

    def forward(self, batch: Batch) -> dict[str, Tensor]:
        return self.method.training_step(batch, 0)


@dataclass(frozen=True)
class Found:
    values: dict[str, Tensor]
    gradients: dict[str, Tensor]


def step(loss: LossConfig, *, rank: int = 0, ranks: int = 1, chunk_size: int | None = None) -> Found:
    """The second step of a run on scenes, among which some are twins, with mined negatives of each kind."""
    torch.manual_seed(0)
    raw = from_scenes([make_scene(3, index % 28, SIZE) for index in range(40)])
    start = start_of(ModelConfig(config={**TINY_TOWERS, "vision_cfg": VIT}, vocabulary_size=400))
    log_scale, bias = starting_scale(loss)
    spec, model = start.build(raw.captions, log_scale=log_scale, bias=bias)
    pairs = tokenise(raw, spec.tokenizer_json, spec.text)
    rows = torch.arange(40)[:, None].numpy()
    mined = MinedTable((rows + 7) % 40, (rows + 11) % 40, 0)
    share = HardShare(texts_per_anchor=1, images_per_anchor=1)
    batches = PairBatches(pairs, N, seed=1, mined=mined, share=share, start=1, rank=rank, world_size=ranks)
    method = Clip(
        DualEncoder(model, spec.preprocess.mean, spec.preprocess.std),
        pair_loss_of(loss),
        learning_rate=1e-3,
        weight_decay=0.0,
        schedule=Schedule(10, 1),
        hard_weight=2.0,
        chunk_size=chunk_size,
    )
    stepping: Any = Stepping(method)
    # Kept until the backward pass: it is what averages the gradients.
    shared = DistributedDataParallel(stepping) if world_size() > 1 else stepping
    values = shared(next(iter(batches)))
    torch.autograd.backward(values["loss"])
    gradients = {name: p.grad for name, p in stepping.named_parameters() if p.grad is not None}
    return Found({name: value.detach() for name, value in values.items()}, gradients)


def config(**train: Any) -> TrainConfig:
    settings = {"steps": 4, "batch_size": 16, "warmup_steps": 2, "log_every": 2, "ema_decay": 0.9, "state_every": 3}
    return TrainConfig.model_validate(
        {
            "data": {"source": "scenes", "count": 37, "seed": 3},
            "model": {"name": "tiny", "config": TINY_TOWERS},
            "train": {**settings, **train},
        }
    )


def run(out: Path) -> list[int]:
    from twinlens.training.train import train

    reports: list[int] = []
    train(config(), out, lambda step, values: reports.append(step) if values else None)
    return reports


def run_broken_on_one_rank(out: Path) -> tuple[int, dict[str, Tensor]]:
    """The loss of the second step is not finite in the second process only.

    Returns:
        Steps that this process skipped, and its weights at the end.
    """
    from twinlens.training.train import train

    step, methods = Clip.training_step, []

    def breaking(self: Clip, batch: Batch, batch_idx: int) -> dict[str, Tensor]:
        methods.append(self)
        values = step(self, batch, batch_idx)
        broken = self.global_step == 1 and torch.distributed.get_rank() == 1
        return values | {"loss": values["loss"] * torch.nan} if broken else values

    Clip.training_step = breaking  # type: ignore[method-assign]
    last = train(config(), out, lambda *_: None).last
    return int(last["skipped"]), methods[-1].towers.state_dict()


def on_one_rank(out: Path) -> tuple[dict[str, Found], list[int], tuple[int, dict[str, Tensor]]]:
    rank = torch.distributed.get_rank()
    found = {name: step(loss, rank=rank, ranks=RANKS) for name, loss in LOSSES.items()}
    found["chunks"] = step(LOSSES["info_nce"], rank=rank, ranks=RANKS, chunk_size=3)
    as_torchrun_starts_it()
    return found, run(out), run_broken_on_one_rank(out.with_name("broken"))


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Any], Path]:
    out = tmp_path_factory.mktemp("runs") / "both"
    return on_ranks(on_one_rank, tmp_path_factory.mktemp("meeting"), out, ranks=RANKS), out


@pytest.mark.parametrize("name", [*LOSSES, "chunks"])
def test_every_gradient_is_that_of_one_big_batch(both: tuple[list[Any], Path], name: str) -> None:
    alone = step(LOSSES.get(name, LOSSES["info_nce"]))
    of_ranks = [found[name] for found, _, _ in both[0]]
    for value in ("loss", "accuracy", "bound"):
        mean = torch.stack([found.values[value] for found in of_ranks]).mean()
        torch.testing.assert_close(mean, alone.values[value], rtol=1e-5, atol=1e-5)
    for found in of_ranks:
        assert found.gradients.keys() == alone.gradients.keys()
        for parameter, gradient in alone.gradients.items():
            torch.testing.assert_close(found.gradients[parameter], gradient, rtol=1e-5, atol=1e-5)


def test_a_run_of_two_processes_leaves_what_a_run_of_one_does(both: tuple[list[Any], Path], tmp_path: Path) -> None:
    """Batch norm takes its statistics over both; 37 pairs leave no process with less to do than the other."""
    (_, first, _), (_, second, _) = both[0]
    assert (first, second) == ([2, 4], [])
    run(tmp_path / "alone")
    for file in ("checkpoint.pt", "unaveraged.pt"):
        ours, theirs = (
            torch.load(out / file, weights_only=True)["state_dict"] for out in (both[1], tmp_path / "alone")
        )
        # The gradient of an attention's key bias is 0 but for rounding, which AdamW makes steps of.
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=5e-4)
    tables = []
    for out in (both[1], tmp_path / "alone"):
        with (out / "metrics.csv").open(newline="") as file_:
            tables.append([{name: float(value) for name, value in row.items()} for row in csv.DictReader(file_)])
    for ours, theirs in zip(*tables, strict=True):
        for name in ("step", "loss", "accuracy", "scale", "learning_rate", "skipped"):
            assert ours[name] == pytest.approx(theirs[name], rel=1e-3), name


def test_a_step_that_is_broken_in_one_process_is_skipped_by_all(both: tuple[list[Any], Path]) -> None:
    (_, _, (first, ours)), (_, _, (second, theirs)) = both[0]
    assert (first, second) == (1, 1)
    torch.testing.assert_close(ours, theirs, rtol=0, atol=0)
    assert all(value.isfinite().all() for value in ours.values())
