"""What a person sees of a long job where stderr is no terminal."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from rich.console import Console

from twinlens.training import progress
from twinlens.training.opening_line import opening_line
from twinlens.training.progress import lines_or_bar, spoken
from twinlens.training.ranks import Ranks


def lines_of(
    reports: list[tuple[float, int, dict[str, float]]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> list[str]:
    clock = iter([at_s for at_s, _, _ in reports])
    monkeypatch.setattr(progress, "monotonic", lambda: next(clock))
    with lines_or_bar("training", 1000) as report:
        for _, step, values in reports:
            report(step, values)
    return capsys.readouterr().err.splitlines()


def test_lines_tell_the_time_that_is_left_by_the_pace_since_the_first(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reports: list[tuple[float, int, dict[str, float]]] = [
        (5.0, 0, {}),
        (15.0, 10, {}),
        (25.0, 20, {"step": 20, "seconds": 20, "samples_per_s": 100, "loss": 2.5}),
        (955.0, 950, {}),
        (1005.0, 1000, {"loss": 1.0}),
    ]
    assert lines_of(reports, monkeypatch, capsys) == [
        "training: 0/1000",
        "training: 10/1000, 16 min left",
        "training: 20/1000, 16 min left, 100 samples/s, loss 2.500",
        "training: 950/1000, 50 s left",
        "training: 1000/1000, loss 1.000",
    ]


def test_steps_before_a_resumed_run_do_not_count_in_its_pace(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines_of([(0.0, 500, {}), (1000.0, 510, {})], monkeypatch, capsys)[1] == "training: 510/1000, 14 h left"


def test_the_opening_line_tells_where_on_what_and_for_how_long() -> None:
    line = opening_line(
        "byol", trained_on="10,000 pictures", samples=10_000, steps=3900, batch_size=256, precision="bf16", threads=1
    )
    assert line.startswith("byol on ")
    assert line.endswith(", bf16: 10,000 pictures, 3,900 steps of 256 = 99.8 epochs")
    onward = opening_line(
        "byol",
        trained_on="10,000 pictures",
        samples=10_000,
        steps=3900,
        batch_size=256,
        precision="bf16",
        start=1500,
        ranks=Ranks(0, 4, 4),
    )
    assert " in 4 processes, bf16: " in onward
    assert onward.endswith(" = 99.8 epochs, on from step 1,500")


@pytest.mark.parametrize(
    ("steps", "told"),
    [(1, "0.01 epochs"), (100, "1 epoch"), (9_970, "99.7 epochs"), (9_996, "100 epochs"), (307_210, "3,072 epochs")],
)
def test_epochs_are_told_with_three_digits_and_never_as_powers_of_ten(steps: int, told: str) -> None:
    line = opening_line("byol", trained_on="pictures", samples=1000, steps=steps, batch_size=10, precision="fp32")
    assert line.endswith(f" = {told}")


def test_the_opening_line_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    def line() -> str:
        return opening_line(
            "byol", trained_on="4 pictures", samples=4, steps=1, batch_size=4, precision="fp32", threads=3
        )

    for gpu in (torch.cuda, torch.backends.mps):
        monkeypatch.setattr(gpu, "is_available", lambda: False)
    assert line() == "byol on the CPU (3 threads), fp32: 4 pictures, 1 step of 4 = 1 epoch"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert line().startswith("byol on the GPU of this Mac, fp32: ")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA Any")
    assert line().startswith("byol on NVIDIA Any, fp32: ")


def test_a_report_is_spoken_shortly() -> None:
    row = {"step": 20, "seconds": 3, "samples_per_s": 99.6, "data_wait": 0.034, "learning_rate": 2.5e-5, "loss": 2.5}
    assert spoken({**row, "skipped": 0.0}) == "100 samples/s, 3 % waiting for data, rate 2.5e-05, loss 2.500"
    assert spoken({"loss": 2.5, "skipped": 2.0}) == "loss 2.500, 2 steps skipped"


def test_a_bar_tells_pace_wait_and_what_is_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "Console", partial(Console, force_terminal=True, width=160, color_system=None))
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    with lines_or_bar("training", 1000) as report:
        report(500, {})  # a resumed run
        report(1000, {"step": 1000, "samples_per_s": 99.6, "data_wait": 0.034, "loss": 2.5})
    shown = capsys.readouterr().err
    assert "1000/1000 0:00:00 100 samples/s, 3 % waiting for data, loss 2.500" in shown
