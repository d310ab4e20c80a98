"""What the core knows of the call it works for."""

from __future__ import annotations

import time
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Protocol

from twinlens.server.core.caller import Caller
from twinlens.server.core.lanes import Priority


class CallTrace(Protocol):
    """Where a call's time goes, for whoever traces it."""

    def add(self, stage: str, began_s: float, ended_s: float, **facts: str | int) -> None:
        """Tells of a stage that is over; from any thread. Times are those of `time.monotonic` and the event loop."""


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    Attributes:
        request_id: Joins a reply to the log.
        deadline_s: When nobody waits for the answer any more, in the event loop's time; None: no deadline.
        priority: Interactive calls overtake bulk ones.
        caller: The name of the token it came with; empty: it came without.
        rights: What its caller may do; None: everything.
        trace: Told where its time goes; None: nobody asks.
    """

    request_id: str = "-"
    deadline_s: float | None = None
    priority: Priority = Priority.INTERACTIVE
    caller: str = ""
    rights: Caller | None = None
    trace: CallTrace | None = None

    @property
    def expired(self) -> bool:
        """Whether nobody waits for the answer any more. The clock of the event loop is this one."""
        return self.deadline_s is not None and self.deadline_s <= time.monotonic()


_CURRENT: ContextVar[Call] = ContextVar("twinlens_call", default=Call())  # noqa: B039 - frozen


def current_call() -> Call:
    """The call that the running task works for."""
    return _CURRENT.get()


def set_current_call(call: Call) -> None:
    """Marks the running task, and those it starts, as working for a call."""
    _CURRENT.set(call)
