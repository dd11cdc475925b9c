"""The bus of topics: decorators, filters, history and replay. In place of app.core.event_bus."""

from __future__ import annotations

import inspect
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

from ringlog.compat._event import DataEvent, Event, Selection, canonical, from_log, from_old, resolve
from ringlog.compat._process import get_router
from ringlog.compat._publication import Publication
from ringlog.compat._router import refuse_bare
from ringlog.compat._subscription import Handler, handler_name
from ringlog.event import Json

logger = logging.getLogger("ringlog")


class EventFilter:
    """Chooses events: all that is given must hold.

    topic          the type, in any spelling
    topic_pattern  a regular expression for the topic, as on the old bus: "training.*"
    source         the publisher
    predicate      a function of the event
    """

    def __init__(
        self,
        topic: str | None = None,
        topic_pattern: str | None = None,
        source: str | None = None,
        predicate: Callable[[DataEvent], bool] | None = None,
    ) -> None:
        self.topic = topic
        self.topic_pattern = re.compile(topic_pattern) if topic_pattern else None
        self.source, self.predicate = source, predicate

    def matches(self, event: DataEvent) -> bool:
        """Report whether an event is chosen."""
        if self.topic is not None and not Selection(self.topic).matches(event.event_type):
            return False
        if self.topic_pattern is not None and not self.topic_pattern.match(event.topic):
            return False
        if self.source is not None and event.source != self.source:
            return False
        return self.predicate is None or bool(self.predicate(event))


class EventBus:
    """The bus of this process: the router under the names that the old buses had."""

    def subscribe(
        self,
        event_type: Any = None,
        handler: Handler | None = None,
        *,
        timeout: float | None = None,
        critical: bool = False,
        once: bool = False,
        priority: int = 0,
    ) -> Any:
        """Call a handler for a type, a pattern, an EventFilter or everything; without a handler it is a decorator.

        With once it is called for the first event alone, again where it fails. Handlers are called at the same time,
        so that priority has no effect.
        """
        if handler is None:
            refuse_bare(event_type)
            return lambda decorated: self.subscribe(
                event_type, decorated, timeout=timeout, critical=critical, once=once
            )
        called: Handler = handler
        chosen = event_type.topic if isinstance(event_type, EventFilter) else event_type
        if isinstance(event_type, EventFilter):
            called = _filtered(event_type, called)
        if once:
            called = _once(called)
        get_router().subscribe(chosen, called, timeout=timeout, critical=critical)
        return handler

    def unsubscribe(self, event_type: Any, handler: Handler) -> bool:
        """End a subscription; False if there is none. One with a filter lasts as long as the process."""
        return get_router().unsubscribe(event_type, handler)

    def publish(self, event: DataEvent | Event | Any, payload: Json | None = None, source: str = "") -> Publication:
        """Publish a DataEvent, an Event of a topic, or a type with a payload. It may be awaited."""
        if isinstance(event, Event):
            if not event.topic:
                raise ValueError("an event of this bus needs a topic, such as training.completed")
            event = DataEvent(
                resolve(event.topic), event.to_payload(), event.source, event.timestamp, event.correlation_id
            )
        if isinstance(event, DataEvent):
            return get_router().publish_event(event)
        return get_router().publish(event, payload, source)

    publish_sync = publish

    def list_subscribers(self) -> dict[str, list[str]]:
        """Return the names of the handlers by the value of each type that has any."""
        return get_router().list_subscribers()

    def get_history(self, topic: Any = None, limit: int = 100) -> list[DataEvent]:
        """Return the last events that this process published or received, the newest first."""
        return get_router().get_history(topic, limit=limit)[::-1]

    async def replay(self, handler: Handler, topic: Any = None, since: float | None = None) -> int:
        """Give a handler the events of the log again, in order, and return how many it has handled.

        They are all that the log has, of all processes; since is in seconds since 1970.
        """
        from datetime import datetime, timezone

        start = "start" if since is None else datetime.fromtimestamp(since, timezone.utc)
        handled = 0
        with get_router().log.tail(start, types=Selection(topic).types, until_end=True) as events:
            for event in events:
                try:
                    result = handler(from_log(event))
                    if inspect.isawaitable(result):
                        await result
                    handled += 1
                except Exception:
                    logger.exception("replay of event %d to %s", event.offset, handler_name(handler))
        return handled

    def get_stats(self) -> Json:
        """Return the counts of the router."""
        return get_router().get_stats()


def _filtered(chosen: EventFilter, handler: Handler) -> Handler:
    def call(event: DataEvent) -> Any:
        return handler(event) if chosen.matches(from_old(event)) else None

    call.__qualname__ = handler_name(handler)
    return call


def _once(handler: Handler) -> Handler:
    # The subscription calls it for one event after the other. One that failed may come again as a redriven one.
    first: list[tuple[str, str]] = []
    handled: list[bool] = []

    def call(event: DataEvent) -> Any:
        content = (from_old(event).type, canonical(event.payload))
        if handled or (first and first[0] != content):
            return None
        first[:] = [content]
        result = handler(event)
        if inspect.isawaitable(result):
            return finish(result)
        handled.append(True)
        return None

    async def finish(result: Awaitable[Any]) -> None:
        await result
        handled.append(True)

    call.__qualname__ = handler_name(handler)
    return call


_bus = EventBus()


def get_event_bus() -> EventBus:
    """Return the bus of this process."""
    return _bus


def subscribe(event_type: Any = None, handler: Handler | None = None, **options: Any) -> Any:
    """Call a handler for a type; without a handler it is a decorator."""
    return _bus.subscribe(event_type, handler, **options)


def publish(event: DataEvent | Event) -> Publication:
    """Publish an event. It may be awaited."""
    return _bus.publish(event)


publish_sync = publish

__all__ = ["Event", "EventBus", "EventFilter", "get_event_bus", "publish", "publish_sync", "subscribe"]
