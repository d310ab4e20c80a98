"""Fills a collection of a running server with synthetic vectors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import grpc

from bench.engines.dataset import make_dataset, open_dataset
from bench.serving.targets import COLLECTION
from twinlens.v1 import (
    collection_operations_pb2,
    collection_operations_pb2_grpc,
    collection_pb2,
    collection_pb2_grpc,
    content_pb2,
    model_pb2,
    model_pb2_grpc,
)

_BATCH = 256


def fill(address: str, rows: int, scratch: Path) -> dict[str, float | str]:
    """Stores `rows` items that bring clustered vectors, and merges them into the index that `auto` chooses.

    Args:
        address: Of the server.
        rows: How many items.
        scratch: Where the vectors lie meanwhile.

    Returns:
        Seconds of storing and of merging, and the kind of index.

    Raises:
        RuntimeError: not all of them were stored.
    """
    with grpc.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel:
        collections = collection_pb2_grpc.CollectionServiceStub(channel)
        operations = collection_operations_pb2_grpc.CollectionOperationsServiceStub(channel)
        model = model_pb2_grpc.ModelServiceStub(channel).ListModels(model_pb2.ListModelsRequest()).models[0].info
        make_dataset(scratch, rows, model.dimension, queries=1)
        # Merged once at the end instead of again and again while it grows.
        flat = collection_pb2.INDEX_KIND_FLAT
        collections.CreateCollection(
            collection_pb2.CreateCollectionRequest(collection=COLLECTION, index_kind=flat), timeout=60
        )
        begun_s = time.perf_counter()
        report = collections.UpsertItems(_messages(scratch, model.space_id), timeout=600)
        stored_s = time.perf_counter() - begun_s
        if report.stored_count != rows:
            raise RuntimeError(f"{report.stored_count} of {rows} items were stored: {report.failures[:1]}")
        begun_s = time.perf_counter()
        merged = operations.MergeCollection(
            collection_operations_pb2.MergeCollectionRequest(
                collection=COLLECTION, index_kind=collection_pb2.INDEX_KIND_AUTO
            ),
            timeout=900,
        )
        kind = next(state.kind for state in merged.collection.indexes if state.merged_count)
        return {
            "rows": rows,
            "store_s": stored_s,
            "merge_s": time.perf_counter() - begun_s,
            "kind": collection_pb2.IndexKind.Name(kind).removeprefix("INDEX_KIND_").lower(),
        }


def _messages(folder: Path, space_id: str) -> Iterator[collection_pb2.UpsertItemsRequest]:
    vectors = open_dataset(folder).vectors
    for start in range(0, len(vectors), _BATCH):
        items = [
            collection_pb2.NewItem(
                id=f"item-{start + i:09d}",
                caption=f"caption {start + i}",
                image_vector=content_pb2.Vector(values=vector),
            )
            for i, vector in enumerate(vectors[start : start + _BATCH].tolist())
        ]
        yield collection_pb2.UpsertItemsRequest(collection=COLLECTION, items=items, space_id=space_id)
