"""What the shared coroutines ask of their surroundings: connections, waiting, tasks running beside the caller."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")


class Connection(Protocol):
    """A TCP or TLS connection. Errors are OSError; a time that runs out is TimeoutError."""

    idle_since: float  # time.monotonic() when it was returned to the pool
    host: str  # the Host header

    async def send(self, data: bytes, timeout: float) -> None:
        """Send all of data within timeout seconds."""

    async def receive(self, timeout: float) -> bytes:
        """Return some bytes, at least one, or b"" at the end of the stream."""

    def is_stale(self) -> bool:
        """Report whether the other side has closed an idle connection or sent what nobody asked for."""

    def close(self) -> None:
        """Close it. A receive in another thread then returns b"" or raises OSError."""


class Signal(Protocol):
    """Wakes those that wait for a change. A waiter reads version before it looks, so that no change is missed."""

    version: int

    def set(self) -> None:
        """Count a change and wake all waiters. The asyncio one is called in its loop's thread alone."""

    def set_threadsafe(self) -> None:
        """Do the same from any thread."""

    async def wait(self, seen: int, timeout: float | None) -> None:
        """Return once version is not seen, or when timeout seconds have passed."""


class Task(Protocol):
    """A coroutine that runs beside the caller: a thread of the blocking client, a task of the asyncio one."""

    def alive(self) -> bool:
        """Report whether it still runs in this process."""

    async def join(self, timeout: float) -> bool:
        """Wait until it has ended; False if timeout seconds were too short."""


class Io(Protocol):
    """The surroundings."""

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None, timeout: float) -> Connection:
        """Open a connection within timeout seconds."""

    def now(self) -> datetime:
        """Return the time from which ages count, in UTC."""

    def monotonic(self) -> float:
        """Return the seconds of the clock by which a member's ack wait and session are measured."""

    async def sleep(self, seconds: float) -> None:
        """Wait."""

    async def run(self, work: Callable[[], T]) -> T:
        """Run what blocks on the disk. An event loop keeps running meanwhile."""

    def signal(self) -> Signal:
        """Return a new signal that is not set."""

    def spawn(self, name: str, body: Callable[[], Coroutine[Any, Any, None]]) -> Task:
        """Run body() beside the caller."""


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine whose Io blocks, in the caller's thread."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        result: T = done.value
        return result
    coroutine.close()
    raise RuntimeError("a coroutine of the blocking client was suspended")
