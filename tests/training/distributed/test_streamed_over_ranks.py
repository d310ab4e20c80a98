"""Processes that share shards of uneven size: they know each other's equals, end together, and go on together."""

from __future__ import annotations

from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.support.picture_sources import write_shard
from tests.support.pictures import COLOURS, solid
from tests.support.ranks import as_torchrun_starts_it, on_ranks
from tests.training.conftest import SIZE, TINY_TOWERS
from twinlens.training.checkpoint import load_checkpoint
from twinlens.training.config import TrainConfig
from twinlens.training.data.scenes import generate


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    """Two shards, of 30 and of 6 scenes."""
    scenes = list(generate(36, 3, SIZE))
    for number, part in enumerate([scenes[:30], scenes[30:]]):
        members: dict[str, bytes] = {}
        for scene in part:
            members |= {f"{scene.id}.png": scene.png(), f"{scene.id}.txt": scene.caption.encode()}
        write_shard(tmp_path / f"shards/{number}.tar", members)
    return tmp_path / "shards"


def config(shards: Path) -> TrainConfig:
    return TrainConfig.model_validate(
        {
            "data": {"source": "shards", "path": str(shards), "streaming": True, "shuffle_buffer": 4},
            "model": {"config": TINY_TOWERS},
            "train": {"steps": 10, "batch_size": 8, "warmup_steps": 2, "log_every": 5, "state_every": 4},
        }
    )


def runs_of_a_rank(settings: TrainConfig, folder: Path) -> list[float]:
    """A whole run, and one that is stopped and resumed; their last losses."""
    from twinlens.training.run_state import RunState
    from twinlens.training.train import train

    as_torchrun_starts_it()
    whole = train(settings, folder / "whole", lambda *_: None)
    write = RunState.on_train_batch_end

    def write_and_stop(self: RunState, trainer: Any, *rest: Any) -> None:
        write(self, trainer, *rest)
        if trainer.global_step == 6:
            raise KeyError("stopped")

    RunState.on_train_batch_end = write_and_stop  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyError, match="stopped"):
        train(settings, folder / "cut", lambda *_: None)
    RunState.on_train_batch_end = write  # type: ignore[method-assign]
    resumed = train(settings, folder / "cut", lambda *_: None, resume=True)
    return [whole.last["loss"], resumed.last["loss"]]


@pytest.mark.slow
def test_ranks_with_uneven_shards_end_together_and_go_on_as_if_never_stopped(uneven: Path, tmp_path: Path) -> None:
    (tmp_path / "meet").mkdir()
    # 10 steps of 4 pairs a rank: one of them walks through its six scenes again and again.
    losses = on_ranks(runs_of_a_rank, tmp_path / "meet", config(uneven), tmp_path)
    assert len({loss for of_rank in losses for loss in of_rank}) == 1
    one, other = (load_checkpoint(tmp_path / name / "checkpoint.pt")[1].state_dict() for name in ("whole", "cut"))
    assert all(torch.equal(one[name], other[name]) for name in one)


def batches_of_a_rank(shards: Path, out: Path, tokenizer_json: str, text: Any) -> list[tuple[Any, Any, Any]]:
    import torch.distributed as dist

    from twinlens.encoders.manifest import PreprocessSpec
    from twinlens.training.data.stream_source import StreamSource
    from twinlens.training.ranks import Ranks
    from twinlens.training.sections.data import ShardsData

    data = ShardsData(source="shards", path=str(shards), streaming=True)
    preprocess = PreprocessSpec(size=16, resize_size=16, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    source = StreamSource(data, preprocess, seed=0, out=out, ranks=Ranks(dist.get_rank(), 2, 2))
    batches = source.batches(tokenizer_json, text, 8, start=0)
    found = [(batch.pixels_nhwc[:, 0, 0], batch.token_ids_nl, batch.equal_texts) for batch in islice(batches, 5)]
    source.close()
    return found


def test_ranks_know_which_of_their_pairs_are_equals(tmp_path: Path, tiny_spec: Any) -> None:
    members: dict[str, bytes] = {}
    for number, colour in enumerate([*COLOURS, "red", "blue", "red"]):
        members |= {f"{number}.png": solid(colour), f"{number}.txt": f"number {number % 9}".encode()}
    write_shard(tmp_path / "one.tar", members)  # fewer shards than ranks
    (tmp_path / "meet").mkdir()
    of_rank = on_ranks(
        batches_of_a_rank, tmp_path / "meet", tmp_path / "one.tar", tmp_path, tiny_spec.tokenizer_json, tiny_spec.text
    )
    for first, second in zip(*of_rank, strict=True):
        pixels, tokens, equal = (torch.cat([one, other]) for one, other in zip(first, second, strict=True))
        same_picture = (pixels[:, None] == pixels[None]).all(dim=-1)
        same_caption = (tokens[:, None] == tokens[None]).all(dim=-1)
        # One step of pictures and captions in either order; by the rule of `EqualPairs`.
        has = (same_picture.float() @ same_caption.float()) > 0
        assert torch.equal(equal, has | has.T)
        assert equal.shape == (8, 8)
