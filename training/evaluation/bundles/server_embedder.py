"""Embeds with a running server, by the client."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from twinlens.client import Client, TwinlensError
from twinlens.client.pipeline import in_order
from twinlens.client.split import split
from twinlens.client.types import EmbedBatch
from twinlens.training.data.bounded_map import bounded_map
from twinlens.training.data.listed_pictures import Picture
from twinlens.training.evaluation.bundles.embedder import (
    EvaluatedModel,
    OnDone,
    Outcome,
    Vectors,
    gathered,
    read_picture,
)

_IMAGES_A_CALL = 32
# So that a set of huge files does not fill the memory with the calls under way.
_BYTES_A_CALL = 16 << 20
_READERS = 4
_TEXTS_A_CALL = 256
# So that the server's towers have the next call while the answer of one travels.
_CALLS_UNDER_WAY = 4


class ServerEmbedder:
    """An `Embedder` over the encoder that a server is serving."""

    def __init__(self, client: Client) -> None:
        """Asks the server for its model.

        Raises:
            TwinlensError: if it does not answer.
        """
        info = client.model().info
        self._client = client
        self._model = EvaluatedModel(
            info.name,
            info.version,
            info.space_id,
            info.dimension,
            info.has_image_tower,
            info.has_text_tower,
            f"the server at {client.target}",
        )

    @property
    def model(self) -> EvaluatedModel:
        """Who embeds."""
        return self._model

    def images(self, pictures: Sequence[Picture], done: OnDone) -> Vectors:
        """Vectors of pictures.

        Raises:
            TwinlensError: if a call fails as a whole, or another encoder answers than before.
        """

        def call(batch: list[bytes | str]) -> list[Outcome]:
            readable = [data for data in batch if isinstance(data, bytes)]
            answers = iter(self._outcomes(self._client.embed_images(readable)))
            return [data if isinstance(data, str) else next(answers) for data in batch]

        read = (data for _, data in bounded_map(read_picture, pictures, threads=_READERS))
        batches = split(read, len, max_count=_IMAGES_A_CALL, max_bytes=_BYTES_A_CALL)
        calls = in_order(call, batches, workers=_CALLS_UNDER_WAY)
        return gathered((each for batch in calls for each in batch), len(pictures), self._model.dimension, done)

    def texts(self, texts: Sequence[str], done: OnDone) -> Vectors:
        """Vectors of texts.

        Raises:
            TwinlensError: if a call fails as a whole, or another encoder answers than before.
        """
        batches = split(texts, lambda _: 0, max_count=_TEXTS_A_CALL, max_bytes=1)
        calls = in_order(lambda batch: list(self._outcomes(self._client.embed_texts(batch))), batches, workers=2)
        return gathered((each for batch in calls for each in batch), len(texts), self._model.dimension, done)

    def _outcomes(self, batch: EmbedBatch) -> Iterator[Outcome]:
        now = batch.model
        if now is not None and now.space_id != self._model.space_id:
            was = f"{self._model.name}/{self._model.version}"
            raise TwinlensError(
                "FAILED_PRECONDITION",
                f"{self._client.target} has changed its encoder from {was} to {now.name}/{now.version} on the way: "
                "vectors of both cannot be compared; start again",
            )
        truncated = set(batch.truncated)
        for position, row in enumerate(batch.vectors):
            problem = batch.errors.get(position)
            yield (row, position in truncated) if problem is None else problem.message
