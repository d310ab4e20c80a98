"""An S3 in this process, empty, with the environment that clients need to find it."""

from __future__ import annotations

import logging
import secrets
from collections.abc import Iterator
from contextlib import contextmanager

import pytest


@contextmanager
def object_store() -> Iterator[str]:
    """Runs the store and gives the address of an empty bucket, `s3://…`."""
    import fsspec
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    _, port = server.get_host_and_port()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
        patch.setenv("AWS_ACCESS_KEY_ID", "tests")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "tests")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        patch.setenv("AWS_EC2_METADATA_DISABLED", "true")
        patch.setenv("AWS_MAX_ATTEMPTS", "1")
        patch.setenv("AWS_CONFIG_FILE", "/nonexistent")
        patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
        files = fsspec.get_filesystem_class("s3")
        files.clear_instance_cache()  # clients keep the address they were made with
        try:
            bucket = f"models-{secrets.token_hex(6)}"  # what one server holds, others of the process hold, too
            fsspec.filesystem("s3").mkdir(bucket)
            yield f"s3://{bucket}"
        finally:
            files.clear_instance_cache()
            server.stop()
