from __future__ import annotations

import pytest

from twinlens.index.kinds.effort import Effort, Level, kept_effort

LEVEL = Level(candidates=(16, 106, 1006), efforts=(48, 128, 1028))


@pytest.mark.parametrize(
    ("wanted", "candidates", "effort"),
    [
        (1, 16, 48),
        (10, 16, 48),
        (55, 61, 88),
        (100, 106, 128),
        (550, 556, 578),
        (1000, 1006, 1028),
        (3000, 3018, 3084),
    ],
)
def test_between_the_depths_measured_and_beyond_it_goes_in_proportion(
    wanted: int, candidates: int, effort: int
) -> None:
    assert LEVEL.at(wanted) == (candidates, effort)


def test_there_are_never_fewer_candidates_than_are_wanted() -> None:
    level = Level(candidates=(16, 20, 30), efforts=(1, 1, 1))
    assert all(level.at(wanted)[0] >= wanted for wanted in range(1, 5000, 7))


def test_what_is_kept_with_a_segment_is_read_again() -> None:
    effort = Effort(LEVEL, Level((1, 2, 3), (4, 5, 6)))
    assert kept_effort({**effort.parameters(), "m": 24}) == effort


def test_a_lack_is_noticed() -> None:
    parameters = Effort(LEVEL, LEVEL).parameters()
    del parameters["sure_effort_100"]
    with pytest.raises(KeyError, match="sure_effort_100"):
        kept_effort(parameters)
