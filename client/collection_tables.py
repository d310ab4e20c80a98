"""Collections, their indexes, generations and backups as tables that people read."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from rich.table import Table

from twinlens.client.collection_types import Backup, Collection
from twinlens.client.tables import new_table, plain
from twinlens.client.types import ModelInfo

_UNITS = ("bytes", "KiB", "MiB", "GiB", "TiB")


def collection_table(title: str, collections: Sequence[Collection], model: ModelInfo) -> Table:
    """One row a collection: its counts, its size and its space; `collection_details` tells the rest.

    Args:
        title: Heading of the table.
        collections: What the server has.
        model: The one it serves: a space that is this model's is told by its name, too.
    """
    table = new_table(title)
    numbers = ("items", "pictures", "captions", "on disk")
    for name in ("id", *numbers[:3], "index", "on disk", "space"):
        table.add_column(name, justify="right" if name in numbers else "left", overflow="fold")
    damaged = [each for each in collections if each.damage]
    for each in collections:
        if each.damage:
            table.add_row(plain(each.id), *[""] * 3, "damaged", *[""] * 2)
            continue
        counts = (each.item_count, each.image_vector_count, each.text_vector_count)
        table.add_row(
            plain(each.id),
            *(f"{count:,}" for count in counts),
            each.index_kind,
            _size_on_disk(each),
            plain(_space(each.space_id, model)),
        )
    if damaged:
        table.caption = plain("\n".join(f"{each.id}: {each.damage}" for each in damaged))
        table.caption_justify = "left"
    return table


def collection_details(collection: Collection, model: ModelInfo) -> Table:
    """What there is to say of one collection as a whole, a line each; its indexes and generations have their tables.

    Args:
        collection: The collection.
        model: The one that is served: a space that is this model's is told by its name, too.
    """
    table = new_table(f"Collection {collection.id}")
    table.show_header = False
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("items", f"{collection.item_count:,}")
    vectors = f"{collection.image_vector_count:,} of pictures, {collection.text_vector_count:,} of captions"
    table.add_row("vectors", f"{vectors}; {collection.dimension:,} dimensions")
    table.add_row("space", plain(_space(collection.space_id, model)))
    if collection.variants:
        table.add_row("computed by", plain("; ".join(collection.variants)))
    sizes = collection.bytes
    parts = (("database", sizes.database), ("indexes", sizes.indexes), ("pictures", sizes.images))
    split = ", ".join(f"{name} {size_of(size)}" for name, size in parts if size)
    if split:
        table.add_row("on disk", f"{_size_on_disk(collection)}: {split}")
    if sizes.memory:
        table.add_row("in memory", size_of(sizes.memory))
    table.add_row("created", _time(collection.create_time))
    return table


def index_table(collection: Collection) -> Table:
    """One row a modality: what lies over its vectors, and how it is."""
    table = new_table(f"Indexes of {collection.id} ({collection.index_kind})")
    numbers = ("merged", "pending", "hidden", "recall@10")
    for name in ("of", "kind", *numbers, "last merge"):
        table.add_column(name, justify="right" if name in numbers else "left")
    for each in collection.indexes:
        queries = "query" if each.recall_query_count == 1 else "queries"
        recall = "" if each.recall is None else f"{each.recall:.3f} ({each.recall_query_count:,} {queries})"
        merged = "" if each.merge_time is None else f"{_time(each.merge_time)}, {each.merge_s:.1f} s"
        state = "merging" if each.merging else f"failed: {each.merge_error}" if each.merge_error else ""
        table.add_row(
            "pictures" if each.modality == "image" else "captions",
            each.kind,
            f"{each.merged_count:,}",
            f"{each.pending_count:,}",
            f"{each.hidden_count:,}",
            recall,
            plain("; ".join(part for part in (merged, state) if part)),
        )
    return table


def generation_table(collection: Collection, model: ModelInfo) -> Table:
    """One row a generation."""
    table = new_table(f"Generations of {collection.id}")
    for name in ("number", "", "items", "dimension", "space", "begun"):
        table.add_column(name, justify="right" if name in {"number", "items", "dimension"} else "left")
    for each in collection.generations:
        table.add_row(
            str(each.number),
            "active" if each.active else "",
            f"{each.item_count:,} of {collection.item_count:,}",
            f"{each.dimension:,}",
            plain(_space(each.space_id, model)),
            _time(each.create_time),
        )
    return table


def backup_table(backups: Sequence[Backup]) -> Table:
    """One row a backup."""
    table = new_table("Backups")
    for name in ("id", "collection", "items", "size", "space", "made"):
        table.add_column(name, justify="right" if name in {"items", "size"} else "left")
    for each in backups:
        table.add_row(
            plain(each.id),
            plain(each.collection),
            f"{each.item_count:,}",
            size_of(each.total_bytes),
            plain(each.space_id[:12]),
            _time(each.create_time),
        )
    return table


def size_of(count_bytes: int) -> str:
    """A size to be read: "812 bytes", "1.4 GiB"."""
    size, unit = float(count_bytes), 0
    while size >= 1024 and unit < len(_UNITS) - 1:
        size, unit = size / 1024, unit + 1
    return f"{size:,.1f} {_UNITS[unit]}" if unit else f"{count_bytes:,} bytes"


def _size_on_disk(collection: Collection) -> str:
    size = collection.bytes.database + collection.bytes.indexes + collection.bytes.images
    return size_of(size) if size else ""


def _space(space_id: str, model: ModelInfo) -> str:
    whose = f" ({model.name}/{model.version})" if space_id == model.space_id else ""
    return space_id[:12] + whose


def _time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"
