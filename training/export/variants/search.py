"""The sensitivity search: which layers must stay in fp32 for a tower to pass."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from twinlens.training.export.variants.gate import Judgement

# With less than this share of the multiply-adds in int8 there is no speed to be had.
LEAST_SHARE = 0.4


@dataclass(frozen=True)
class Trial:
    """A choice of layers that stay in fp32, and how it was judged."""

    kept: tuple[str, ...]
    judgement: Judgement


def search(
    attempt: Callable[[frozenset[str]], Judgement],
    rank: Callable[[], Sequence[str]],
    share: Callable[[frozenset[str]], float],
) -> Trial:
    """Leaves as few of the worst layers in fp32 as the gate wants.

    Nothing is kept at first. If that fails, the layers are ranked once, the worst one, two, four … are kept until the
    gate holds or too little would be left in int8, and the number is then halved down to the least that passes (more
    kept layers are taken to be closer to fp32: each trial is judged in full all the same, so what is returned did
    pass).

    Args:
        attempt: Writes the tower with these layers in fp32 and judges it.
        rank: All layers, the most sensitive first; called only if needed.
        share: What part of the multiply-adds is in int8 with these layers in fp32.

    Returns:
        The passing trial with the fewest layers kept; the last one tried if none passed.
    """
    first = Trial((), attempt(frozenset()))
    if first.judgement.passed:
        return first
    order = list(rank())
    # Every layer kept leaves less in int8.
    most = sum(share(frozenset(order[:count])) >= LEAST_SHARE for count in range(1, len(order) + 1))
    failed = 0
    best: Trial | None = None
    last = first
    while best is None and failed < most:
        count = min(2 * failed or 1, most)
        last = Trial(tuple(order[:count]), attempt(frozenset(order[:count])))
        if last.judgement.passed:
            best = last
        else:
            failed = count
    if best is None:
        return last
    while len(best.kept) - failed > 1:
        middle = (failed + len(best.kept)) // 2
        trial = Trial(tuple(order[:middle]), attempt(frozenset(order[:middle])))
        if trial.judgement.passed:
            best = trial
        else:
            failed = middle
    return best
