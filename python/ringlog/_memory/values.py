"""Settings, durations and positions as text, and the refusal of what is none."""

from __future__ import annotations

import contextlib
import functools
import json
import re
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from ringlog.event import Json, parse_time

DAY = timedelta(days=1)
YEAR = 365 * DAY
MAX_EXACT = 1 << 53  # below it a float is the number that was written, and not one beside it


_REMEDIES = {"too_large": "send less, or raise the limit with Client.set_setting", "invalid_json": "leave it out"}


class Refusal(Exception):
    """What a node answers with an error: the object `error` of its body."""

    def __init__(self, code: str, field: str, message: str, remedy: str = "", *, reason: str = "", offset: int = 0):
        super().__init__(message)
        remedy = remedy or _REMEDIES.get(code, "send what the message asks for")
        fields = {"code": code, "message": message, "reason": reason, "field": field, "remedy": remedy}
        self.error: Json = {name: text for name, text in fields.items() if text}
        if offset:
            self.error["offset"] = offset

    def under(self, prefix: str) -> Refusal:
        """Put the field below another, such as events[3], and return the refusal."""
        field = self.error.get("field", "")
        self.error["field"] = prefix + ("" if not field or field.startswith("[") else ".") + field
        return self


def invalid(field: str, message: str, remedy: str = "", **more: Any) -> Refusal:
    """Return the refusal of a value that is never accepted."""
    return Refusal("invalid_argument", field, message, remedy, **more)


def bad_value(field: str, value: object, want: str) -> Refusal:
    """Return the refusal of a value that is not what is wanted, such as "an offset from 1"."""
    return invalid(field, f"{field}={value!r:.80} is not {want}", f"send {want}")


# Durations, as Go writes them.

_UNITS = {"ns": 1e-3, "us": 1.0, "µs": 1.0, "ms": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6}
_PART = re.compile(r"(\d+\.?\d*|\.\d+)(ns|us|µs|ms|s|m|h)")


@functools.lru_cache(256)
def parse_duration(text: str) -> timedelta:
    """Read a duration such as 1h30m or 500ms. Raises ValueError."""
    body = text.lstrip("+-")
    parts = _PART.findall(body)
    if len(text) - len(body) > 1 or (body != "0" and (not parts or "".join(n + unit for n, unit in parts) != body)):
        raise ValueError(f"{text!r} is not a duration such as 90s or 72h")
    micros = sum(float(number) * _UNITS[unit] for number, unit in parts)
    try:
        return timedelta(microseconds=-micros if text.startswith("-") else micros)
    except OverflowError as e:
        raise ValueError(f"{text!r} is too long") from e


def parse_age(field: str, text: str) -> timedelta:
    """Read a duration, or a number of days or weeks such as 7d, that is not negative."""
    try:
        days = re.fullmatch(r"(\d+\.?\d*)([dw])", text)
        age = float(days[1]) * DAY * (7 if days[2] == "w" else 1) if days else parse_duration(text)
    except (ValueError, OverflowError):
        age = timedelta(-1)
    if age < timedelta(0):
        raise invalid(field, f"{field}={text!r:.80} is not an age", "use a duration such as 90s, 15m, 36h, 7d or 2w")
    return age


def parse_timeout(text: str, default: float) -> float:
    """Return the seconds of the parameter timeout."""
    try:
        seconds = parse_duration(text).total_seconds() if text else default
    except ValueError:
        seconds = 0.0
    if not 0 < seconds <= 3600:
        raise bad_value("timeout", text, "a duration up to 1h")
    return seconds


def duration_text(d: timedelta) -> str:
    """Return a duration as Go prints it, such as 1m0s."""
    seconds = d.total_seconds()
    if 0 < seconds < 1:
        return f"{seconds * 1000:g}ms"
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    return (f"{hours:.0f}h" if hours else "") + (f"{minutes:.0f}m" if hours or minutes else "") + f"{rest:g}s"


# Times and positions.

_RFC3339 = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:\d\d)")


def time_text(at: datetime) -> str:
    """Return a time in UTC as RFC 3339 without zeros at its end."""
    text = at.astimezone(timezone.utc).replace(tzinfo=None).isoformat()
    return (text.rstrip("0") if "." in text else text) + "Z"


def normalize_time(text: str) -> str | None:
    """Return an RFC 3339 time in UTC, to the nanosecond; None if it is none."""
    match = _RFC3339.fullmatch(text)
    try:
        assert match is not None
        whole = datetime.fromisoformat(f"{match[1]}T{match[2]}{match[4].replace('Z', '+00:00')}")
    except (AssertionError, ValueError):
        return None
    fraction = (match[3] or "")[:10].rstrip("0").rstrip(".")
    return time_text(whole).removesuffix("Z") + fraction + "Z"


def parse_date(text: str) -> datetime | None:
    """Read a time, a date with or without a time of day in UTC, or seconds since 1970; None for anything else."""
    if at := normalize_time(text) or normalize_time(text.replace(" ", "+")):
        return parse_time(at)
    with contextlib.suppress(ValueError, OverflowError, OSError):
        return datetime.fromtimestamp(float(text), timezone.utc)
    for layout in ("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M:%S"):
        with contextlib.suppress(ValueError):
            return datetime.strptime(text, layout).replace(tzinfo=timezone.utc)
    return None


Resolve = Callable[[datetime], int]
"""Returns the offset of the first event appended at a time or later."""


def whole(value: object) -> object:
    """Return a float without a fraction as an integer, and all else as it is."""
    exact = isinstance(value, float) and value.is_integer() and abs(value) < MAX_EXACT
    return int(value) if exact and isinstance(value, float) else value


def parse_position(field: str, value: object, first: int, last: int, now: datetime, at: Resolve) -> int | None:
    """Return the offset of the next event at a position; None if none is given.

    first and last are the bounds of the log.
    """
    value = whole(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return max(value, 1)
    if value is None or value == "":
        return None
    text = value if isinstance(value, str) else ""
    if text.lower() in ("start", "end"):
        return first if text.lower() == "start" else last + 1
    number = text.removeprefix("-")
    if number.isascii() and number.isdigit() and not int(number):
        text = "an offset, which are from 1"
    elif number.isascii() and number.isdigit():
        return int(text) if number == text else max(first, last + 1 - min(int(number), last))
    if text[:1] == "@":
        when = parse_date(text[1:])
    elif re.fullmatch(r"\d{4}-\d\d-\d\d.*", text):
        when = parse_date(text)
    else:
        try:
            when = now - parse_age(field, text)
        except Refusal:
            when = None
    if when is None:
        raise invalid(
            field,
            f"{field}={value!r:.80} is not a position",
            "use start, end, an offset, -N, @TIME or an age such as 36h",
        )
    return at(when)


# Settings.


def _duration(low: timedelta, high: timedelta) -> Callable[[str], bool]:
    def takes(text: str) -> bool:
        try:
            return low <= parse_duration(text) <= high
        except ValueError:
            return False

    return takes


def _number(low: int, high: int) -> Callable[[str], bool]:
    return lambda text: text.isascii() and text.isdigit() and low <= int(text) <= high


def _choice(*words: str) -> Callable[[str], bool]:
    return lambda text: text in words


def _lag_limits(text: str) -> bool:
    """Report whether text is NAME=HIGH/LOW or START*=HIGH/LOW, comma separated."""
    for one in text.split(","):
        pattern, _, numbers = one.rpartition("=")
        limits = re.fullmatch(r"\s*(\d{1,18})/(\d{1,18})\s*", numbers, re.ASCII)
        if not pattern.strip() or "*" in pattern.strip().removesuffix("*"):
            return False
        if limits is None or int(limits[1]) < int(limits[2]) + 2:
            return False
    return True


_NONE, _SECOND, _HOUR = timedelta(0), timedelta(seconds=1), timedelta(hours=1)
_ACK_WAIT = timedelta(milliseconds=100)

SETTINGS: dict[str, tuple[str, Callable[[str], bool]]] = {
    "allocations.max": ("20000", _number(1, 1_000_000)),
    "allocations.resources_max": ("10000", _number(1, 1_000_000)),
    "allocations.rise_after": ("1m", _duration(_NONE, DAY)),
    "auth.bind_source": ("false", _choice("false", "true")),
    "auth.open_metrics": ("false", _choice("false", "true")),
    "autopilot.cleanup_dead_servers": ("false", _choice("false", "true")),
    "autopilot.dead_after": ("1h", _duration(_SECOND, YEAR)),
    "autopilot.last_contact_threshold": ("3s", _duration(_SECOND, _HOUR)),
    "autopilot.max_trailing_entries": ("1000", _number(1, 1 << 40)),
    "autopilot.min_voters": ("3", _number(1, 1000)),
    "autopilot.stabilization_time": ("10s", _duration(_NONE, DAY)),
    "backpressure.lag": ("", _lag_limits),
    "catalogue.reserved": ("refuse", _choice("refuse", "accept-as-foreign")),
    "chain.deadlines": ("", lambda text: "->" in text and "=" in text),
    "clients.max": ("10000", _number(1, 1_000_000)),
    "clients.max_bytes": ("67108864", _number(1 << 16, 1 << 40)),
    "cursor.hold_bytes": ("4294967296", _number(0, 1 << 50)),
    "cursor.hold_events": ("10000000", _number(0, 1 << 50)),
    "cursor.hold_for": ("72h", _duration(_NONE, 10 * YEAR)),
    "cursor.idle_expiry": ("0s", _duration(_NONE, 10 * YEAR)),
    "cursor.max": ("10000", _number(1, 1_000_000)),
    "cursor.max_bytes": ("67108864", _number(1 << 16, 1 << 40)),
    "cursor.stall_after": ("5m", _duration(_NONE, 10 * YEAR)),
    "dedup.max_keys": ("20000000", _number(1, 1 << 31)),
    "dedup.policy_max_keys": ("1000000", _number(1, 1 << 31)),
    "dedup.window": ("60s", _duration(_SECOND, DAY)),
    "dlq.max_age": ("0s", _duration(_NONE, 100 * YEAR)),
    "dlq.max_bytes": ("268435456", _number(1 << 10, 1 << 50)),
    "dlq.stale_after": ("24h", _duration(_NONE, 10 * YEAR)),
    "group.ack_wait": ("30s", _duration(_ACK_WAIT, DAY)),
    "group.max_deliver": ("5", _number(0, 1_000_000)),
    "group.max_pending": ("10000", _number(1, 50_000)),
    "group.session_timeout": ("10s", _duration(_ACK_WAIT, _HOUR)),
    "health.hold_down": ("5s", _duration(_NONE, _HOUR)),
    "limits.depth": ("128", _number(1, 1000)),
    "limits.event_bytes": ("1048576", _number(1024, 8 << 20)),
    "limits.name_bytes": ("256", _number(16, 4096)),
    "limits.request_bytes": ("4194304", _number(1024, 16 << 20)),
    "limits.request_events": ("10000", _number(1, 1 << 16)),
    "limits.requests_per_second": ("0", _number(0, 1_000_000)),
    "producer.max": ("100000", _number(1000, 10_000_000)),
    "producer.max_bytes": ("268435456", _number(32 << 20, 1 << 40)),
    "producer.ttl": ("15m", _duration(timedelta(minutes=10), DAY)),
    "retention.age": ("168h", _duration(_NONE, 100 * YEAR)),
    "retention.bytes": ("8589934592", _number(0, 1 << 50)),
    "retention.events": ("0", _number(0, 1 << 50)),
    "roles.max": ("20000", _number(1, 1_000_000)),
    "roles.max_bytes": ("67108864", _number(1 << 16, 1 << 40)),
    "schedule.max": ("100000", _number(1, 10_000_000)),
    "schedule.max_bytes": ("268435456", _number(1 << 16, 1 << 40)),
    "tokens.max": ("1000", _number(1, 100_000)),
    "validation.strict": ("false", _choice("false", "true")),
    "views.max": ("64", _number(1, 1000)),
}
"""The settings of a cluster: the default, and which texts are a value."""


class Settings:
    """The settings in force. What bounds bytes, members and voters is kept and has no effect in memory."""

    def __init__(self) -> None:
        self._changed: dict[str, str] = {}

    def list(self) -> list[Json]:
        """Return all settings by key: the schema Setting."""
        return [self.get(key) for key in SETTINGS]

    def get(self, key: str) -> Json:
        """Return one setting."""
        if key not in SETTINGS:
            raise Refusal("not_found", "key", f"there is no setting {key!r}", "Client.settings lists them")
        return {"key": key, "value": self.text(key), "default": SETTINGS[key][0], "doc": ""}

    def set(self, key: str, value: object) -> Json:
        """Change a setting; "" restores the default."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, str | int | float):
            raise invalid("value", "value is missing", 'send the value as a string; "" restores the default')
        text = value if isinstance(value, str) else json.dumps(value)
        self.get(key)
        if text and not SETTINGS[key][1](text):
            raise invalid("value", f"{text!r:.80} is no value of {key}, whose default is {SETTINGS[key][0]}")
        self._changed[key] = text
        return self.get(key)

    def text(self, key: str) -> str:
        """Return a value as text."""
        return self._changed.get(key) or SETTINGS[key][0]

    def number(self, key: str) -> int:
        """Return a value that is a number."""
        return int(self.text(key))

    def duration(self, key: str) -> timedelta:
        """Return a value that is a duration."""
        return parse_duration(self.text(key))


class Strict(Settings):
    """Settings with the checks that a request asks for beyond them."""

    def __init__(self, settings: Settings) -> None:
        super().__init__()
        self._changed = {**settings._changed, "validation.strict": "true"}
