"""The one entry to all buses. In place of app.coordination.event_router and its unified_event_coordinator."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringlog.compat import event_emitters
from ringlog.compat._event import DataEvent, RouterEvent
from ringlog.compat._process import get_router, reset_router, subscribe_with_retry
from ringlog.compat._publication import Publication
from ringlog.compat._router import CoordinatorStats, UnifiedEventRouter
from ringlog.compat._subscription import Handler
from ringlog.compat.cross_process_events import (
    CrossProcessEvent,
    CrossProcessEventQueue,
    get_cross_process_queue,
    publish_cross_process,
)
from ringlog.compat.event_bus import EventBus, get_event_bus
from ringlog.compat.event_emitters import *  # noqa: F403
from ringlog.compat.event_types import FLOWS, DataEventType
from ringlog.compat.stage_events import StageCompletionResult, StageEvent, StageEventBus
from ringlog.event import Json

# Guards of the old module: nothing is optional any more.
HAS_DATA_EVENTS = HAS_STAGE_EVENTS = HAS_CROSS_PROCESS = True

UnifiedEventCoordinator = UnifiedEventRouter
get_event_coordinator = get_router


def publish(event_type: Any, payload: Mapping[str, Any] | None = None, source: str = "", **options: Any) -> Publication:
    """Publish an event to the handlers of this process and to the log. It may be awaited."""
    return get_router().publish(event_type, payload, source, **options)


publish_sync = publish


def subscribe(
    event_type: Any, handler: Handler | None = None, *, timeout: float | None = None, critical: bool = False
) -> Any:
    """Call a handler for events of a type, also of other processes; without a handler it is a decorator."""
    return get_router().subscribe(event_type, handler, timeout=timeout, critical=critical)


def unsubscribe(event_type: Any, handler: Handler) -> bool:
    """End a subscription; False if there is none."""
    return get_router().unsubscribe(event_type, handler)


def get_recent_events(limit: int = 100) -> list[DataEvent]:
    """Return the last events that were published or received here, the newest last."""
    return get_router().get_recent_events(limit)


def get_coordinator_stats() -> CoordinatorStats:
    """Return what the old coordinator counted."""
    return get_router().get_coordinator_stats()


def get_stats() -> Json:
    """Return the counts of the router."""
    return get_router().get_stats()


__all__ = [
    "FLOWS",
    "HAS_CROSS_PROCESS",
    "HAS_DATA_EVENTS",
    "HAS_STAGE_EVENTS",
    "CoordinatorStats",
    "CrossProcessEvent",
    "CrossProcessEventQueue",
    "DataEvent",
    "DataEventType",
    "EventBus",
    "Publication",
    "RouterEvent",
    "StageCompletionResult",
    "StageEvent",
    "StageEventBus",
    "UnifiedEventCoordinator",
    "UnifiedEventRouter",
    "get_coordinator_stats",
    "get_cross_process_queue",
    "get_event_bus",
    "get_event_coordinator",
    "get_recent_events",
    "get_router",
    "get_stats",
    "publish",
    "publish_cross_process",
    "publish_sync",
    "reset_router",
    "subscribe",
    "subscribe_with_retry",
    "unsubscribe",
]
__all__ += event_emitters.__all__
