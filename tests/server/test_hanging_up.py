from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from twinlens.server.services.interceptor import _write


class Gone:
    """The context of a call whose caller hangs up while an answer is on its way."""

    async def write(self, _: object) -> None:
        raise grpc.aio.InternalError


async def test_an_answer_that_finds_nobody_ends_its_call_without_a_fault() -> None:
    context: Any = Gone()
    with pytest.raises(asyncio.CancelledError):
        await _write(context, object())
