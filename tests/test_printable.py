"""Names of files never reach a terminal or a log as commands to it."""

from __future__ import annotations

import json
import logging
from pathlib import Path

import pytest

from twinlens.__main__ import main
from twinlens.printable import printable, printable_json
from twinlens.server.logs import configure_logging


@pytest.mark.parametrize("plain", ["", "a b.png", "Größe 日本語 😀.jpg", "[bold]\\x1b"])
def test_what_can_be_printed_stays_as_it_is(plain: str) -> None:
    assert printable(plain) == plain


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m.png", r"\x1b[31mred\x1b[0m.png"),
        ("a\tb\r\nc", r"a\tb\r\nc"),
        ("\x9b2J\x7f", r"\x9b2J\x7f"),
        ("gpj.\u202eexe", r"gpj.\u202eexe"),
        ("half \udcff a pair", r"half \udcff a pair"),
    ],
)
def test_what_would_move_the_cursor_or_turn_the_text_is_shown_escaped(text: str, shown: str) -> None:
    assert printable(text) == shown
    assert printable(shown) == shown


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_the_same_to_whoever_parses_it_and_holds_nothing_that_a_terminal_obeys(indent: int | None) -> None:
    value = {"a": ["\x1b\x9b2J\x7f\n", "gpj.\u202eexe", "half \udcff", "tag \U000e0041", "Größe 日本語 😀 \\x1b"]}
    text = printable_json(json.dumps(value, ensure_ascii=False, indent=indent))
    assert json.loads(text) == value
    assert all(line.isprintable() for line in text.split("\n"))
    assert "Größe 日本語 😀" in text


def test_error_lines_show_names_escaped(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["collections", "list", "--local", str(tmp_path / "\x1b[31mred\u202e")]) == 1
    line = capsys.readouterr().err
    assert r"no such folder" in line
    assert r"/\x1b[31mred\u202e" in line
    assert line.count("\n") == 1


def test_a_record_of_the_log_is_one_line_and_a_traceback_keeps_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    root.handlers = []  # the test runner's own: they would be closed
    try:
        configure_logging("info")
        log = logging.getLogger("twinlens")
        log.info("stored %s", "\x1b[2J\n2026 ERROR forged")
        log.error("failed", exc_info=ValueError("\x1b[31m"))
    finally:
        root.handlers, root.level = handlers, level
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith(r"stored \x1b[2J\n2026 ERROR forged")
    assert lines[1].endswith("failed")
    assert lines[-1] == r"ValueError: \x1b[31m"
