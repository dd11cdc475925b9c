"""An Io whose connections end at a memory log of this process."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Coroutine
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

from ringlog._core.io import Io, Signal, Task
from ringlog._memory.log import Log
from ringlog._memory.node import Node, Reply
from ringlog.errors import InvalidArgument

if TYPE_CHECKING:
    import ssl

T = TypeVar("T")

logs: weakref.WeakValueDictionary[str, Log] = weakref.WeakValueDictionary()
"""The memory logs of this process, by the host of their URLs."""


def find(host: str) -> Log:
    """Return a memory log. Raises InvalidArgument."""
    log = logs.get(host)
    if log is None:
        raise InvalidArgument(
            f"there is no memory log {host!r} in this process",
            code="invalid_argument",
            field="endpoints",
            remedy="use the url of a ringlog.testing.MemoryLog, which lives as long as something refers to it",
        )
    return log


class MemoryIo:
    """An Io over a memory log: waiting and tasks are those of another Io."""

    def __init__(self, io: Io, log: Log) -> None:
        self._io, self.log = io, log

    async def connect(self, host: str, port: int, tls: ssl.SSLContext | None, timeout: float) -> _Connection:
        """Return a connection to the log."""
        return _Connection(self.log, self._io.signal())

    def now(self) -> datetime:
        """Return the time of the log."""
        return self.log.clock.now()

    def monotonic(self) -> float:
        """Return real seconds and those by which the log's clock was moved."""
        return time.monotonic() + self.log.clock.moved

    async def sleep(self, seconds: float) -> None:
        """Wait, in real time."""
        await self._io.sleep(seconds)

    async def run(self, work: Callable[[], T]) -> T:
        """Run what blocks on the disk."""
        return await self._io.run(work)

    def signal(self) -> Signal:
        """Return a signal that is set when the log's clock is moved, too."""
        signal = self._io.signal()
        with self.log.lock:
            self.log.signals.add(signal)
        return signal

    def spawn(self, name: str, body: Callable[[], Coroutine[Any, Any, None]]) -> Task:
        """Run body() beside the caller."""
        return self._io.spawn(name, body)


class _Connection:
    """One request at a time, and its answer as it comes."""

    def __init__(self, log: Log, signal: Signal) -> None:
        self._log, self._signal = log, signal
        self._reply: Reply | None = None
        self._closed = False
        self.idle_since = 0.0
        self.host = ""

    async def send(self, data: bytes, timeout: float) -> None:
        with self._log.lock:
            self._reply = Node(self._log).handle(data)
            self._log.waiting.add(self._signal)

    async def receive(self, timeout: float) -> bytes:
        until = time.monotonic() + timeout
        while True:
            seen = self._signal.version
            with self._log.lock:
                reply = self._reply
                if self._closed or reply is None:
                    return b""
                data = reply.take()
                if data or reply.over:
                    return data
            left = min(until, reply.wakes_at) - time.monotonic()
            if time.monotonic() >= until:
                raise TimeoutError("timed out")
            await self._signal.wait(seen, max(0.0, left))

    def is_stale(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._closed = True
        self._signal.set_threadsafe()
