"""The hard-negative manifest: what mining hands to training, as a versioned Parquet file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

from twinlens.training.errors import TrainingRoomError

MANIFEST_VERSION = 1
Kind = Literal["text", "image"]
COLUMNS = ("anchor_id", "negative_id", "kind", "score", "positive_score", "rank", "reason")
KINDS: tuple[Kind, ...] = ("text", "image")


class MiningError(TrainingRoomError):
    """Mining cannot go on, or a manifest is not one of ours. The message is one line."""


@dataclass(frozen=True)
class MinedNegatives:
    """Rows of a manifest; all sequences have one length.

    Attributes:
        anchor_ids: The item whose caption and picture belong together.
        negative_ids: The item that is near but wrong.
        kinds: "text": the negative's caption is wrong for the anchor's picture; "image": the negative's picture is
            wrong for the anchor's caption.
        scores: Cosine of the negative to the anchor's caption.
        positive_scores: What that cosine is for the anchor's own picture ("image"), or own caption ("text": 1).
        ranks: Place among the candidates that were not positives, from 1.
        reasons: Why it was taken, in words.
        space_id: The space the scores were measured in.
        collection: Where they were mined.
    """

    anchor_ids: Sequence[str]
    negative_ids: Sequence[str]
    kinds: Sequence[Kind]
    scores: Sequence[float]
    positive_scores: Sequence[float]
    ranks: Sequence[int]
    reasons: Sequence[str]
    space_id: str
    collection: str = ""

    def __len__(self) -> int:
        return len(self.anchor_ids)


def write_manifest(path: Path, mined: MinedNegatives) -> None:
    """Writes the Parquet file: aside first, then renamed.

    Raises:
        MiningError: if it cannot be written.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    table = pa.table(
        {
            "anchor_id": pa.array(mined.anchor_ids, pa.string()),
            "negative_id": pa.array(mined.negative_ids, pa.string()),
            "kind": pa.array(mined.kinds, pa.string()),
            "score": pa.array(mined.scores, pa.float32()),
            "positive_score": pa.array(mined.positive_scores, pa.float32()),
            "rank": pa.array(mined.ranks, pa.int32()),
            "reason": pa.array(mined.reasons, pa.string()),
            "space_id": pa.array([mined.space_id] * len(mined), pa.string()),
        },
        metadata={
            "twinlens.kind": "hard-negatives",
            "twinlens.version": str(MANIFEST_VERSION),
            "twinlens.space_id": mined.space_id,
            "twinlens.collection": mined.collection,
        },
    )
    aside = path.with_name(path.name + ".tmp")
    try:
        pq.write_table(table, aside)
        aside.replace(path)
    except OSError as error:
        raise MiningError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        aside.unlink(missing_ok=True)


def read_manifest(path: Path) -> MinedNegatives:
    """Reads what `write_manifest` wrote.

    Raises:
        MiningError: if the file is missing, not a hard-negative manifest, or of another version.
    """
    import pyarrow as pa  # noqa: PLC0415
    import pyarrow.parquet as pq  # noqa: PLC0415

    if not path.is_file():
        raise MiningError(f"no hard-negative manifest at {path}")
    try:
        table = pq.read_table(path)
    except (pa.ArrowException, OSError) as error:
        raise MiningError(f"{path} is not a Parquet file: {str(error).splitlines()[0]}") from error
    metadata = {key.decode(): value.decode() for key, value in (table.schema.metadata or {}).items()}
    if metadata.get("twinlens.kind") != "hard-negatives":
        raise MiningError(f"{path} is not a hard-negative manifest (write one with `twinlens mine`)")
    if metadata.get("twinlens.version") != str(MANIFEST_VERSION):
        raise MiningError(
            f"{path} is a manifest of version {metadata.get('twinlens.version')}; this program reads {MANIFEST_VERSION}"
        )
    columns = table.to_pydict()
    missing = sorted(set(COLUMNS) - set(columns))
    if missing or "twinlens.space_id" not in metadata:
        raise MiningError(f"{path} is a damaged manifest: it lacks {missing[0] if missing else 'its space_id'}")
    unknown = sorted(set(columns["kind"]) - set(KINDS))
    if unknown:
        raise MiningError(f"{path} holds the unknown kind {unknown[0]!r}")
    return MinedNegatives(
        anchor_ids=columns["anchor_id"],
        negative_ids=columns["negative_id"],
        kinds=cast("list[Kind]", columns["kind"]),
        scores=columns["score"],
        positive_scores=columns["positive_score"],
        ranks=columns["rank"],
        reasons=columns["reason"],
        space_id=metadata["twinlens.space_id"],
        collection=metadata.get("twinlens.collection", ""),
    )
