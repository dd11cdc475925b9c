"""Client: the blocking client. Its methods may be called from several threads."""

from __future__ import annotations

import atexit
import contextlib
import os
import select
import socket
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal

from ringlog import _fork
from ringlog._core.calls import Calls, Query
from ringlog._core.config import Config
from ringlog._core.cursor import CursorState
from ringlog._core.encode import Position, build_event, encode
from ringlog._core.io import Io, T, drive
from ringlog._core.member import MemberLoop
from ringlog._core.notices import OnWarning
from ringlog._core.operations import Operations
from ringlog._core.reader import Reader
from ringlog._core.readers import Readers
from ringlog.answers import (
    AllocationInfo,
    Copy,
    CursorInfo,
    Letter,
    LettersResult,
    MemberInfo,
    ResourceInfo,
    RoleInfo,
    Scheduled,
    Transfer,
    ViewChange,
    ViewInfo,
    ViewRow,
)
from ringlog.delivery import Delivery
from ringlog.errors import RinglogError
from ringlog.event import CallResult, Event, EventFields, Json, NewEvent, Result

if TYPE_CHECKING:
    import ssl
    from concurrent.futures import Future

    from typing_extensions import Self, Unpack

    from ringlog._core.allocation import AllocationState
    from ringlog._core.lease import LeaseState
    from ringlog._core.payload import Payload
    from ringlog._core.role import RoleState
    from ringlog._core.view import RowReader, ViewState

EXIT_TIMEOUT = 10.0
"""Seconds for which events of publish_soon are still sent when the interpreter ends."""

_RECEIVE = 256 << 10  # bytes asked for at a time


class _Connection:
    """A socket with a deadline for each call."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._pid = os.getpid()
        self.idle_since = 0.0
        self.host = ""

    async def send(self, data: bytes, timeout: float) -> None:
        self._socket.settimeout(timeout)
        self._socket.sendall(data)

    async def receive(self, timeout: float) -> bytes:
        self._socket.settimeout(timeout)
        return self._socket.recv(_RECEIVE)

    def is_stale(self) -> bool:
        # An idle connection has nothing to read, unless the other side has closed it.
        try:
            return bool(select.select([self._socket], [], [], 0)[0])
        except (OSError, ValueError):  # ValueError: a descriptor too large for select
            return True

    def close(self) -> None:
        # A thread that waits in recv wakes up only if the connection is shut down. In a child
        # the connection is the parent's as well, and stays open.
        if self._pid == os.getpid():
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)
        # An SSLSocket's close sends nothing: only unwrap would.
        self._socket.close()


class _Signal:
    """A counter with a condition."""

    def __init__(self) -> None:
        self.version = 0
        self._condition = threading.Condition()

    def set(self) -> None:
        with self._condition:
            self.version += 1
            self._condition.notify_all()

    def set_threadsafe(self) -> None:
        self.set()

    async def wait(self, seen: int, timeout: float | None) -> None:
        with self._condition:
            if self.version == seen:
                self._condition.wait(timeout)


class _Thread:
    """A daemon thread: the interpreter's end does not wait for it, the at-exit hook does."""

    def __init__(self, name: str, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._pid = os.getpid()
        self._thread = threading.Thread(target=lambda: drive(body()), name=name, daemon=True)
        self._thread.start()

    def alive(self) -> bool:
        return self._pid == os.getpid() and self._thread.is_alive()

    async def join(self, timeout: float) -> bool:
        if self._thread is not threading.current_thread():
            self._thread.join(timeout)
        return not self._thread.is_alive()


class _BlockingIo:
    """Io whose coroutines block and are never suspended."""

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None, timeout: float) -> _Connection:
        sock = socket.create_connection((host, port), timeout)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if tls is not None:
                sock = tls.wrap_socket(sock, server_hostname=host)
        except BaseException:
            sock.close()
            raise
        return _Connection(sock)

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    async def run(self, work: Callable[[], T]) -> T:
        return work()

    def signal(self) -> _Signal:
        return _Signal()

    def spawn(self, name: str, body: Callable[[], Coroutine[Any, Any, None]]) -> _Thread:
        return _Thread(name, body)


class _Closing:
    """A with block that ends with close."""

    def __enter__(self) -> Self:
        self._enter()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _enter(self) -> None:
        """Do what the beginning of the block asks for."""

    def close(self) -> None:
        """End it. It may be called again."""
        raise NotImplementedError


class Tail(_Closing, Iterator[Event]):
    """The events of Client.tail: an iterator, and a with block that ends the reading."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def _enter(self) -> None:
        drive(self._reader.connect())

    def __next__(self) -> Event:
        event = self._reader.next_buffered() or drive(self._reader.next())
        if event is None:
            raise StopIteration
        return event

    def close(self) -> None:
        """End the reading, also of a caller that waits for an event, which gets Closed."""
        self._reader.close()


class Cursor(_Closing, Iterator[Event]):
    """A cursor of Client.cursor: an iterator of the events after its commit."""

    def __init__(self, state: CursorState) -> None:
        self._state = state

    def _enter(self) -> None:
        drive(self._state.open())

    @property
    def name(self) -> str:
        """The cursor's name."""
        return self._state.name

    @property
    def generation(self) -> int:
        """How often the cursor was opened, 0 before it is."""
        return self._state.generation

    @property
    def committed(self) -> int:
        """The offset up to which everything is handled, as of this process's last call."""
        return self._state.committed

    def __next__(self) -> Event:
        reader = self._state.reader
        event = reader.next_buffered() if reader is not None else None
        if event is None:
            event = drive(self._state.next())
            if event is None:
                raise StopIteration
        self._state.last = event
        return event

    def commit(self, event: Event | int | None = None) -> None:
        """Commit all up to an event or offset, by default the event that was handed out last.

        It is durable when the call returns. A commit never moves the cursor back. Raises Fenced once
        another process has opened the cursor.
        """
        drive(self._state.commit(event))

    def dead_letter(
        self,
        error: str | BaseException,
        *,
        event: Event | int | None = None,
        attempts: int = 1,
        handler: str = "",
    ) -> Letter:
        """Make an event that cannot be handled a dead letter, and commit up to it, in one step.

        Returns the letter: the schema Letter. The event is by default the one that was handed out
        last, the handler the cursor's name. Client.redrive has the event delivered again.
        """
        return drive(self._state.dead_letter(error, event, attempts, handler))

    def close(self) -> None:
        """End the reading. The cursor keeps its commit, and the next reading resumes after it."""
        self._state.close()


class Member(_Closing, Iterator[Delivery]):
    """A member of a group, of Client.group: an iterator of deliveries. Several threads may share it."""

    def __init__(self, loop: MemberLoop) -> None:
        self._loop = loop

    def _enter(self) -> None:
        drive(self._loop.join())

    @property
    def name(self) -> str:
        """The member's name."""
        return self._loop.state.name

    def __next__(self) -> Delivery:
        raw = drive(self._loop.next_until_closed())
        if raw is None:
            raise StopIteration
        return Delivery(raw, self._loop)

    def next(self, timeout: float | None = None) -> Delivery | None:
        """Return the next delivery, None after timeout seconds without one. Raises Closed once the member is closed."""
        raw = drive(self._loop.next(timeout))
        return None if raw is None else Delivery(raw, self._loop)

    def flush(self, timeout: float = 30.0) -> bool:
        """Wait until all acks and nacks are durable; False if timeout seconds were too short."""
        return drive(self._loop.flush(timeout))

    def close(self, timeout: float = 10.0) -> None:
        """Report all acks and nacks, return what was not handled to the group, and leave it.

        It takes at most timeout seconds; without contact the group takes everything back by itself.
        """
        drive(self._loop.close(timeout))


class _Lease:
    """What this process holds for as long as it renews it."""

    _state: LeaseState
    _lost: threading.Event

    def __enter__(self) -> Self:
        self._state.check()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()

    @property
    def holder(self) -> str:
        """The name under which people see this process as the holder."""
        return self._state.holder

    @property
    def fence(self) -> int:
        """The offset of the event with which it was acquired, 0 before. A later holder has a higher one."""
        return self._state.fence

    @property
    def held(self) -> bool:
        """Whether it is certainly this process's now: False before it could be another's.

        It looks at the clock, so it is False as well in a process that was stopped for longer than the lease.
        """
        return self._state.held()

    @property
    def lost(self) -> threading.Event:
        """An event that is set once it is lost: not renewed in time, or ended by the cluster."""
        return self._lost

    def on_lost(self, callback: Callable[[], object]) -> None:
        """Have a function called once it is lost, at once if it is. It is not called for a release.

        It is called where the lease is kept: in a thread of its own, with asyncio in the event loop.
        """
        self._state.on_lost(callback)

    def check(self) -> None:
        """Raise RoleLost or AllocationLost unless it is held."""
        self._state.check()

    def release(self, timeout: float = 10.0) -> bool:
        """End the lease, so that the next in the queue gets it; False if no node has answered.

        It takes about timeout seconds at most. Without an answer the lease ends by itself after the ttl.
        """
        return drive(self._state.release(timeout))


class Role(_Lease):
    """A role that this process has acquired, of Client.acquire_role: a with block that ends with release."""

    _state: RoleState

    def __init__(self, operations: Operations, name: str, ttl: float, wait: bool | float, holder: str | None) -> None:
        self._operations = operations
        self._lost = threading.Event()
        self._state = operations._new_role(name, ttl, wait, holder, self._lost)
        drive(self._state.acquire())

    @property
    def name(self) -> str:
        """The role's name."""
        return self._state.name

    def publish(
        self,
        type: str | Payload,
        payload: Mapping[str, Any] | None = None,
        **fields: Unpack[EventFields],
    ) -> Result:
        """Append one event as Client.publish does, if this process still holds the role when the cluster decides.

        Raises RoleLost if it does not. The event is never spooled: Unavailable is raised where no node takes it.
        """
        return drive(self._operations._publish_under(self._state, type, payload, fields))

    def publish_many(self, events: Iterable[NewEvent]) -> list[Result]:
        """Append events as Client.publish_many does, if this process still holds the role. Raises as publish does."""
        return drive(self._operations._publish_many_under(self._state, events))


class Allocation(_Lease):
    """An allocation that this process has, of Client.allocate: a with block that ends with release."""

    _state: AllocationState

    def __init__(
        self,
        operations: Operations,
        amounts: Mapping[str, int],
        priority: str,
        ttl: float,
        wait: bool | float,
        holder: str | None,
    ) -> None:
        self._lost = threading.Event()
        self._state = operations._new_allocation(amounts, priority, ttl, wait, holder, self._lost)
        drive(self._state.acquire())

    @property
    def id(self) -> str:
        """The allocation's id."""
        return self._state.id

    @property
    def amounts(self) -> dict[str, int]:
        """What is allocated, by resource."""
        return dict(self._state.amounts)


class RowWatch(_Closing, Iterator[ViewChange]):
    """The rows of View.watch: an iterator, and a with block that ends the reading."""

    def __init__(self, reader: RowReader) -> None:
        self._reader = reader

    def _enter(self) -> None:
        drive(self._reader.connect())

    def __next__(self) -> ViewChange:
        change = drive(self._reader.next_row())
        if change is None:
            raise StopIteration
        return change

    def close(self) -> None:
        """End the reading, also of a caller that waits for a row, which gets Closed."""
        self._reader.close()


class View:
    """A view of Client.view. docs/views.md explains views."""

    def __init__(self, state: ViewState) -> None:
        self._state = state

    @property
    def name(self) -> str:
        """The view's name."""
        return self._state.name

    def info(self) -> ViewInfo:
        """Return the view as the node that answers has folded it: the schema View. Raises NotFound."""
        return drive(self._state.info())

    def define(self, declaration: Mapping[str, Any]) -> ViewInfo:
        """Define the view on all nodes, or define it otherwise, and return it: the schema View.

        One that is defined otherwise is folded again from the beginning of the log. The same declaration again changes
        nothing. Raises InvalidArgument with the place of what is wrong.
        """
        return drive(self._state.define(declaration))

    def remove(self) -> ViewInfo:
        """Remove the view, and return it as it was: the schema View. Raises NotFound."""
        return drive(self._state.remove())

    def get(self, key: str, *, at: int | None = None) -> ViewRow:
        """Return the row of a key: the schema ViewRow. All that was acknowledged before is folded into it.

        With at it is as of that offset; Trimmed is raised where the events that it was folded from are gone. Raises
        NotFound if there is no such row.
        """
        return drive(self._state.get(key, at))

    def rows(self, *, at: int | None = None) -> list[ViewRow]:
        """Return all rows, by key, with at as of that offset: the schema ViewRow.

        They are read in pages. Without at each page is as of an offset of its own.
        """
        return drive(self._state.rows(at))

    def watch(self, *keys: str) -> RowWatch:
        """Yield the rows, or those of these keys, and then each that changes, as of an offset: a ViewChange.

        Changes of a row that follow each other quickly are one. After a failure the watch continues at another node,
        and begins there with all rows again. It ends with NotFound once the view is removed or defined otherwise.
        """
        return RowWatch(self._state.watch(keys))


class Client(_Closing, Readers[Tail, Cursor, Member]):
    """A client of one cluster. It connects with its first call.

    endpoints         URLs of nodes, a list or separated by commas; default RINGLOG_ENDPOINTS, else
                      RINGRIFT_COORDINATOR_URL, else http://127.0.0.1:8770
    token             the cluster token; default what RINGLOG_TOKEN_FILE names, else RINGRIFT_CLUSTER_AUTH_TOKEN
    token_file        a file with the token, which is read again when a node refuses it
    source            the source of events that are published without one
    timeout           seconds for which a call is repeated at the nodes in turn
    attempt_timeout   seconds that one node may take to answer
    delivery_timeout  seconds for which an event of publish_soon is repeated
    tls_ca            for https endpoints: a file with the CA of the nodes' certificates; default RINGLOG_TLS_CA, else
                      those of the system
    tls_cert          a file with the certificate to show to nodes; default RINGLOG_TLS_CERT, else none
    tls_key           a file with its key; default RINGLOG_TLS_KEY. A file that changes is read for the next connection
    tls               an ssl.SSLContext in place of the three
    cluster_id        the cluster to talk to; default that of the first node that answers
    on_warning        called once with each warning of a node, such as a misspelt type in an event or a filter: a dict
                      with reason, field and message, perhaps in another thread; it is logged otherwise
    spool             a folder for events that the cluster does not take: they are delivered once it does; default
                      RINGLOG_SPOOL, else there is none
    spool_bytes       what the spool may hold; more is refused with SpoolFull
    spool_after       seconds for which the cluster is tried before an event is spooled

    A client that was made before a fork works in parent and child. Cursors, members, tails, roles and
    allocations belong to the process that has opened them, events of publish_soon to the one that has published them.
    """

    def __init__(
        self,
        endpoints: str | Iterable[str] | None = None,
        *,
        token: str | None = None,
        token_file: str | os.PathLike[str] | None = None,
        source: str = "",
        timeout: float = 30.0,
        attempt_timeout: float = 3.0,
        delivery_timeout: float = 120.0,
        tls: ssl.SSLContext | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
        tls_cert: str | os.PathLike[str] | None = None,
        tls_key: str | os.PathLike[str] | None = None,
        cluster_id: str = "",
        on_warning: OnWarning | None = None,
        spool: str | os.PathLike[str] | None = None,
        spool_bytes: int = 256 << 20,
        spool_after: float = 3.0,
    ) -> None:
        self._config = Config(
            endpoints,
            token,
            token_file,
            source,
            timeout,
            attempt_timeout,
            delivery_timeout,
            tls,
            tls_ca,
            tls_cert,
            tls_key,
            cluster_id,
            on_warning,
            spool,
            spool_bytes,
            spool_after,
        )
        self._io: Io = self._config.over(_BlockingIo())
        self._operations = Operations(self._io, self._config)
        self._at_exit: Callable[[], None] | None = None
        _fork.watch(self)
        self._operations._publisher.wake()

    def _before_fork(self) -> None:
        self._operations._before_fork()

    def _after_fork_in_parent(self) -> None:
        self._operations._after_fork_in_parent()

    def _after_fork(self) -> None:
        self._operations._after_fork()
        self._at_exit = None

    def _reading(self) -> tuple[Calls, Io]:
        self._operations._check_open()
        return self._operations._calls, self._io

    def _new_tail(self, reader: Reader) -> Tail:
        return Tail(reader)

    def _new_cursor(self, state: CursorState) -> Cursor:
        return Cursor(state)

    def _new_member(self, loop: MemberLoop) -> Member:
        return Member(loop)

    def acquire_role(
        self, name: str, *, ttl: float = 15.0, wait: bool | float = True, holder: str | None = None
    ) -> Role:
        """Acquire a role, which one process holds at a time, and keep it until it is released or lost.

        ttl     seconds that the lease lasts where nothing renews it, from 2 to 3600: others wait for that long when
                this process dies
        wait    whether to wait in the queue while another process holds the role, or for how many seconds; RoleHeld is
                raised after that
        holder  a name for people; the default is HOST:PID

        Work that only the holder may do stops once the role is lost: look at held, or wait for lost. That is reported
        before another process can hold the role, but to a process that is stopped only when it continues: what it
        sends with publish is refused then. Closing the client releases the role.

        Raises Unavailable if no node answers in the client's timeout. Who waits in the queue already waits on.
        """
        return Role(self._operations, name, ttl, wait, holder)

    def allocate(
        self,
        amounts: Mapping[str, int],
        *,
        priority: str = "NORMAL",
        ttl: float = 15.0,
        wait: bool | float = True,
        holder: str | None = None,
    ) -> Allocation:
        """Request amounts of resources, all or none, and keep them until they are released or lost.

        amounts   such as {"net:gpu-1": 50}, of resources that set_resource has declared
        priority  LOW, NORMAL, HIGH or CRITICAL: who waits is granted by it, and then by arrival
        ttl       seconds that the allocation lasts where nothing renews it, from 2 to 86400
        wait      whether to wait for the turn, or for how many seconds; NotGranted is raised after that
        holder    a name for people; the default is HOST:PID

        Work that needs the amounts stops once they are lost: look at held, or wait for lost. That is reported before
        another process can have them, but to a process that is stopped only when it continues. A CRITICAL request may
        end a LOW allocation at any time, which is lost with its next renewal, of which there are three in each ttl.
        Closing the client releases it.

        Raises NotFound for a resource that is not declared, Conflict for more than its capacity, and Unavailable if
        no node answers in the client's timeout. Who waits already waits on.
        """
        return Allocation(self._operations, amounts, priority, ttl, wait, holder)

    def view(self, name: str) -> View:
        """Return a view, to define it and to read its rows. Nothing is asked of the cluster before."""
        return View(self._operations._view(name))

    def publish_soon(
        self,
        type: str | Payload,
        payload: Mapping[str, Any] | None = None,
        **fields: Unpack[EventFields],
    ) -> Future[Result]:
        """Publish an event in the background, in batches, and return the future of its result.

        Events are appended in the order of these calls. The future has the result, or the exception
        that publish would raise, but after the client's delivery_timeout instead of its timeout. Where
        the events that wait take 64 MiB, at 2 KiB each beside their JSON, the call waits for room. flush
        and close wait for all events and raise the first failure; when the interpreter ends they are
        sent for at most EXIT_TIMEOUT seconds.
        """
        import concurrent.futures  # takes long, the first time

        encoded = encode(build_event(type, payload, fields, self._config.source, self._config.clock))
        future: Future[Result] = concurrent.futures.Future()

        def settle(result: Result | None, error: RinglogError | None) -> None:
            try:
                if error is not None:
                    future.set_exception(error)
                elif result is not None:
                    future.set_result(result)
            except concurrent.futures.InvalidStateError:
                pass  # it was canceled, and its event is appended all the same

        if self._at_exit is None:
            self._at_exit = drain_at_exit(self._operations)
        drive(self._operations._backlog.add(encoded, settle))
        return future

    def flush(self, timeout: float | None = None) -> bool:
        """Wait until all events of publish_soon are answered; False if timeout seconds were too short.

        Raises the first failure since the last flush.
        """
        return drive(self._operations._backlog.flush(timeout))

    def close(self, timeout: float = EXIT_TIMEOUT) -> None:
        """Send what publish_soon has accepted, for at most timeout seconds, release roles and allocations, and end
        the connections.

        What it has not sent then, it never sends: it raises Unavailable, or OutcomeUnknown if a node may have
        got an event. If nothing is left it raises the first failure since the last flush.
        """
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
            self._at_exit = None
        drive(self._operations._close(timeout))

    @property
    def spooled_bytes(self) -> int:
        """The size of what waits in the spool, 0 if nothing does or there is none."""
        return self._operations.spooled_bytes

    def drain(self, timeout: float | None = None) -> bool:
        """Wait until nothing waits in the spool; False if timeout seconds were too short.

        It is delivered without this call, too.
        """
        return drive(self._operations.drain(timeout))

    def request(self, method: str, path: str, body: Any = None, query: Query | None = None) -> Any:
        """Send any request of the HTTP interface, and return the decoded answer.

        It is repeated until a node answers for good, so it must be one that may be repeated. openapi.json
        has the paths, such as "/v1/catalogue", and the shapes.
        """
        return drive(self._operations.request(method, path, body, query))

    def publish(
        self,
        type: str | Payload,
        payload: Mapping[str, Any] | None = None,
        **fields: Unpack[EventFields],
    ) -> Result:
        """Append one event, and return its offset once it is on the disks of a majority.

        type is a name such as "TRAINING_COMPLETED", or a payload of ringlog.payloads, which has its own.
        fields are those of EventFields: source, key, correlation_id, causation_id, dedup_id, dedup, time.
        An event with the content, or the dedup_id, of one that was appended within the dedup window (60 s)
        is not appended: the result is then a duplicate.

        Retries append nothing twice. Raises InvalidArgument for an event that is never accepted,
        Unavailable if the cluster could not take it in the client's timeout, and OutcomeUnknown if it
        may be in the log or not. With a spool neither is raised: the event is spooled.
        """
        return drive(self._operations.publish(type, payload, **fields))

    def call(
        self,
        type: str | Payload,
        payload: Mapping[str, Any] | None = None,
        *,
        timeout: float = 30.0,
        reply: str | Iterable[str] = (),
        failure: str | Iterable[str] = (),
        **fields: Unpack[EventFields],
    ) -> CallResult:
        """Publish an event, and wait for the outcome of the run that it starts.

        The outcome is the first event after it of the same run that is a reply or a failure: the types that reply and
        failure name, or else those that the flows of the cluster name, as TRAINING_COMPLETED and TRAINING_FAILED for
        TRAINING_STARTED. It has the correlation id of the event, which gets one if it has none, or where a flow of the
        event has run_by the same payload fields. A duplicate waits for the outcome of the original. A reply whose
        payload has "success": False is a failure.

        Raises NoReply if there is no outcome after timeout seconds, InvalidArgument if no reply is known, and what
        publish raises. Changes of leaders meanwhile are not noticed.
        """
        return drive(self._operations.call(type, payload, timeout=timeout, reply=reply, failure=failure, **fields))

    def publish_at(
        self,
        at: datetime | float,
        type: str | Payload,
        payload: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        **fields: Unpack[EventFields],
    ) -> Scheduled:
        """Have the cluster publish an event at a time, once, whatever becomes of this process: the schema Scheduled.

        at is a datetime with a zone, or seconds since 1970; one that has passed is now. id names the schedule, and ""
        is a random one, which the retries of this call share. The event is that of publish: it is checked now, and
        deduplicated when it is published.

        For producer.ttl, 15 minutes, after it was published, the same call with the same id changes nothing and returns
        what became of the event; with another event or time it raises Conflict. The event is never spooled: Unavailable
        or OutcomeUnknown is raised where no node takes it.
        """
        return drive(self._operations.publish_at(at, type, payload, id=id, **fields))

    def scheduled(self) -> list[Scheduled]:
        """Return what is scheduled, and what was published within producer.ttl, by id: the schema Scheduled."""
        return drive(self._operations.scheduled())

    def scheduled_event(self, id: str) -> Scheduled:
        """Return what is scheduled under an id, with its event if it waits: the schema Scheduled. Raises NotFound."""
        return drive(self._operations.scheduled_event(id))

    def unschedule(self, id: str) -> Scheduled:
        """Remove an event that was not published yet, and return it: the schema Scheduled.

        Raises NotFound if there is none, and Conflict with its offset if it was published.
        """
        return drive(self._operations.unschedule(id))

    def publish_many(self, events: Iterable[NewEvent]) -> list[Result]:
        """Append events, all or none, and return what became of each, in order.

        Raises as publish does; the field of an error names the event, such as "events[3].payload".
        """
        return drive(self._operations.publish_many(events))

    def publish_under(self, role: str, fence: int, events: Iterable[NewEvent]) -> list[Result]:
        """Append events, all or none, if the lease of a role with that fence is not over when the cluster decides.

        It is for those who know both from another process, such as a child of the holder, which has Role.publish_many.
        Raises RoleLost if the lease is over, else as publish_many does. Nothing is spooled.
        """
        return drive(self._operations.publish_under(role, fence, events))

    def get(self, offset: int, *, stale: bool = False) -> Event:
        """Return the event at an offset. Raises Trimmed or PastTail if there is none.

        With stale the node may lag: it answers without asking the leader, also where there is none.
        """
        return drive(self._operations.get(offset, stale=stale))

    def wait(self, offset: int, cursors: Iterable[str], timeout: float = 30.0) -> bool:
        """Wait until all cursors and groups have committed an offset; False if timeout seconds were too short."""
        return drive(self._operations.wait(offset, cursors, timeout))

    def explain(self, cursor: str, offset: int) -> Json:
        """Return what became of an event for a cursor: the schema DeliveryFate, with `fate` and `reason`."""
        return drive(self._operations.explain(cursor, offset))

    def explain_dedup(self, subject: int | str) -> Json:
        """Return what deduplication did with an event, by its offset or dedup_id: the schema Explanation."""
        return drive(self._operations.explain_dedup(subject))

    def chain(self, correlation_id: str, *, flow: str = "") -> Json:
        """Return how far a run has come on its way through the flows: the schema Chain."""
        return drive(self._operations.chain(correlation_id, flow=flow))

    def create_cursor(self, name: str, *, types: Iterable[str] = (), from_: Position = "start") -> CursorInfo:
        """Create a cursor and return it: the schema Cursor. One that exists is returned if it has the types
        that are given, else Conflict is raised."""
        return drive(self._operations.create_cursor(name, types=types, from_=from_))

    def get_cursor(self, name: str) -> CursorInfo:
        """Return a cursor or group with its commit and lag: the schema Cursor. Raises NotFound."""
        return drive(self._operations.get_cursor(name))

    def cursors(self) -> list[CursorInfo]:
        """Return all cursors and groups by name: the schema Cursor."""
        return drive(self._operations.cursors())

    def seek_cursor(self, name: str, to: Position) -> CursorInfo:
        """Move a cursor or group on purpose, and return it: the schema Cursor."""
        return drive(self._operations.seek_cursor(name, to))

    def delete_cursor(self, name: str) -> None:
        """Remove a cursor. Raises NotFound."""
        return drive(self._operations.delete_cursor(name))

    def create_group(
        self,
        name: str,
        *,
        types: Iterable[str] = (),
        from_: Position = "start",
        ack_wait: float | None = None,
        max_deliver: int | None = None,
    ) -> CursorInfo:
        """Create a group and return it: the schema Cursor. One that exists is returned if it has what
        is given of types, ack_wait and max_deliver, else Conflict is raised.

        ack_wait is for how many seconds a member may hold an event without a sign of progress,
        max_deliver after how many deliveries that fail an event becomes a dead letter; None is the
        cluster's setting.
        """
        return drive(
            self._operations.create_group(name, types=types, from_=from_, ack_wait=ack_wait, max_deliver=max_deliver)
        )

    def delete_group(self, name: str) -> None:
        """Remove a group. Raises NotFound."""
        return drive(self._operations.delete_group(name))

    def group_members(self, name: str) -> list[MemberInfo]:
        """Return who shares a group now: the schema GroupMember."""
        return drive(self._operations.group_members(name))

    def dead_letters(
        self,
        *,
        type: str = "",
        cursor: str = "",
        error: str = "",
        state: Literal["", "dead", "redriven"] = "",
        limit: int = 100,
        after: int = 0,
    ) -> list[Letter]:
        """Return at most limit dead letters with an id above after, by id: the schema Letter.

        type is a name or pattern, cursor the name of the one that could not handle the event, error a part of its
        error. state is "dead" for those that wait for somebody, "redriven" for those that were appended again.
        """
        return drive(
            self._operations.dead_letters(type=type, cursor=cursor, error=error, state=state, limit=limit, after=after)
        )

    def dead_letter(self, letter_id: int) -> Json:
        """Return one dead letter with its event: the schema LetterWithEvent. Raises NotFound."""
        return drive(self._operations.dead_letter(letter_id))

    def dead_letter_summary(self) -> Json:
        """Return how many dead letters there are, by cursor and by type: the schema LetterSummary."""
        return drive(self._operations.dead_letter_summary())

    def dead_letter_errors(self, *, cursor: str = "") -> list[Json]:
        """Return what the dead letters died of, the most frequent first."""
        return drive(self._operations.dead_letter_errors(cursor=cursor))

    def redrive(
        self,
        *ids: int,
        type: str = "",
        cursor: str = "",
        error: str = "",
        all: bool = False,
        to: str = "",
    ) -> LettersResult:
        """Append dead letters again, each for the cursor that it left: the schema LettersResult.

        Give ids, or conditions that must all hold, or all=True. to names another cursor that gets them.
        """
        return drive(self._operations.redrive(*ids, type=type, cursor=cursor, error=error, all=all, to=to))

    def purge(
        self,
        *ids: int,
        type: str = "",
        cursor: str = "",
        error: str = "",
        all: bool = False,
    ) -> LettersResult:
        """Remove dead letters for good, chosen as in redrive: the schema LettersResult."""
        return drive(self._operations.purge(*ids, type=type, cursor=cursor, error=error, all=all))

    def settings(self) -> dict[str, str]:
        """Return all replicated settings, by key."""
        return drive(self._operations.settings())

    def set_setting(self, key: str, value: str | float | bool) -> None:
        """Change a setting on every node; "" restores the default. Raises NotFound or InvalidArgument."""
        return drive(self._operations.set_setting(key, value))

    def dedup_policies(self) -> list[Json]:
        """Return the dedup policies of types, by type: the schema DedupPolicy."""
        return drive(self._operations.dedup_policies())

    def set_dedup_policy(
        self, type: str, mode: Literal["off", "content", "fields"], fields: Sequence[str] = (), window: str = ""
    ) -> Json:
        """Say which events of a type are duplicates, and return the policy: the schema DedupPolicy.

        off appends every event, content compares the payload, fields the payload fields named. window is how long
        an event suppresses the same, such as "90s"; "" is the setting dedup.window. An event that has a dedup_id or
        dedup=False goes by that.
        """
        return drive(self._operations.set_dedup_policy(type, mode, fields, window))

    def remove_dedup_policy(self, type: str) -> Json:
        """Remove the policy that was set for a type, and return the one in force without it. Raises NotFound."""
        return drive(self._operations.remove_dedup_policy(type))

    def status(self) -> Json:
        """Return what the node that is asked knows of itself and its cluster: the schema Status."""
        return drive(self._operations.status())

    def cluster(self) -> Json:
        """Return leader, members and quorum as the node that is asked sees them: the schema Cluster."""
        return drive(self._operations.cluster())

    def catalogue(self) -> list[Json]:
        """Return the known event types: the schema Definition."""
        return drive(self._operations.catalogue())

    def flows(self) -> list[Json]:
        """Return the flows that runs are followed through, built in and registered: the schema Flow."""
        return drive(self._operations.flows())

    def register_flow(self, flow: Json) -> list[Json]:
        """Register a flow on all nodes, or replace the one of its name: the schema Flow. Return warnings."""
        return drive(self._operations.register_flow(flow))

    def remove_flow(self, name: str) -> None:
        """Remove a registered flow."""
        return drive(self._operations.remove_flow(name))

    def roles(self) -> list[RoleInfo]:
        """Return the roles that are held, by name: the schema Role."""
        return drive(self._operations.roles())

    def role(self, name: str) -> RoleInfo:
        """Return who holds a role and who waits for it: the schema Role. Without a holder nobody holds it."""
        return drive(self._operations.role(name))

    def revoke_role(self, name: str, fence: int = 0) -> RoleInfo:
        """End the lease of a role, whoever has it, and return the role: the schema Role. The next in its queue gets it.

        With a fence the lease is ended only if it has that one, else RoleLost is raised. Raises NotFound if nobody
        holds the role.
        """
        return drive(self._operations.revoke_role(name, fence))

    def resources(self) -> list[ResourceInfo]:
        """Return the resources, by name: the schema Resource."""
        return drive(self._operations.resources())

    def resource(self, name: str) -> ResourceInfo:
        """Return a resource and how much of it is granted: the schema Resource. Raises NotFound."""
        return drive(self._operations.resource(name))

    def set_resource(self, name: str, capacity: int, *, unit: str = "", preemptible: bool = False) -> ResourceInfo:
        """Declare a resource, or change it, and return it: the schema Resource.

        unit is a text for people, such as "Mbit/s". With preemptible a CRITICAL request may end LOW allocations of it.
        A lower capacity takes nothing from those who have more; nothing is granted until it fits.
        """
        return drive(self._operations.set_resource(name, capacity, unit=unit, preemptible=preemptible))

    def remove_resource(self, name: str) -> ResourceInfo:
        """Remove a resource, and return it as it was: the schema Resource.

        Raises NotFound if there is none, and Conflict while anybody has or wants anything of it.
        """
        return drive(self._operations.remove_resource(name))

    def allocations(self) -> list[AllocationInfo]:
        """Return what is granted, and what waits for it, by id: the schema Allocation."""
        return drive(self._operations.allocations())

    def allocation(self, id: str) -> AllocationInfo:
        """Return what is granted, or waits, under an id: the schema Allocation. Raises NotFound."""
        return drive(self._operations.allocation(id))

    def release_allocation(self, id: str) -> None:
        """End an allocation, or a request that waits for one, whoever has it. That there is none is no error."""
        return drive(self._operations.release_allocation(id))

    def views(self) -> list[ViewInfo]:
        """Return the views, by name, as far as the node that answers has folded the log: the schema View."""
        return drive(self._operations.views())

    def transfers(self, *, host: str = "", state: str = "", overdue: bool = False) -> list[Transfer]:
        """Return the transfers to a host, in a state, or overdue, the oldest first: the schema Transfer."""
        return drive(self._operations.transfers(host=host, state=state, overdue=overdue))

    def where(self, name: str) -> list[Copy]:
        """Return the copies of a dataset or model, by kind and host: the schema Copy."""
        return drive(self._operations.where(name))

    def held(self, host: str) -> list[Copy]:
        """Return the copies that a host has, by name and kind: the schema Copy."""
        return drive(self._operations.held(host))

    def audit(self, *, live: bool = False) -> Json:
        """Return who emits what and who listens, with orphans and dead subscriptions: the schema Audit.

        With live it is of what is registered and seen alone, without what documents and definitions declare.
        """
        return drive(self._operations.audit(live=live))

    def audit_coordinator(self, name: str) -> Json:
        """Return what is declared of a coordinator of the platform's registry against what is live.

        It is the schema CoordinatorAudit; NotFound for an unknown name.
        """
        return drive(self._operations.audit_coordinator(name))

    def history(self) -> Json:
        """Return the timeline of leadership and quorum: the schema History."""
        return drive(self._operations.history())


def drain_at_exit(operations: Operations) -> Callable[[], None]:
    """Have the events of a backlog sent when the interpreter ends, and return the hook, which atexit.unregister takes.

    The hook sends in the thread that runs it, as that of the backlog may have ended.
    """

    def hook() -> None:
        backlog = operations._backlog
        if not backlog.unsent:
            return
        config = operations._config
        blocking = Operations(config.over(_BlockingIo()), config, operations._publisher.spool)
        left = drive(backlog.drain(blocking._publisher, EXIT_TIMEOUT))
        if left:
            import logging

            logging.getLogger("ringlog").error("events of publish_soon not sent before the exit: %d", left)

    atexit.register(hook)
    # A process of multiprocessing ends without atexit.
    util = sys.modules.get("multiprocessing.util")
    if util is not None and sys.modules["multiprocessing.process"].parent_process() is not None:
        util.Finalize(None, hook, exitpriority=10)
    return hook
