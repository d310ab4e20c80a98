"""ModelService."""

from __future__ import annotations

from twinlens.encoders.protocol import variant_of
from twinlens.server.core.app import Application
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.page import decode_token, page_size
from twinlens.server.services import convert
from twinlens.server.services.interceptor import Context
from twinlens.server.services.limits import server_limits
from twinlens.v1 import model_pb2, model_pb2_grpc


class ModelService(model_pb2_grpc.ModelServiceServicer):
    """Tells which models there are. For now that is the one the server was started with."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def ListModels(  # noqa: N802 - the wire's name
        self, request: model_pb2.ListModelsRequest, context: Context
    ) -> model_pb2.ListModelsResponse:
        """Lists the models this server serves."""
        del context
        page_size(request.page_size)
        after = decode_token(request.page_token)
        return model_pb2.ListModelsResponse(
            models=[] if after else [self._model()], limits=server_limits(self._app.settings)
        )

    async def GetModel(  # noqa: N802
        self, request: model_pb2.GetModelRequest, context: Context
    ) -> model_pb2.GetModelResponse:
        """Describes one model."""
        del context
        manifest = self._app.engine.manifest
        if request.model not in {"", manifest.name, f"{manifest.name}/{manifest.version}"}:
            raise ServiceError(Code.NOT_FOUND, f"there is no model {request.model[:128]!r}")
        return model_pb2.GetModelResponse(model=self._model(), limits=server_limits(self._app.settings))

    def _model(self) -> model_pb2.Model:
        manifest = self._app.engine.manifest
        return model_pb2.Model(
            info=convert.model_info(manifest),
            active=True,
            manifest_json=manifest.model_dump_json(),
            variant=variant_of(self._app.engine.encoder),
        )
