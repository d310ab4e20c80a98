from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.server.running import Running, picture, run_server
from tests.server.watched import WatchedEncoder, until
from twinlens.server.core import thread_shares as shares_module
from twinlens.server.core.thread_shares import thread_shares
from twinlens.server.settings import Settings


@pytest.mark.parametrize("cpus", [8, 12, 16, 31, 64, 192])
def test_all_kinds_of_work_together_use_the_cpus_there_are(cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares_module, "allowed_cpus", lambda: cpus)
    assert sum(thread_shares(Settings())) == cpus


@pytest.mark.parametrize("cpus", [4, 7])
def test_few_cpus_leave_each_kind_of_work_one_thread(cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares_module, "allowed_cpus", lambda: cpus)
    shares = thread_shares(Settings())
    assert min(shares) == 1
    assert shares.prepare + shares.encode == cpus


@pytest.mark.parametrize("cpus", [1, 2, 3])
def test_very_few_cpus_are_all_the_towers(cpus: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares_module, "allowed_cpus", lambda: cpus)
    assert thread_shares(Settings()) == (1, cpus, 1)


def test_settings_overrule_the_shares() -> None:
    assert thread_shares(Settings(prepare_threads=3, encode_threads=5, search_threads=7)) == (3, 5, 7)


async def test_towers_take_turns(data: Path) -> None:
    encoder = WatchedEncoder()
    async with run_server(data, encoder, max_delay_ms=0) as served:
        encoder.hold()
        first = asyncio.ensure_future(served.embed(picture("red")))
        await encoder.entered()
        second = asyncio.ensure_future(served.embed("a text"))
        await until(lambda: _waits_for_the_text_tower(served))
        assert encoder.text_batches == []
        encoder.release()
        await asyncio.gather(first, second)
        assert (encoder.image_batches, encoder.text_batches) == ([1], [1])


def _waits_for_the_text_tower(served: Running) -> bool:
    engine = served.app.engine
    return len(engine.texts) == 1 and len(engine._towers) == 1
