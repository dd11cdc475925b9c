"""What handlers of the old buses are given, and the spellings of a type."""

from __future__ import annotations

import fnmatch
import hashlib
import json
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from ringlog._definitions import COORDINATORS
from ringlog.compat.event_types import ALIASES, DataEventType
from ringlog.event import Event as StoredEvent
from ringlog.event import Json


@dataclass
class DataEvent:
    """An event as the old buses had it.

    event_type      a DataEventType, which is its value as a string; the name of a type that is not in the catalogue
    payload         a JSON object; its fields can be read as attributes of the event as well
    source          the publisher
    timestamp       when it happened, in seconds since 1970
    correlation_id  the run that it belongs to
    causation_id    the event that caused it
    key             what it is about
    offset          its position in the log, 0 before the log has it
    hash            the hash of value and payload, "" before it is published
    duplicate       the log had its content already, at the offset
    traceparent     the span that published it, of W3C Trace Context
    """

    event_type: DataEventType | str
    payload: Json = field(default_factory=dict)
    source: str = ""
    timestamp: float = field(default_factory=time.time)
    correlation_id: str = ""
    causation_id: str = ""
    key: str = ""
    offset: int = 0
    hash: str = ""
    duplicate: bool = False
    traceparent: str = ""

    @property
    def type(self) -> str:
        """The value of the type, such as training_completed."""
        return str(self.event_type)

    @property
    def name(self) -> str:
        """The name of the type, such as TRAINING_COMPLETED."""
        return name_of(self.event_type)

    @property
    def topic(self) -> str:
        """The type as a topic, such as training.completed."""
        return self.name.lower().replace("_", ".")

    @property
    def metadata(self) -> Json:
        """The payload."""
        return self.payload

    @property
    def event_id(self) -> int:
        """The offset."""
        return self.offset

    def __getattr__(self, name: str) -> Any:
        # Called for what is no field: a field of the payload, as the typed events of the old bus had.
        try:
            return self.__dict__["payload"][name]
        except KeyError:
            raise AttributeError(f"neither the event nor its payload has {name!r}") from None

    def to_dict(self) -> Json:
        """Return the event as a dict, as the old buses stored it."""
        return {
            "event_type": self.type,
            "payload": self.payload,
            "source": self.source,
            "timestamp": self.timestamp,
            "event_id": self.offset,
        }


RouterEvent = DataEvent


@dataclass
class Event:
    """An event of the bus of topics. A subclass adds fields, which are sent with the metadata as the payload."""

    topic: str = ""
    timestamp: float = field(default_factory=time.time)
    source: str = ""
    correlation_id: str = ""
    metadata: Json = field(default_factory=dict)

    def to_payload(self) -> Json:
        """Return what is published as the payload."""
        own = {name: value for name, value in self.__dict__.items() if name not in Event.__dataclass_fields__}
        return {**self.metadata, **own}


def _fold(spelling: str) -> str:
    return spelling.strip().lower().replace(".", "_").replace("-", "_")


_types: dict[str, DataEventType] = {}
for _member in DataEventType:
    _types[_fold(_member.name)] = _types[_fold(_member.value)] = _member
for _former, _current in ALIASES.items():
    _types.setdefault(_fold(_former), DataEventType[_current])


def resolve(event_type: Any) -> DataEventType | str:
    """Return the type of a name, value, topic, former name or enum member; text that is no known type as it is."""
    spelling = getattr(event_type, "value", event_type)
    if not isinstance(spelling, str) or not spelling.strip():
        raise ValueError(f"{event_type!r:.60} is no type of an event: give a name such as TRAINING_COMPLETED")
    return _types.get(_fold(spelling), spelling.strip())


def name_of(event_type: DataEventType | str) -> str:
    """Return the name under which a type is sent."""
    return event_type.name if isinstance(event_type, DataEventType) else event_type


class Selection:
    """The types that a subscription asks for; none is all."""

    def __init__(self, event_type: Any) -> None:
        spelling = getattr(event_type, "value", event_type)
        self.pattern = ""
        self.type: DataEventType | str | None = None
        if isinstance(spelling, str) and ("*" in spelling or "?" in spelling):
            self.pattern = spelling
        elif event_type is not None:
            self.type = resolve(event_type)

    @property
    def types(self) -> list[str]:
        """The list for a filter of the log."""
        if self.pattern:
            return [self.pattern]
        return [] if self.type is None else [name_of(self.type)]

    @property
    def label(self) -> str:
        """What the name of a subscription has of it."""
        return ".".join(t.lower().replace("*", "all") for t in self.types or ["all"])

    @property
    def values(self) -> Iterable[str]:
        """The values of the types of the catalogue that are asked for, as list_subscribers shows them."""
        if self.type is not None:
            return [str(self.type)]
        if self.pattern:
            return [str(t) for t in DataEventType if self._fits(t)]
        return ["*"]

    def matches(self, event_type: DataEventType | str) -> bool:
        """Report whether a type is asked for."""
        if self.pattern:
            return self._fits(event_type)
        return self.type is None or _fold(name_of(self.type)) == _fold(name_of(event_type))

    def _fits(self, event_type: DataEventType | str) -> bool:
        pattern = _fold(self.pattern)
        return any(fnmatch.fnmatchcase(_fold(s), pattern) for s in (name_of(event_type), str(event_type)))


class CoordinatorSelection(Selection):
    """The types that the platform's registry lists as the subscriptions of a coordinator."""

    def __init__(self, coordinator: str) -> None:
        super().__init__(None)
        self.coordinator = coordinator
        for name, (class_, listed) in COORDINATORS.items():
            if coordinator in (name, class_):
                self.coordinator, self._listed = name, listed.split()
                break
        else:
            raise ValueError(f"the registry has no coordinator {coordinator!r}; it has {', '.join(COORDINATORS)}")
        if not self._listed:
            raise ValueError(f"the registry does not list what {self.coordinator} subscribes to: subscribe by type")

    @property
    def types(self) -> list[str]:
        """The list for a filter of the log."""
        return list(self._listed)

    @property
    def label(self) -> str:
        """What the name of a subscription has of it."""
        return self.coordinator

    @property
    def values(self) -> Iterable[str]:
        """The values of the types."""
        return [str(resolve(t)) for t in self._listed]

    def matches(self, event_type: DataEventType | str) -> bool:
        """Report whether a type is listed."""
        return name_of(event_type) in self._listed


def canonical(payload: Any) -> str:
    """Return a payload's JSON as the content hash takes it."""
    return json.dumps(payload, sort_keys=True)


def content_hash(event_type: DataEventType | str, payload: str) -> str:
    """Return the content hash of a type of the catalogue, "" for another, whose value only a node knows."""
    if not isinstance(event_type, DataEventType):
        return ""
    return hashlib.sha256(f"{event_type.value}:{payload}".encode()).hexdigest()


def from_log(event: StoredEvent) -> DataEvent:
    """Return an event of the log as the old buses had it."""
    happened = event.time or event.appended_at
    return DataEvent(
        event_type=resolve(event.type),
        payload=event.payload,
        source=event.source,
        timestamp=happened.timestamp(),
        correlation_id=event.correlation_id,
        causation_id=event.causation_id,
        key=event.key,
        offset=event.offset,
        hash=event.hash,
        traceparent=event.traceparent,
    )


def describe(event: Any) -> tuple[str, Any, str, float]:
    """Return the name of the type, the payload, the source and the time, 0.0 if unknown, of an old bus's event."""

    def field(*names: str) -> Any:
        for name in names:
            value = event.get(name) if isinstance(event, Mapping) else getattr(event, name, None)
            if value is not None and not callable(value):
                return value
        return None

    payload = field("payload", "data", "metadata")
    at = field("timestamp", "created_at")
    if isinstance(at, datetime):
        at = at.timestamp()
    return (
        name_of(resolve(field("event_type", "type", "event", "topic") or "UNKNOWN")),
        {} if payload is None else payload,
        str(field("source") or ""),
        float(at) if isinstance(at, int | float) else 0.0,
    )


def from_old(event: Any) -> DataEvent:
    """Return an event of an old bus as handlers get those of the log."""
    if isinstance(event, DataEvent):
        return event
    kind, payload, source, at = describe(event)
    found = DataEvent(resolve(kind), payload, source, at or time.time())
    found.correlation_id = str(getattr(event, "correlation_id", "") or "")
    return found
