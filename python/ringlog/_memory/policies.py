"""The dedup policies of types: which events are duplicates, where they do not say so themselves."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import NamedTuple

from ringlog._definitions import DEDUP_OFF
from ringlog._memory import types
from ringlog._memory.values import DAY, Refusal, Settings, duration_text, invalid, parse_age
from ringlog.event import Json

MAX_FIELDS, MAX_FIELD = 16, 256  # of a policy; bytes of a field's name
MIN_WINDOW, MAX_WINDOW = timedelta(seconds=1), 31 * DAY

Key = tuple[str, ...]
"""What duplicates have in common; that of a policy begins with the type."""


class Policy(NamedTuple):
    """A policy that was set. Without a window it has that of the setting dedup.window."""

    mode: str
    fields: tuple[str, ...]
    window: timedelta


class Compared(NamedTuple):
    """How an event is compared: the kind and decided_by of the schema Explanation, and its key, None if it has none."""

    kind: str
    decided_by: str
    key: Key | None = None


NOT_COMPARED = Compared("off", "event")


class Policies:
    """The policies of a log."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._set: dict[str, Policy] = {}

    def compare(self, event: types.Event) -> Compared:
        """Return how an event is compared."""
        if event.key is None:
            return NOT_COMPARED
        name, payload = event.raw["type"], event.raw["payload"]
        policy = self._set.get(name)
        if event.key[0] == "dedup_id":
            return Compared("dedup_id", "event", event.key)
        if policy is None and name not in DEDUP_OFF:
            return Compared("content", "default", event.key)
        if policy is None or policy.mode == "off":
            return Compared("off", "policy")
        # An event that has none of the fields is compared by its content.
        values = [(field, json.dumps(payload[field], sort_keys=True)) for field in policy.fields if field in payload]
        if not values:
            return Compared("content", "policy", (name, *event.key))
        return Compared("fields", "policy", (name, *(text for pair in values for text in pair)))

    def has(self, name: str) -> bool:
        """Report whether a type has a policy, set or of the catalogue."""
        return name in self._set or name in DEDUP_OFF

    def window(self, compared: Compared, name: str) -> timedelta:
        """Return for how long an event of a type that was compared so suppresses the same."""
        default = self._settings.duration("dedup.window")
        if compared.decided_by != "policy" or compared.key is None:
            return default
        policy = self._set.get(name)
        return (policy.window or default) if policy else timedelta(0)

    def put(self, name: str, policy: Policy) -> bool:
        """Set a policy, and report whether what the one before it has accepted still counts."""
        before, self._set[name] = self._set.get(name), policy
        return before is not None and before[:2] == policy[:2]

    def remove(self, name: str) -> None:
        """Remove a policy that was set."""
        if self._set.pop(name, None) is None:
            raise Refusal("not_found", "type", f"no dedup policy is set for {name}", "Client.dedup_policies lists them")

    def names(self) -> list[str]:
        """Return the types that have a policy."""
        return sorted({*self._set, *DEDUP_OFF})

    def view(self, name: str, keys: int) -> Json:
        """Return the policy in force for a type, which has accepted that many events in its window: DedupPolicy."""
        policy, window = self._set.get(name), duration_text(self._settings.duration("dedup.window"))
        found: Json = {"type": name, "mode": "content", "window_set": False, "origin": "default", "keys": keys}
        if policy is None and name in DEDUP_OFF:
            return {**found, "mode": "off", "origin": "catalogue", "reason": DEDUP_OFF[name]}
        if policy is None:
            return {**found, "window": window}
        found |= {"mode": policy.mode, "origin": "cluster", "window_set": bool(policy.window)}
        found |= {"fields": list(policy.fields)} if policy.fields else {}
        window = duration_text(policy.window) if policy.window else window
        return found | ({"window": window} if policy.mode != "off" else {})


def read_policy(body: Json) -> Policy:
    """Return the policy of a request. Raises Refusal."""
    mode, fields = body.get("mode", ""), sorted(set(body.get("fields", ())))
    window = parse_age("window", body["window"]) if body.get("window") else timedelta(0)
    if not mode:
        raise invalid("mode", "mode is missing", "send off, content or fields")
    field = message = ""
    if mode not in ("off", "content", "fields"):
        field, message = "mode", f"{mode!r:.80} is no dedup mode"
    elif (mode == "fields") != bool(fields):
        field, message = "fields", f"the mode {mode} compares {'some' if mode == 'fields' else 'none'}"
    elif len(fields) > MAX_FIELDS:
        field, message = "fields", f"{len(fields)} fields, the limit is {MAX_FIELDS}"
    elif mode == "off" and window:
        field, message = "window", "the mode off has none"
    elif window and not MIN_WINDOW <= window <= MAX_WINDOW:
        field, message = "window", f"{duration_text(window)} is not from 1s to {duration_text(MAX_WINDOW)}"
    elif not all(1 <= len(name.encode()) <= MAX_FIELD for name in fields):
        field, message = "fields", f"the name of a field has 1 to {MAX_FIELD} bytes"
    if field:
        raise invalid(field, message, reason="invalid_field")
    return Policy(mode, tuple(fields), window)


def warn_of_fields(name: str, fields: tuple[str, ...]) -> list[Json]:
    """Return which fields of a policy the catalogue does not list for its type."""
    known = types.catalogue().types.get(name)
    if known is None or not known.fields:
        return []
    message = "the catalogue lists no payload field {!r} of {}"
    return [types.warning("payload_field", "fields", message.format(field, name))
            for field in fields if field not in known.fields]  # fmt: skip
