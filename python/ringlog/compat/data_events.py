"""DataEventType, DataEvent and the bus of both. In place of app.distributed.data_events."""

from __future__ import annotations

from ringlog.compat import event_emitters
from ringlog.compat._event import DataEvent
from ringlog.compat.event_bus import EventBus, get_event_bus
from ringlog.compat.event_emitters import *  # noqa: F403
from ringlog.compat.event_types import DataEventType

__all__ = ["DataEvent", "DataEventType", "EventBus", "get_event_bus"]
__all__ += event_emitters.__all__
