from __future__ import annotations

import pytest

from twinlens.training.export.variants.gate import Judgement
from twinlens.training.export.variants.search import search

LAYERS = [f"layer{i}" for i in range(16)]


def judged(passed: bool) -> Judgement:
    return Judgement(1.0, 1.0, 1, problems=() if passed else ("too far",))


def share(kept: frozenset[str]) -> float:
    return 1.0 - len(kept) / len(LAYERS)


@pytest.mark.parametrize("needed", [1, 2, 3, 5, 6, 7, 8, 9])
def test_the_fewest_of_the_worst_layers_are_kept(needed: int) -> None:
    wanted = set(LAYERS[:needed])
    found = search(lambda kept: judged(wanted <= kept), lambda: LAYERS, share)
    assert found.judgement.passed
    assert found.kept == tuple(LAYERS[:needed])


def test_layers_are_not_ranked_if_none_needs_to_stay() -> None:
    def never() -> list[str]:
        raise AssertionError

    assert search(lambda kept: judged(not kept), never, share).kept == ()


def test_it_ends_where_too_little_would_be_left_in_int8() -> None:
    tried: list[int] = []

    def attempt(kept: frozenset[str]) -> Judgement:
        tried.append(len(kept))
        return judged(False)

    assert not search(attempt, lambda: LAYERS, share).judgement.passed
    assert tried == [0, 1, 2, 4, 8, 9], "with ten of 16 kept, less than 40 % would be left"


def test_what_is_returned_did_pass_even_if_more_kept_layers_may_be_worse() -> None:
    found = search(lambda kept: judged(len(kept) in {8, 6}), lambda: LAYERS, share)
    assert found.judgement.passed
    assert len(found.kept) == 6
