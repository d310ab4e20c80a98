"""A server that is forked while it serves: `python forked_server.py DATA`. Prints what the child met, as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import grpc

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.server.running import embed_request
from tests.support.fake_encoder import FakeEncoder
from twinlens.server.core.active import StartError, open_data
from twinlens.server.core.app import Application
from twinlens.server.core.errors import ServiceError
from twinlens.server.core.lanes import Priority
from twinlens.server.grpc_server import GrpcServer
from twinlens.server.serve import serve
from twinlens.server.settings import Settings
from twinlens.v1 import embedding_pb2_grpc


class WithSessions(FakeEncoder):
    """Says, as a real encoder does, which process holds its sessions."""

    def __init__(self) -> None:
        super().__init__()
        self.process = os.getpid()


def met(act: Callable[[], object]) -> str:
    try:
        act()
    except (StartError, ServiceError) as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


async def main(data: Path) -> None:
    settings = Settings(data=data, canary_interval_s=3600.0)
    encoder, catalog = open_data(data, None, settings, WithSessions())
    app = Application(encoder, catalog, settings)
    server = GrpcServer(app, "127.0.0.1:0")
    await server.start()
    idle = GrpcServer(app, "127.0.0.1:0")
    reading, writing = os.pipe()
    if (child := os.fork()) == 0:
        outcome = {
            "work": met(lambda: app.io.submit(Priority.INTERACTIVE, len, "")),
            "start": met(lambda: idle.start().send(None)),
            "serve": met(lambda: serve(Settings(data=data.with_name("other"), port=0), encoder=encoder)),
        }
        os.write(writing, json.dumps(outcome).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        outcome = json.loads(await asyncio.to_thread(pipe.read))
    await asyncio.to_thread(os.waitpid, child, 0)
    async with grpc.aio.insecure_channel(server.address) as channel:
        reply = await embedding_pb2_grpc.EmbeddingServiceStub(channel).Embed(embed_request("parent"))
    outcome["parent"] = str(reply.results[0].WhichOneof("outcome"))
    await server.stop(0)
    sys.stdout.write(json.dumps(outcome))


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1])))
