from __future__ import annotations

import pytest

from twinlens.encoders import progress


@pytest.mark.parametrize(
    ("total", "lines"),
    [
        (None, ["embedding: 1 done", "embedding: 2 done, 1 failed"]),
        (5, ["embedding: 1 of 5 done", "embedding: 2 of 5 done, 1 failed"]),
    ],
)
def test_without_a_terminal_there_is_a_plain_line_now_and_then(
    total: int | None, lines: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PLAIN_EVERY_S", 0.0)
    with progress.progress_on_stderr("embedding", total) as watched:
        watched.advance()
        watched.advance(failed=True)
    assert capsys.readouterr().err.splitlines() == lines


def test_a_line_is_not_written_for_every_item(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_PLAIN_EVERY_S", 1e9)
    with progress.progress_on_stderr("embedding", 1000) as watched:
        for _ in range(1000):
            watched.advance()
    assert capsys.readouterr().err == ""
