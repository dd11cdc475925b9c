"""The modes shadow and compare: the router beside an old bus.

    publish ─▶ old bus ─────────────────────▶ handler (compare: once)
        └────▶ log, in a thread of its own ─▶ reader of the cursor ─▶ observations, and in compare the handler

The old bus comes first, in the caller's thread, with what the caller gave. Whatever the log or the disk of the
observations does is logged, noted, and hurts neither the old bus nor a handler.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import logging
import os
import socket
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from concurrent.futures import Future
from datetime import datetime, timezone
from typing import Any, TypeVar

from ringlog._core.cause import inherit
from ringlog._core.encode import encode
from ringlog.client import Client
from ringlog.compat._event import DataEvent, Selection, describe, from_old, name_of, resolve
from ringlog.compat._observations import MAX_BYTES, MAX_PAYLOAD, Observations, content_of, default_folder, read_done
from ringlog.compat._old import QueueBus, find_old, finish, published_at
from ringlog.compat._once import MAX_EVENTS, Bounded, Once
from ringlog.compat._publication import running_loop
from ringlog.compat._router import EXIT_TIMEOUT, UnifiedEventRouter, refuse_bare
from ringlog.compat._subscription import Handler, Subscription, handler_name
from ringlog.errors import InvalidArgument
from ringlog.event import Json, Result, error_text

MAX_OUTBOX_BYTES = 16 << 20  # of payloads that wait for the log; more are not sent, and noted
MAX_NAME = 256  # characters of a type or error that are noted
EVENT_BYTES = 1 << 10  # of memory for an event beside its payload
STAMP = 1.0  # seconds after its publication in which an old bus gives an event its own time

T = TypeVar("T")

logger = logging.getLogger("ringlog")


class OldPublication:
    """What publishing on the old bus has returned. It may be awaited, and has the event's attributes."""

    def __init__(self, event: DataEvent, result: Any) -> None:
        self.event, self.result = event, result

    def __await__(self) -> Generator[Any, None, Any]:
        if isinstance(self.result, asyncio.Future):
            return (yield from asyncio.shield(self.result).__await__())
        return self.result

    def __getattr__(self, name: str) -> Any:
        result = self.__dict__["result"]
        if isinstance(result, asyncio.Future):
            result = result.result() if result.done() and not result.cancelled() else None
        return getattr(result if hasattr(result, name) else self.__dict__["event"], name)


def note_delivery(router: ShadowRouter | None, label: str, bus: str, event: Any, id: int) -> tuple[str, float]:
    """Return what identifies an event, its content and time, and have the router note that a bus has delivered it."""
    kind, payload, source, at = describe(event)
    published = published_at.get() if bus == "old" else 0.0
    if published and (not at or 0 <= at - published < STAMP):
        at = published
    at = at or time.time()
    content, text = content_of(kind, payload)
    line: Json = {"k": bus, "s": label, "type": kind, "time": at, "content": content, "source": source, "id": id}
    if len(text) <= MAX_PAYLOAD:
        line["payload"] = text
    if router is not None:
        router.observations.note(line)
        router.observed[bus] += 1
    return content, at


class Observed:
    """A handler with what both buses deliver to it."""

    def __init__(self, router: ShadowRouter, handler: Handler, selection: Selection, label: str) -> None:
        self.router, self.handler, self.selection, self.label = router, handler, selection, label
        self.once = Once()
        self.from_log = self._wrap_log()
        self.from_old = self._wrap_old()

    def restore(self) -> None:
        """Take over what an earlier process of this name has handled."""
        if self.router.mode == "compare" and self.router.name:
            for line in self.router.handled_before(self.label):
                self.once.settle(self.once.find(line["via"], line["content"], line["time"]), True)

    # What is delivered.

    def _note_old(self, event: Any) -> tuple[str, float] | None:
        """Note a delivery of the old bus, and return what identifies the event, None if it has none."""
        try:
            number = getattr(event, "event_id", 0)
            seen = note_delivery(self.router, self.label, "old", event, number if isinstance(number, int) else 0)
        except Exception:
            logger.exception("shadow: what the old bus delivered to %s is not noted", self.label)
            return None
        try:
            self.router.note_received(event)
        except Exception:
            logger.exception("shadow: an event of the old bus is not remembered")
        return seen

    def _wrap_old(self) -> Handler:
        """Return what the old bus calls: it is a coroutine function where the handler is one."""
        handler, compare = self.handler, self.router.mode == "compare"

        async def call_async(event: Any) -> Any:
            seen = self._note_old(event)
            if not compare:
                return await handler(event)
            result = self._once("old", event, seen)
            return await result if inspect.isawaitable(result) else result

        def call(event: Any) -> Any:
            seen = self._note_old(event)
            return self._once("old", event, seen) if compare else handler(event)

        wrapped = call_async if inspect.iscoroutinefunction(handler) else call
        wrapped.__name__, wrapped.__qualname__ = getattr(handler, "__name__", "handler"), handler_name(handler)
        return wrapped

    def _wrap_log(self) -> Handler:
        """Return what the log's reader calls: a function, also for a coroutine function, as it may wait."""

        def call(event: DataEvent) -> Any:
            seen = note_delivery(self.router, self.label, "log", event, event.offset)
            return self._once("log", event, seen) if self.router.mode == "compare" else None

        call.__qualname__ = handler_name(self.handler)
        return call

    def _once(self, bus: str, event: Any, seen: tuple[str, float] | None) -> Any:
        """Call the handler unless the event was handled. A delivery of the old bus does not wait for the log's."""
        if seen is None:
            return self.handler(event)
        event = from_old(event)
        content, at = seen
        delivery = self.once.find(bus, content, at)
        if not self.once.claim(delivery, bus, wait=bus == "log"):
            return None

        def settle(done: bool) -> None:
            self.once.settle(delivery, done)
            if done:
                line = {"k": "done", "s": self.label, "via": bus, "time": at, "content": content}
                self.router.observations.note(line)

        async def call_async(result: Awaitable[Any]) -> Any:
            try:
                value = await result
            except BaseException:
                settle(False)
                raise
            settle(True)
            return value

        try:
            result = self.handler(event)
        except BaseException:
            settle(False)
            raise
        if inspect.isawaitable(result):
            return call_async(result)
        settle(True)
        return result


class ShadowRouter(UnifiedEventRouter):
    """A router whose handlers hear the old bus, beside the log.

    mode    "shadow": the old bus delivers, and what the log would have delivered is noted. "compare": both deliver,
            and a handler is called once
    old     the old bus: an object with publish and subscribe, the file of a SQLite queue, or the name of a module;
            default RINGLOG_OLD_BUS
    old_queue  the file of the SQLite queue, or a QueueBus, for daemons that poll it; default RINGLOG_OLD_QUEUE, or old
    folder  where the observations are kept; default RINGLOG_SHADOW, else ~/.local/state/ringlog/shadow
    max_bytes   of the observations of this name in the folder; the oldest are removed
    """

    def __init__(
        self,
        log: Client | None = None,
        *,
        mode: str,
        old: Any = None,
        old_queue: Any = None,
        folder: str = "",
        max_bytes: int = MAX_BYTES,
        **options: Any,
    ) -> None:
        self.mode = mode
        name = options.get("name")
        process = (os.environ.get("RINGLOG_SUBSCRIBER") if name is None else name) or "ringlog"
        self.old, queue = find_old(old, process), old_queue or os.environ.get("RINGLOG_OLD_QUEUE", "")
        self._owns_old = self.old is not old
        self._old_queue = queue if isinstance(queue, QueueBus) else QueueBus(queue, process) if queue else None
        super().__init__(log, **options)
        self.observations = Observations(folder or default_folder(), self.name or self.source, mode, max_bytes)

    def _reset(self) -> None:
        super()._reset()
        self._observed: list[Observed] = []
        self.observed = {"old": 0, "log": 0}
        self._polled: dict[str, Any] = {}
        self._outbox = Bounded("ringlog-shadow", MAX_OUTBOX_BYTES)

    def _after_fork(self) -> None:
        for observed in self._observed:
            observed.once = Once()  # another thread of the parent may have held its lock
        self.observations.after_fork()
        for old in {self.old, self._old_queue}:
            if isinstance(old, QueueBus):
                old.after_fork()
        super()._after_fork()

    # Publishing.

    def publish(
        self, event_type: Any, payload: Mapping[str, Any] | None = None, source: str = "", **fields: Any
    ) -> Any:
        """Publish an event on the old bus, and then in the log. What the old bus raises is raised."""
        return self._publish(event_type, payload, source, time.time(), fields)

    def publish_event(self, event: DataEvent, *, dedup: bool = True) -> Any:
        """Publish a DataEvent, as publish does."""
        fields = {name: getattr(event, name) for name in ("key", "correlation_id", "causation_id")}
        return self._publish(event.event_type, event.payload, event.source, event.timestamp, {**fields, "dedup": dedup})

    publish_sync = publish

    def publish_row(self, event_type: Any, payload: Any, source: str) -> int:
        """Append a row to the old queue, and then an event to the log."""
        at = time.time()
        _, send = self._prepare(event_type, payload, source, at, {})
        token = published_at.set(at)
        try:
            number = self.old_queue.publish(event_type, payload, source)
        finally:
            published_at.reset(token)
        send()
        return number

    @property
    def old_queue(self) -> QueueBus:
        """The SQLite queue. Raises InvalidArgument if none is known."""
        if self._old_queue is not None:
            return self._old_queue
        if isinstance(self.old, QueueBus):
            return self.old
        raise InvalidArgument(
            f"the file of the old queue is not known in mode {self.mode}",
            code="invalid_argument",
            field="old_queue",
            remedy="give old_queue=, or set RINGLOG_OLD_QUEUE",
        )

    def _publish(self, event_type: Any, payload: Any, source: str, at: float, fields: Json) -> OldPublication:
        # The payload is taken before the old bus has it: its handlers may change it.
        event, send = self._prepare(event_type, payload, source, at, fields)
        loop = running_loop()
        token = published_at.set(at)
        try:
            result = self.old.publish(event_type, payload, source)
            if inspect.isawaitable(result):
                if loop is None:
                    result = asyncio.run(finish(result))
                else:
                    result = asyncio.ensure_future(result)
        finally:
            published_at.reset(token)
        if not isinstance(result, asyncio.Future):
            send()
            return OldPublication(event, result)

        def sent(future: asyncio.Future[Any]) -> None:
            if future.cancelled() or future.exception() is None:
                send()

        result.add_done_callback(sent)
        return OldPublication(event, result)

    def _prepare(
        self, event_type: Any, payload: Any, source: str, at: float, given: Json
    ) -> tuple[DataEvent, Callable[[], None]]:
        """Return an event, and a function that has it sent to the log. Neither raises, nor waits for the cluster."""
        event = DataEvent(str(getattr(event_type, "value", event_type)), {}, source or self.source, at)
        try:
            event.event_type = resolve(event_type)
            name, text = name_of(event.event_type), encode(dict(payload or {}), "payload")
            event.payload = body = json.loads(text)
            known = {k: given.get(k) for k in ("key", "correlation_id", "causation_id")}
            fields: Json = inherit({"payload": body, **{k: v for k, v in known.items() if v}})
            fields.pop("payload")
            fields |= {"source": event.source, "time": datetime.fromtimestamp(at, timezone.utc)}
            if not given.get("dedup", True):
                fields["dedup"] = False
            self._counts["published"] += 1
            super()._note(event)
        except Exception as e:
            error = e
            return event, lambda: self._note_unsent(event_type, at, error)

        def send() -> None:
            if not self._outbox.add(len(text) + EVENT_BYTES, work):
                self._note_unsent(name, at, BufferError(f"more than {MAX_OUTBOX_BYTES} bytes wait for the log"))

        def work() -> None:
            try:
                self.log.publish_soon(name, body, **fields).add_done_callback(answered)
            except Exception as e:
                self._note_unsent(name, at, e)

        def answered(future: Future[Result]) -> None:
            if error := future.exception():
                self._note_unsent(name, at, error)

        return event, send

    def _note_unsent(self, event_type: Any, at: float, error: BaseException) -> None:
        kind, text = str(getattr(event_type, "value", event_type))[:MAX_NAME], error_text(error)[:MAX_NAME]
        logger.error("shadow: %s is on the old bus and not in the log: %s", kind, text)
        self.observations.note({"k": "unsent", "type": kind, "time": at, "error": text})

    # Subscribing.

    def subscribe(
        self,
        event_type: Any,
        handler: Handler | None = None,
        *,
        timeout: float | None = None,
        critical: bool = False,
    ) -> Any:
        """Have the old bus call a handler, and observe what the log delivers; without a handler it is a decorator.

        It does not wait for the log, and is not refused because of it.
        """
        if handler is None:
            refuse_bare(event_type)
            return lambda decorated: self.subscribe(event_type, decorated, timeout=timeout, critical=critical)
        if not callable(handler):
            raise TypeError(f"{handler!r:.60} is no handler: give a function that takes an event")
        selection = Selection(event_type)
        with self._lock:
            if any(o.handler == handler and o.selection.types == selection.types for o in self._observed):
                return handler
            taken = {o.label for o in self._observed}
            base = self.label(Subscription(self, selection, handler, 0, False).name)
            label, number = base, 2
            while label in taken:
                label, number = f"{base}.{number}", number + 1
            observed = Observed(self, handler, selection, label)
            self._observed.append(observed)
        observed.restore()
        try:
            super().subscribe(event_type, observed.from_log, timeout=timeout, critical=critical)
        except Exception as e:
            logger.error("shadow: %s does not read the log: %s", label, e)
        try:
            self.old.subscribe(event_type, observed.from_old)
        except BaseException:
            self._end(observed)
            raise
        return handler

    def subscribe_coordinator(
        self, coordinator: str, handler: Handler, *, timeout: float | None = None, critical: bool = False
    ) -> Handler:
        """Subscribe to what the registry lists of a coordinator, each type by itself, as old buses have no lists."""
        for type_ in self._become(coordinator).types:
            self.subscribe(type_, handler, timeout=timeout, critical=critical)
        return handler

    def label(self, subscription: str) -> str:
        """Return the name of a subscription in the observations: that of its cursor, if it has one."""
        if self.name:
            return f"{self.name}.{subscription}"
        return f"{self.source}@{socket.gethostname()}:{os.getpid()}.{subscription}"

    def _await_attached(self, subscription: Subscription, away: bool) -> None:
        """Wait for nothing: the old bus delivers."""

    def _note_attached(self, subscription: Subscription) -> None:
        super()._note_attached(subscription)
        for observed in list(self._observed):
            if observed.from_log == subscription.handler:
                self.note_subscribed(observed.label, observed.selection.types, subscription.handler_name)

    def note_subscribed(self, label: str, types: list[str], handler: str) -> None:
        """Note that a handler reads both buses from here on."""
        self.observations.note({"k": "sub", "s": label, "h": handler, "t": ",".join(types) or "*"})

    def unsubscribe(self, event_type: Any, handler: Handler) -> bool:
        """End a subscription; False if there is none. An old bus that cannot end it goes on calling the handler."""
        wanted = Selection(event_type).types
        with self._lock:
            found = [o for o in self._observed if o.handler == handler and o.selection.types == wanted]
        for observed in found:
            if (end := getattr(self.old, "unsubscribe", None)) is not None:
                end(event_type, observed.from_old)
            self._end(observed)
        return bool(found)

    def _end(self, observed: Observed) -> None:
        with self._lock:
            self._observed.remove(observed)
            ended = [s for s in self._subscriptions if s.handler == observed.from_log]
        for subscription in ended:
            self._remove(subscription)

    def polled(self, name: str, make: Callable[[], T]) -> T:
        """Return the process of a name that polls the old queue, which is made with the first call."""
        with self._lock:
            if name not in self._polled:
                self._polled[name] = make()
            found: T = self._polled[name]
        return found

    def handled_before(self, label: str) -> list[Json]:
        """Return what an earlier process has handled of a subscription."""
        kept = self.observations
        try:
            found = [line for line in read_done(kept.folder, kept.name, MAX_EVENTS) if line.get("s") == label]
        except Exception as e:  # the old bus delivers all the same
            logger.error("shadow: what %s has handled before is not known: %s", label, e)
            return []
        return [line for line in found if {"via", "content", "time"} <= line.keys()][-MAX_EVENTS:]

    # What the old buses showed.

    def _note(self, event: DataEvent) -> bool:
        """Remember what is published; what is received is remembered as the old bus delivers it."""
        return False if event.offset else super()._note(event)

    def get_stats(self) -> Json:
        """Return the counts of the router, and how many deliveries of each bus were observed."""
        return {**super().get_stats(), "observed": dict(self.observed)}

    def note_received(self, event: Any) -> None:
        """Remember an event that the old bus has delivered."""
        self._counts["received"] += 1
        with contextlib.suppress(TypeError, ValueError, RecursionError):  # a payload that has no JSON
            found = from_old(event)
            super()._note(DataEvent(found.event_type, found.payload, found.source, found.timestamp))

    def stop(self) -> None:
        """End the subscriptions, and send what was published, as the base class does."""
        until = time.monotonic() + EXIT_TIMEOUT
        self._outbox.drain(EXIT_TIMEOUT)
        for polled in self._polled.values():
            polled.close(until - time.monotonic())
        if self._owns_old and isinstance(self.old, QueueBus):
            self.old.close()
        super().stop()
        self.observations.close()
