from __future__ import annotations

import pytest

from twinlens.training.data.errors import DataError
from twinlens.training.data.unusable import refuse_too_many


def unusable(count: int) -> dict[str, str]:
    return {f"{i}.png": "is broken" for i in range(count)}


@pytest.mark.parametrize(
    ("count", "of", "share"),
    [(0, 0, 0.01), (1, 2, 0.01), (3, 71, 0.01), (3, 4, 0.01), (10, 1000, 0.01), (29, 100, 0.29), (9, 10, 1.0)],
)
def test_a_share_or_three_may_be_unusable(count: int, of: int, share: float) -> None:
    refuse_too_many(unusable(count), of, max_share=share)


@pytest.mark.parametrize(
    ("count", "of", "share", "allowed"),
    [(4, 71, 0.01, 3), (11, 1000, 0.01, 10), (1, 1000, 0.0, 0), (30, 100, 0.29, 29)],
)
def test_more_stop_the_run_with_what_to_do(count: int, of: int, share: float, allowed: int) -> None:
    message = (
        f"{count} of {of} pictures cannot be used, {allowed} at most may be so: remove them, or allow more with "
        "data.max_unreadable_share; the first is 0.png: is broken"
    )
    with pytest.raises(DataError) as caught:
        refuse_too_many(unusable(count), of, max_share=share, key="data.max_unreadable_share")
    assert str(caught.value) == message


@pytest.mark.parametrize("count", [1, 2, 200])
def test_nothing_that_can_be_used_stops_the_run_whatever_the_share(count: int) -> None:
    with pytest.raises(DataError, match=f"^{count} of {count} pictures cannot be used; the first is 0.png: is broken$"):
        refuse_too_many(unusable(count), count, max_share=1.0, key="data.max_unreadable_share")
