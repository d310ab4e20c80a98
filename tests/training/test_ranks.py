from __future__ import annotations

from twinlens.training.ranks import ALONE, Ranks, launched_ranks

TORCHRUN = {"TORCHELASTIC_RUN_ID": "none", "RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1"}


def test_torchrun_tells_which_process_this_is() -> None:
    ranks = launched_ranks(TORCHRUN)
    assert ranks == Ranks(rank=5, world_size=8, local_world_size=4)
    assert ranks.nodes == 2
    assert not ranks.is_first


def test_a_process_that_torchrun_did_not_start_is_alone() -> None:
    assert launched_ranks({"RANK": "5", "WORLD_SIZE": "8"}) == ALONE
    assert ALONE.is_first
