from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.server.running import run_server
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.label_set_files import LabelSet, LabelSetFiles
from twinlens.server.services import label_messages
from twinlens.v1 import classification_pb2 as pb


async def test_a_page_of_many_labels_is_not_made_where_all_calls_wait(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, message = LabelSetFiles(data / "label_sets"), label_messages.label_set_message
    labels = tuple(f"label {i}" for i in range(5000))
    files.write(LabelSet("many", labels), {})
    threads: list[threading.Thread] = []

    def noted(kept: LabelSet) -> pb.LabelSet:
        threads.append(threading.current_thread())
        return message(kept)

    monkeypatch.setattr(label_messages, "label_set_message", noted)
    async with run_server(data, FakeEncoder()) as served:
        (listed,) = (await served.classification.ListLabelSets(pb.ListLabelSetsRequest())).label_sets
    assert tuple(listed.labels) == labels
    assert threading.main_thread() not in threads
