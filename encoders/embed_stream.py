"""Embeds a stream of items: decoding on a pool of threads, the towers fed in batches, memory bounded."""

from __future__ import annotations

import itertools
import stat
from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from twinlens.encoders.decode import DecodeLimits
from twinlens.encoders.embed_sources import SourceItem
from twinlens.encoders.errors import InvalidImage, InvalidText
from twinlens.encoders.protocol import EncoderLike
from twinlens.encoders.tokenise import TokenisedText

_Prepared = NDArray[np.float32] | TokenisedText | str


@dataclass(frozen=True, slots=True)
class Embedded:
    """One item's outcome.

    Attributes:
        id: The item's.
        vector: Its unit vector, shape (d,), or None.
        reason: Why there is none.
        truncated: The text was longer than the model's context and was cut.
    """

    id: str
    vector: NDArray[np.float32] | None
    reason: str = ""
    truncated: bool = False


def embed_stream(
    encoder: EncoderLike,
    items: Iterable[SourceItem],
    *,
    batch: int = 64,
    decoders: int = 1,
    limits: DecodeLimits | None = None,
) -> Iterator[Embedded]:
    """Embeds every item, in order; one that cannot be embedded fails itself only.

    While a tower runs on one batch, the pool prepares the next; no more than two batches of inputs are held.

    Args:
        encoder: Prepares and embeds.
        items: Read as needed, so it may be of any length.
        batch: Items a run.
        decoders: Threads that read and prepare.
        limits: Files above `max_bytes` are refused unread.
    """
    max_bytes = (limits or DecodeLimits()).max_bytes
    source = iter(items)
    with ThreadPoolExecutor(max_workers=decoders, thread_name_prefix="decode") as pool:
        window: deque[tuple[SourceItem, Future[_Prepared]]] = deque()

        def fill() -> None:
            for item in itertools.islice(source, 2 * batch - len(window)):
                window.append((item, pool.submit(_prepare, encoder, item, max_bytes)))

        fill()
        while window:
            part = [window.popleft() for _ in range(min(batch, len(window)))]
            prepared = [(item, future.result()) for item, future in part]
            fill()
            yield from _encode(encoder, prepared)


def _prepare(encoder: EncoderLike, item: SourceItem, max_bytes: int) -> _Prepared:
    """What the tower takes, or the reason why there is nothing."""
    if item.problem:
        return item.problem
    try:
        if item.text is not None:
            return encoder.prepare_text(item.text)
        if item.image is None:
            return "there is nothing to embed"
        if item.image.is_dir():
            return "this is a folder, not a file"
        found = item.image.stat()
        if not stat.S_ISREG(found.st_mode):  # a pipe may never end, a device has no size
            return "this is neither a file nor a link to one"
        size = found.st_size
        if size > max_bytes:
            return f"the file is too large: {size:,} bytes, the limit is {max_bytes:,}"
        return encoder.prepare_image(item.image.read_bytes())
    except (InvalidImage, InvalidText) as error:
        return str(error)
    except FileNotFoundError:
        return "the file does not exist"
    except (OSError, ValueError) as error:  # ValueError: a path with a NUL
        return f"the file cannot be read: {getattr(error, 'strerror', None) or error}"


def _encode(encoder: EncoderLike, prepared: list[tuple[SourceItem, _Prepared]]) -> list[Embedded]:
    images = [(i, value) for i, (_, value) in enumerate(prepared) if isinstance(value, np.ndarray)]
    texts = [(i, value) for i, (_, value) in enumerate(prepared) if isinstance(value, TokenisedText)]
    vectors: dict[int, NDArray[np.float32]] = {}
    if images:
        rows = encoder.encode_images(np.stack([value for _, value in images]))
        vectors.update(zip((i for i, _ in images), rows, strict=True))
    if texts:
        rows = encoder.encode_texts([value for _, value in texts])
        vectors.update(zip((i for i, _ in texts), rows, strict=True))
    return [
        Embedded(
            item.id,
            vectors.get(i),
            value if isinstance(value, str) else "",
            truncated=isinstance(value, TokenisedText) and value.truncated,
        )
        for i, (item, value) in enumerate(prepared)
    ]
