"""What the loop writes down, whatever it trains."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.toy_method import ToyBatches, fit_toy
from twinlens.training import waited_batches
from twinlens.training.errors import TrainingError
from twinlens.training.waited_batches import WaitedBatches


def test_a_row_tells_how_fast_how_long_waited_and_at_which_rate(tmp_path: Path) -> None:
    table = fit_toy(tmp_path, log_every=2)
    assert list(table) == ["step", "seconds", "samples_per_s", "data_wait", "learning_rate", "loss"]
    assert table["step"] == [2, 4]
    assert all(0 <= share <= 1 for share in table["data_wait"])
    assert table["learning_rate"] == pytest.approx([0.01 / 2, 0.01 / 4], rel=1e-5)


def test_waiting_is_the_time_it_takes_to_make_batches_not_to_use_them(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0

    class Clock:
        @staticmethod
        def perf_counter() -> float:
            return now_s

    class Slow(ToyBatches):
        def __iter__(self):  # type: ignore[no-untyped-def]
            nonlocal now_s
            for batch in super().__iter__():
                now_s += 2
                yield batch

    monkeypatch.setattr(waited_batches, "time", Clock)
    waited = WaitedBatches(Slow())
    numbers = []
    for batch, _ in zip(waited, range(3), strict=False):
        numbers.append(batch.number)
        now_s += 5
    assert numbers == [0, 1, 2]
    assert waited.waited_s == 8  # zip took a fourth one


def test_without_a_guard_a_loss_that_is_not_finite_ends_the_run_at_the_report(tmp_path: Path) -> None:
    with pytest.raises(TrainingError, match=r"^the loss is nan at step 3: lower learning_rate or use fp32$"):
        fit_toy(tmp_path, broken={2})
