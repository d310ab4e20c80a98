"""What a call may bring, for those who ask; docs/serving.md has the same in words."""

from __future__ import annotations

from twinlens.encoders.decode import DEFAULT_LIMITS
from twinlens.server.services.classification import MAX_IMAGES
from twinlens.server.services.embedding import MAX_INPUTS
from twinlens.server.services.search import MAX_QUERIES
from twinlens.server.settings import Settings
from twinlens.v1 import model_pb2


def server_limits(settings: Settings) -> model_pb2.ServerLimits:
    """The limits of a server with these settings."""
    return model_pb2.ServerLimits(
        max_message_bytes=settings.max_message_bytes,
        max_image_bytes=min(DEFAULT_LIMITS.max_bytes, settings.max_message_bytes),
        max_image_pixels=DEFAULT_LIMITS.max_pixels,
        max_inputs=min(MAX_INPUTS, MAX_IMAGES),
        max_queries=MAX_QUERIES,
        max_items_in_flight=settings.max_items_in_flight,
    )
