"""What a handler publishes belongs to the run and the trace of the event that it handles, and names it as its cause."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple, Protocol

from ringlog._core import trace


class Cause(Protocol):
    """An event as the cause of others."""

    @property
    def offset(self) -> int:
        """Its offset, 0 if it has none yet."""

    @property
    def hash(self) -> str:
        """Its content hash, "" if it is not known."""

    @property
    def correlation_id(self) -> str:
        """The run that it belongs to, "" if none was given."""


class _Reaction(NamedTuple):
    offset: int
    hash: str
    correlation_id: str
    traceparent: str


def _reaction() -> _Reaction | None:
    """Return the event for which react runs this program, if it does."""
    offset = os.environ.get("RINGLOG_OFFSET", "")
    if not offset.isdecimal():
        return None
    traceparent = os.environ.get("TRACEPARENT", "")
    return _Reaction(
        int(offset),
        "",
        os.environ.get("RINGLOG_CORRELATION_ID", ""),
        traceparent if trace.is_traceparent(traceparent) else "",
    )


def _reacts() -> bool:
    """Whether this process descends from react: a daemon that a command has started does not handle its event."""
    reactor = os.environ.get("RINGLOG_REACTOR", "")
    if not reactor or not os.path.exists("/proc/self/stat"):
        return True
    process = os.getppid()
    while str(process) != reactor:
        try:
            with open(f"/proc/{process}/stat", encoding="utf-8", errors="replace") as stat:
                # After the name of the program, in parentheses, come its state and its parent.
                process = int(stat.read().rpartition(")")[2].split()[1])
        except OSError:
            return False
        if process == 0:
            return False
    return True


_REACTION = _reaction()
_cause: ContextVar[Cause] = ContextVar("ringlog_cause")


@contextmanager
def caused_by(event: Cause) -> Iterator[None]:
    """Have what is published in this block inherit from an event.

    It gets the event's correlation_id, a causation_id that names the event by its offset, and its traceparent; what is
    given with the call comes first. Tasks that are created in the block inherit as well. Where the program uses
    OpenTelemetry, the block is a CONSUMER span within the one that published the event.
    """
    # An event of the old buses has the name of its type apart from its value.
    kind = getattr(event, "name", "") or getattr(event, "type", "")
    with trace.processing(str(kind), event.offset, trace_of(event)):
        token = _cause.set(event)
        try:
            yield
        finally:
            _cause.reset(token)


def trace_of(cause: Cause | None) -> str:
    """Return the traceparent of a cause, "" if it has none."""
    return str(getattr(cause, "traceparent", ""))


def has_run_in_payload(event: Mapping[str, Any]) -> bool:
    """Report whether a payload has a correlation id, which a node takes where the event has none of its own."""
    payload = event.get("payload")
    if isinstance(payload, Mapping):
        return bool(payload.get("correlation_id"))
    return bool(getattr(payload, "correlation_id", None))


def cause_of_now() -> Cause | None:
    """Return the cause of what is published now, None if there is none."""
    cause = _cause.get(_REACTION)
    return None if cause is _REACTION and not _reacts() else cause


def inherit(event: dict[str, Any]) -> dict[str, Any]:
    """Add to an event that is to be published what it inherits from its cause, in place, and return it."""
    cause = cause_of_now()
    # The span in which it is published comes first: it is within that of the cause.
    if "traceparent" not in event and (traceparent := trace.current() or trace_of(cause)):
        event["traceparent"] = traceparent
    if cause is None:
        return event
    if cause.correlation_id and not has_run_in_payload(event):
        event.setdefault("correlation_id", cause.correlation_id)
    if name := str(cause.offset or "") or cause.hash:
        event.setdefault("causation_id", name)
    return event
