"""The Python client: `Client` waits for answers, `AsyncClient` is awaited."""

from __future__ import annotations

from twinlens.client.aio import AsyncClient
from twinlens.client.client import Client
from twinlens.client.collection_types import (
    Backup,
    Collection,
    CollectionBytes,
    DuplicateGroup,
    ExportedItem,
    Finding,
    Generation,
    IndexKind,
    IndexState,
    OperationProgress,
)
from twinlens.client.errors import TwinlensError
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.types import (
    Classification,
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
    "Backup",
    "Classification",
    "Client",
    "Collection",
    "CollectionBytes",
    "DuplicateGroup",
    "EmbedBatch",
    "ExampleError",
    "Examples",
    "ExportedItem",
    "Finding",
    "Generation",
    "Hit",
    "ImageInput",
    "IndexKind",
    "IndexState",
    "Item",
    "ItemError",
    "LabelScore",
    "Modality",
    "Model",
    "ModelInfo",
    "NewItem",
    "OperationProgress",
    "Part",
    "PreparedExamples",
    "QueryInput",
    "QueryResult",
    "TwinlensError",
    "UpsertFailure",
    "UpsertReport",
]
