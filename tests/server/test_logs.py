from __future__ import annotations

import io
import json
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
from PIL import Image

from twinlens.server.core.call import Call, set_current_call
from twinlens.server.logs import configure_logging

log = logging.getLogger("twinlens.somewhere")


@pytest.fixture(autouse=True)
def the_loggers_as_before() -> Iterator[None]:
    root, own = logging.getLogger(), logging.getLogger("twinlens")
    handlers, level, own_level = root.handlers[:], root.level, own.level
    root.handlers = []  # the test runner's own: they would be closed
    yield
    logging.captureWarnings(capture=False)
    root.handlers = handlers
    root.setLevel(level)
    own.setLevel(own_level)
    set_current_call(Call())


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in capsys.readouterr().err.splitlines()]


def test_a_record_is_an_object_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    log.info("stored %d items of %s", 3, "photos")
    log.debug("not asked for")
    (line,) = lines(capsys)
    assert line.pop("time").endswith("+00:00")
    assert line == {"level": "info", "logger": "twinlens.somewhere", "message": "stored 3 items of photos"}


def test_a_record_names_the_call_it_was_written_for(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    set_current_call(Call(request_id="abc"))
    log.info("worked", extra={"fields": {"items": 2}})
    (line,) = lines(capsys)
    assert (line["request_id"], line["items"]) == ("abc", 2)


def test_a_traceback_and_whatever_a_caller_sent_stay_on_the_line(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    nasty = 'two\nlines \x1b[31m \u202e "quoted" \ud800'
    try:
        int(nasty)
    except ValueError:
        log.exception("failed on %s", nasty)
    written = capsys.readouterr().err
    assert written.count("\n") == 1
    assert written[:-1].isprintable()
    line = json.loads(written)
    assert line["message"] == f"failed on {nasty}"
    assert line["exception"].startswith("Traceback")
    assert line["exception"].splitlines()[-1].startswith("ValueError: invalid literal")


def test_warnings_are_objects_too(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info", "json")
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("an old option", stacklevel=1)
    (line,) = lines(capsys)
    assert (line["level"], line["logger"]) == ("warning", "py.warnings")
    assert "an old option" in line["message"]


def test_text_is_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    log.info("serving")
    assert capsys.readouterr().err.endswith(" INFO twinlens.somewhere: serving\n")


def test_callers_who_hung_up_leave_no_traceback_and_other_failures_do(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("info")
    for kind in (type("ExecuteBatchError", (Exception,), {}), ValueError):
        logging.getLogger("grpc._cython.cygrpc").error("raised in core", exc_info=kind("what happened"))
    told = capsys.readouterr().err
    assert "ValueError: what happened" in told
    assert "ExecuteBatchError" not in told


def test_what_is_written_in_a_picture_is_in_no_log_at_any_level(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logging("debug")
    picture = io.BytesIO()
    Image.new("RGB", (4, 4)).save(picture, "TIFF", description="written in it")
    Image.open(picture).load()
    log.debug("asked for")
    written = capsys.readouterr().err
    assert "written in it" not in written
    assert "asked for" in written
