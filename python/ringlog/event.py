"""What is sent to the log and what comes back: Event, NewEvent, Result and Gap."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypedDict, TypeVar

if TYPE_CHECKING:
    from ringlog._core.payload import Payload

    P = TypeVar("P", bound=Payload)

MAX_ERROR = 4096  # characters of a handler's error that are sent; nodes truncate it as well

Json = dict[str, Any]
"""A JSON object, as json.loads returns it."""


class EventFields(TypedDict, total=False):
    """What an event may have beside type and payload. It is absent if it is not given.

    source          the publisher
    key             what the event is about: members of a group get the events of a key one after the other
    correlation_id  the run that it belongs to
    causation_id    the event that caused it
    dedup_id        identifies duplicates, in place of the content
    dedup           False appends the event even if the same content was appended a moment ago
    time            when it happened: a datetime with a time zone, or RFC 3339
    traceparent     the span that publishes it, of W3C Trace Context; by default that which the caller is in
    """

    source: str
    key: str
    correlation_id: str
    causation_id: str
    dedup_id: str
    dedup: bool
    time: datetime | str
    traceparent: str


class _NewEventRequired(EventFields):
    type: str


class NewEvent(_NewEventRequired, total=False):
    """An event to be published, as POST /v1/events takes it: a dict with the key "type".

    type     name, value, alias or dotted topic
    payload  a JSON object or a payload of ringlog.payloads; absent is {}
    """

    payload: Mapping[str, Any] | Payload


class Result(NamedTuple):
    """What became of a published event, which is on the disks of a majority.

    A duplicate was not appended: the offset is that of the first event of its content or dedup_id. One
    that is spooled is on this machine's disk, on its way to the log: its offset is 0, as it has none yet.
    """

    offset: int
    duplicate: bool
    hash: str
    appended_at: str
    warnings: tuple[Json, ...] = ()
    spooled: bool = False


class CallResult(NamedTuple):
    """What became of a run that Client.call has started.

    success           whether the run has succeeded
    duration_seconds  between the event that started it and the outcome, as the log has appended them
    error             why it failed, "" with success
    reply             the event that is the outcome
    offset            of the event that started it
    duplicate         that event was in the log already, and this is the outcome of its run
    correlation_id    of the run
    """

    success: bool
    duration_seconds: float
    error: str
    reply: Event
    offset: int
    duplicate: bool
    correlation_id: str


class Gap(NamedTuple):
    """Events that were trimmed before they could be read: those from `first` to `last`.

    reason is "trimmed", "retention" or "forced".
    """

    first: int
    last: int
    reason: str


class Event:
    """A stored event. Its fields are properties; `raw` is the JSON object they are read from."""

    __slots__ = ("raw",)

    def __init__(self, raw: Json) -> None:
        self.raw = raw

    @property
    def offset(self) -> int:
        """The position in the log, dense from 1."""
        offset: int = self.raw["offset"]
        return offset

    @property
    def type(self) -> str:
        """The name, such as TRAINING_COMPLETED."""
        name: str = self.raw["type"]
        return name

    @property
    def value(self) -> str:
        """The value of the type, such as training_completed."""
        value: str = self.raw["value"]
        return value

    @property
    def payload(self) -> Json:
        """The JSON object that was published."""
        payload: Json = self.raw["payload"]
        return payload

    def decode(self, kind: builtins.type[P]) -> P:
        """Return the payload as a class of ringlog.payloads.

        Raises InvalidArgument if the event is of another type.
        """
        return kind.from_event(self)

    @property
    def source(self) -> str:
        """The publisher, "" if it gave none."""
        return str(self.raw.get("source", ""))

    @property
    def key(self) -> str:
        """What the event is about, "" if nothing was given."""
        return str(self.raw.get("key", ""))

    @property
    def correlation_id(self) -> str:
        """The run that the event belongs to, "" if none was given."""
        return str(self.raw.get("correlation_id", ""))

    @property
    def causation_id(self) -> str:
        """The event that caused this one, "" if none was given."""
        return str(self.raw.get("causation_id", ""))

    @property
    def dedup_id(self) -> str:
        """What identifies duplicates in place of the content, "" if nothing was given."""
        return str(self.raw.get("dedup_id", ""))

    @property
    def traceparent(self) -> str:
        """The span that published the event, of W3C Trace Context, "" if none was given."""
        return str(self.raw.get("traceparent", ""))

    @property
    def hash(self) -> str:
        """The hash of value and canonical payload, 64 hexadecimal digits."""
        return str(self.raw["hash"])

    @property
    def time(self) -> datetime | None:
        """When it happened according to the publisher, in UTC; None if it was not given."""
        text = self.raw.get("time")
        return parse_time(text) if text else None

    @property
    def appended_at(self) -> datetime:
        """When it was appended by the cluster's replicated time, in UTC."""
        return parse_time(self.raw["appended_at"])

    @property
    def redrive(self) -> int | None:
        """The id of the dead letter that this event was, None if it was none."""
        return self.raw.get("redrive")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Event) and self.raw == other.raw

    def __hash__(self) -> int:
        return hash((self.raw["offset"], self.raw["hash"]))

    def __repr__(self) -> str:
        key = f" key={self.key!r}" if self.key else ""
        return f"<{type(self).__name__} {self.offset} {self.type}{key} {self.payload!r}>"


def parse_time(text: str) -> datetime:
    """Read RFC 3339 in UTC with up to nine digits of a second, of which a datetime keeps six."""
    whole, _, fraction = text.rstrip("Z").partition(".")
    return datetime.fromisoformat(f"{whole}.{fraction[:6]:0<6}+00:00")


def error_text(error: str | BaseException) -> str:
    """Return a handler's error as it is kept with a dead letter."""
    if isinstance(error, str):
        text = error
    else:
        try:
            text = f"{type(error).__name__}: {error}"
        except Exception:  # of its __str__
            text = type(error).__name__
    # Half a surrogate pair, as of a file name that is not UTF-8, could not be sent.
    return text[:MAX_ERROR].encode(errors="replace").decode()
