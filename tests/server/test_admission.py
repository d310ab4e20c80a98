from __future__ import annotations

from contextlib import ExitStack

import pytest

from twinlens.server.core import admission as admission_module
from twinlens.server.core.admission import Admission
from twinlens.server.core.call import Call
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.telemetry import Telemetry


class Clock:
    now_s = 0.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(admission_module, "time", clock)
    return clock


def refused(telemetry: Telemetry, why: str) -> float:
    return telemetry.registry.get_sample_value("twinlens_refused_calls_total", {"why": why}) or 0.0


def test_bytes_are_counted_and_a_request_that_is_alone_is_always_taken() -> None:
    admission = Admission(max_items=10, max_bytes=100)
    with admission.admit(1, 1000):
        with pytest.raises(ServiceError) as caught, admission.admit(1, 1):
            pass
        assert caught.value.code is Code.RESOURCE_EXHAUSTED
    with admission.admit(1, 60), admission.admit(1, 40), pytest.raises(ServiceError), admission.admit(1, 1):
        pass
    with admission.admit(1, 100):
        assert admission.items == 1
    assert admission.items == 0


def test_a_queue_that_stands_refuses_its_kind_alone(clock: Clock) -> None:
    telemetry = Telemetry()
    admission = Admission(10_000, 2**30, telemetry=telemetry)
    with ExitStack() as inside:
        for _ in range(200):
            inside.enter_context(admission.admit(1, 1, pictures=True))
        clock.now_s = 1.0
        with pytest.raises(ServiceError) as caught, admission.admit(1, 1, pictures=True):
            pass
        assert caught.value.code is Code.RESOURCE_EXHAUSTED
        assert caught.value.retry_after_s is not None
        assert caught.value.retry_after_s > 0
        with admission.admit(1, 1):  # a text
            assert admission.items == 201
    assert refused(telemetry, "wait") == 1


def test_a_caller_with_too_little_time_is_refused_before_others(clock: Clock) -> None:
    admission = Admission(10_000, 2**30, max_wait_s=60.0)
    with ExitStack() as inside:
        calls = [ExitStack() for _ in range(300)]
        for call in calls:
            inside.enter_context(call).enter_context(admission.admit(1, 1, pictures=True))
        for call in calls[:100]:
            clock.now_s += 0.01
            call.close()
        with admission.admit(1, 1, pictures=True, call=Call(deadline_s=clock.now_s + 10)):
            pass
        late = Call(deadline_s=clock.now_s + 1)
        with pytest.raises(ServiceError), admission.admit(1, 1, pictures=True, call=late):
            pass


def test_large_calls_leave_room_for_small_ones() -> None:
    telemetry = Telemetry()
    admission = Admission(2048, 2**30, telemetry=telemetry)
    with admission.admit(1000, 1), admission.admit(900, 1):
        with pytest.raises(ServiceError), admission.admit(100, 1):
            pass
        with admission.admit(16, 1):
            assert admission.items == 1916
    assert refused(telemetry, "items") == 1


def hint(admission: Admission, items: int, size_bytes: int = 1, *, fetches: bool = False) -> float:
    with pytest.raises(ServiceError) as caught, admission.admit(items, size_bytes, fetches=fetches):
        pass
    assert caught.value.retry_after_s is not None
    return caught.value.retry_after_s


@pytest.mark.parametrize(("every_s", "told_s"), [(2.0, 232 / 200), (20.0, 5.0), (0.001, 0.05)])
def test_a_large_call_is_told_when_those_inside_will_have_left_room_for_it(
    clock: Clock, every_s: float, told_s: float
) -> None:
    admission = Admission(2048, 1000)
    with ExitStack() as inside:
        calls = [inside.enter_context(ExitStack()) for _ in range(4)]
        for call in calls:
            call.enter_context(admission.admit(400, 200))
        for i in range(100):
            clock.now_s += every_s
            calls[i % 4].close()
            calls[i % 4].enter_context(admission.admit(400, 200))
        assert hint(admission, 600) == pytest.approx(told_s, rel=0.1)
        assert hint(admission, 600, fetches=True) == hint(admission, 600)
        # 100 bytes too many, as the items of a quarter of a call hold them.
        assert hint(admission, 20, 300) == pytest.approx(min(5.0, max(0.05, every_s / 2)), rel=0.1)
        assert hint(admission, 1, 300) == 0.25  # a small call, for which there is room as soon as any of them leaves


def test_before_anything_large_came_out_it_may_take_as_long_again(clock: Clock) -> None:
    admission = Admission(2048, 1000)
    with admission.admit(1500, 1):
        assert hint(admission, 600) == 0.05
        clock.now_s = 1.0
        assert hint(admission, 600) == pytest.approx(1.0, rel=0.1)
        clock.now_s = 60.0
        assert hint(admission, 600) == 5.0


def test_calls_that_fetch_say_nothing_of_how_long_others_wait_and_leave_room_for_them(clock: Clock) -> None:
    telemetry = Telemetry()
    admission = Admission(400, 2**30, telemetry=telemetry)
    with ExitStack() as inside:
        for _ in range(320):
            inside.enter_context(admission.admit(1, 1, pictures=True, fetches=True))
        clock.now_s = 1.0
        with pytest.raises(ServiceError), admission.admit(1, 1, pictures=True, fetches=True):
            pass
        assert refused(telemetry, "items") == 1
        with admission.admit(16, 1, pictures=True):
            assert admission.items == 336


def test_searches_that_hang_in_one_collection_keep_out_nobody_else(clock: Clock) -> None:
    """A tower that runs batches of 16 texts in 9 ms, half as many callers as it could take, and a collection that does
    not answer any more."""
    telemetry = Telemetry()
    admission = Admission(10_000, 2**30, telemetry=telemetry)
    with ExitStack() as hanging:
        for _ in range(150):
            hanging.enter_context(admission.admit(1, 1, collection="slow")).embedded()
        for turn in range(2000):
            with ExitStack() as batch:
                places = [
                    batch.enter_context(admission.admit(1, 1, collection="quick" if i % 2 else ""))
                    for i in range(16 if turn % 100 else 90)  # now and then a burst
                ]
                clock.now_s += 0.009 * len(places) / 16
                for place in places:
                    place.embedded()
                clock.now_s += 0.001
            clock.now_s += 0.008
        assert refused(telemetry, "wait") == 0
        # Who wants something of that collection is told so at once, whether or not there is anything to embed.
        for embeds in (True, False):
            with pytest.raises(ServiceError) as caught, admission.admit(1, 1, collection="slow", embeds=embeds):
                pass
            assert caught.value.retry_after_s == 5.0
    with admission.admit(1, 1, collection="slow"):
        assert admission.items == 1


def test_searches_that_wait_for_a_slow_index_are_held_to_the_wait(clock: Clock) -> None:
    admission = Admission(10_000, 2**30)
    with ExitStack() as inside:
        calls = [inside.enter_context(ExitStack()) for _ in range(300)]
        for call in calls:
            call.enter_context(admission.admit(1, 1, collection="photos")).embedded()
        for call in calls[:100]:
            clock.now_s += 0.01
            call.close()
        with pytest.raises(ServiceError) as caught, admission.admit(1, 1, collection="photos"):
            pass
        assert caught.value.retry_after_s == pytest.approx((201 - 25) / 100, rel=0.05)  # 100 a second, a quarter of one
        with admission.admit(1, 1, collection="others"), admission.admit(1, 1):
            pass


def test_what_is_inside_is_told_to_the_metrics() -> None:
    telemetry = Telemetry()
    admission = Admission(10, 100, telemetry=telemetry)
    with admission.admit(3, 50):
        assert telemetry.registry.get_sample_value("twinlens_items_in_flight") == 3
        assert telemetry.registry.get_sample_value("twinlens_bytes_in_flight") == 50
        with pytest.raises(ServiceError), admission.admit(1, 51):
            pass
        with pytest.raises(ServiceError), admission.admit(8, 1):
            pass
    assert (refused(telemetry, "bytes"), refused(telemetry, "items")) == (1, 1)
    assert telemetry.registry.get_sample_value("twinlens_items_in_flight") == 0
