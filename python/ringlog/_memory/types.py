"""The catalogue, filters, and the form in which an event is stored, or why it is refused."""

from __future__ import annotations

import difflib
import functools
import hashlib
import json
import re
import unicodedata
from collections.abc import Callable
from datetime import datetime, timezone
from typing import Any, NamedTuple

from ringlog._core import trace
from ringlog._definitions import ALIASES, TYPES
from ringlog._memory.values import Refusal, Settings, bad_value, invalid, normalize_time, time_text
from ringlog.event import Json

FILTER = ("types", "categories", "sources", "keys", "correlation_ids")
MAX_ENTRIES, MAX_ENTRY, MAX_FILTER = 256, 256, 16 << 10  # entries of a list, bytes of one, bytes of a filter
MAX_WARNINGS = 8
BODY_LEVELS = 128  # of a body that is not a list of events; its object and the event are around a payload in it


class Definition(NamedTuple):
    """A type of the catalogue; fields has the types of its payload fields."""

    name: str
    value: str
    category: str
    status: str
    fields: dict[str, str]

    def to_json(self) -> Json:
        """Return the schema Definition, without what the platform's documents say of the type beside its fields."""
        payload = [{"name": name, "type": type_} for name, type_ in self.fields.items()]
        return {"name": self.name, "value": self.value, "status": self.status, "category": self.category,
                "payload": payload}  # fmt: skip


class Resolved(NamedTuple):
    """The type that a spelling means. definition is None if it is unknown."""

    name: str
    value: str
    definition: Definition | None = None
    renamed: bool = False  # an alias that reads like another type


def fold(name: str) -> str:
    """Return a spelling in the form in which names are looked up."""
    return "".join(c.upper() if c.isascii() else c for c in name).replace(".", "_").replace("-", "_")


# What begins like that, and these, only the cluster emits.
OWN_FAMILIES = (
    "LEADER_",
    "QUORUM_",
    "VOTER_",
    "SPLIT_BRAIN_",
    "CURSOR_",
    "DLQ_EVENTS_",
    "ROLE_",
    "ALLOCATION_",
    "ADMIN_",
)
OWN_TYPES = ("DLQ_STALE_EVENTS", "CATCHUP_AT_RISK", "CHAIN_OVERDUE")


def reserved(name: str) -> bool:
    """Report whether only the cluster emits a type."""
    return name in OWN_TYPES or name.startswith(OWN_FAMILIES)


class Catalogue:
    """The known types, in the order in which the catalogue lists them."""

    def __init__(self) -> None:
        self.types: dict[str, Definition] = {}
        self._spellings: dict[str, Resolved] = {}
        for line in TYPES.split("\n"):
            if line:
                name, value, category, status, *fields = line.split(" ")
                known = Definition(name, value, category, status, dict(field.split(":") for field in fields))
                self.types[name] = known
                self._spellings[fold(value)] = self._spellings[name] = Resolved(name, value, known)
        for alias, name in ALIASES.items():
            namesake = self.types.get(alias + "D")
            known = self.types[name]
            self._spellings[alias] = Resolved(name, known.value, known, namesake not in (None, known))

    def resolve(self, name: str) -> Resolved:
        """Return the type that a name, value, alias or topic means."""
        folded = fold(name)
        return self._spellings.get(folded) or Resolved(folded, folded.lower())

    def categories(self) -> set[str]:
        """Return the categories in use."""
        return {known.category for known in self.types.values()}


@functools.lru_cache(1)
def catalogue() -> Catalogue:
    """Return the built-in catalogue."""
    return Catalogue()


# Filters.

Match = Callable[[Json], bool]


@functools.lru_cache(1024)
def _pattern(folded: str) -> re.Pattern[str]:
    parts = {"*": ".*", "?": "."}
    return re.compile("".join(parts.get(c) or re.escape(c) for c in folded), re.DOTALL)


def _named(entry: str, name: str) -> bool:
    """Report whether an entry of types, exact or a pattern, names a type."""
    if "*" not in entry and "?" not in entry:
        return catalogue().resolve(entry).name == name
    known = catalogue().types.get(name)
    pattern = _pattern(fold(entry))
    return bool(pattern.fullmatch(name) or (known and pattern.fullmatch(fold(known.value))))


def check_filter(given: Json) -> Json:
    """Return a filter without empty lists. Raises Refusal for one that no node would take."""
    chosen = {name: given[name] for name in FILTER if given.get(name)}
    size = sum(len(str(entry).encode()) + 16 for entries in chosen.values() for entry in entries)
    if size > MAX_FILTER:
        raise Refusal("too_large", "filter", f"{size} bytes, the limit is {MAX_FILTER}", reason="too_large")
    for name, entries in chosen.items():
        if len(entries) > MAX_ENTRIES:
            raise Refusal("too_large", name, f"{len(entries)} entries, the limit is {MAX_ENTRIES}", reason="too_large")
        for i, entry in enumerate(entries):
            _check_entry(f"{name}[{i}]", entry, name == "types")
    for i, category in enumerate(chosen.get("categories", ())):
        if category.lower() not in {known.lower() for known in catalogue().categories()}:
            raise invalid(f"categories[{i}]", f"no type has the category {category!r}")
    return chosen


def _check_entry(field: str, entry: str, is_type: bool) -> None:
    if not entry:
        raise invalid(field, "empty", reason="invalid_field")
    if len(entry.encode()) > MAX_ENTRY:
        raise Refusal("too_large", field, f"{len(entry.encode())} bytes, the limit is {MAX_ENTRY}", reason="too_large")
    if is_type and not re.fullmatch(r"[A-Za-z0-9_.*?-]+", entry):
        raise invalid(field, f"{entry!r} has a character no event type has", reason="invalid_type")
    if has_control(entry):
        raise invalid(field, "control character", reason="invalid_field")


def matcher(chosen: Json) -> Match:
    """Return a function that reports whether a stored event passes a filter."""
    lists = (("source", chosen.get("sources")), ("key", chosen.get("keys")))
    exact = [(name, set(values)) for name, values in (*lists, ("correlation_id", chosen.get("correlation_ids")))
             if values]  # fmt: skip
    verdicts: dict[str, bool] = {}

    def match(event: Json) -> bool:
        name = event["type"]
        if name not in verdicts:
            verdicts[name] = passes_type(chosen, name)
        return verdicts[name] and all(event.get(field, "") in values for field, values in exact)

    return match


def passes_type(chosen: Json, name: str) -> bool:
    """Report whether a filter passes a type, by types and categories."""
    types, categories = chosen.get("types"), [c.lower() for c in chosen.get("categories", ())]
    known = catalogue().types.get(name)
    in_category = not categories or (known is not None and known.category.lower() in categories)
    return in_category and (not types or any(_named(entry, name) for entry in types))


def warn_of_filter(chosen: Json) -> list[Json]:
    """Return which parts of a filter match no type of the catalogue."""
    found = []
    for i, entry in enumerate(chosen.get("types", ())):
        if "*" in entry or "?" in entry:
            if not any(_named(entry, name) for name in catalogue().types):
                found.append(warning("unknown_type", f"types[{i}]", f"no type of the catalogue matches {entry}"))
        elif catalogue().resolve(entry).definition is None:
            message = f"{entry} is not in the catalogue{_nearest(entry)}"
            found.append(warning("unknown_type", f"types[{i}]", message))
    both = chosen.get("types") and chosen.get("categories")
    if both and not found and not any(passes_type(chosen, name) for name in catalogue().types):
        names = ", ".join(chosen["categories"])
        found.append(warning("no_match", "categories", f"none of the types is in category {names}"))
    return found[:MAX_WARNINGS]


def _nearest(name: str) -> str:
    """Return the known types that a misspelt one may stand for, after a semicolon; "" if none is close."""
    folded = name.upper().replace(".", "_").replace("-", "_")
    near = difflib.get_close_matches(folded, catalogue().types, 3, 0.7)
    return f"; nearest known types: {', '.join(near)}" if near else ""


def warning(reason: str, field: str, message: str) -> Json:
    """Return a warning for the publisher of an event, or for whoever names types."""
    return {"reason": reason, "field": field, "message": message}


# Events.


class Event(NamedTuple):
    """An event in the form in which it is stored.

    key is what identifies its duplicates, None if nothing does; warnings are for its publisher.
    """

    raw: Json
    hash: str
    key: tuple[str, str] | None
    warnings: list[Json]


_TEXTS = ("source", "key", "correlation_id", "causation_id", "dedup_id")
_ADDED = ("offset", "appended_at", "term", "hash", "original_type", "foreign", "target", "redrive")
_SPELLINGS = {"event_type": "type", "timestamp": "time"}
_KNOWN = {"type", "payload", "value", "dedup", "time", "traceparent", *_SPELLINGS, *_TEXTS, *_ADDED}


def decode_events(body: bytes, settings: Settings) -> tuple[list[Json], bool]:
    """Return the events of a request, checked in form, and whether it is one that was not sent as a list."""
    limit = settings.number("limits.request_bytes")
    if len(body) > limit:
        raise Refusal("too_large", "body", f"the limit for a request is {limit} bytes", "send several requests")
    _check_depth(body, settings.number("limits.depth"))
    try:
        sent = json.loads(body, object_pairs_hook=unique)
    except ValueError as e:
        reason = "invalid_json" if body.strip() else "empty"
        raise Refusal("invalid_json", "body", str(e), "send well-formed JSON", reason=reason) from e
    if not isinstance(sent, list):
        return [_decode_event(sent, settings)], True
    if not sent:
        raise Refusal("invalid_json", "body", "the array holds no event", reason="empty")
    if len(sent) > settings.number("limits.request_events"):
        raise Refusal("too_large", "body", f"more events than the limit of {settings.text('limits.request_events')}")
    events = []
    for i, one in enumerate(sent):
        try:
            events.append(_decode_event(one, settings))
        except Refusal as e:
            raise e.under(f"events[{i}]") from None
    return events, False


def decode_one(sent: Any, settings: Settings) -> Json:
    """Return the event that an object of a body has, as decode_events does."""
    _check_depth(json.dumps(sent).encode(), min(settings.number("limits.depth"), BODY_LEVELS - 2))
    return _decode_event(sent, settings)


class _Twice(dict[str, Any]):
    """An object that has the key named twice."""

    twice = ""


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return an object as json.loads asks for it, which check_unique can check."""
    found = dict(pairs)
    if len(found) == len(pairs):
        return found
    twice = _Twice(found)
    names = [name for name, _ in pairs]
    twice.twice = next(name for name in names if names.count(name) > 1)
    return twice


def _check_depth(body: bytes, limit: int) -> None:
    """Refuse a payload that is nested too deeply, before a parser recurses into it."""
    depth = 0
    path: list[str] = []
    text = name = ""
    list_of_events = body.lstrip()[:1] == b"["
    around = 2 if list_of_events else 1
    for token in re.finditer(r'"[^"\\]*(?:\\.[^"\\]*)*"|[\[\]{},:]', body.decode("utf-8", "replace")):
        c = token[0]
        if c[0] == '"':
            text = c[1:-1]
        elif c == ":":
            name = text
            path[-1] = f".{name}"
        elif c == ",":
            if path and path[-1][0] == "[":
                path[-1] = f"[{int(path[-1][1:-1]) + 1}]"
        elif c in "[{":
            depth += 1
            if depth > limit + around:
                field = "".join(path).removeprefix(".")
                field = f"events{field}" if list_of_events else field
                message = f"nested deeper than the limit of {limit} levels"
                raise Refusal("invalid_json", field, message, "flatten it", reason="too_deep")
            path.append("[0]" if c == "[" else ".")
        else:
            depth -= 1
            if path:
                path.pop()


def _decode_event(sent: Any, settings: Settings) -> Json:
    """Return the members of an event by their names, each of the right kind."""
    if not isinstance(sent, dict):
        raise Refusal("invalid_json", "", f"an event is a JSON object, not {_kind(sent)}", reason="invalid_json")
    members: Json = sent
    event: Json = {}
    for name, value in members.items():
        known = _SPELLINGS.get(name, name)
        if name not in _KNOWN:
            raise Refusal("invalid_json", name, "an event has no such key", "put it into payload", reason="unknown_key")
        if known in event or getattr(sent, "twice", None) == name:
            raise Refusal("invalid_json", name, "given twice", "send each key once", reason="duplicate_key")
        event[known] = _decode_member(name, value, settings)
    if not event.get("type"):
        raise invalid("type", "missing", "name the event type", reason="invalid_type")
    return {"payload": "{}", **{name: value for name, value in event.items() if value is not None}}


def _decode_member(name: str, value: Any, settings: Settings) -> Any:
    """Return the value of a member of an event; a payload as its canonical text."""
    if name in _ADDED:
        return None
    if name == "payload":
        return _canonical(value, settings.number("limits.event_bytes"))
    if name in ("type", "event_type"):
        if not isinstance(value, str):
            raise invalid(name, f"a string is expected, not {_kind(value)}", reason="invalid_type")
        return value
    if value is None:
        return None
    if name == "dedup":
        if not isinstance(value, bool):
            raise invalid(name, f"true or false is expected, not {_kind(value)}", reason="invalid_field")
        return value
    if name == "timestamp" and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return time_text(datetime.fromtimestamp(value, timezone.utc))
        except (OverflowError, OSError, ValueError):
            raise invalid(name, f"{value} is not a time in seconds since 1970", reason="invalid_field") from None
    if not isinstance(value, str) or name == "timestamp":
        raise invalid(name, f"a string is expected, not {_kind(value)}", reason="invalid_field")
    if name == "traceparent" and value and not trace.is_traceparent(value):
        message = f"{value!r:.80} is no traceparent of version 00"
        raise Refusal("invalid_argument", name, message, f"send {trace.FORM}", reason="invalid_field")
    if name == "time":
        at = normalize_time(value)
        if at is None or not 1678 <= int(at[:4]) <= 2261:
            raise invalid(name, f"{value!r:.40} is not an RFC 3339 time", reason="invalid_field")
        return at
    return value


def _canonical(payload: Any, limit: int) -> str:
    """Return the canonical form of a payload, of which the content hash is made."""
    if not isinstance(payload, dict):
        raise invalid("payload", f"a payload is a JSON object, not {_kind(payload)}", reason="invalid_payload")
    check_unique(payload, "payload")
    text = json.dumps(payload, sort_keys=True)
    if len(text) > limit:
        message = f"{len(text)} bytes or more in canonical form, the limit is {limit}"
        raise Refusal("too_large", "payload", message, "send less", reason="too_large")
    return text


def check_unique(value: Any, field: str) -> None:
    """Refuse an object that has a key twice."""
    if isinstance(value, _Twice):
        raise Refusal(
            "invalid_json",
            f"{field}.{value.twice}".removeprefix("."),
            "given twice",
            "send each key once",
            reason="duplicate_key",
        )
    if isinstance(value, dict):
        for name, part in value.items():
            check_unique(part, f"{field}.{name}".removeprefix("."))
    elif isinstance(value, list):
        for i, part in enumerate(value):
            check_unique(part, f"{field}[{i}]")


def _kind(value: Any) -> str:
    kinds = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", type(None): "null"}
    return kinds.get(value.__class__ if not isinstance(value, _Twice) else dict, "a number")


def normalize(event: Json, settings: Settings) -> Event:
    """Return an event that was decoded in the form in which it is stored. Raises Refusal."""
    limit = settings.number("limits.name_bytes")
    sent = event["type"]
    found = catalogue().resolve(sent)
    if found.definition is None:
        _check_type(sent, limit)
    warnings: list[Json] = []
    foreign = reserved(found.name)
    if foreign and settings.text("catalogue.reserved") == "refuse":
        raise Refusal(
            "reserved", "type", f"only the cluster emits {found.name}", "choose another type", reason="reserved_type"
        )
    if found.definition is None and not foreign:
        message = f"{found.name} is not in the catalogue"
        if settings.text("validation.strict") == "true":
            raise Refusal("unknown_type", "type", f"{message}, and validation is strict", reason="unknown_type")
        warnings.append(warning("unknown_type", "type", message + _nearest(found.name)))
    if found.renamed:
        message = f"{sent} is listed as an alias of {found.name} and was stored as that"
        warnings.append(warning("renamed_type", "type", message))
    if "value" in event and catalogue().resolve(event["value"]).name != found.name:
        raise invalid("value", f"{event['value']!r:.80} is not the value of {found.name}", reason="invalid_field")
    for name in _TEXTS:
        check_name(name, event.get(name, ""), limit, reason=True)

    # The payload, and the correlation id in it.
    payload = json.loads(event["payload"])
    warnings += _check_fields(found.definition, payload)
    correlation = payload.get("correlation_id")
    if isinstance(correlation, str) and not event.get("correlation_id"):
        try:
            check_name("payload.correlation_id", correlation, limit)
            event = {**event, "correlation_id": correlation}
        except Refusal as e:
            warnings.append(warning("correlation_id", "payload.correlation_id", f"not usable: {e}"))

    raw: Json = {"type": found.name, "value": found.value, "payload": payload}
    raw |= {name: event[name] for name in _TEXTS if event.get(name)}
    raw |= {"traceparent": event["traceparent"]} if event.get("traceparent") else {}
    raw |= {"time": event["time"]} if "time" in event else {}
    raw |= {"original_type": sent} if found.renamed else {}
    raw |= {"foreign": True} if foreign else {}
    content = content_hash(found.value, event["payload"])
    key = ("dedup_id", raw["dedup_id"]) if "dedup_id" in raw else ("content", content)
    return Event(raw, content, None if event.get("dedup") is False else key, warnings)


def content_hash(value: str, canonical: str) -> str:
    """Return the content hash of an event by the value of its type and its canonical payload."""
    return hashlib.sha256(f"{value}:{canonical}".encode()).hexdigest()


def _check_type(name: str, limit: int) -> None:
    """Refuse what cannot be a type that the catalogue does not have."""
    if len(name.encode()) > limit:
        raise Refusal("too_large", "type", f"{len(name.encode())} bytes, the limit is {limit}", reason="too_large")
    if not re.fullmatch(r"[A-Za-z0-9_.-]+", name):
        raise invalid("type", f"{name!r} has a character no event type has", reason="invalid_type")
    if not re.search(r"[A-Za-z0-9]", name):
        raise invalid("type", "no letter or digit in it", reason="invalid_type")


def has_control(text: str) -> bool:
    """Report whether a text has a control character."""
    return not text.isprintable() and any(unicodedata.category(c) == "Cc" for c in text)


def check_name(field: str, text: object, limit: int, reason: bool = False) -> str:
    """Return a name. Raises Refusal for one that is too long or has control characters."""
    if not isinstance(text, str):
        raise bad_value(field, text, "a string")
    if len(text.encode("utf-8", "surrogatepass")) > limit:
        message = f"{len(text.encode())} bytes, the limit for a name is {limit}"
        raise Refusal("too_large", field, message, "use a shorter name", reason="too_large" if reason else "")
    if has_control(text):
        raise invalid(field, f"{text!r:.80} has a control character", reason="invalid_field" if reason else "")
    return text


_ACCEPTED = {
    "a string": ("string", "path", "timestamp"),
    "a boolean": ("boolean",),
    "an integer": ("integer", "number", "timestamp"),
    "a number": ("number", "timestamp"),
}


def _check_fields(definition: Definition | None, payload: Json) -> list[Json]:
    """Return how a payload differs from the catalogue."""
    if definition is None or not definition.fields:
        return []
    mistyped: list[Json] = []
    unlisted: list[str] = []
    for name in sorted(payload):
        value, want = payload[name], definition.fields.get(name)
        kind = _kind(value)
        whole = kind == "a number" and (isinstance(value, int) or float(value).is_integer())
        if name == "correlation_id":
            continue
        if want is None:
            unlisted.append(name)
        elif value is not None and want not in ("any", *_ACCEPTED.get("an integer" if whole else kind, ())):
            message = f"{kind}, the catalogue has {want} for {definition.name}"
            mistyped.append(warning("payload_field", f"payload.{name}", message))
    if unlisted:
        names = ", ".join(unlisted[:MAX_WARNINGS])
        if len(unlisted) > MAX_WARNINGS:
            names += f" and {len(unlisted) - MAX_WARNINGS} more"
        message = f"not among the catalogue's fields of {definition.name}: {names}"
        return [*mistyped[:MAX_WARNINGS], warning("payload_field", "payload", message)]
    return mistyped[:MAX_WARNINGS]
