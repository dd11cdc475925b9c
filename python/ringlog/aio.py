"""AsyncClient: the client for asyncio. It has no threads; its methods are called in the thread of the event loop."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Generator, Iterable, Mapping
from datetime import datetime, timezone
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast

from ringlog import _fork
from ringlog._core.calls import Calls
from ringlog._core.config import Config
from ringlog._core.cursor import CursorState
from ringlog._core.encode import build_event, encode
from ringlog._core.io import Io, T
from ringlog._core.member import MemberLoop
from ringlog._core.notices import OnWarning
from ringlog._core.operations import Operations
from ringlog._core.reader import Reader
from ringlog._core.readers import Readers
from ringlog.answers import Letter, ViewChange, ViewInfo, ViewRow
from ringlog.client import EXIT_TIMEOUT, drain_at_exit
from ringlog.delivery import Delivery
from ringlog.errors import RinglogError
from ringlog.event import Event, EventFields, NewEvent, Result

if TYPE_CHECKING:
    import ssl

    from typing_extensions import Self, Unpack

    from ringlog._core.allocation import AllocationState
    from ringlog._core.lease import LeaseState
    from ringlog._core.payload import Payload
    from ringlog._core.role import RoleState
    from ringlog._core.view import RowReader, ViewState

_RECEIVE = 256 << 10  # bytes asked for at a time, and kept by a stream before it stops reading


class _Connection:
    """A stream with a deadline for each call: when it passes, the connection is aborted."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        self._expired = False
        self.idle_since = 0.0
        self.host = ""

    def _expire(self) -> None:
        self._expired = True
        self._writer.transport.abort()

    async def send(self, data: bytes, timeout: float) -> None:
        self._writer.write(data)
        timer = self._loop.call_later(timeout, self._expire)
        try:
            await self._writer.drain()
        finally:
            timer.cancel()
        self._check()

    async def receive(self, timeout: float) -> bytes:
        timer = self._loop.call_later(timeout, self._expire)
        try:
            data = await self._reader.read(_RECEIVE)
        finally:
            timer.cancel()
        self._check()
        return data

    def _check(self) -> None:
        if self._expired:
            raise TimeoutError("timed out")

    def is_stale(self) -> bool:
        # A connection of another event loop, as of an earlier asyncio.run, is of no use.
        return self._loop is not asyncio.get_running_loop() or self._reader.at_eof() or self._writer.is_closing()

    def close(self) -> None:
        # In a child, and after the loop's end, closing would reach into the parent's or a dead
        # selector. The socket is closed when it is collected.
        if self._pid == os.getpid() and not self._loop.is_closed():
            self._writer.transport.abort()


class _Signal:
    """A counter with the futures of those that wait for it to change."""

    def __init__(self) -> None:
        self.version = 0
        self._waiters: set[asyncio.Future[None]] = set()

    def set(self) -> None:
        self.version += 1
        for waiter in self._waiters:
            _wake(waiter)

    def set_threadsafe(self) -> None:
        self.version += 1
        for waiter in tuple(self._waiters):
            with contextlib.suppress(RuntimeError):  # its loop is closed
                waiter.get_loop().call_soon_threadsafe(_wake, waiter)

    async def wait(self, seen: int, timeout: float | None) -> None:
        loop = asyncio.get_running_loop()
        waiter: asyncio.Future[None] = loop.create_future()
        timer = None if timeout is None else loop.call_later(timeout, _wake, waiter)
        self._waiters.add(waiter)
        try:
            if self.version == seen:  # looked at after the waiter can be seen from other threads
                await waiter
        finally:
            self._waiters.discard(waiter)
            if timer is not None:
                timer.cancel()


def _wake(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)


class _Task:
    """A task of the running loop."""

    def __init__(self, name: str, body: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._pid = os.getpid()
        self._task = asyncio.get_running_loop().create_task(body(), name=name)

    def alive(self) -> bool:
        return self._pid == os.getpid() and not self._task.done() and not self._task.get_loop().is_closed()

    async def join(self, timeout: float) -> bool:
        if not self.alive():
            return True
        done, _ = await asyncio.wait([self._task], timeout=timeout)
        if not done:
            self._task.cancel()
        return bool(done)


class _AsyncioIo:
    """Io of the running event loop."""

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None, timeout: float) -> _Connection:
        opening = asyncio.open_connection(
            host, port, ssl=tls, server_hostname=host if tls is not None else None, limit=_RECEIVE
        )
        try:
            reader, writer = await asyncio.wait_for(opening, timeout)
        except asyncio.TimeoutError as e:  # not an OSError before Python 3.11
            raise TimeoutError("timed out") from e
        return _Connection(reader, writer)

    def now(self) -> datetime:
        return datetime.now(timezone.utc)

    def monotonic(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(None, work)

    def signal(self) -> _Signal:
        return _Signal()

    def spawn(self, name: str, body: Callable[[], Coroutine[Any, Any, None]]) -> _Task:
        return _Task(name, body)


class _Closing:
    """An async with block that ends with close."""

    async def __aenter__(self) -> Self:
        await self._enter()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _enter(self) -> None:
        """Do what the beginning of the block asks for."""

    async def close(self) -> None:
        """End it. It may be called again."""
        raise NotImplementedError


class AsyncTail(_Closing, AsyncIterator[Event]):
    """The events of AsyncClient.tail: an iterator, and an async with block that ends the reading."""

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    async def _enter(self) -> None:
        await self._reader.connect()

    async def __anext__(self) -> Event:
        event = self._reader.next_buffered() or await self._reader.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def close(self) -> None:
        """End the reading, also of a caller that waits for an event, which gets Closed."""
        self._reader.close()


class AsyncCursor(_Closing, AsyncIterator[Event]):
    """A cursor of AsyncClient.cursor: an iterator of the events after its commit."""

    def __init__(self, state: CursorState) -> None:
        self._state = state

    async def _enter(self) -> None:
        await self._state.open()

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

    async def __anext__(self) -> Event:
        event = await self._state.next()
        if event is None:
            raise StopAsyncIteration
        return event

    async def commit(self, event: Event | int | None = None) -> None:
        """Commit all up to an event or offset, by default the event that was handed out last.

        It is durable when the call returns. A commit never moves the cursor back. Raises Fenced once
        another process has opened the cursor.
        """
        await self._state.commit(event)

    async def dead_letter(
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
        return await self._state.dead_letter(error, event, attempts, handler)

    async def close(self) -> None:
        """End the reading. The cursor keeps its commit, and the next reading resumes after it."""
        self._state.close()


class AsyncMember(_Closing, AsyncIterator[Delivery]):
    """A member of a group, of AsyncClient.group: an iterator of deliveries. Several tasks may share it."""

    def __init__(self, loop: MemberLoop) -> None:
        self._loop = loop

    async def _enter(self) -> None:
        await self._loop.join()

    @property
    def name(self) -> str:
        """The member's name."""
        return self._loop.state.name

    async def __anext__(self) -> Delivery:
        raw = await self._loop.next_until_closed()
        if raw is None:
            raise StopAsyncIteration
        return Delivery(raw, self._loop)

    async def next(self, timeout: float | None = None) -> Delivery | None:
        """Return the next delivery, None after timeout seconds without one. Raises Closed once the member is closed."""
        raw = await self._loop.next(timeout)
        return None if raw is None else Delivery(raw, self._loop)

    async def flush(self, timeout: float = 30.0) -> bool:
        """Wait until all acks and nacks are durable; False if timeout seconds were too short."""
        return await self._loop.flush(timeout)

    async def close(self, timeout: float = 10.0) -> None:
        """Report all acks and nacks, return what was not handled to the group, and leave it.

        It takes at most timeout seconds; without contact the group takes everything back by itself.
        """
        await self._loop.close(timeout)


class _Lease:
    """What this process holds for as long as it renews it: awaiting it acquires it."""

    _state: LeaseState
    _lost: asyncio.Event

    def __await__(self) -> Generator[Any, None, Self]:
        return self.__aenter__().__await__()

    async def __aenter__(self) -> Self:
        await self._state.acquire()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.release()

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
    def lost(self) -> asyncio.Event:
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

    async def release(self, timeout: float = 10.0) -> bool:
        """End the lease, so that the next in the queue gets it; False if no node has answered.

        It takes about timeout seconds at most. Without an answer the lease ends by itself after the ttl.
        """
        return await self._state.release(timeout)


class AsyncRole(_Lease):
    """A role of AsyncClient.acquire_role, which awaiting acquires: an async with block that ends with release."""

    _state: RoleState

    def __init__(self, operations: Operations, name: str, ttl: float, wait: bool | float, holder: str | None) -> None:
        self._operations = operations
        self._lost = asyncio.Event()
        self._state = operations._new_role(name, ttl, wait, holder, self._lost)

    @property
    def name(self) -> str:
        """The role's name."""
        return self._state.name

    async def publish(
        self,
        type: str | Payload,
        payload: Mapping[str, Any] | None = None,
        **fields: Unpack[EventFields],
    ) -> Result:
        """Append one event as Client.publish does, if this process still holds the role when the cluster decides.

        Raises RoleLost if it does not. The event is never spooled: Unavailable is raised where no node takes it.
        """
        return await self._operations._publish_under(self._state, type, payload, fields)

    async def publish_many(self, events: Iterable[NewEvent]) -> list[Result]:
        """Append events as Client.publish_many does, if this process still holds the role. Raises as publish does."""
        return await self._operations._publish_many_under(self._state, events)


class AsyncAllocation(_Lease):
    """An allocation of AsyncClient.allocate, which awaiting requests: an async with block that ends with release."""

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
        self._lost = asyncio.Event()
        self._state = operations._new_allocation(amounts, priority, ttl, wait, holder, self._lost)

    @property
    def id(self) -> str:
        """The allocation's id."""
        return self._state.id

    @property
    def amounts(self) -> dict[str, int]:
        """What is allocated, by resource."""
        return dict(self._state.amounts)


class AsyncRowWatch(_Closing, AsyncIterator[ViewChange]):
    """The rows of AsyncView.watch: an iterator, and an async with block that ends the reading."""

    def __init__(self, reader: RowReader) -> None:
        self._reader = reader

    async def _enter(self) -> None:
        await self._reader.connect()

    async def __anext__(self) -> ViewChange:
        change = await self._reader.next_row()
        if change is None:
            raise StopAsyncIteration
        return change

    async def close(self) -> None:
        """End the reading, also of a caller that waits for a row, which gets Closed."""
        self._reader.close()


class AsyncView:
    """A view of AsyncClient.view. docs/views.md explains views."""

    def __init__(self, state: ViewState) -> None:
        self._state = state

    @property
    def name(self) -> str:
        """The view's name."""
        return self._state.name

    async def info(self) -> ViewInfo:
        """Return the view as the node that answers has folded it: the schema View. Raises NotFound."""
        return await self._state.info()

    async def define(self, declaration: Mapping[str, Any]) -> ViewInfo:
        """Define the view on all nodes, or define it otherwise, and return it: the schema View.

        One that is defined otherwise is folded again from the beginning of the log. The same declaration again changes
        nothing. Raises InvalidArgument with the place of what is wrong.
        """
        return await self._state.define(declaration)

    async def remove(self) -> ViewInfo:
        """Remove the view, and return it as it was: the schema View. Raises NotFound."""
        return await self._state.remove()

    async def get(self, key: str, *, at: int | None = None) -> ViewRow:
        """Return the row of a key: the schema ViewRow. All that was acknowledged before is folded into it.

        With at it is as of that offset; Trimmed is raised where the events that it was folded from are gone. Raises
        NotFound if there is no such row.
        """
        return await self._state.get(key, at)

    async def rows(self, *, at: int | None = None) -> list[ViewRow]:
        """Return all rows, by key, with at as of that offset: the schema ViewRow.

        They are read in pages. Without at each page is as of an offset of its own.
        """
        return await self._state.rows(at)

    def watch(self, *keys: str) -> AsyncRowWatch:
        """Yield the rows, or those of these keys, and then each that changes, as of an offset: a ViewChange.

        Changes of a row that follow each other quickly are one. After a failure the watch continues at another node,
        and begins there with all rows again. It ends with NotFound once the view is removed or defined otherwise.
        """
        return AsyncRowWatch(self._state.watch(keys))


class AsyncClient(_Closing, Operations, Readers[AsyncTail, AsyncCursor, AsyncMember]):
    """A client of one cluster for asyncio. The arguments are those of Client.

    A client that was made before a fork works in parent and child, and one that was used in one
    asyncio.run works in the next.
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
        config = Config(
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
        super().__init__(config.over(cast(Io, _AsyncioIo())), config)
        self._at_exit: Callable[[], None] | None = None
        _fork.watch(self)

    def _after_fork(self) -> None:
        super()._after_fork()
        self._at_exit = None

    async def _enter(self) -> None:
        self._publisher.wake()  # what an earlier process has left

    def _reading(self) -> tuple[Calls, Io]:
        self._check_open()
        return self._calls, self._io

    def _new_tail(self, reader: Reader) -> AsyncTail:
        return AsyncTail(reader)

    def _new_cursor(self, state: CursorState) -> AsyncCursor:
        return AsyncCursor(state)

    def _new_member(self, loop: MemberLoop) -> AsyncMember:
        return AsyncMember(loop)

    def acquire_role(
        self, name: str, *, ttl: float = 15.0, wait: bool | float = True, holder: str | None = None
    ) -> AsyncRole:
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
        return AsyncRole(self, name, ttl, wait, holder)

    def allocate(
        self,
        amounts: Mapping[str, int],
        *,
        priority: str = "NORMAL",
        ttl: float = 15.0,
        wait: bool | float = True,
        holder: str | None = None,
    ) -> AsyncAllocation:
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
        return AsyncAllocation(self, amounts, priority, ttl, wait, holder)

    def view(self, name: str) -> AsyncView:
        """Return a view, to define it and to read its rows. Nothing is asked of the cluster before."""
        return AsyncView(self._view(name))

    async def publish_soon(
        self,
        type: str | Payload,
        payload: Mapping[str, Any] | None = None,
        **fields: Unpack[EventFields],
    ) -> asyncio.Future[Result]:
        """Publish an event in the background, in batches, and return the future of its result.

        Events are appended in the order of these calls. The future has the result, or the exception
        that publish would raise, but after the client's delivery_timeout instead of its timeout. Where
        the events that wait take 64 MiB, at 2 KiB each beside their JSON, the call waits for room. flush
        and close wait for all events and raise the first failure; when the interpreter ends they are
        sent for at most EXIT_TIMEOUT seconds.
        """
        encoded = encode(build_event(type, payload, fields, self._config.source, self._config.clock))
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def settle(result: Result | None, error: RinglogError | None) -> None:
            if future.done() or loop.is_closed():
                return
            if error is not None:
                future.set_exception(error)
                future.exception()  # flush reports it, so asyncio need not
            elif result is not None:
                future.set_result(result)

        if self._at_exit is None:
            self._at_exit = drain_at_exit(self)
        await self._backlog.add(encoded, settle)
        return future

    async def flush(self, timeout: float | None = None) -> bool:
        """Wait until all events of publish_soon are answered; False if timeout seconds were too short.

        Raises the first failure since the last flush.
        """
        return await self._backlog.flush(timeout)

    async def close(self, timeout: float = EXIT_TIMEOUT) -> None:
        """Send what publish_soon has accepted, for at most timeout seconds, release roles and allocations, and end
        the connections.

        What it has not sent then, it never sends: it raises Unavailable, or OutcomeUnknown if a node may have
        got an event. If nothing is left it raises the first failure since the last flush.
        """
        if self._at_exit is not None:
            atexit.unregister(self._at_exit)
            self._at_exit = None
        await self._close(timeout)
