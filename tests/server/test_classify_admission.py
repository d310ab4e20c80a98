"""How calls that label are let in: what labels wait for says nothing of how fast pictures go."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.server.running import picture, run_server
from tests.server.shown_examples import SHOWN, example_set
from tests.support.fake_encoder import FakeEncoder
from twinlens.v1 import classification_pb2 as pb

BACKGROUND = pb.NoneOfThese(background_prompts=["a wall"])


async def test_calls_whose_labels_are_not_at_hand_are_not_held_to_the_wait_of_pictures(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_server(data, FakeEncoder()) as served:
        admit, told = served.app.admission.admit, []

        @contextmanager
        def noted(*args: Any, fetches: bool = False, **options: Any) -> Iterator[None]:
            told.append(fetches)
            with admit(*args, fetches=fetches, **options):
                yield

        monkeypatch.setattr(served.app.admission, "admit", noted)
        for choice in (
            {"labels": ["red", "blue"]},
            {"labels": ["red", "blue"]},
            {"labels": ["red", "blue"], "none_of_these": BACKGROUND},
            {"labels": ["red", "blue"], "none_of_these": BACKGROUND},
            {"examples": example_set(SHOWN)},
            {"examples": example_set(SHOWN)},
        ):
            await served.classification.Classify(pb.ClassifyRequest(images=[picture("red")], **choice))
    assert told == [True, False] * 3
