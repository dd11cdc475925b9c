"""The old bus, as the modes shadow and compare reach it.

A bus is an object with two methods, of which the platform's module has both already:

    publish(event_type, payload, source)    returns what the old bus returns; it may be awaitable
    subscribe(event_type, handler)          calls the handler with the old bus's own event objects

QueueBus is the SQLite queue, and ModuleBus an old module.
"""

from __future__ import annotations

import asyncio
import contextvars
import importlib
import inspect
import json
import logging
import os
import socket
import threading
import time
from collections.abc import Awaitable, Iterable
from pathlib import PurePath
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ringlog.compat._event import Selection, name_of, resolve
from ringlog.compat._publication import running_loop
from ringlog.compat._subscription import Handler
from ringlog.errors import InvalidArgument
from ringlog.event import Json

if TYPE_CHECKING:
    import sqlite3

RETENTION = 24 * 3600.0  # seconds for which the old queue delivers a row
SUBSCRIBER_TIMEOUT = 300.0  # seconds without a poll
POLL_INTERVAL = 1.0  # seconds, as the old poller had it
LOCKED = 60.0  # seconds for which a statement waits for another process
PORTION = 50  # rows of one poll

published_at: contextvars.ContextVar[float] = contextvars.ContextVar("ringlog_published_at", default=0.0)
"""The time of the event that is being given to the old bus, in seconds since 1970."""

T = TypeVar("T")

logger = logging.getLogger("ringlog")


class OldBus(Protocol):
    """What an old bus has."""

    def publish(self, event_type: Any, payload: Any, source: str) -> Any:
        """Publish as before."""

    def subscribe(self, event_type: Any, handler: Handler) -> Any:
        """Call a handler as before."""


class ModuleBus:
    """A module, or any object, with the names of the old event_router.

    Types are given to it as members of its own DataEventType if it has one, else as they were given.
    """

    def __init__(self, module: ModuleType | Any) -> None:
        self._module = module
        for name in ("publish", "subscribe"):
            if not callable(getattr(module, name, None)):
                raise _wrong(f"{getattr(module, '__name__', module)!r:.80} has no {name}()")
        if str(getattr(module.publish, "__module__", "")).startswith("ringlog.compat"):
            raise _wrong(f"{getattr(module, '__name__', module)!r:.80} is ringlog.compat itself, not the old bus")

    def _type(self, event_type: Any) -> Any:
        own = getattr(self._module, "DataEventType", None)
        if own is None or event_type is None or isinstance(event_type, own):
            return event_type
        try:
            return own[name_of(resolve(event_type))]
        except (KeyError, TypeError, ValueError):
            return getattr(event_type, "value", event_type)

    def publish(self, event_type: Any, payload: Any, source: str) -> Any:
        """Publish as before."""
        return self._module.publish(self._type(event_type), payload, source)

    def subscribe(self, event_type: Any, handler: Handler) -> Any:
        """Call a handler as before."""
        return self._module.subscribe(self._type(event_type), handler)

    def unsubscribe(self, event_type: Any, handler: Handler) -> Any:
        """End a subscription, if the module can."""
        ended = getattr(self._module, "unsubscribe", None)
        return ended(self._type(event_type), handler) if ended is not None else False


class OldRow:
    """A row of the queue, with the fields of its old event."""

    def __init__(self, event_id: int, event_type: str, payload: Json, source: str, hostname: str, at: float) -> None:
        self.event_id, self.event_type, self.payload = event_id, event_type, payload
        self.source, self.hostname, self.created_at = source, hostname, at

    def to_dict(self) -> Json:
        """Return the fields as a dict."""
        return dict(self.__dict__)

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]


class QueueBus:
    """The SQLite queue: publishes rows, and delivers each to this process until it is acknowledged.

    Its subscriber is HOST:PID:PROCESS, as before, so that a process which has restarted is given the rows of the last
    24 hours again.
    """

    def __init__(self, file: str | os.PathLike[str], process: str = "", interval: float = POLL_INTERVAL) -> None:
        self.file, self.process, self._interval = os.fspath(file), process or "ringlog", interval
        self._handlers: list[tuple[Selection, Handler, asyncio.AbstractEventLoop | None]] = []
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None
        self._local = threading.local()
        self._check()

    def _check(self) -> None:
        """Raise InvalidArgument unless the file is a queue."""
        import sqlite3

        if not os.path.isfile(self.file):
            raise _wrong(f"there is no file {self.file}")
        try:
            for table in ("events", "subscribers", "acks"):
                if not self._db().execute(f"PRAGMA table_info({table})").fetchall():
                    raise _wrong(f"{self.file} has no table {table}: it is no old queue")
        except sqlite3.DatabaseError as e:
            raise _wrong(f"{self.file}: {e}") from e

    def _db(self) -> sqlite3.Connection:
        """Return the connection of this thread and process."""
        import sqlite3

        if getattr(self._local, "pid", 0) != os.getpid():
            self._local.db = sqlite3.connect(self.file, timeout=LOCKED, isolation_level=None)
            self._local.db.execute("PRAGMA synchronous = NORMAL")  # as before
            self._local.pid = os.getpid()
        db: sqlite3.Connection = self._local.db
        return db

    def publish(self, event_type: Any, payload: Any, source: str) -> int:
        """Append a row, and return its event_id."""
        values = (
            str(getattr(event_type, "value", event_type)), json.dumps(payload or {}), source, socket.gethostname(),
            published_at.get() or time.time(),
        )  # fmt: skip
        insert = "INSERT INTO events (event_type, payload, source, hostname, created_at) VALUES (?, ?, ?, ?, ?)"
        return self._db().execute(insert, values).lastrowid or 0

    def register(self, process: str, event_types: Iterable[Any] = ()) -> str:
        """Note a subscriber, and return its id."""
        name, now = f"{socket.gethostname()}:{os.getpid()}:{process}", time.time()
        types = json.dumps([str(getattr(t, "value", t)) for t in event_types])
        self._db().execute(
            "INSERT OR REPLACE INTO subscribers (subscriber_id, process_name, hostname, pid, subscribed_types, "
            "last_poll_at, created_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
            (name, process, socket.gethostname(), os.getpid(), types, now, now),
        )
        return name

    def poll(self, subscriber: str, selections: list[Selection], limit: int, after: int = 0) -> list[OldRow]:
        """Return rows that a subscriber has not acknowledged, in order of their ids."""
        db, found = self._db(), list[OldRow]()
        db.execute("UPDATE subscribers SET last_poll_at = ? WHERE subscriber_id = ?", (time.time(), subscriber))
        rows = db.execute(
            "SELECT e.event_id, e.event_type, e.payload, e.source, e.hostname, e.created_at FROM events e "
            "LEFT JOIN acks a ON a.event_id = e.event_id AND a.subscriber_id = ? "
            "WHERE a.event_id IS NULL AND e.created_at > ? AND e.event_id > ? ORDER BY e.event_id",
            (subscriber, time.time() - RETENTION, after),
        )
        for number, kind, payload, source, hostname, at in rows:
            if selections and not any(s.matches(resolve(kind)) for s in selections):
                continue
            try:
                found.append(OldRow(number, kind, json.loads(payload), source, hostname, at))
            except ValueError:
                logger.warning("row %d of %s is no JSON", number, self.file)
            if len(found) == limit:
                break
        return found

    def ack(self, subscriber: str, event_ids: Iterable[int]) -> int:
        """Acknowledge rows, and return how many."""
        rows = [(subscriber, number, time.time()) for number in event_ids]
        insert = "INSERT OR IGNORE INTO acks (subscriber_id, event_id, acked_at) VALUES (?, ?, ?)"
        db = self._db()
        # One transaction: each would wait for the disk.
        with db:
            db.execute("BEGIN IMMEDIATE")
            db.executemany(insert, rows)
        return len(rows)

    def cleanup(self) -> tuple[int, int, int]:
        """Remove rows of more than 24 hours and subscribers that poll no more, and return how many, with their acks."""
        old, dead = time.time() - RETENTION, time.time() - SUBSCRIBER_TIMEOUT
        db = self._db()
        return (
            db.execute("DELETE FROM events WHERE created_at < ?", (old,)).rowcount,
            db.execute("DELETE FROM subscribers WHERE last_poll_at < ?", (dead,)).rowcount,
            db.execute("DELETE FROM acks WHERE event_id NOT IN (SELECT event_id FROM events)").rowcount,
        )

    def subscribe(self, event_type: Any, handler: Handler) -> Handler:
        """Call a handler for rows of a type, or of all types for None, in a thread that polls."""
        with self._lock:
            self._handlers.append((Selection(event_type), handler, running_loop()))
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="ringlog-old-queue", daemon=True)
                self._thread.start()
        return handler

    def unsubscribe(self, event_type: Any, handler: Handler) -> bool:
        """End a subscription; False if there is none."""
        wanted = Selection(event_type).types
        with self._lock:
            kept = [each for each in self._handlers if each[0].types != wanted or each[1] != handler]
            ended = len(kept) < len(self._handlers)
            self._handlers = kept
        return ended

    def after_fork(self) -> None:
        """Forget the parent's handlers, whose thread is not in the child."""
        self._lock, self._closed = threading.Lock(), threading.Event()
        self._thread, self._handlers = None, []

    def close(self) -> None:
        """End the polling."""
        self._closed.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(5.0)

    def _run(self) -> None:
        published_at.set(0.0)
        subscriber = ""
        after = 0
        # Handlers that are subscribed together hear the same rows.
        self._closed.wait(self._interval)
        while not self._closed.is_set():
            try:
                subscriber = subscriber or self.register(self.process)
                rows = self.poll(subscriber, [], PORTION, after)
                for row in rows:
                    if self._closed.is_set():
                        return
                    handled = self._call(row)
                    # One that failed is not delivered again before the process restarts, as before.
                    after = row.event_id
                    if handled:
                        self.ack(subscriber, [row.event_id])
            except Exception as e:
                logger.error("the old queue %s is not read: %s", self.file, e)
                rows = []
            if len(rows) < PORTION:
                self._closed.wait(self._interval)

    def _call(self, row: OldRow) -> bool:
        """Give a row to the handlers, and report whether all have handled it."""
        with self._lock:
            handlers = [(h, loop) for s, h, loop in self._handlers if s.matches(resolve(row.event_type))]
        handled = True
        for handler, loop in handlers:
            try:
                result = handler(row)
                if inspect.isawaitable(result):
                    if loop is not None and loop.is_running():
                        asyncio.run_coroutine_threadsafe(finish(result), loop).result()
                    else:
                        asyncio.run(finish(result))
            except (Exception, asyncio.CancelledError):
                logger.exception("the old queue: row %d of %s", row.event_id, self.file)
                handled = False
        return handled


async def finish(result: Awaitable[T]) -> T:
    """Await what is awaitable, as a coroutine."""
    return await result


def find_old(given: Any, process: str) -> OldBus:
    """Return the old bus: an object with publish and subscribe, a SQLite file, or the name of a module.

    Where none is given, RINGLOG_OLD_BUS names a file or a module.
    """
    if given is None:
        given = os.environ.get("RINGLOG_OLD_BUS", "")
    if not given:
        raise _wrong("no old bus is given")
    if isinstance(given, QueueBus | ModuleBus):
        return given
    if not isinstance(given, str | PurePath):
        return ModuleBus(given)
    if isinstance(given, PurePath) or "/" in given or given.endswith((".db", ".sqlite")):
        return QueueBus(given, process)
    try:
        return ModuleBus(importlib.import_module(given))
    except InvalidArgument:
        raise
    except Exception as e:
        raise _wrong(f"the module {given} cannot be imported: {type(e).__name__}: {e}") from e


def _wrong(text: str) -> InvalidArgument:
    return InvalidArgument(
        text,
        code="invalid_argument",
        field="old",
        remedy="give old=, or set RINGLOG_OLD_BUS: the file of the old queue, or the name of the old module, such as "
        "app.coordination.event_router",
    )
