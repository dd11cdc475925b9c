"""Publishing: each request has a producer and a number, so that repeating it appends nothing twice.

Requests of one producer follow one another, so calls made at the same time take different ones
from a pool. The backlog gathers events into requests that are sent beside the caller.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ringlog._core.calls import Attempts, Calls
from ringlog._core.io import Io, Signal, Task
from ringlog.errors import Closed, Conflict, OutcomeUnknown, RinglogError, Unauthenticated, Unavailable
from ringlog.event import Result

if TYPE_CHECKING:
    from ringlog._core.spool import Mark, Spool

MAX_PRODUCER_IDLE = 600.0  # seconds; nodes forget a producer 15 minutes after its last request
MAX_BATCH_EVENTS, MAX_BATCH_BYTES = 1024, 1 << 20
MAX_BACKLOG_BYTES = 64 << 20  # of memory for events that wait; more make publish_soon wait
EVENT_BYTES = 2 << 10  # of memory for an event beside its JSON: its future has a lock and a queue
PUBLISH = "POST /v1/events"
LINGER = 0.005  # seconds for which the first event waits for others


class Producer:
    """A name under which requests are numbered from 1, one after the other."""

    def __init__(self) -> None:
        self.name = f"{socket.gethostname()[:100]}/{os.getpid()}/{os.urandom(8).hex()}"
        self.number = 0  # of the last request that was carried out
        self.used = time.monotonic()

    def is_known(self) -> bool:
        """Report whether nodes still know its last request, or it has sent none."""
        return self.number == 0 or time.monotonic() - self.used < MAX_PRODUCER_IDLE


class Publisher:
    """Sends requests with events, each with a producer that no other request has at the same time.

    With a spool, what the cluster does not take in time goes there, and what is published after it as well.
    """

    def __init__(self, calls: Calls, spool: Spool | None) -> None:
        self.calls, self.spool = calls, spool
        self.wake: Callable[[], None] = lambda: None  # has delivered what is spooled
        self.keep_up: Callable[[], Awaitable[None]] | None = None  # waits before more is spooled
        self.mark_apart: Callable[[bytes], bytes] = lambda body: body  # of events that are sent at once
        self._pool: list[Producer] = []

    def after_fork(self) -> None:
        """Leave the producers to the parent."""
        self._pool = []
        if self.spool is not None:
            self.spool.after_fork()

    def take(self) -> Producer:
        """Return a producer that is not in use."""
        try:
            producer = self._pool.pop()
        except IndexError:
            return Producer()
        return producer if producer.is_known() else Producer()

    def put_back(self, producer: Producer) -> None:
        """Return a producer whose last request has an answer."""
        self._pool.append(producer)

    def patience(self, patience: float) -> float:
        """Return for how many seconds a request is repeated: with a spool, until it goes there."""
        return patience if self.spool is None else min(patience, self.calls.config.spool_after)

    async def publish(self, body: bytes, events: int) -> list[Result]:
        """Append the events of a request, all or none, and return what became of each, in order."""
        if self.spool is not None and self.spool.pending and self.keep_up is not None and events > 1:
            await self.keep_up()
        if self.spool is not None and self.spool.pending:
            return await self.to_spool(self.enqueue([_list(body)], None), events)
        body = self.mark_apart(body)
        producer, began = self.take(), time.time()
        try:
            results = await self.send(producer, body, Attempts(PUBLISH, self.patience(self.calls.config.timeout)))
        except (Conflict, OutcomeUnknown) as e:
            # The number may have been used: nobody takes this producer again.
            if self.spool is None or isinstance(e, Conflict):
                raise
            return await self.to_spool(self.enqueue([_list(body)], self.mark(producer, began), e), events)
        except RinglogError as e:
            self.put_back(producer)
            if self.spool is None or not is_away(e):
                raise
            return await self.to_spool(self.enqueue([_list(body)], None), events)
        self.put_back(producer)
        return results

    async def publish_under(self, lease: Mapping[str, str], body: bytes, tries: Attempts) -> list[Result]:
        """Append the events of a request if the lease of a role that these headers name is not over.

        It is never spooled: once the cluster is back, another process may hold the role.
        """
        producer = self.take()
        try:
            results = await self.send(producer, self.mark_apart(body), tries, lease)
        except RinglogError as e:
            if not isinstance(e, Conflict | OutcomeUnknown):  # with these the number may have been used
                self.put_back(producer)
            if self.spool is not None and (isinstance(e, OutcomeUnknown) or is_away(e)):
                e.remedy += "; what is published under a role is not spooled"
            raise
        self.put_back(producer)
        return results

    def mark(self, producer: Producer, began: float) -> Mark:
        """Return the mark of a request of which it is unknown whether it was carried out."""
        from ringlog._core.spool import Mark

        return Mark(0, 0, producer.name, producer.number + 1, began, self.calls.cluster_id)

    def enqueue(self, units: list[bytes], mark: Mark | None, sent: RinglogError | None = None) -> int:
        """Decide the place of units in the spool, and return the ticket. sent is the error of what was sent before."""
        assert self.spool is not None
        try:
            return self.spool.enqueue(units, mark)
        except RinglogError as e:
            if sent is None:
                raise
            raise sent from e

    async def to_spool(self, ticket: int, events: int) -> list[Result]:
        """Return the results of events once they are durable in the spool."""
        if error := await self.commit(ticket):
            raise error
        return [SPOOLED] * events

    async def commit(self, ticket: int) -> RinglogError | None:
        """Wait until what was enqueued is durable, have it delivered, and return the error if it is not."""
        spool = self.spool
        assert spool is not None
        try:
            await self.calls.io.run(lambda: spool.commit(ticket))
        except RinglogError as e:
            return e
        self.wake()
        return None

    async def send(
        self, producer: Producer, body: bytes, tries: Attempts, lease: Mapping[str, str] | None = None
    ) -> list[Result]:
        """Append the events of a request under the next number of a producer."""
        try:
            results = await self.post(producer.name, producer.number + 1, body, tries, lease)
        except Unauthenticated as e:
            if lease is None:
                e.remedy += (
                    "; nothing is published, or kept: with a spool it would be delivered once the token is right"
                )
            raise
        producer.number += 1
        producer.used = time.monotonic()
        return results

    async def post(
        self, producer: str, number: int, body: bytes, tries: Attempts, lease: Mapping[str, str] | None = None
    ) -> list[Result]:
        """Append the events of a request under a number of a producer."""
        headers = {"Ringlog-Producer": producer, "Ringlog-Sequence": str(number), **(lease or {})}
        _, content = await self.calls.open("POST", "/v1/events", body, headers=headers, tries=tries)
        results = [_result(raw) for raw in json.loads(content)["results"]]
        for row, result in enumerate(results):
            if result.warnings:
                self.calls.warnings.report(result.warnings, partial(_type_of, body, row))
        return results


SPOOLED = Result(0, False, "", "", (), True)


def is_away(error: RinglogError) -> bool:
    """Report whether the cluster could not take an event that it may take later, such as with another token."""
    return isinstance(error, (Unavailable, Unauthenticated)) or error.code == "disk_full"


def _result(raw: dict[str, Any]) -> Result:
    return Result(raw["offset"], raw["duplicate"], raw["hash"], raw["appended_at"], tuple(raw.get("warnings") or ()))


def lease_headers(role: str, fence: int) -> dict[str, str]:
    """Return the headers of a request that is refused once a lease is over. A name in UTF-8 is sent as it is."""
    return {"Ringlog-Role": role.encode().decode("latin-1"), "Ringlog-Fence": str(fence)}


Settle = Callable[[Result | None, RinglogError | None], None]
"""Called once for an event of the backlog: with its result, or with the error."""


class Backlog:
    """Events on their way to the log, in the order in which they were added.

    A batch keeps its producer and number until it has an answer, so that sending it again, also
    after a task was canceled, appends nothing twice.
    """

    def __init__(self, publisher: Publisher, io: Io, patience: float) -> None:
        self._publisher, self._io, self._patience = publisher, io, patience
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._waiting: deque[tuple[bytes, Settle]] = deque()
        self._batch: list[tuple[bytes, Settle]] = []  # in flight
        self._tries: Attempts | None = None  # the call that sends the batch, or has sent it last
        self._ticket = 0  # of the batch in the spool; 0 is none
        self._stopped = False  # nothing more is sent
        self._drained = False  # drain sends, and no task begins
        self._began = 0.0  # by time.time(), when it was sent first
        self._producer = Producer()
        self._bytes = 0
        self._failure: RinglogError | None = None  # the first since the last flush
        self._task: Task | None = None
        self._due: Signal = self._io.signal()  # something to send
        self._settled: Signal = self._io.signal()  # for those that wait for room or for the end
        self._hurry = 0  # how many wait
        self._closed = False

    def after_fork(self) -> None:
        """Leave the events to the parent, which sends them."""
        closed = self._closed
        self._reset()
        self._closed = closed

    @property
    def unsent(self) -> int:
        """How many events have no answer yet."""
        return len(self._waiting) + len(self._batch)

    async def add(self, encoded: bytes, settle: Settle) -> None:
        """Add an event, after a wait where too many bytes are on their way."""
        encoded = self._publisher.mark_apart(encoded)
        while self._bytes > MAX_BACKLOG_BYTES:
            await self._wait(lambda: self._bytes <= MAX_BACKLOG_BYTES, None)
        with self._lock:
            if self._closed:
                raise Closed("the client is closed")
            self._waiting.append((encoded, settle))
            self._bytes += len(encoded) + EVENT_BYTES
            waiting = len(self._waiting)
        if waiting == 1:
            self._due.set()
        if waiting % 64 == 1:  # not each time, as it costs as much as the rest
            self._start()

    def _start(self) -> None:
        """Start the task that sends, unless it runs."""
        with self._lock:
            if not self._drained and (self._task is None or not self._task.alive()):
                self._task = self._io.spawn("ringlog-publish", self._run)

    async def flush(self, timeout: float | None) -> bool:
        """Wait until all events have their answers; False if timeout seconds were too short.

        Raises the first failure since the last flush.
        """
        done = await self._finish(timeout)
        self._raise_failure()
        return done

    async def close(self, timeout: float) -> None:
        """Send what is there, for at most timeout seconds, and accept and send nothing more.

        Raises what became of the events that are left then, else the first failure since the last flush.
        """
        with self._lock:
            self._closed = True
        done = await self._finish(timeout)
        left = None if done else await self._abandon(timeout)
        self._due.set()
        if self._task is not None:
            await self._task.join(1.0 if done else 0.0)
        if left is not None:
            raise left
        self._raise_failure()

    async def _finish(self, timeout: float | None) -> bool:
        """Wait until all events have their answers; False if timeout seconds were too short."""
        if self.unsent:
            self._start()
        return await self._wait(lambda: not self.unsent, timeout)

    def _raise_failure(self) -> None:
        """Raise the first failure since the last time."""
        with self._lock:
            failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    async def _abandon(self, timeout: float) -> RinglogError | None:
        """Send nothing from now on, and have what is left in the spool.

        Without one, or where it is full, settle the events with an error, and return that of the batch in flight.
        """
        with self._lock:
            self._stopped = True
            ticket, batch = self._ticket, self._batch
            if not ticket:
                self._batch = []
            waiting = list(self._waiting)
            self._waiting.clear()
            tries = self._tries or Attempts(PUBLISH, 0.0)
            tries.stop()
            cause = tries.error()
            if self._publisher.spool is not None:
                mark = self._publisher.mark(self._producer, self._began) if tries.may_have_happened() else None
                try:
                    if batch and not ticket:
                        ticket = self._publisher.enqueue(_units(batch), mark)
                    if waiting:
                        ticket = self._publisher.enqueue(_units(waiting), None)
                except RinglogError as e:
                    cause = e
                    ticket = 0
        if ticket:
            error = await self._publisher.commit(ticket)
            self._settle(batch + waiting, [SPOOLED] * (len(batch) + len(waiting)), error)
            self._settled.set()
            return error
        count = len(batch) + len(waiting)
        what = (
            f"{count} event{'' if count == 1 else 's'} of publish_soon unanswered after {timeout:g} s: {cause.message}"
        )
        error = type(cause)(what, code=cause.code, remedy=cause.remedy)
        error.__cause__ = cause
        self._settle(batch, [], error)
        if isinstance(error, OutcomeUnknown):  # which those that waited have not
            unsent = Unavailable(what, code="unavailable", remedy="it was not sent: publish it again")
            self._settle(waiting, [], unsent)
        else:
            self._settle(waiting, [], error)
        self._settled.set()
        return error

    async def drain(self, publisher: Publisher, timeout: float) -> int:
        """Send what is there by another publisher, whose Io is the caller's, and return how many events are left.

        It is for the interpreter's end. Where the task still runs, it waits for that; where it has
        ended in the middle of a batch, that is sent again under its number. Another thread may still
        add events: what it adds is sent here, or by a task that begins after this.
        """
        until = time.monotonic() + timeout
        while True:
            with self._lock:
                self._drained = self.unsent > 0 and time.monotonic() < until
                if not self._drained:
                    break
                self._drained = self._task is None or not self._task.alive()
            if self._drained:
                await self._send_batch(publisher, until - time.monotonic())
            else:
                await publisher.calls.io.sleep(0.01)
        if self.unsent and publisher.spool is not None:
            self._publisher = publisher  # that of an event loop that has ended can do nothing more
            await self._abandon(timeout)
        return self.unsent

    async def _wait(self, reached: Callable[[], bool], timeout: float | None) -> bool:
        """Wait until a condition holds that a batch's end may change."""
        until = None if timeout is None else time.monotonic() + timeout
        self._hurry += 1
        self._due.set()
        try:
            while True:
                seen = self._settled.version
                if reached():
                    return True
                left = None if until is None else until - time.monotonic()
                if left is not None and left <= 0:
                    return False
                await self._settled.wait(seen, left)
        finally:
            self._hurry -= 1

    async def _run(self) -> None:
        """Send batch after batch until the client is closed."""
        while True:
            seen = self._due.version
            if not self.unsent:
                if self._closed:
                    return
                await self._due.wait(seen, None)
                continue
            if not self._hurry and not self._batch and len(self._waiting) < MAX_BATCH_EVENTS:
                await self._io.sleep(LINGER)
            await self._send_batch(self._publisher, self._patience)
            self._settled.set()

    async def _send_batch(self, publisher: Publisher, patience: float) -> None:
        """Send the next batch, or again one whose task was canceled, and settle its events."""
        with self._lock:
            if not self._batch:
                self._batch, self._began, self._tries = self._take(), time.time(), None
                self._producer = self._producer if self._producer.is_known() else Producer()
            batch = self._batch
            # What an attempt before this one may have done is still unknown.
            unknown = self._tries is not None and self._tries.may_have_happened()
            tries = self._tries = Attempts(PUBLISH, publisher.patience(patience), unknown)
        if not batch:
            return
        spool = publisher.spool
        if spool is not None and spool.pending and publisher.keep_up is not None and not self._ticket:
            await publisher.keep_up()
        if spool is not None and (self._ticket or spool.pending):
            mark = publisher.mark(self._producer, self._began) if unknown else None
            await self._spool_batch(publisher, mark, None)
            return
        body = b"[" + b",".join(encoded for encoded, _ in batch) + b"]"
        error: RinglogError | None = None
        results: list[Result] = []
        try:
            # A batch whose task was canceled may be sent again only while nodes know its number.
            if time.time() - self._began > MAX_PRODUCER_IDLE:
                raise OutcomeUnknown("publish: the batch was interrupted long ago", code="outcome_unknown")
            results = await publisher.send(self._producer, body, tries)
        except RinglogError as e:
            error = e
        except Exception as e:  # an answer that is not ringlog's
            error = OutcomeUnknown(f"publish: {type(e).__name__}: {e}", code="outcome_unknown")
        if spool is not None and error is not None and (isinstance(error, OutcomeUnknown) or is_away(error)):
            mark = publisher.mark(self._producer, self._began) if isinstance(error, OutcomeUnknown) else None
            await self._spool_batch(publisher, mark, error)
            return
        if isinstance(error, (Conflict, OutcomeUnknown)):
            self._producer = Producer()  # the number may have been used

        # One event that is refused does not take the others of its batch with it.
        culprit = _index_of(error, len(batch)) if error is not None else None
        if error is not None and culprit is not None:
            error.field = error.field.partition("].")[2]
            self._settle(batch[culprit : culprit + 1], [], error)
            rest = batch[:culprit] + batch[culprit + 1 :]
        else:
            self._settle(batch, results, error)
            rest = []
        with self._lock:
            self._batch, self._tries = [] if self._stopped else rest, None

    async def _spool_batch(self, publisher: Publisher, mark: Mark | None, sent: RinglogError | None) -> None:
        """Have the batch in the spool, each event a unit of its own. sent is what became of its request."""
        error: RinglogError | None = None
        with self._lock:
            batch = self._batch
            if self._stopped:
                return  # close has it
            if not self._ticket:
                try:
                    self._ticket = publisher.enqueue(_units(batch), mark, sent)
                except RinglogError as e:
                    error = e
                if mark is not None:
                    self._producer = Producer()  # the number may have been used
        if error is None:
            error = await publisher.commit(self._ticket)
        self._settle(batch, [SPOOLED] * len(batch), error)
        with self._lock:
            self._batch, self._tries, self._ticket = [], None, 0

    def _take(self) -> list[tuple[bytes, Settle]]:
        """Return the events of the next batch."""
        batch: list[tuple[bytes, Settle]] = []
        size = 0
        while self._waiting and len(batch) < MAX_BATCH_EVENTS:
            size += len(self._waiting[0][0]) + 1
            if batch and size > MAX_BATCH_BYTES:
                break
            batch.append(self._waiting.popleft())
        return batch

    def _settle(self, batch: list[tuple[bytes, Settle]], results: list[Result], error: RinglogError | None) -> None:
        """Report to each event of a batch what became of it."""
        with self._lock:
            self._bytes -= sum(len(encoded) + EVENT_BYTES for encoded, _ in batch)
            self._failure = None if self._stopped else self._failure or error
        if error is not None:
            for _, settle in batch:
                settle(None, error)
        else:
            for (_, settle), result in zip(batch, results, strict=True):
                settle(result, None)


def _type_of(body: bytes, row: int) -> str:
    """Return the type of an event of a request."""
    events = json.loads(_list(body))
    return str(events[row].get("type", ""))


def _list(body: bytes) -> bytes:
    """Return the body of a request as a unit of the spool, which is a list of events."""
    return body if body.startswith(b"[") else b"[" + body + b"]"


def _units(batch: list[tuple[bytes, Settle]]) -> list[bytes]:
    """Return events as units of the spool."""
    return [b"[" + encoded + b"]" for encoded, _ in batch]


def _index_of(error: RinglogError, events: int) -> int | None:
    """Return which event of a batch an error is about, as of events[3].payload; None if of all."""
    prefix, _, rest = error.field.partition("[")
    number = rest.partition("]")[0]
    if prefix != "events" or not number.isdigit() or int(number) >= events or isinstance(error, OutcomeUnknown):
        return None
    return int(number)
