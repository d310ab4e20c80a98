"""The generated stubs of all services on one channel."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import grpc
import grpc.aio

from twinlens.client.calls import Service
from twinlens.v1 import (
    classification_pb2_grpc,
    collection_operations_pb2_grpc,
    collection_pb2_grpc,
    embedding_pb2_grpc,
    model_pb2_grpc,
    search_pb2_grpc,
)


def stubs(channel: grpc.Channel | grpc.aio.Channel) -> Mapping[Service, Any]:
    """One stub a service. Their methods block or are awaitable as the channel is."""
    services: dict[Service, Any] = {
        "classification": classification_pb2_grpc.ClassificationServiceStub,
        "collection": collection_pb2_grpc.CollectionServiceStub,
        "collection_operations": collection_operations_pb2_grpc.CollectionOperationsServiceStub,
        "embedding": embedding_pb2_grpc.EmbeddingServiceStub,
        "model": model_pb2_grpc.ModelServiceStub,
        "search": search_pb2_grpc.SearchServiceStub,
    }
    return {name: stub(channel) for name, stub in services.items()}
