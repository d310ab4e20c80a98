"""The Python client: `Client` waits for answers, `AsyncClient` is awaited."""

from __future__ import annotations

from twinlens.client.aio import AsyncClient
from twinlens.client.client import Client
from twinlens.client.errors import TwinlensError
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.types import (
    Classification,
    Collection,
    EmbedBatch,
    ExampleError,
    Examples,
    Hit,
    ImageInput,
    Item,
    ItemError,
    LabelScore,
    Modality,
    Model,
    ModelInfo,
    NewItem,
    Part,
    QueryInput,
    QueryResult,
    UpsertFailure,
    UpsertReport,
)

__all__ = [
    "AsyncClient",
    "Classification",
    "Client",
    "Collection",
    "EmbedBatch",
    "ExampleError",
    "Examples",
    "Hit",
    "ImageInput",
    "Item",
    "ItemError",
    "LabelScore",
    "Modality",
    "Model",
    "ModelInfo",
    "NewItem",
    "Part",
    "PreparedExamples",
    "QueryInput",
    "QueryResult",
    "TwinlensError",
    "UpsertFailure",
    "UpsertReport",
]
