"""Long work of a client on a server process that is killed, or told to end, and started again at its address."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.chaos.server_process import ServerProcess, server_process
from tests.support.pictures import COLOURS, solid
from twinlens.client import NewItem, OperationProgress

_PICTURES = 640
_END_AFTER = 200


@pytest.mark.parametrize("end", [ServerProcess.kill, ServerProcess.end], ids=["killed", "told to end"])
def test_labelling_goes_on_after_a_restart_and_what_was_stored_is_there(
    open_client: Callable[..., Any], tmp_path: Path, end: Callable[[ServerProcess], object]
) -> None:
    names = [name for _ in range(_PICTURES // len(COLOURS)) for name in COLOURS]
    pictures = {name: solid(name) for name in COLOURS}
    got_on, ended = threading.Event(), threading.Event()
    done: list[int] = []

    def note(state: OperationProgress) -> None:
        done.append(state.done)
        if state.done >= _END_AFTER:
            got_on.set()

    def images() -> Iterator[bytes]:
        for number, name in enumerate(names):
            if number == 2 * _END_AFTER:
                assert ended.wait(30)  # so that the rest is for the server that comes
            yield pictures[name]

    with server_process(tmp_path / "data", grace_s=1.0) as server:

        def restart() -> None:
            assert got_on.wait(30)
            end(server)
            ended.set()
            server.start()

        thread = threading.Thread(target=restart)
        with open_client(server.address) as client:
            client.create_collection("photos")
            assert client.upsert("photos", [NewItem(id="red", image=pictures["red"])]).stored == 1
            thread.start()
            results = list(client.classify_stream(images(), list(COLOURS), top_k=1, progress=note))
            thread.join()
            assert client.search("photos", text="red", top_k=1)[0].id == "red"
    assert [result.scores[0].label for result in results] == names
    assert done == sorted(set(done))
