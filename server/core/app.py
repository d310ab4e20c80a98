"""The product without a network: one encoder, its collections, and what works on them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

from twinlens.encoders.protocol import EncoderLike
from twinlens.index.contract import CatalogLike, CollectionLike
from twinlens.server.core.admission import Admission
from twinlens.server.core.call import Call
from twinlens.server.core.classify import Classifier
from twinlens.server.core.classify_by_examples import ExampleClassifier
from twinlens.server.core.engine import Engine, Input, Outcome, Text, any_fetched, size_of
from twinlens.server.core.errors import invalid_argument
from twinlens.server.core.examples import ExampleCache
from twinlens.server.core.fetch import Fetcher
from twinlens.server.core.forked import check_encoder
from twinlens.server.core.item_vectors import ItemVectors
from twinlens.server.core.label_sets import LabelSets
from twinlens.server.core.labels import LabelCache
from twinlens.server.core.message_streams import MessageStreams
from twinlens.server.core.operations import OperationRunner
from twinlens.server.core.pool import WorkerPool
from twinlens.server.core.search import Searcher
from twinlens.server.core.telemetry import Telemetry
from twinlens.server.core.thread_shares import thread_shares
from twinlens.server.core.upsert import Upserter
from twinlens.server.settings import Settings

# Of the bytes in flight: streams may hold so much more than what is admitted, in messages that are in work.
_SHARE_OF_STREAMS = 4


class Application:
    """Everything a request needs, wired once. Made inside the event loop that serves it; owns the catalog.

    Args:
        encoder: The model.
        catalog: The collections.
        settings: How to serve.
        data: The data folder, which keeps label sets beside the collections; None: that of the settings.
        reopen: Loads the model once more, for a tower that hung.

    Raises:
        ForkedProcess: the model was loaded by the process that this one is a fork of.
    """

    def __init__(
        self,
        encoder: EncoderLike,
        catalog: CatalogLike,
        settings: Settings,
        data: Path | None = None,
        *,
        reopen: Callable[[], EncoderLike] | None = None,
    ) -> None:
        check_encoder(encoder)
        self.settings = settings
        self.catalog = catalog
        self.telemetry = Telemetry()
        self.io = WorkerPool("io", settings.io_threads)
        self.fetcher = Fetcher(settings, self.telemetry)
        self.engine = Engine(
            encoder,
            max_batch=settings.max_batch,
            max_delay_s=settings.max_delay_ms / 1000,
            prepare_threads=thread_shares(settings).prepare,
            fetcher=self.fetcher,
            telemetry=self.telemetry,
            reopen=reopen,
        )
        self.operations = OperationRunner(settings.max_operations, self.telemetry.refused.labels("operations"))
        self.admission = Admission(
            settings.max_items_in_flight,
            settings.max_bytes_in_flight,
            max_batch=settings.max_batch,
            max_wait_s=settings.max_queue_s,
            telemetry=self.telemetry,
        )
        self.labels = LabelCache(self.engine, self.admission, self.io, settings.label_cache_bytes)
        self.examples = ExampleCache(self.engine, self.io, settings.example_cache_bytes)
        most = settings.max_message_bytes
        self.searcher = Searcher(self.engine, self.admission, self.io, self.telemetry, max_reply_bytes=most)
        self.classifier = Classifier(self.engine, self.admission, self.labels, max_reply_bytes=most)
        self.example_classifier = ExampleClassifier(
            self.engine, self.admission, self.examples, self.labels, max_reply_bytes=most
        )
        folder = data if data is not None else settings.data
        self.label_sets = LabelSets(self.classifier, self.io, None if folder is None else folder / "label_sets")
        self.item_vectors = ItemVectors(self.engine, catalog, self.io)
        # Set when the server is about to end, and streams with it.
        self.draining = asyncio.Event()
        self.streams = MessageStreams(self.draining, settings.max_bytes_in_flight // _SHARE_OF_STREAMS)
        self.upserter = Upserter(
            self.engine,
            self.io,
            self.fetcher,
            max_failure_bytes=most // 2,
            writers=max(1, settings.io_threads // 2),
        )

    async def embed(self, inputs: Sequence[Input], call: Call) -> list[Outcome]:
        """Embeds a caller's inputs, each on its own.

        Raises:
            ServiceError: RESOURCE_EXHAUSTED when the server is full.
        """
        pictures = any(not isinstance(entry, Text) for entry in inputs)
        size_bytes, fetches = sum(map(size_of, inputs)), any_fetched(inputs)
        with self.admission.admit(len(inputs), size_bytes, pictures=pictures, fetches=fetches, call=call):
            return await self.engine.embed(inputs, call)

    async def collection(self, id: str, call: Call) -> CollectionLike:  # noqa: A002 - the id is what it is
        """A collection by id.

        Raises:
            ServiceError: INVALID_ARGUMENT if the id is empty.
            CollectionNotFound: if there is none.
        """
        if not id:
            raise invalid_argument("the collection's id is empty")
        opened = self.catalog.opened(id)
        return opened if opened is not None else await self.io.submit(call.priority, self.catalog.get, id)

    @property
    def pools(self) -> tuple[WorkerPool, ...]:
        """All worker threads."""
        return self.io, *self.engine.pools

    async def close(self) -> None:
        """Stops work, waits for what writes, closes the collections."""
        await self.labels.close()
        await self.examples.close()
        await self.engine.close()
        await self.fetcher.close()
        await asyncio.to_thread(self.io.close)
        await asyncio.to_thread(self.catalog.close)
