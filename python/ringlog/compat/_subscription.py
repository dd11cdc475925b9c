"""Subscription: a handler, the events that wait for it, and its reading of the log.

    publish here ──────────────▶ queue ─▶ breaker ─▶ handler, up to 4 attempts ─▶ done
    log ─▶ reader ─▶ not ours? ──▶ │                                               │
                     ours ──────────────────────────────────────────────▶ commit, or dead letter

Events are handled one after the other, and wait while the circuit breaker of the handler is open.
A durable subscription reads a cursor of its own, and commits an event once all before it are done;
a live one follows the end of the log.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextvars
import functools
import inspect
import logging
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ringlog._core.cause import caused_by
from ringlog.client import Cursor, Tail
from ringlog.compat._event import DataEvent, Selection, from_log
from ringlog.errors import Closed, Conflict, Fenced, NotFound, RinglogError
from ringlog.event import Event as StoredEvent
from ringlog.event import Json, error_text

if TYPE_CHECKING:
    from ringlog.compat._router import UnifiedEventRouter

Handler = Callable[[Any], Any]
"""Takes a DataEvent; a function or a coroutine function."""

MAX_WAITING = 256  # events of the log that wait for a handler; the reader waits then
COMMIT_EVERY = 64  # events, while more are waiting
CANCEL_TIMEOUT = 5.0  # seconds that a coroutine may take to end, beside its timeout, before an attempt counts as failed
MAX_LAST_ERROR = 200  # characters of the last error that are registered; nodes clip it to as many bytes
MIN_SETTLE = 0.5  # seconds that the last commit of a subscription may take
RECONNECT_PAUSE = 1.0  # seconds between attempts to reach the log

inside_handler: contextvars.ContextVar[bool] = contextvars.ContextVar("ringlog_inside_handler", default=False)
logger = logging.getLogger("ringlog")


class Task:
    """An event on its way through a subscription."""

    def __init__(self, event: DataEvent, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.event, self.loop = event, loop
        self.attempts = 0
        self.returning = False  # the cursor of the subscription is to meet it
        self.letter_waits = ""  # the error of a handler whose letter waits until the log has the event
        self.tried: Future[None] = Future()  # the first attempt has ended, or the breaker holds it back
        self.done: Future[str] = Future()  # "" or the error after the last attempt


class _Call:
    """One call of the handler."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.result: Future[None] = Future()
        self.canceled = False
        self.cancel: Callable[[], Any] | None = None  # only of a coroutine


def handler_name(handler: Handler) -> str:
    """Return the name of a handler, such as Promoter.on_training."""
    while isinstance(handler, functools.partial):
        handler = handler.func
    name = getattr(handler, "__qualname__", type(handler).__qualname__)
    return re.sub(r"[^\w.-]+", "_", name.rpartition("<locals>.")[2]).strip("_")


def _is_async(handler: Handler) -> bool:
    return inspect.iscoroutinefunction(handler) or inspect.iscoroutinefunction(getattr(handler, "__call__", None))  # noqa: B004


class Subscription:
    """A handler with the events that it is to handle."""

    def __init__(
        self, router: UnifiedEventRouter, selection: Selection, handler: Handler, timeout: float, critical: bool
    ) -> None:
        self.router, self.selection, self.handler = router, selection, handler
        self.timeout, self.critical = timeout, critical
        self.handler_name = handler_name(handler)
        self.name = f"{self.handler_name}.{selection.label}"
        self.attached = threading.Event()
        self.error = ""  # why the log is not read, "" while it is
        self.state = "connecting"  # as a registration has it
        self.handled = self.failed = 0
        self.timed_out = self.failed_attempts = 0
        self.last_error, self.last_error_at = "", ""  # of an attempt, and when, as a registration has them
        self.closed = False  # takes no further events
        self._ended = False  # reports no more
        self._async = _is_async(handler)
        try:
            self._home: asyncio.AbstractEventLoop | None = asyncio.get_running_loop()
        except RuntimeError:
            self._home = None
        self._lock = threading.Lock()
        self._room = threading.Condition(self._lock)
        self._queue: deque[Task] = deque()
        self.breaker = router._new_breaker(self)
        self._letters_waiting: list[Task] = []
        self._busy = False
        self._call: _Call | None = None  # that has not returned
        self._settling: deque[tuple[int, Task]] = deque()  # of the cursor, in order
        self._settle_lock = threading.Lock()
        self._handled_to = 0  # the last offset that is done
        self._uncommitted = 0  # events up to it
        self._returning = 0  # events published here that the cursor has not met yet
        self._read_to = 0  # the last offset that the cursor has met
        self._cursor: Cursor | None = None
        self._tail: Tail | None = None
        self._letters: Cursor | None = None

    # Handling.

    def put(self, task: Task) -> None:
        """Queue an event."""
        with self._lock:
            self._queue.append(task)
            if self.breaker.open_for() > 0:
                self._hold_back([task])
            if self._busy:
                return
            self._busy = True
        threading.Thread(target=self._drain, name=f"ringlog-{self.name}", daemon=True).start()

    def _drain(self) -> None:
        """Handle what is queued, and end."""
        while True:
            with self._lock:
                if not self._queue or self.closed:
                    self._busy = False
                    self._room.notify_all()
                    return
                task = self._queue.popleft()
                self._room.notify_all()
            self._handle(task)
            self._settle()

    def _handle(self, task: Task) -> None:
        """Give an event to the handler until it succeeds or the attempts are exhausted."""
        error: BaseException | None = None
        text = ""
        for delay in (0.0, *self.router.retry_delays):
            if (delay and self.router.closing.wait(delay)) or not self._enter(task):
                return  # neither done nor failed: a durable subscription gets it again
            task.attempts += 1
            try:
                error = self._attempt(task)
            except Exception as e:  # as of an event loop that was closed
                error = e
            text = "" if error is None else error_text(error)
            self.breaker.leave(text, first=task.attempts == 1)
            self._hold_back([task])
            if error is None:
                break
            self.failed_attempts += 1
            self.last_error, self.last_error_at = text[:MAX_LAST_ERROR], datetime.now(timezone.utc).isoformat()
            logger.warning("%s: attempt %d of %s failed: %s", self.name, task.attempts, task.event.name, text)
        if error is None:
            self.handled += 1
            task.done.set_result("")
            return
        self.failed += 1
        try:
            dead = bool(self._cursor) or self._bury(task, text)
            if dead or not task.letter_waits:
                self.router._report_failed(self, task, text, dead)
        except Exception:  # the next event is handled all the same
            logger.exception("%s: the failure of %s is not reported", self.name, task.event.name)
        task.done.set_result(text)

    def _enter(self, task: Task) -> bool:
        """Wait until the breaker lets an attempt through; False if the subscription ends before that."""
        if self.breaker.open_for() > 0:
            # Nobody waits for events that nobody handles now.
            with self._lock:
                self._hold_back([task, *self._queue])
            self._settle(final=True)
            logger.warning("%s: not called for %.0f s: its circuit breaker is open", self.name, self.breaker.open_for())
        with self._room:
            while (seconds := self.breaker.open_for()) > 0:
                if self._room.wait_for(lambda: self.closed or self.router.closing.is_set(), seconds):
                    return False
        self.breaker.enter()
        return True

    @staticmethod
    def _hold_back(tasks: list[Task]) -> None:
        """Let nobody wait for the first attempts at events."""
        for task in tasks:
            if not task.tried.done():
                task.tried.set_result(None)

    def _attempt(self, task: Task) -> BaseException | None:
        """Call the handler once, and return how it failed."""
        late = TimeoutError(f"the handler has not returned within {self.timeout:g} s")
        call = self._call
        if call is not None and (call.task is not task or call.cancel is not None):
            # The handler has not returned from an earlier call, and is not run beside itself. A coroutine that was
            # canceled may take a while to end.
            concurrent.futures.wait([call.result], self.timeout + (0 if call.cancel is None else CANCEL_TIMEOUT))
            if not call.result.done():
                self.router._report_timeout(self, task)
                return late
            if call.task is not task or call.result.exception() is not None:
                call = None
        elif call is not None and call.result.done() and call.result.exception() is not None:
            call = None
        if call is None:
            call = self._call = self._start(task)
        concurrent.futures.wait([call.result], self.timeout)
        if not call.result.done():
            call.canceled = True
            if call.cancel is not None:
                call.cancel()
            self.router._report_timeout(self, task)
            return late
        self._call = None
        return call.result.exception()

    def _start(self, task: Task) -> _Call:
        """Start the handler: a coroutine function in its event loop, another in a thread of its own."""
        call = _Call(task)
        if self._async:
            self._start_coroutine(call, self.handler)
            return call

        def run() -> None:
            inside_handler.set(True)
            try:
                with caused_by(task.event):
                    result = self.handler(task.event)
            except BaseException as e:
                call.result.set_exception(e)
                return
            if inspect.isawaitable(result):
                self._start_coroutine(call, lambda _: result)
            else:
                call.result.set_result(None)

        threading.Thread(
            target=contextvars.Context().run, args=(run,), name=f"ringlog-{self.name}-call", daemon=True
        ).start()
        return call

    def _start_coroutine(self, call: _Call, handler: Handler) -> None:
        """Run a coroutine in the loop that subscribed or published, else in the router's own."""
        candidates = (self._home, call.task.loop)
        loop = next((each for each in candidates if each is not None and each.is_running()), None) or self.router.loop()

        async def run() -> None:
            inside_handler.set(True)
            with caused_by(call.task.event):
                await handler(call.task.event)

        def finish(running: asyncio.Task[None]) -> None:
            if running.cancelled():
                call.result.set_exception(TimeoutError("canceled"))
            elif error := running.exception():
                call.result.set_exception(error)
            else:
                call.result.set_result(None)

        def start() -> None:
            if call.canceled:  # the loop was busy for longer than the handler may take
                call.result.set_exception(TimeoutError("canceled"))
                return
            running = loop.create_task(run())
            running.add_done_callback(finish)
            call.cancel = lambda: loop.call_soon_threadsafe(running.cancel)

        loop.call_soon_threadsafe(start, context=contextvars.Context())

    # Reading the log.

    def start(self) -> None:
        """Begin to read the log."""
        target = self._read_cursor if self.router.name else self._read_live
        threading.Thread(target=self._read, args=(target,), name=f"ringlog-{self.name}-read", daemon=True).start()

    def _read(self, body: Callable[[], None]) -> None:
        """Read until the subscription ends; a log that is away is tried again."""
        while not self.closed:
            try:
                body()
            except Closed:
                return
            except RinglogError as e:
                self.error = str(e)
                self.attached.clear()
                if not e.retryable:
                    self.state = "fenced" if isinstance(e, Fenced) else "refused"
                self.router._registration.change()
                logger.warning("%s: does not read the log: %s", self.name, e)
                if not e.retryable:
                    return
            self.router.closing.wait(RECONNECT_PAUSE)

    def _read_live(self) -> None:
        """Follow the end of the log, and the events of dead letters that are delivered again."""
        try:
            self.router.log.get_cursor(self._letters_name)
        except NotFound:
            pass
        else:
            self._follow_letters()
        with self.router.log.tail("end", types=self.selection.types) as self._tail:
            self._note_attached()
            for event in self._tail:
                task = self.router._own_task(event, self)
                if task is None:
                    self._put_read(Task(from_log(event)))
                elif error := self._take_waiting_letter(task):
                    self.router._report_failed(self, task, error, self._bury(task, error))

    def _read_cursor(self) -> None:
        """Read the cursor of this subscription, which begins where the subscription was first made."""
        name = f"{self.router.name}.{self.name}"
        self._settling.clear()
        with self.router.log.cursor(name, types=self.selection.types, from_="end") as self._cursor:
            self._note_attached()
            for event in self._cursor:
                task = self.router._own_task(event, self)
                self._read_to = event.offset
                with self._settle_lock:
                    self._settling.append((event.offset, task or Task(from_log(event))))
                    new = self._settling[-1][1]
                if task is None:
                    self._put_read(new)
                else:
                    self._settle()
                    self.note_returned(task)
                    if error := self._take_waiting_letter(task):
                        self.router._report_failed(self, task, error, True)

    def _note_attached(self) -> None:
        self.error, self.state = "", "attached"
        self.router._note_attached(self)
        self.attached.set()

    def _put_read(self, task: Task) -> None:
        """Queue an event of the log, after a wait for room."""
        self.router._note(task.event)
        with self._room:
            self._room.wait_for(lambda: len(self._queue) < MAX_WAITING or self.closed)
        if self.closed:
            raise Closed("the subscription is closed")
        self.put(task)

    def put_own(self, task: Task) -> None:
        """Queue an event that is published here, and that the cursor will meet."""
        with self._lock:
            task.returning = bool(self.router.name)
            self._returning += task.returning
        self.put(task)

    def note_returned(self, task: Task) -> None:
        """Note that the cursor has met an event that was published here, or never will."""
        with self._room:
            self._returning -= task.returning
            task.returning = False
            self._room.notify_all()

    def has_met(self, offset: int) -> bool:
        """Report whether the cursor is past an offset."""
        return offset <= self._read_to

    def _settle(self, final: bool = False) -> None:
        """Commit what is done up to the first event that is not, and make what failed a dead letter at its turn."""
        cursor = self._cursor
        if cursor is None or self._ended:
            return
        with self._settle_lock:
            try:
                while self._settling and self._settling[0][1].done.done():
                    offset, task = self._settling[0]
                    if error := task.done.result():
                        cursor.dead_letter(error, event=offset, attempts=task.attempts, handler=self.handler_name)
                        self._uncommitted = 0
                    else:
                        self._handled_to = offset
                        self._uncommitted += 1
                    self._settling.popleft()
                if self._uncommitted and (final or self._uncommitted >= COMMIT_EVERY or not self._queue):
                    cursor.commit(self._handled_to)
                    self._uncommitted = 0
            except RinglogError as e:
                # What is not committed is delivered again by the next reading.
                self.error = str(e)
                logger.warning("%s: not committed: %s", self.name, e)

    # Dead letters of a live subscription.

    @property
    def _letters_name(self) -> str:
        return f"live.{self.name}"

    def _bury(self, task: Task, error: str) -> bool:
        """Make an event of a live subscription a dead letter; False if the log does not have the event.

        The letter of one that may still come to the log waits for that: task.letter_waits.
        """
        offset = self.router._offset_of(task.event)
        comes = not offset and self.router._awaits(task.event)
        with self._lock:
            # What is spooled has its offset once the reader meets it, maybe by now.
            offset = offset or task.event.offset
            if not offset and comes:
                task.letter_waits = error
                self._letters_waiting.append(task)
            if not offset:
                return False
        past = False
        for _ in range(3):
            try:
                if past:
                    self.router.log.seek_cursor(self._letters_name, offset)
                    past = False
                if self._letters is None:
                    self._follow_letters(offset)
                assert self._letters is not None
                self._letters.dead_letter(error, event=offset, attempts=task.attempts, handler=self.handler_name)
                return True
            except Conflict:
                # The cursor is past the event, as one that was published later has failed before.
                self._letters, past = None, True
            except (Fenced, Closed):
                self._letters = None  # another process has the letters of this handler now
            except RinglogError as e:
                logger.error("%s: event %d is not kept as a dead letter: %s", self.name, offset, e)
                return False
        return False

    def _take_waiting_letter(self, task: Task) -> str:
        """Return the error of an event whose letter waited until the log has it, "" for another event."""
        with self._lock:
            if task not in self._letters_waiting:
                return ""
            self._letters_waiting.remove(task)
            return task.letter_waits

    def _follow_letters(self, offset: int = 1) -> None:
        """Open the cursor that has the dead letters of this handler, and read what is delivered again.

        Its filter lets no event through, so that it holds nothing back; a redriven event comes all the same.
        """
        cursor = self.router.log.cursor(self._letters_name, sources=["ringlog.compat/none"], from_=offset)
        cursor.__enter__()
        self._letters = cursor

        def read() -> None:
            try:
                for event in cursor:
                    task = Task(from_log(event))
                    self.put(task)
                    if not task.done.result():
                        cursor.commit(event.offset)
            except RinglogError as e:
                if self._letters is cursor:
                    self._letters = None
                logger.debug("%s: %s", self._letters_name, e)

        threading.Thread(target=read, name=f"ringlog-{self.name}-letters", daemon=True).start()

    def describe(self) -> Json:
        """Return what the cluster is to know: the schema Subscription."""
        about: Json = {
            "name": self.name,
            "filter": {"types": self.selection.types},
            "mode": "durable" if self.router.name else "live",
            "critical": self.critical,
            "state": self.state,
            "handler_timeout_seconds": self.timeout,
        }
        health: Json = {"timed_out": self.timed_out, "failed_attempts": self.failed_attempts}
        health["breaker"] = self.breaker.state
        if self.last_error_at:
            health |= {"last_error": self.last_error, "last_error_at": self.last_error_at}
        about["health"] = health
        if self.router.name:
            about["cursor"] = f"{self.router.name}.{self.name}"
        return about

    def close(self, timeout: float = 0.0) -> None:
        """End the reading once what waits is handled, or after timeout seconds; the cursor keeps what is committed.

        A durable subscription first meets what was published and handled here, so that it is committed, too.
        """
        until = time.monotonic() + timeout
        with self._room:
            self._room.notify_all()  # the router may be closing
            if not inside_handler.get():
                self._room.wait_for(lambda: not self._returning and not self._busy, max(0.0, timeout))
            self.closed = True
            self._room.notify_all()
        self.breaker.close()
        # Without the cluster the last commit would take the client's timeout: what it has not is delivered again.
        settling = threading.Thread(target=self._settle, args=(True,), name=f"ringlog-{self.name}-end", daemon=True)
        try:
            settling.start()
        except RuntimeError:  # the interpreter ends, and starts no more threads
            self._settle(final=True)
        else:
            settling.join(max(MIN_SETTLE, until - time.monotonic()))
        self._ended = True
        # The log may get these events yet, as from a spool, but this process makes no letters of them.
        for task in [*self._letters_waiting]:
            if error := self._take_waiting_letter(task):
                self.router._report_failed(self, task, error, False)
        for reader in (self._cursor, self._tail, self._letters):
            if reader is not None:
                reader.close()


OwnTasks = dict[Subscription, Task]
"""What was delivered here, at once, of an event that this process has published."""

__all__ = ["Handler", "OwnTasks", "StoredEvent", "Subscription", "Task"]
