"""Registered clients: which process listens to what. A log in memory only keeps them."""

from __future__ import annotations

import unicodedata
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ringlog._memory import types
from ringlog._memory.values import Refusal, bad_value, duration_text, invalid, normalize_time, parse_duration, time_text
from ringlog.event import Json

if TYPE_CHECKING:
    from ringlog._memory.log import Clock

DEFAULT_TTL, MIN_TTL, MAX_TTL = timedelta(minutes=5), timedelta(seconds=30), timedelta(hours=1)
CHOICES = {
    "mode": ["live", "durable", "direct", "group"],
    "state": ["attached", "connecting", "fenced", "refused", "closed"],
}
"""What a subscription may have; the first is the default."""

BREAKERS = ["closed", "half-open", "open", "off"]
MAX_LAST_ERROR = 200  # bytes of the last error of a handler; a longer one is clipped


class Clients:
    """The registrations that have not expired, by the id of the process."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._all: dict[str, tuple[Json, datetime]] = {}  # with the time when it expires

    def put(self, id_: str, body: Json) -> Json:
        """Replace what a process is registered for: the schema Client. Without subscriptions it is removed."""
        if "subscriptions" not in body:
            raise invalid("subscriptions", "subscriptions is missing", "send a list of them, which may be empty")
        ttl = _check_ttl(body.get("ttl"))
        subscriptions = [_check_subscription(f"subscriptions[{i}]", s) for i, s in enumerate(body["subscriptions"])]
        if not subscriptions:
            self._all.pop(id_, None)
            return {"id": id_, "subscriptions": []}
        now = self._clock.now()
        known = self._live().get(id_)
        named = ("host", "pid", "version", "coordinator")
        client: Json = {"id": id_, **{name: body[name] for name in named if body.get(name)}}
        client |= {
            "ttl": duration_text(ttl),
            "registered_at": known["registered_at"] if known else time_text(now),
            "seen_at": time_text(now),
            "expires_at": time_text(now + ttl),
            "subscriptions": subscriptions,
        }
        self._all[id_] = client, now + ttl
        return client

    def remove(self, id_: str) -> Json:
        """Remove a process, and return it as it was."""
        if id_ not in self._live():
            raise Refusal("not_found", "id", f"no client {id_!r} is registered", "list them: GET /v1/clients")
        return self._all.pop(id_)[0]

    def page(self, after: str, limit: int) -> Json:
        """Return a page of clients by id: the schema ClientPage."""
        live = self._live()
        ids = sorted(id_ for id_ in live if id_ > after)
        listening = [subscription for client in live.values() for subscription in client["subscriptions"]]
        page: Json = {"clients": [live[id_] for id_ in ids[:limit]]}
        page |= {"next": ids[limit - 1]} if len(ids) > limit else {}
        detached = sum(one["critical"] and one["state"] != "attached" for one in listening)
        total = {"clients": len(live), "subscriptions": len(listening), "bytes": 0, "critical_detached": detached}
        total |= {"critical_unheard": 0, "lost": 0}  # no client is ever lost
        return {**page, "total": total}

    def _live(self) -> dict[str, Json]:
        now = self._clock.now()
        self._all = {id_: kept for id_, kept in self._all.items() if kept[1] > now}
        return {id_: client for id_, (client, _) in self._all.items()}


def _check_ttl(text: Any) -> timedelta:
    """Return how long a registration counts."""
    if not text:
        return DEFAULT_TTL
    want = "a duration from 30s to 1h, such as 5m"
    try:
        ttl = parse_duration(text)
    except (Refusal, ValueError):
        raise bad_value("ttl", text, want) from None
    if not MIN_TTL <= ttl <= MAX_TTL:
        raise bad_value("ttl", text, want)
    return ttl


def _check_subscription(where: str, given: Json) -> Json:
    """Return a subscription with its defaults."""
    if not given.get("name"):
        raise invalid(f"{where}.name", "name is missing", "send a name for the subscription")
    made = {"name": given["name"], "filter": types.check_filter(given.get("filter") or {}),
            "critical": bool(given.get("critical"))}  # fmt: skip
    for field, choices in CHOICES.items():
        made[field] = given.get(field) or choices[0]
        if made[field] not in choices:
            raise bad_value(f"{where}.{field}", made[field], ", ".join(choices))
    made |= {name: given[name] for name in ("where", "handler_timeout_seconds", "cursor") if given.get(name)}
    if given.get("health") is not None:
        made["health"] = _check_health(f"{where}.health", given["health"])
    return made


def _check_health(where: str, given: Json) -> Json:
    """Return what happened to a handler: the schema HandlerHealth."""
    made: Json = {name: given.get(name) or 0 for name in ("timed_out", "failed_attempts")}
    if breaker := given.get("breaker"):
        if breaker not in BREAKERS:
            raise bad_value(f"{where}.breaker", breaker, ", ".join(BREAKERS))
        made["breaker"] = breaker
    if error := given.get("last_error"):
        clipped = error.encode()[:MAX_LAST_ERROR].decode(errors="ignore")
        made["last_error"] = "".join(" " if unicodedata.category(c) == "Cc" else c for c in clipped)
    if at := given.get("last_error_at"):
        made["last_error_at"] = normalize_time(at)
        if made["last_error_at"] is None:
            raise invalid(f"{where}.last_error_at", "it is not a time", "send a string such as 2026-01-05T10:00:00Z")
        if not "1970" <= made["last_error_at"][:4] <= "2261":
            raise bad_value(f"{where}.last_error_at", made["last_error_at"], "a time from 1970 to 2261")
    return made
