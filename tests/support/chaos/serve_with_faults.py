"""A server process with the faulty encoder: `python -m tests.support.chaos.serve_with_faults SETTINGS DIMENSION`.

SETTINGS is JSON. Each line of stdin is a question, `{"do": "state"}`, `{"do": "fail", "fault": …}` or `{"do": "mend"}`,
and is answered by a line on stdout.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
from collections.abc import Iterator
from typing import Any

from tests.support.chaos.faulty_encoder import Fault, FaultyEncoder
from twinlens.server.core.app import Application
from twinlens.server.logs import configure_logging
from twinlens.server.serve import serve
from twinlens.server.settings import Settings


class Looked:
    """The application that runs, from outside of its thread."""

    def __init__(self) -> None:
        self._app: Application | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        kind: Any = Application
        make = kind.__init__

        def made(app: Application, *given: Any, **options: Any) -> None:
            make(app, *given, **options)
            self._app, self._loop = app, asyncio.get_running_loop()

        kind.__init__ = made

    def state(self) -> dict[str, float]:
        """What is under way now."""
        app, loop = self._app, self._loop
        assert app is not None
        assert loop is not None
        samples = [sample for metric in app.telemetry.registry.collect() for sample in metric.samples]

        def total(name: str) -> float:
            return sum(sample.value for sample in samples if sample.name == name)

        return {
            "items": max(app.admission.items, total("twinlens_items_in_flight")),
            "queued": len(app.engine.images) + len(app.engine.texts) + len(app.io),
            "calls": total("grpc_server_started_total") - total("grpc_server_handled_total"),
            "tasks": len(asyncio.all_tasks(loop)),
            "threads": threading.active_count(),
            "replaced": total("twinlens_workers_replaced_total"),
        }


def _lines() -> Iterator[str]:
    """Of stdin, without its lock, which a daemon thread would hold when the interpreter ends."""
    rest = b""
    while block := os.read(0, 65_536):
        *lines, rest = (rest + block).split(b"\n")
        for line in lines:
            yield line.decode()


def _answer(looked: Looked, encoder: FaultyEncoder) -> None:
    for line in _lines():
        asked = json.loads(line)
        told: dict[str, float] = {}
        match asked["do"]:
            case "state":
                told = looked.state()
            case "fail":
                encoder.fail(Fault(asked["fault"]))
            case "mend":
                encoder.mend()
        os.write(1, json.dumps(told).encode() + b"\n")


def main() -> None:
    """Serves until told to stop."""
    settings = Settings(**json.loads(sys.argv[1]))
    encoder = FaultyEncoder(int(sys.argv[2]))
    configure_logging(settings.log_level)
    threading.Thread(target=_answer, args=(Looked(), encoder), daemon=True).start()
    serve(settings, encoder=encoder)


if __name__ == "__main__":
    main()
