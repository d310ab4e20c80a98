from __future__ import annotations

import tracemalloc
from pathlib import Path

from tests.server.running import run_server
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.call import Call
from twinlens.server.core.classify import Words
from twinlens.server.core.engine import Text
from twinlens.server.core.none_of_these import NoneOfThese


async def test_streams_that_choose_from_the_same_labels_hold_these_once(data: Path) -> None:
    words = Words([f"label {i}" for i in range(400)], none=NoneOfThese(background=("a wall",)))
    async with run_server(data, FakeEncoder(dimension=512)) as served:
        classifier = served.app.classifier
        pictures = await served.app.engine.embed([Text("red")], Call())
        (await classifier.scorer(words, top_k=1, call=Call())).score(pictures)
        tracemalloc.start()
        try:
            scorers = [await classifier.scorer(words, top_k=1, call=Call()) for _ in range(8)]
            for scorer in scorers:
                scorer.score(pictures)
            held_bytes, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert held_bytes < 400 * 512 * 4
