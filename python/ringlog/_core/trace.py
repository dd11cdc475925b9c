"""Traces: the W3C trace context of an event, and spans where the program uses OpenTelemetry.

The package does not depend on OpenTelemetry and does not import it: a program that has no tracer set up has no spans.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringlog.event import Result

_TRACEPARENT = re.compile(r"00-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
FORM = "00-<32 hex digits>-<16 hex digits>-<2 hex digits>, in lower case and with ids that are not 0"


def _api() -> Any:
    """Return opentelemetry.trace if the program has imported it."""
    return sys.modules.get("opentelemetry.trace")


def is_traceparent(text: str) -> bool:
    """Report whether a text is a traceparent of version 00."""
    return _TRACEPARENT.fullmatch(text) is not None


def current() -> str:
    """Return the traceparent of the span that the caller is in, "" for none."""
    api = _api()
    return "" if api is None else _print(api.get_current_span().get_span_context())


def _print(context: Any) -> str:
    if not context.is_valid:
        return ""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _remote(api: Any, traceparent: str) -> Any:
    """Return the span context of an event, None if it has none."""
    found = _TRACEPARENT.fullmatch(traceparent)
    if found is None:
        return None
    return api.SpanContext(
        trace_id=int(found[1], 16),
        span_id=int(found[2], 16),
        is_remote=True,
        trace_flags=api.TraceFlags(int(found[3], 16)),
    )


def _attributes(operation: str, kind: str) -> dict[str, Any]:
    attributes = {
        "messaging.system": "ringlog",
        "messaging.operation.name": operation,
        "messaging.operation.type": operation,
    }
    return attributes | ({"messaging.destination.name": kind} if kind else {})


def _parent(api: Any, traceparent: str) -> Any:
    """Return the context of a span that is a child of an event's, None for that of the caller."""
    remote = _remote(api, traceparent)
    return None if remote is None else api.set_span_in_context(api.NonRecordingSpan(remote))


@contextmanager
def sending(kind: str, events: int, cause: str) -> Iterator[Callable[[Result], None]]:
    """Have a publish be a PRODUCER span, whose parent is the caller's or else the span of the cause.

    kind is the type of the events, "" if they differ. What is yielded takes the result of a single event.
    """
    api = _api()
    if api is None:
        yield lambda _: None
        return
    parent = None if current() else _parent(api, cause)
    attributes = _attributes("send", kind) | ({"messaging.batch.message_count": events} if events != 1 else {})
    with api.get_tracer("ringlog").start_as_current_span(
        f"send {kind}".strip(), context=parent, kind=api.SpanKind.PRODUCER, attributes=attributes
    ) as span:

        def sent(result: Result) -> None:
            span.set_attribute("messaging.message.id", str(result.offset))
            span.set_attribute("ringlog.duplicate", result.duplicate)

        yield sent


@contextmanager
def processing(kind: str, offset: int, traceparent: str) -> Iterator[None]:
    """Have the handling of an event be a CONSUMER span, whose parent is the span that published the event."""
    api = _api()
    if api is None:
        yield
        return
    remote = _remote(api, traceparent)
    attributes = _attributes("process", kind) | ({"messaging.message.id": str(offset)} if offset else {})
    with api.get_tracer("ringlog").start_as_current_span(
        f"process {kind}".strip(),
        context=_parent(api, traceparent),
        kind=api.SpanKind.CONSUMER,
        attributes=attributes,
        links=[] if remote is None else [api.Link(remote)],
    ):
        yield
