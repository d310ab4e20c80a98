"""What a failed call tells programs beside its code and message: when to try again."""

from __future__ import annotations

import grpc
from google.protobuf.any_pb2 import Any
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

DETAILS = "grpc-status-details-bin"
PUSHBACK = "grpc-retry-pushback-ms"


def retry_hint(code: grpc.StatusCode, message: str, after_s: float) -> list[tuple[str, str | bytes]]:
    """Metadata that says when to try again, as `google.rpc.RetryInfo` and as gRPC's own retries obey it.

    Args:
        code: Of the call; readers refuse details that say another.
        message: Exactly what the call says, for the same reason.
        after_s: In so many seconds.
    """
    delay = Duration()
    delay.FromNanoseconds(round(after_s * 1e9))
    detail = Any()
    detail.Pack(RetryInfo(retry_delay=delay))
    details = Status(code=code.value[0], message=message, details=[detail]).SerializeToString()
    return [(PUSHBACK, str(round(after_s * 1000))), (DETAILS, details)]
