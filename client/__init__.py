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
from twinlens.client.label_types import LabelSet, NoneOfThese
from twinlens.client.limits import ServerLimits
from twinlens.client.prepared_examples import PreparedExamples
from twinlens.client.stream_types import Embedding, TextInput
from twinlens.client.tls import TlsFiles
from twinlens.client.types import (
    Classification,
    EmbedBatch,
    ExampleError,
    Examples,
    Hit,
    ImageInput,
    ImageUrl,
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
    StoredItem,
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
    "Embedding",
    "ExampleError",
    "Examples",
    "ExportedItem",
    "Finding",
    "Generation",
    "Hit",
    "ImageInput",
    "ImageUrl",
    "IndexKind",
    "IndexState",
    "Item",
    "ItemError",
    "LabelScore",
    "LabelSet",
    "Modality",
    "Model",
    "ModelInfo",
    "NewItem",
    "NoneOfThese",
    "OperationProgress",
    "Part",
    "PreparedExamples",
    "QueryInput",
    "QueryResult",
    "ServerLimits",
    "StoredItem",
    "TextInput",
    "TlsFiles",
    "TwinlensError",
    "UpsertFailure",
    "UpsertReport",
]
