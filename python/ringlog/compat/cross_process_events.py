"""The queue between processes. In place of app.coordination.cross_process_events and its twin in app.distributed."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from ringlog._core.calls import path
from ringlog._core.io import drive
from ringlog._core.reader import Reader, log_gap
from ringlog.client import Client
from ringlog.compat._event import DataEvent, from_log, name_of, resolve
from ringlog.compat._outcome import Outcome, call
from ringlog.compat._process import get_router
from ringlog.errors import Fenced, NotFound
from ringlog.event import Json

if TYPE_CHECKING:
    from ringlog.compat._polled import PolledSubscriber
    from ringlog.compat._shadow import ShadowRouter

RETENTION = timedelta(hours=24)
"""How far back a process reads that polls for the first time, as the old queue did."""


@dataclass
class CrossProcessEvent:
    """An event of the queue. event_id is its offset."""

    event_id: int
    event_type: str
    payload: Json
    source: str
    created_at: float
    hostname: str = ""

    def to_dict(self) -> Json:
        """Return the fields as a dict."""
        return dict(self.__dict__)

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]


class _Subscriber:
    """A process that polls: its cursor, and which events it has acknowledged past the commit."""

    def __init__(self, log: Client, name: str, types: list[str], from_: timedelta | str = RETENTION) -> None:
        self._log, self.name, self._types, self._from = log, name, types, from_
        self._generation = 0
        self._read: list[int] = []  # offsets past the commit that were handed out, in order
        self._acked: set[int] = set()
        self._lock = threading.Lock()

    def _open(self) -> None:
        cursor = path("cursors", self.name)
        try:
            self._log.get_cursor(self.name)
        except NotFound:
            self._log.create_cursor(self.name, types=self._types, from_=self._from)
        answer = self._log.request("POST", cursor + "/open", {"opener": os.urandom(16).hex()})
        self._generation = answer["generation"]

    def poll(self, limit: int, types: set[str], after: int) -> list[DataEvent]:
        """Return at most limit events of types, or of all, that are not acknowledged, with offsets above after."""
        with self._lock:
            for last in (False, True):
                try:
                    return self._poll(limit, types, after)
                except Fenced:
                    # Another process polls under the same name: as on the old queue, both may.
                    if last:
                        raise
                    self._generation = 0
        return []

    def _poll(self, limit: int, types: set[str], after: int) -> list[DataEvent]:
        if not self._generation:
            self._open()
        calls, _ = self._log._reading()
        query: dict[str, str | list[str]] = {"generation": str(self._generation)}
        # Events that are not asked for, or acknowledged, are read past: they count for the commit alone.
        most = 0 if types or after else limit + len(self._acked)
        reader = Reader(calls, path("cursors", self.name, "events"), query, "", most, log_gap)
        found: list[DataEvent] = []
        self._read = []
        try:
            while len(found) < limit and (event := drive(reader.next())) is not None:
                self._read.append(event.offset)
                wanted = not types or event.type in types
                if wanted and event.offset > after and event.offset not in self._acked:
                    found.append(from_log(event))
        finally:
            reader.close()
        # Another process may have committed what this one has acknowledged.
        self._acked = {offset for offset in self._acked if self._read and offset >= self._read[0]}
        return found

    def ack(self, offsets: Iterable[int]) -> int:
        """Note events as handled, and commit up to the first that is not."""
        with self._lock:
            if not self._generation:
                self._open()
            wanted = {int(offset) for offset in offsets}
            self._acked |= wanted
            upto = 0
            for offset in self._read:
                if offset not in self._acked:
                    break
                upto = offset
            if upto:
                body = {"offset": upto, "generation": self._generation}
                try:
                    self._log.request("POST", path("cursors", self.name, "commit"), body)
                except Fenced:
                    self._open()
                    self._log.request(
                        "POST", path("cursors", self.name, "commit"), {**body, "generation": self._generation}
                    )
                self._read = [offset for offset in self._read if offset > upto]
                self._acked = {offset for offset in self._acked if offset > upto}
            return len(wanted)


class CrossProcessEventQueue:
    """Events between processes. Each process has a cursor of its name in the log, on all hosts."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._subscribers: dict[str, _Subscriber] = {}

    def publish(self, event_type: Any, payload: Mapping[str, Any] | None = None, source: str = "") -> int:
        """Publish an event, and return its event_id once the log has it, or beside the old queue that of its row."""
        if (beside := _beside()) is not None:
            return beside.publish_row(event_type, payload, source)
        return (
            get_router().log.publish(name_of(resolve(event_type)), payload, source=source or get_router().source).offset
        )

    def subscribe(self, process_name: str = "", event_types: Iterable[Any] | None = None) -> str:
        """Name a process, and what it polls for; return the name, which poll, ack and others take.

        It is the same after a restart. Without a name it is that of the router, else host and program.
        """
        router = get_router()
        name = process_name or router.name or f"{socket.gethostname()}.{router.source}"
        if (beside := _beside()) is not None:
            _polled(beside, name, event_types)
            return name
        types = sorted({name_of(resolve(t)) for t in event_types or ()})
        with self._lock:
            if name not in self._subscribers:
                self._subscribers[name] = _Subscriber(router.log, f"queue.{name}", types)
        return name

    def _subscriber(self, process_name: str, event_types: Iterable[Any] | None = None) -> _Subscriber:
        name = self.subscribe(process_name, event_types)
        with self._lock:
            return self._subscribers[name]

    def get_pending_events(
        self, process_name: str = "", event_types: Iterable[Any] | None = None, limit: int = 100
    ) -> list[CrossProcessEvent]:
        """Return the events that a process has not acknowledged, in order, at most limit."""
        return self.poll(process_name, event_types, limit)

    def poll(
        self,
        subscriber_id: str = "",
        event_types: Iterable[Any] | None = None,
        limit: int = 100,
        since_event_id: int | None = None,
    ) -> list[CrossProcessEvent]:
        """Return the events that a process has not acknowledged, above an event_id if it is given."""
        if (beside := _beside()) is not None:
            name = self.subscribe(subscriber_id, event_types)
            return _poll_beside(beside, name, event_types, limit, since_event_id or 0)
        types = {name_of(resolve(t)) for t in event_types or ()}
        events = self._subscriber(subscriber_id, event_types).poll(limit, types, since_event_id or 0)
        return [CrossProcessEvent(e.offset, e.name, e.payload, e.source, e.timestamp) for e in events]

    def ack_event(self, event_id: int, process_name: str = "") -> Outcome:
        """Acknowledge an event: it is not returned again. It may be awaited."""
        return self.ack_events([event_id], process_name)

    def ack_events(self, event_ids: Iterable[int], process_name: str = "") -> Outcome:
        """Acknowledge events, and return how many. It may be awaited."""
        if (beside := _beside()) is not None:
            return Outcome(_polled(beside, self.subscribe(process_name)).ack(event_ids))
        subscriber = self._subscriber(process_name)
        return call(lambda: subscriber.ack(event_ids))

    def ack(self, subscriber_id: str, event_id: int) -> Outcome:
        """Acknowledge an event of a process."""
        return self.ack_events([event_id], subscriber_id)

    def ack_batch(self, subscriber_id: str, event_ids: Iterable[int]) -> Outcome:
        """Acknowledge events of a process."""
        return self.ack_events(event_ids, subscriber_id)

    def get_pending_count(self, process_name: str = "") -> int:
        """Return how many events a process has not committed."""
        name = self.subscribe(process_name)
        if (beside := _beside()) is not None:
            return _polled(beside, name).count()
        try:
            return int(get_router().log.get_cursor(f"queue.{name}")["lag_events"])
        except NotFound:
            return 0

    def cleanup(self) -> tuple[int, int, int]:
        """Do nothing: the settings retention.* bound the log. Beside the old queue, clean that up as before."""
        return (0, 0, 0) if (beside := _beside()) is None else beside.old_queue.cleanup()


def _beside() -> ShadowRouter | None:
    """Return the router if it runs beside an old bus."""
    router = get_router()
    if router.mode == "log":
        return None
    from ringlog.compat._shadow import ShadowRouter

    assert isinstance(router, ShadowRouter)
    return router


def _polled(beside: ShadowRouter, name: str, event_types: Iterable[Any] | None = None) -> PolledSubscriber:
    """Return a process that polls the old queue."""
    from ringlog.compat._polled import PolledSubscriber

    def make() -> PolledSubscriber:
        types = list(event_types or ())
        log = _Subscriber(beside.log, f"queue.{name}", sorted({name_of(resolve(t)) for t in types}), from_="end")
        return PolledSubscriber(beside, name, types, log)

    return beside.polled(name, make)


def _poll_beside(
    beside: ShadowRouter, name: str, types: Iterable[Any] | None, limit: int, after: int
) -> list[CrossProcessEvent]:
    rows = _polled(beside, name, types).poll(types or (), limit, after)
    return [CrossProcessEvent(r.event_id, r.event_type, r.payload, r.source, r.created_at, r.hostname) for r in rows]


_queue = CrossProcessEventQueue()


def get_cross_process_queue(*_old_arguments: Any) -> CrossProcessEventQueue:
    """Return the queue. The path of a database, which the old one took, is ignored."""
    return _queue


get_event_queue = get_cross_process_queue


def publish_cross_process(event_type: Any, payload: Mapping[str, Any] | None = None, source: str = "") -> Outcome:
    """Publish an event to other processes, and return its event_id once the log has it. It may be awaited."""
    return call(lambda: _queue.publish(event_type, payload, source))


publish_event = publish_cross_process


def subscribe_process(process_name: str, event_types: Iterable[Any] | None = None) -> str:
    """Name a process that polls."""
    return _queue.subscribe(process_name, event_types)


def poll_events(
    subscriber_id: str = "", event_types: Iterable[Any] | None = None, limit: int = 100
) -> list[CrossProcessEvent]:
    """Return the events that a process has not acknowledged."""
    return _queue.poll(subscriber_id, event_types, limit)


def ack_event(subscriber_id: str, event_id: int) -> Outcome:
    """Acknowledge an event of a process."""
    return _queue.ack(subscriber_id, event_id)


def ack_events(subscriber_id: str, event_ids: Iterable[int]) -> Outcome:
    """Acknowledge events of a process."""
    return _queue.ack_batch(subscriber_id, event_ids)


__all__ = [
    "CrossProcessEvent",
    "CrossProcessEventQueue",
    "ack_event",
    "ack_events",
    "get_cross_process_queue",
    "get_event_queue",
    "poll_events",
    "publish_cross_process",
    "publish_event",
    "subscribe_process",
]
