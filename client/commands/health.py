"""`twinlens health`: whether a server answers and its encoder and index work; for containers and scripts."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from twinlens.client.commands.options import AsJson, Server
from twinlens.client.commands.output import print_json
from twinlens.client.connect import SERVER_VARIABLE
from twinlens.client.errors import TwinlensError, from_call


def health(
    server: Server = None,
    service: Annotated[
        str, typer.Option("--service", help="One service, as twinlens.v1.SearchService. Default: the whole server.")
    ] = "",
    timeout_s: Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for the answer.")] = 3.0,
    as_json: AsJson = False,
) -> None:
    """Ask a server's standard health service (grpc.health.v1); exit code 0 only where it is SERVING."""
    import grpc  # noqa: PLC0415 - takes longer than the rest of --help
    from grpc_health.v1 import health_pb2, health_pb2_grpc  # noqa: PLC0415

    from twinlens.client.access import access, current_options  # noqa: PLC0415
    from twinlens.client.channel import check_target, open_channel  # noqa: PLC0415
    from twinlens.client.token import call_metadata  # noqa: PLC0415

    named = server or os.environ.get(SERVER_VARIABLE)
    if not named:
        raise typer.BadParameter(f"no server named: give --server HOST:PORT, or set {SERVER_VARIABLE}")
    target = check_target(named)
    shown = access(current_options.get())
    metadata = call_metadata(shown.token, target, encrypted=shown.tls is not None)
    with open_channel(target, shown.tls) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            request = health_pb2.HealthCheckRequest(service=service)
            answer = stub.Check(request, timeout=timeout_s, metadata=metadata)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise TwinlensError("NOT_FOUND", f"the server at {target} has no service {service!r}") from None
            raise from_call(error, target, timeout_s) from None
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    if as_json:
        print_json({"server": target, "service": service, "status": status})
    else:
        typer.echo(status)
    if status != "SERVING":
        raise typer.Exit(1)
