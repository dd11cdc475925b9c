"""Events as JSON, and what is wrong with one that has no JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Any

from ringlog._core.cause import inherit
from ringlog._core.checks import check_fields, invalid, unknown_name
from ringlog.errors import InvalidArgument
from ringlog.event import EventFields

if TYPE_CHECKING:
    from ringlog._core.config import Clock
    from ringlog._core.payload import Payload

Position = str | int | datetime | timedelta
"""Where to begin: "start", "end", an offset, -N for the last N events, a time, or an age."""


MAX_DEPTH = 128  # levels of a payload, as nodes allow them: the event and a list of events are around it


def _encode_other(value: Any) -> Any:
    """Return what json can encode in place of a payload of ringlog.payloads."""
    if isinstance(value, datetime):
        return format_time(value, "time")
    to_json = getattr(value, "to_json", None)
    if to_json is None:
        raise TypeError(f"{type(value).__name__} has no JSON")
    return to_json()


ZONE = "give one, such as datetime.now(timezone.utc); .astimezone() adds the zone of this host"

_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":"), ensure_ascii=False, default=_encode_other).encode


def encode(value: Any, field: str = "") -> bytes:
    """Return an event or a list of events as JSON in UTF-8.

    Raises InvalidArgument, which names the value that has no JSON, in a path that begins with field.
    """
    try:
        encoded = _encode(value).encode()
        # A request is a list of events, whose payloads may have so many levels.
        if not _may_be_deep(encoded, MAX_DEPTH + 2) or not _is_deep(value, MAX_DEPTH + 2):
            return encoded
        raise RecursionError("nested too deeply")
    except (TypeError, ValueError, RecursionError) as e:
        fault = _find_fault(value, field, [])
        if fault is None and isinstance(e, InvalidArgument):
            raise
        where, what, remedy = fault or (field, str(e), "send JSON values")
        raise InvalidArgument(what, code="invalid_argument", field=where, remedy=remedy) from None


_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def _may_be_deep(encoded: bytes, levels: int) -> bool:
    """Report whether JSON may have more than some levels, fast. Brackets in texts may have it say yes."""
    if encoded.count(b"{") + encoded.count(b"[") <= levels:
        return False
    brackets = encoded.translate(None, _NO_BRACKETS)
    # Each round takes the innermost level away.
    for _ in range(levels):
        rest = brackets.replace(b"{}", b"").replace(b"[]", b"")
        if len(rest) in (0, len(brackets)):
            return rest != b""
        brackets = rest
    return True


def _is_deep(value: Any, levels: int) -> bool:
    """Report whether containers are nested in more than some levels."""
    if isinstance(value, Mapping):
        value = value.values()
    elif not isinstance(value, list | tuple):
        return False
    return not levels or any(_is_deep(part, levels - 1) for part in value)


def _find_fault(value: Any, where: str, inside: list[int]) -> tuple[str, str, str] | None:
    """Return field, message and remedy of the first value without JSON, None if there is none."""
    if value is None or isinstance(value, bool | int):
        return None
    if isinstance(value, datetime):
        return None if value.tzinfo is not None else (where, f"{value} has no time zone", ZONE)
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            return where, "a string with half a surrogate pair has no UTF-8", "decode it with errors='replace'"
        return None
    if isinstance(value, float):
        if value - value == 0:
            return None
        return where, f"JSON has no {value!r}", "send None or leave the field out"
    if isinstance(value, bytes | bytearray | memoryview):
        return where, "JSON has no bytes", "decode them, or send them in base64"
    if id(value) in inside:
        return where, "the value contains itself", "send a copy without the circle"
    if len(inside) > MAX_DEPTH + 2:
        return where, "nested too deeply", "send a flatter value"
    if hasattr(value, "to_json"):
        value = value.to_json()

    # The parts of a container, each with its path.
    if isinstance(value, dict):
        for key in value:
            if not isinstance(key, str | int | float | bool | None):
                return where, f"a key of a JSON object is a string, not {type(key).__name__}", "send str(key)"
        parts = [(f"{where}.{key}" if where else str(key), part) for key, part in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(f"{where}[{i}]", part) for i, part in enumerate(value)]
    else:
        return where, f"JSON has no {type(value).__name__}", "send strings, numbers, booleans, None, lists and dicts"
    for name, part in parts:
        if fault := _find_fault(part, name, [*inside, id(value)]):
            return fault
    return None


def build_event(
    type: str | Payload, payload: Any, fields: Mapping[str, Any], source: str, clock: Clock | None = None
) -> dict[str, Any]:
    """Return an event as POST /v1/events takes it, with the client's source and the clock's time if it has none."""
    if not fields.keys() <= EventFields.__annotations__.keys():
        unknown = min(fields.keys() - EventFields.__annotations__.keys())
        raise TypeError(unknown_name("an event", unknown, EventFields.__annotations__))
    check_fields(fields)
    if not isinstance(type, str):
        if not hasattr(type, "EVENT_TYPE"):
            raise InvalidArgument(
                f"{type!r:.40} is no type of an event",
                code="invalid_argument",
                field="type",
                remedy="give a name such as TRAINING_COMPLETED, or a payload of ringlog.payloads",
            )
        if payload is not None:
            raise InvalidArgument("the payload is given twice", code="invalid_argument", field="payload")
        return build_event(type.EVENT_TYPE, type, fields, source, clock)
    event = {"type": type, "payload": {} if payload is None else payload, **fields}
    if source and not event.get("source"):
        event["source"] = source
    if clock is not None and event.get("time") is None:
        event["time"] = clock.now()
    return inherit(event)


def format_time(time: datetime, field: str) -> str:
    """Return a time as RFC 3339 in UTC. One without a zone is refused: it would mean another time on each host."""
    if time.tzinfo is None:
        raise InvalidArgument(f"{time} has no time zone", code="invalid_argument", field=field, remedy=ZONE)
    return time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def format_instant(at: datetime | float) -> str:
    """Return a time that a datetime or seconds since 1970 mean, as format_time does."""
    if isinstance(at, datetime):
        return format_time(at, "at")
    remedy = "give a datetime with a zone, or seconds since 1970 such as time.time() + 60"
    if not isinstance(at, int | float) or isinstance(at, bool):
        raise invalid("at", f"{at!r:.40} is not a time", remedy)
    try:
        return format_time(datetime.fromtimestamp(at, timezone.utc), "at")
    except (ValueError, OverflowError, OSError):
        raise invalid("at", f"{at!r:.40} is not a time in seconds since 1970", remedy) from None


def format_position(position: Position, now: datetime, field: str = "from_") -> str:
    """Return a position as the HTTP interface reads it. An age counts from now."""
    if isinstance(position, timedelta):
        position = now - position
    if isinstance(position, datetime):
        return "@" + format_time(position, field)
    return str(position)
