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
from twinlens.v1 import collection_pb2

MANY = [f"label {i}" for i in range(17)]  # more than a batch
FEW = pb.NoneOfThese(background_prompts=["a wall"])


async def test_calls_whose_labels_are_not_at_hand_are_not_held_to_the_wait_of_pictures(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with run_server(data, FakeEncoder(), max_batch=16) as served:
        await served.create()
        item = collection_pb2.NewItem(id="a", image=picture("red"))
        item.metadata["label"] = "warm"
        await served.upsert(item)
        admit, told = served.app.admission.admit, []

        @contextmanager
        def noted(*args: Any, pictures: bool = False, fetches: bool = False, **options: Any) -> Iterator[None]:
            if pictures:
                told.append(fetches)
            with admit(*args, pictures=pictures, fetches=fetches, **options):
                yield

        monkeypatch.setattr(served.app.admission, "admit", noted)
        for choice in (
            {"labels": ["red", "blue"]},  # which are embedded as fast as pictures are
            {"labels": MANY, "none_of_these": FEW},
            {"labels": MANY, "none_of_these": FEW},
            {"labels": MANY, "none_of_these": pb.NoneOfThese(background_prompts=MANY)},
            {"labels": MANY, "none_of_these": pb.NoneOfThese(background_prompts=MANY)},
            {"examples": example_set(SHOWN)},
            {"examples": pb.ExampleSet(collection="photos", label_key="label")},
            {"examples": pb.ExampleSet(collection="photos", label_key="label")},
        ):
            await served.classification.Classify(pb.ClassifyRequest(images=[picture("red")], **choice))
    assert told == [False, True, False, True, False, False, True, False]
