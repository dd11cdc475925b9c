"""UnifiedEventRouter: what is published here reaches the handlers of this process at once, and the log."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import json
import logging
import os
import sys
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import PurePath
from typing import Any

from ringlog import _fork
from ringlog._core.cause import inherit
from ringlog._core.checks import check_number
from ringlog._core.encode import encode
from ringlog.client import Client
from ringlog.compat._breaker import HandlerBreaker
from ringlog.compat._event import (
    CoordinatorSelection,
    DataEvent,
    Selection,
    canonical,
    content_hash,
    from_log,
    name_of,
    resolve,
)
from ringlog.compat._publication import Publication, complete_as, running_loop
from ringlog.compat._registration import Registration
from ringlog.compat._subscription import Handler, OwnTasks, StoredEvent, Subscription, Task
from ringlog.errors import InvalidArgument, OutcomeUnknown, RinglogError, Unavailable
from ringlog.event import Json, Result

DEDUP_WINDOW = 60.0  # seconds, as on the old bus and by default in the log
MAX_RECENT = 1000  # events that are remembered
MAX_OWN = 16384  # published events whose return through the log is awaited
ATTACH_TIMEOUT = 2.0  # seconds that subscribe waits for the log
DEFAULT_HANDLER_TIMEOUT = 30.0
RETRY_DELAYS = (1.0, 2.0, 4.0)
EXIT_TIMEOUT = 5.0

logger = logging.getLogger("ringlog")


def handler_timeout() -> float:
    """Return RINGRIFT_EVENT_HANDLER_TIMEOUT, or 30, in seconds."""
    text = os.environ.get("RINGRIFT_EVENT_HANDLER_TIMEOUT", "")
    try:
        seconds = float(text) if text else DEFAULT_HANDLER_TIMEOUT
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise InvalidArgument(
            f"{text!r:.40} is no number of seconds above 0",
            code="invalid_argument",
            field="RINGRIFT_EVENT_HANDLER_TIMEOUT",
            remedy="set it to seconds such as 600, or unset it",
        )
    return seconds


def refuse_bare(event_type: Any) -> None:
    """Raise TypeError for a decorator without its parentheses, which gets the function in place of a type."""
    if callable(event_type) and not isinstance(event_type, type) and not hasattr(event_type, "value"):
        raise TypeError(f"{event_type!r:.60} is no type of an event: write @subscribe(TYPE)")


def show_events() -> None:
    """Log each event that passes, on the standard error if the program has set no logging up."""
    logger.setLevel(logging.DEBUG)
    if not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())


@dataclass
class CoordinatorStats:
    """What the old coordinator counted."""

    events_bridged_data_to_cross: int = 0
    events_bridged_stage_to_cross: int = 0
    events_bridged_cross_to_data: int = 0
    events_dropped: int = 0
    last_bridge_time: str | None = None
    errors: list[str] = field(default_factory=list)
    start_time: str | None = None
    is_running: bool = False


class UnifiedEventRouter:
    """Publishes events, and calls handlers for those of this process and of all others.

    log             the client, which the caller closes; default Client(), which reads the environment
    name            the daemon's name: its subscriptions are durable then, each a cursor NAME.HANDLER.TYPE that
                    resumes after a restart. Two processes must not share one. Without a name they are live: they
                    get what is published while the process runs. Default RINGLOG_SUBSCRIBER
    source          the source of events that are published without one; default the name, or that of the program
    retry_delays    seconds before each further attempt of a handler that failed
    breaker_failures
                    on how many different events a handler fails, with no success in between, before it is not called
                    for breaker_reset seconds, in which its events wait; 0 is no limit
    """

    mode = "log"

    def __init__(
        self,
        log: Client | None = None,
        *,
        name: str | None = None,
        source: str = "",
        retry_delays: tuple[float, ...] = RETRY_DELAYS,
        breaker_failures: int = 3,
        breaker_reset: float = 300.0,
    ) -> None:
        self.name = os.environ.get("RINGLOG_SUBSCRIBER", "") if name is None else name
        self.source = source or self.name or PurePath(sys.argv[0] or "python").stem
        self.log = log or Client(source=self.source)
        self._owns_log = log is None
        self.retry_delays = retry_delays
        check_number("breaker_failures", breaker_failures, 0, 1e9, 3, whole=True)
        check_number("breaker_reset", breaker_reset, 0.001, 1e9, 300)
        self.breaker_failures, self.breaker_reset = breaker_failures, breaker_reset
        self.closing = threading.Event()
        if os.environ.get("RINGRIFT_DEBUG", "").lower() not in ("", "0", "false", "no"):
            show_events()
        self.started = datetime.now(timezone.utc).isoformat()
        self._reset()
        _fork.watch(self)
        atexit.register(self.stop)

    def _reset(self) -> None:
        self._lock = threading.RLock()
        self._subscriptions: list[Subscription] = []
        self._in_flight: dict[str, list[Publication]] = {}  # by canonical payload
        self._own: OrderedDict[int, OwnTasks] = OrderedDict()  # by offset
        self._away: deque[tuple[DataEvent, str, OwnTasks]] = deque()  # no offset is known, with the canonical payload
        self._recent_events: OrderedDict[str, float] = OrderedDict()  # when each content was published, by its hash
        self._read_offsets: OrderedDict[int, None] = OrderedDict()
        self._history: deque[DataEvent] = deque(maxlen=MAX_RECENT)
        self._counts = {"published": 0, "received": 0, "failed": 0, "timed_out": 0}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._registration = Registration(self.log, self.source, self._describe)

    def _before_fork(self) -> None:
        pass

    def _after_fork_in_parent(self) -> None:
        pass

    def _after_fork(self) -> None:
        # Readers and handlers stay the parent's: a child that opened its cursors would fence it.
        self.closing = threading.Event()
        self._reset()

    # Publishing.

    def publish(
        self,
        event_type: Any,
        payload: Mapping[str, Any] | None = None,
        source: str = "",
        *,
        key: str = "",
        correlation_id: str = "",
        causation_id: str = "",
        dedup: bool = True,
        **_routes: bool,
    ) -> Publication:
        """Publish an event: handlers of this process are called at once, those of others get it from the log.

        It may be awaited, and where no event loop runs it returns when it is done. The same content within a
        minute is a duplicate, unless dedup is False: no handler is called for it here, and the log keeps the first.
        Raises what Client.publish raises; a payload that has no JSON is refused before any handler is called.
        """
        event = DataEvent(resolve(event_type), dict(payload or {}), source, time.time(), correlation_id, causation_id)
        event.key = key
        return self.publish_event(event, dedup=dedup)

    def publish_event(self, event: DataEvent, *, dedup: bool = True) -> Publication:
        """Publish a DataEvent, as publish does."""
        event.event_type = resolve(event.event_type)
        event.source = event.source or self.source
        # Handlers here get what handlers elsewhere get: the payload as JSON has it.
        event.payload = json.loads(encode(event.payload, "payload"))
        content = canonical(event.payload)
        event.hash = content_hash(event.event_type, content)

        given = {"source": event.source, "key": event.key, "correlation_id": event.correlation_id}
        given["causation_id"] = event.causation_id
        fields: Json = inherit({"payload": event.payload, **{k: v for k, v in given.items() if v}})
        fields.pop("payload")
        event.correlation_id = str(fields.get("correlation_id") or event.payload.get("correlation_id") or "")
        event.causation_id = fields.get("causation_id", "")
        fields["time"] = datetime.fromtimestamp(event.timestamp, timezone.utc)
        if not dedup:
            fields["dedup"] = False

        # It is known before it is sent, so that no reader takes it for an event of another process.
        loop = running_loop()
        new = self._note(event) or not dedup
        publication = Publication(event)
        if new:
            publication.tasks = {s: Task(event, loop) for s in self._matching(event)}
        with self._lock:
            self._counts["published"] += 1
            if publication.tasks:
                self._in_flight.setdefault(content, []).append(publication)
        publication.sent.add_done_callback(lambda sent: self._note_sent(publication, content, sent))
        name = name_of(event.event_type)
        if loop is not None:
            try:
                soon = self.log.publish_soon(name, event.payload, **fields)
            except BaseException as e:
                publication.tasks = {}
                publication.sent.set_exception(e)
                raise
            self._deliver(publication)
            soon.add_done_callback(lambda future: complete_as(future, publication.sent))
            return publication

        self._deliver(publication)
        try:
            publication.sent.set_result(self.log.publish(name, event.payload, **fields))
        except BaseException as e:
            publication.sent.set_exception(e)
        publication.wait()
        return publication

    def _deliver(self, publication: Publication) -> None:
        """Give an event to the handlers here."""
        for subscription, task in publication.tasks.items():
            subscription.put_own(task)

    def publish_sync(self, event_type: Any, payload: Mapping[str, Any] | None = None, source: str = "") -> Publication:
        """Publish an event, as publish does."""
        return self.publish(event_type, payload, source)

    def _note(self, event: DataEvent) -> bool:
        """Remember an event, and report whether its content is new."""
        now = time.time()
        logger.debug("%s %d from %s: %s", event.name, event.offset, event.source, event.payload)
        key = event.hash or f"{event.type}:{canonical(event.payload)}"
        with self._lock:
            while self._recent_events:
                oldest = next(iter(self._recent_events))
                if now - self._recent_events[oldest] < DEDUP_WINDOW and len(self._recent_events) <= 10 * MAX_RECENT:
                    break
                del self._recent_events[oldest]
            new = key not in self._recent_events
            if new:
                self._recent_events[key] = now
            # Several subscriptions may read the same event.
            if event.offset and event.offset not in self._read_offsets:
                self._read_offsets[event.offset] = None
                while len(self._read_offsets) > MAX_RECENT:
                    self._read_offsets.popitem(last=False)
                self._history.append(event)
                self._counts["received"] += 1
            elif new and not event.offset:
                self._history.append(event)
        return new

    def _note_sent(self, publication: Publication, content: str, sent: Future[Result]) -> None:
        """Take in what became of an event on its way to the log."""
        if error := sent.exception():
            # Nobody may be waiting for it.
            logger.error("%s was not appended: %s", publication.event.name, error)
            for subscription, task in publication.tasks.items():
                subscription.note_returned(task)
            if isinstance(error, OutcomeUnknown):
                self._note_away(publication, content)
        else:
            publication._take(sent.result())
            if sent.result().spooled:
                self._note_away(publication, content)
            else:
                self._note_own(sent.result().offset, publication.tasks)
        self._forget(publication, content)

    def _note_away(self, publication: Publication, content: str) -> None:
        """Note what was delivered here of an event that is spooled, or that the log may have."""
        forgotten: OwnTasks = {}
        with self._lock:
            if publication.tasks:
                self._away.append((publication.event, content, publication.tasks))
            if len(self._away) > MAX_OWN:
                forgotten = self._away.popleft()[2]
        for subscription, task in forgotten.items():
            subscription.note_returned(task)

    def _note_own(self, offset: int, tasks: OwnTasks) -> None:
        """Note what was delivered here of the event at an offset, for the readers that will meet it."""
        # A duplicate has the offset of an event that a reader may have met long ago.
        left = {subscription: task for subscription, task in tasks.items() if not subscription.has_met(offset)}
        forgotten = [each for each in tasks.items() if each[0] not in left]
        with self._lock:
            if left:
                self._own[offset] = left
            while len(self._own) > MAX_OWN:
                forgotten += self._own.popitem(last=False)[1].items()
        for subscription, task in forgotten:
            subscription.note_returned(task)

    def _forget(self, publication: Publication, content: str) -> None:
        with self._lock:
            left = [p for p in self._in_flight.get(content, ()) if p is not publication]
            if left:
                self._in_flight[content] = left
            else:
                self._in_flight.pop(content, None)
        publication.appended.set_result(None)

    def _own_task(self, event: StoredEvent, subscription: Subscription) -> Task | None:
        """Return what a subscription was given, at once, of an event of the log that this process has published.

        It is None for another. One whose answer is not here yet is waited for: its offset says that it is the same,
        or, if the answer has none, its time with its content. Each subscription meets an event once.
        """
        if self._in_flight:
            with self._lock:
                same = list(self._in_flight.get(canonical(event.payload), ()))
            for publication in same:
                publication.appended.result()
        with self._lock:
            tasks = self._own.get(event.offset, {})
            task = tasks.pop(subscription, None)
            if not tasks:
                self._own.pop(event.offset, None)
        return task or (self._away_task(event, subscription) if self._away else None)

    def _away_task(self, event: StoredEvent, subscription: Subscription) -> Task | None:
        """Return what _own_task does, of an event whose publication got no offset."""
        found, content = from_log(event), canonical(event.payload)
        with self._lock:
            for i, (own, own_content, tasks) in enumerate(self._away):
                # The log keeps microseconds.
                same = abs(own.timestamp - found.timestamp) < 1e-5 and own.name == found.name
                if same and own_content == content and subscription in tasks:
                    own.offset = event.offset
                    task = tasks.pop(subscription)
                    if not tasks:
                        del self._away[i]
                    return task
        return None

    def _offset_of(self, event: DataEvent) -> int:
        """Return an event's offset, after a wait for an event that is on its way to the log; 0 if it has none."""
        if not event.offset:
            with self._lock:
                waiting = [p for each in self._in_flight.values() for p in each if p.event is event]
            for publication in waiting:
                publication.appended.result()
        return event.offset

    def _awaits(self, event: DataEvent) -> bool:
        """Report whether the log may get an event that has no offset, as from the spool."""
        with self._lock:
            return any(own is event for own, _, _ in self._away)

    def loop(self) -> asyncio.AbstractEventLoop:
        """Return the loop for coroutines whose own does not run: one in a thread of the router."""
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="ringlog-loop", daemon=True).start()
            return self._loop

    # Subscribing.

    def subscribe(
        self,
        event_type: Any,
        handler: Handler | None = None,
        *,
        timeout: float | None = None,
        critical: bool = False,
    ) -> Any:
        """Call a handler for events of a type, a pattern such as "training.*", or of all types for None.

        Without a handler it is a decorator. A handler may be a coroutine function. timeout is how many seconds
        it may take, by default RINGRIFT_EVENT_HANDLER_TIMEOUT or 30. A critical subscription raises Unavailable if
        the log cannot be read now; another is attached once it can be.
        """
        if handler is None:
            refuse_bare(event_type)
            return lambda decorated: self.subscribe(event_type, decorated, timeout=timeout, critical=critical)
        return self._subscribe(Selection(event_type), handler, timeout, critical)

    def subscribe_coordinator(
        self, coordinator: str, handler: Handler, *, timeout: float | None = None, critical: bool = False
    ) -> Handler:
        """Call a handler for what the platform's registry lists as the subscriptions of a coordinator.

        The coordinator is given by name or class; ValueError if the registry has none or lists nothing of it. This
        process is registered as it, so `ringlog audit coordinator` reports what it listens to beside that list. A
        router is one coordinator. timeout and critical are as for subscribe.
        """
        return self._subscribe(self._become(coordinator), handler, timeout, critical)

    def _become(self, coordinator: str) -> CoordinatorSelection:
        selection = CoordinatorSelection(coordinator)
        if self._registration.coordinator not in ("", selection.coordinator):
            raise ValueError(f"this router is {self._registration.coordinator} already: make another for {coordinator}")
        self._registration.coordinator = selection.coordinator
        return selection

    def _subscribe(self, selection: Selection, handler: Handler, timeout: float | None, critical: bool) -> Handler:
        if not callable(handler):
            raise TypeError(f"{handler!r:.60} is no handler: give a function that takes an event")
        subscription = Subscription(
            self, selection, handler, handler_timeout() if timeout is None else timeout, critical
        )
        with self._lock:
            for other in self._subscriptions:
                if other.handler == handler and other.name == subscription.name:
                    return handler  # as on the old buses, where it is called once
            taken = {other.name for other in self._subscriptions}
            number = 2
            base = subscription.name
            while subscription.name in taken:
                subscription.name, number = f"{base}.{number}", number + 1
            away = any(not other.attached.is_set() for other in self._subscriptions)
            self._subscriptions.append(subscription)
        subscription.start()
        self._registration.change()
        self._await_attached(subscription, away)
        return handler

    def _await_attached(self, subscription: Subscription, away: bool) -> None:
        # Where the log is away, a daemon waits for it once, not with each of its subscriptions.
        if not subscription.attached.wait(0 if away and not subscription.critical else ATTACH_TIMEOUT):
            if subscription.critical:
                self._remove(subscription)
                raise Unavailable(
                    f"subscribe {subscription.name}: the log does not answer: {subscription.error or 'no answer yet'}",
                    code="unavailable",
                    remedy="check the endpoints, and that the nodes run; subscribe_with_retry tries again",
                )
            logger.warning("%s is not attached to the log yet; it gets events of this process", subscription.name)

    def _note_attached(self, subscription: Subscription) -> None:
        self._registration.change()

    def unsubscribe(self, event_type: Any, handler: Handler) -> bool:
        """End a subscription; False if there is none."""
        wanted = Selection(event_type).types
        with self._lock:
            found = [s for s in self._subscriptions if s.handler == handler and s.selection.types == wanted]
        for subscription in found:
            self._remove(subscription)
        return bool(found)

    def _remove(self, subscription: Subscription) -> None:
        with self._lock:
            self._subscriptions.remove(subscription)
        subscription.close()
        self._registration.change()

    def _describe(self) -> list[Json]:
        """Return the subscriptions as they are registered with the cluster."""
        with self._lock:
            return [subscription.describe() for subscription in self._subscriptions]

    def _matching(self, event: DataEvent) -> list[Subscription]:
        with self._lock:
            return [s for s in self._subscriptions if s.selection.matches(event.event_type)]

    # What the old buses showed.

    def get_recent_events(self, limit: int = 100) -> list[DataEvent]:
        """Return the last events that were published or received here, the newest last."""
        with self._lock:
            return list(self._history)[-limit:] if limit > 0 else []

    def get_history(
        self, event_type: Any = None, origin: Any = None, since: float | None = None, limit: int = 100
    ) -> list[DataEvent]:
        """Return the last events of a type, or since a time in seconds, the newest last."""
        wanted = Selection(event_type)
        events = [e for e in self.get_recent_events(MAX_RECENT) if wanted.matches(e.event_type)]
        return [e for e in events if since is None or e.timestamp > since][-limit:]

    def list_subscribers(self) -> dict[str, list[str]]:
        """Return the names of the handlers here by the value of each type; "*" has those of all types."""
        found: dict[str, list[str]] = {}
        with self._lock:
            for subscription in self._subscriptions:
                for value in subscription.selection.values:
                    found.setdefault(value, []).append(subscription.handler_name)
        return found

    def get_stats(self) -> Json:
        """Return the counts, and which critical subscriptions do not read the log."""
        with self._lock:
            subscriptions = list(self._subscriptions)
        return {
            "events_published": self._counts["published"],
            "events_received": self._counts["received"],
            "total_events_routed": self._counts["published"] + self._counts["received"],
            "handlers_failed": self._counts["failed"],
            "handlers_timed_out": self._counts["timed_out"],
            "subscriber_count": sum(1 for s in subscriptions if s.selection.types),
            "global_subscriber_count": sum(1 for s in subscriptions if not s.selection.types),
            "breakers_open": [s.name for s in subscriptions if s.breaker.open_for() > 0],
            "critical_detached": [s.name for s in subscriptions if s.critical and not s.attached.is_set()],
            "history_size": len(self._history),
            "has_data_events": True,
            "has_stage_events": True,
            "has_cross_process": True,
        }

    def get_coordinator_stats(self) -> CoordinatorStats:
        """Return what the old coordinator counted: every event is bridged, as all are in the log."""
        return CoordinatorStats(
            events_bridged_data_to_cross=self._counts["published"],
            events_bridged_cross_to_data=self._counts["received"],
            errors=[s.error for s in self._subscriptions if s.error],
            start_time=self.started,
            is_running=not self.closing.is_set(),
        )

    # Notices.

    def _report_failed(self, subscription: Subscription, task: Task, error: str, dead: bool) -> None:
        self._counts["failed"] += 1
        payload = {"error": error, "attempts": task.attempts, "dead_letter": dead}
        self._report("HANDLER_FAILED", subscription, task, payload)

    def _report_timeout(self, subscription: Subscription, task: Task) -> None:
        self._counts["timed_out"] += 1
        subscription.timed_out += 1
        payload = {"attempt": task.attempts, "timeout_seconds": subscription.timeout}
        self._report("HANDLER_TIMEOUT", subscription, task, payload)

    def _new_breaker(self, subscription: Subscription) -> HandlerBreaker:
        """Return the circuit breaker of a subscription, whose changes are published and registered."""

        def report(kind: str, payload: Json) -> None:
            logger.warning("%s: %s: %s", subscription.name, kind, payload)
            self._publish_notice(kind, subscription, payload)
            self._registration.change()

        return HandlerBreaker(self.breaker_failures, self.breaker_reset, report)

    def _report(self, kind: str, subscription: Subscription, task: Task, payload: Json) -> None:
        """Publish a notice of an attempt. A handler of such events is not reported: it would feed itself."""
        event = task.event
        if event.name.startswith("HANDLER_"):
            return
        payload["event"] = event.name
        if event.offset:
            payload["offset"] = event.offset
        if event.key:
            payload["event_key"] = event.key
        self._publish_notice(kind, subscription, payload, correlation_id=event.correlation_id)

    def _publish_notice(self, kind: str, subscription: Subscription, payload: Json, correlation_id: str = "") -> None:
        """Publish an event about a handler."""
        payload |= {"handler": subscription.name, "timestamp": time.time()}
        fields: Json = {"correlation_id": correlation_id} if correlation_id else {}
        try:
            self.log.publish_soon(
                kind, payload, source=self.source, key=subscription.name, dedup=False, **fields
            ).add_done_callback(lambda sent: sent.exception())
        except RinglogError as e:
            logger.warning("%s of %s was not published: %s", kind, subscription.name, e)

    def stop(self) -> None:
        """End the subscriptions once their handlers have returned, for 5 s at most, and send what was published.

        It takes 15 s at most, also where the cluster is away: 5 s to send what was published, 5 s for the
        subscriptions (and half a second for the last commit of each), and 5 s for what they have published.
        """
        with self._lock:
            subscriptions, self._subscriptions = self._subscriptions, []
        with contextlib.suppress(RinglogError):
            self.log.flush(EXIT_TIMEOUT)
        self.closing.set()
        until = time.monotonic() + EXIT_TIMEOUT
        for subscription in subscriptions:
            subscription.close(until - time.monotonic())
        self._registration.end(until - time.monotonic())
        with contextlib.suppress(RinglogError):  # each was logged when it failed
            if self._owns_log:
                self.log.close(EXIT_TIMEOUT)
            else:
                self.log.flush(EXIT_TIMEOUT)
        atexit.unregister(self.stop)
