"""Worker threads for blocking work: decoding, tokenising, running a tower, SQLite and FAISS."""

from __future__ import annotations

import asyncio
import itertools
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import ParamSpec, TypeVar

from twinlens.index.interruption import abandonable
from twinlens.server.core.errors import Code, ServiceError
from twinlens.server.core.forked import OwnProcess
from twinlens.server.core.job import Job
from twinlens.server.core.lanes import Lanes, Priority
from twinlens.server.core.patience import Patience, Watch, thread_cpu_s
from twinlens.server.core.usual_times import UsualTimes

log = logging.getLogger(__name__)

P = ParamSpec("P")
R = TypeVar("R")

# Threads cannot be ended from outside: so many stuck ones are left behind, then no more are started.
_MOST_LEFT = 8
_RETRY_AFTER_S = 1.0


@dataclass(frozen=True, slots=True)
class Trouble:
    """What was wrong with a worker, in one line for the log; `replaced`: another took its place."""

    message: str
    replaced: bool = True


@dataclass(slots=True, eq=False)
class _Worker:
    """A thread and what it is at; `begun` counts its pieces of work, `left`: it is to take no more.

    `renews`: it makes anew what the one before it used, and has not begun to work.
    """

    renews: bool
    thread: threading.Thread = field(init=False)
    job: Job | None = None
    begun: int = 0
    left: bool = False
    given_up: bool = False
    watch: Watch = field(default_factory=Watch)


class WorkerPool:
    """A fixed number of daemon threads fed by two priority lanes.

    Work whose caller went away before it began is skipped; work that began runs to its end, but for looking at every
    item of a collection, which ends early. A thread that ends is replaced at once, a stuck one when `look` finds it.

    Args:
        name: For threads, logs and metrics.
        threads: How many.
        size_of: How much there is to do, given the arguments of a job that runs; with it the pool knows how long each
            kind of work (`__qualname__`) usually takes. 0: not known.
        on_replaced: What a thread does first that takes the place of another: whatever the other one used may be what
            it was stuck in. Where that fails or hangs, work goes on with what there is.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        *,
        size_of: Callable[..., int] | None = None,
        on_replaced: Callable[[], None] | None = None,
    ) -> None:
        self.name = name
        self._count = threads
        self._size_of = size_of
        self._on_replaced = on_replaced
        self._process = OwnProcess("the server")
        self._lanes: Lanes[Job] = Lanes()
        self._ready = threading.Condition()
        self._closed = False
        self._numbers = itertools.count()
        self._workers: list[_Worker] = []
        self._left: list[_Worker] = []
        self._troubles: list[Trouble] = []
        self._usual = UsualTimes()  # of one unit
        for _ in range(threads):
            self._start(renews=False)

    def __len__(self) -> int:
        """How much work has not begun."""
        with self._ready:
            return len(self._lanes)

    @property
    def unit_s(self) -> float:
        """How long a unit of work usually takes, of the slowest kind; 0 where that is not known."""
        with self._ready:
            return self._usual.slowest

    def submit(self, priority: Priority, work: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> asyncio.Future[R]:
        """Queues `work(*args, **kwargs)`; await the returned future, cancel it to withdraw.

        The future fails with what the work raises, or with UNAVAILABLE if its worker got stuck or ended.

        Raises:
            RuntimeError: after `close`.
            ForkedProcess: in a fork of the process that made the pool.
        """
        self._process.check()  # before the lock, which may be held for ever there
        loop = asyncio.get_running_loop()
        future: asyncio.Future[R] = loop.create_future()
        size_of = self._size_of
        size = None if size_of is None else lambda: size_of(*args, **kwargs)
        kind = "" if size_of is None else getattr(work, "__qualname__", "")
        job = Job(lambda: work(*args, **kwargs), future, loop, kind, size)
        with self._ready:
            if self._closed:
                raise RuntimeError("the worker pool is closed")
            self._lanes.push(priority, job)
            self._ready.notify()
        return future

    def look(self, patience: Patience, seen_s: float) -> Sequence[Trouble]:
        """Replaces workers that are stuck; to be called a few times a second.

        The future of stuck work fails with UNAVAILABLE. Its thread is left behind, and takes no more work should it
        ever come back.

        Args:
            patience: When work counts as stuck.
            seen_s: How long ago it was called before, as far as this process ran meanwhile.

        Returns:
            What went wrong since then, with workers that ended and were replaced already.
        """
        with self._ready:
            if self._closed:
                return ()
            self._left = [worker for worker in self._left if worker.thread.is_alive()]
            at_work = [(worker, job) for worker in self._workers if (job := worker.job) is not None]
            for worker, _ in at_work:
                worker.watch.look(worker.begun, thread_cpu_s(worker.thread), seen_s)
            renewing = [worker for worker in self._workers if worker.renews]
            for worker in (*renewing, *self._left):  # the latter may come back, and then it counts how long they took
                worker.watch.look(worker.begun, None, seen_s)
            for worker, job in at_work:
                if patience.is_out(worker.watch, self._usually_s(job)):
                    self._leave(worker, "is stuck", job)
            if len(at_work) == self._count and all(
                worker.watch.blocked_s > patience.all_blocked_s for worker, _ in at_work
            ):
                # What is next needs others. What these wait for, a disk say, may come all the same.
                for worker, _ in at_work:
                    self._leave(worker, "waits, as all of its kind do,")
            hangs = [worker for worker in renewing if worker.watch.watched_s > patience.renew_s]
            for worker in hangs:
                self._leave(worker, "makes anew what it uses")
            self._fill(renews=not hangs)
            troubles, self._troubles = self._troubles, []
        return troubles

    def close(self, wait_s: float | None = None) -> None:
        """Withdraws what has not begun and waits for what has, at most `wait_s` (None: as long as it takes)."""
        if not self._process.is_this:
            return
        with self._ready:
            self._closed = True
            withdrawn = self._lanes.drain()
            self._ready.notify_all()
        for job in withdrawn:
            job.withdraw()
        give_up_s = None if wait_s is None else time.monotonic() + wait_s
        for worker in self._workers:
            worker.thread.join(None if give_up_s is None else max(0.0, give_up_s - time.monotonic()))
            if worker.thread.is_alive():
                log.error("%s is stuck; it is left behind", worker.thread.name)

    def _start(self, *, renews: bool) -> None:
        worker = _Worker(renews and self._on_replaced is not None)
        name = f"twinlens-{self.name}-{next(self._numbers)}"
        worker.thread = threading.Thread(target=self._run, args=(worker,), name=name, daemon=True)
        worker.thread.start()
        self._workers.append(worker)

    def _fill(self, *, renews: bool = True) -> None:
        """Starts what is missing; the caller holds the lock."""
        while len(self._workers) < self._count and not self._closed:
            try:
                self._start(renews=renews)
            except RuntimeError as error:  # the system has no thread left; the next look tries again
                self._troubles.append(Trouble(f"{self.name}: {error}", replaced=False))
                return

    def _leave(self, worker: _Worker, why: str, failing: Job | None = None) -> None:
        """Goes on without a worker; the caller holds the lock, and then fills its place."""
        what = f"{worker.thread.name} {why} since {worker.watch.watched_s:.1f} s"
        if len(self._left) >= _MOST_LEFT:
            if not worker.given_up:
                worker.given_up = True
                message = f"{what}; {len(self._left)} were replaced before it and never came back: restart the server"
                self._troubles.append(Trouble(message, replaced=False))
            return
        worker.left = True
        self._workers.remove(worker)
        self._left.append(worker)
        self._troubles.append(Trouble(f"{what}; another takes its place"))
        if failing is not None:
            failing.fail(_lost())

    def _run(self, worker: _Worker) -> None:
        try:
            if worker.renews:
                self._renew()
                worker.renews = False
            while (job := self._next(worker)) is not None:
                self._do(worker, job)
                del job  # pictures are large: do not hold one while waiting for the next
        except BaseException as error:  # SystemExit of a library, say, which ends a thread without a word
            self._ended(worker, error)

    def _renew(self) -> None:
        assert self._on_replaced is not None  # noqa: S101 - `_start` looked
        try:
            self._on_replaced()
        except BaseException:  # whatever it is: ended for it, the next thread would end as well, and the one after
            log.exception("what the workers of %s use could not be made anew; they go on with what there is", self.name)

    def _next(self, worker: _Worker) -> Job | None:
        with self._ready:
            while not worker.left:
                lane = self._lanes.choose()
                if (job := self._lanes.pop(lane)) is not None:
                    self._lanes.turn_taken(lane)
                    worker.begun += 1
                    worker.job = job
                    return job
                if self._closed:
                    return None
                self._ready.wait()
            return None

    def _do(self, worker: _Worker, job: Job) -> None:
        tell: Callable[[], None] | None = None
        if not job.future.cancelled():
            began_s = time.monotonic()
            try:
                with abandonable(job.future.cancelled):
                    result = job.work()
            except Exception as error:
                tell = partial(job.fail, error)
            else:
                self._note(worker, job, time.monotonic() - began_s)
                tell = partial(job.succeed, result)
        worker.job = None  # before anybody can know that it is done
        if tell is not None:
            tell()
        # A failure refers to this frame by its traceback: it is not to refer back, or the picture that failed would
        # stay until the collector of garbage looks at it, which may be many large pictures later.
        del job, tell

    def _note(self, worker: _Worker, job: Job, took_s: float) -> None:
        """Learns how long work takes; of what was taken for stuck and was not, that the next like it is not to be."""
        if job.size is not None and (size := job.size()) > 0:
            with self._ready:
                if worker.left:  # and without the time in which the process was stopped
                    took_s = min(took_s, worker.watch.watched_s)
                self._usual.note(job.kind, took_s / size, late=worker.left)

    def _usually_s(self, job: Job) -> float:
        """How long a piece of work that runs takes as a rule; 0 where that is not known."""
        return 0.0 if job.size is None else self._usual.of(job.kind) * job.size()

    def _ended(self, worker: _Worker, error: BaseException) -> None:
        message = f"{worker.thread.name} ended with {type(error).__name__}; another takes its place"
        log.error("%s", message, exc_info=error)
        job, worker.job = worker.job, None
        with self._ready:
            if not worker.left:
                worker.left = True
                self._workers.remove(worker)
                self._troubles.append(Trouble(message))
                self._fill()
        if job is not None:
            job.fail(_lost())


def _lost() -> ServiceError:
    return ServiceError(
        Code.UNAVAILABLE,
        "the worker that was at this broke down and was replaced; try again",
        retry_after_s=_RETRY_AFTER_S,
    )
