"""What the core knows of the call it works for."""

from __future__ import annotations

from contextvars import ContextVar
from dataclasses import dataclass

from twinlens.server.core.lanes import Priority


@dataclass(frozen=True, slots=True)
class Call:
    """One call.

    Attributes:
        request_id: Joins a reply to the log.
        deadline_s: When nobody waits for the answer any more, in the event loop's time; None: no deadline.
        priority: Interactive calls overtake bulk ones.
    """

    request_id: str = "-"
    deadline_s: float | None = None
    priority: Priority = Priority.INTERACTIVE


_CURRENT: ContextVar[Call] = ContextVar("twinlens_call", default=Call())  # noqa: B039 - frozen


def current_call() -> Call:
    """The call that the running task works for."""
    return _CURRENT.get()


def set_current_call(call: Call) -> None:
    """Marks the running task, and those it starts, as working for a call."""
    _CURRENT.set(call)
