"""The requests that a memory log answers, as a node does, and the answers that wait."""

from __future__ import annotations

import json
import math
import re
import threading
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import parse_qs, unquote, urlsplit

from ringlog._definitions import ALIASES
from ringlog._memory import allocations as shares
from ringlog._memory import types
from ringlog._memory.chain import chain_of, check_flow, parse_deadlines
from ringlog._memory.cursors import Cursor
from ringlog._memory.group import Group, Member
from ringlog._memory.letters import public
from ringlog._memory.log import Log
from ringlog._memory.roles import parse_ttl, parse_wait
from ringlog._memory.types import FILTER
from ringlog._memory.values import Refusal, Strict, bad_value, invalid, parse_timeout, whole
from ringlog.event import Json

HEARTBEAT = 5.0  # seconds between signs of life of a stream
MAX_BATCH = 1000  # events that a stream sends at a time
POLL = 0.2  # seconds between looks at what real time changes
LONG_POLL = 0.05  # seconds for which a member's call waits at most, so that its close waits no longer
MAX_HISTORY = 10_000
PARAMETERS = ("type", "category", "source", "key", "correlation_id")


class Request(NamedTuple):
    """A request: path and query decoded, the names of headers in lower case."""

    method: str
    path: str
    query: dict[str, list[str]]
    headers: dict[str, str]
    body: bytes


class Reply:
    """An answer on its way. wakes_at is when take may have more without a change of the log, by time.monotonic()."""

    over = False
    wakes_at = math.inf

    def take(self) -> bytes:
        """Return the bytes that can be sent, b"" if there are none yet, or once it is over. Needs the lock."""
        raise NotImplementedError


class Answered(Reply):
    """An answer that is there. If warned, its warnings are in a header, too."""

    def __init__(self, log: Log, content: Json | str, status: int = 200, warned: bool = True) -> None:
        warnings = content.get("warnings") if warned and isinstance(content, dict) else None
        kind = "text/plain" if isinstance(content, str) else "application/json"
        text = content if isinstance(content, str) else json.dumps(content)
        self._bytes = _head(log, status, kind, warnings, len(text.encode())) + text.encode()

    def take(self) -> bytes:
        """Return the answer."""
        self.over, self._bytes, left = True, b"", self._bytes
        return left


class Later(Reply):
    """An answer that comes once ready returns it, and is what last returns when the time is up."""

    def __init__(self, log: Log, seconds: float, ready: Callable[[], Json | None], last: Callable[[], Json]) -> None:
        self._log, self._ready, self._last = log, ready, last
        self._until = time.monotonic() + seconds
        self.wakes_at = 0.0

    def take(self) -> bytes:
        """Return the answer once it is there."""
        if self.over:
            return b""
        now = time.monotonic()
        self.wakes_at = min(self._until, now + POLL)
        try:
            content = self._ready() if now < self._until else self._last()
        except Refusal as e:
            content, self.over = {"error": e.error}, True
            return Answered(self._log, content, 400).take()
        if content is None:
            return b""
        self.over = True
        return Answered(self._log, content).take()


Guard = Callable[[], "Cursor | None"]
"""Is called before each batch of a read, and ends it with a Refusal. It returns the cursor that is read."""


class Stream(Reply):
    """The lines of a read."""

    def __init__(
        self, log: Log, match: types.Match, first: int, limit: int, follow: bool, guard: Guard, warnings: list[Json]
    ) -> None:
        self._log, self._match, self._next, self._limit = log, match, first, limit
        self._follow, self._guard, self._sent = follow, guard, 0
        self._reported = first - 1  # the reader knows that the read has come up to it
        self._head = _head(log, 200, "application/x-ndjson", warnings, None, log.last)

    def take(self) -> bytes:
        """Return the lines that are there."""
        head, self._head = self._head, b""
        lines: list[Json] = []
        if not self.over:
            try:
                lines = self._read(self._guard())
            except Refusal as e:
                lines = [self._end("error", {"error": e.error})]
        text = "".join(json.dumps(line) + "\n" for line in lines)
        now = time.monotonic()
        if text or head:
            self.wakes_at = now + HEARTBEAT
        elif now >= self.wakes_at and not self.over:
            self.wakes_at, scanned = now + HEARTBEAT, self._next - 1
            text = json.dumps({"scanned": scanned}) + "\n" if scanned > self._reported else "\n"
            self._reported = scanned
        return head + text.encode()

    def _read(self, cursor: Cursor | None) -> list[Json]:
        """Return the next events, after a gap where some were trimmed, and the end where it is reached."""
        log, lines = self._log, list[Json]()
        if self._next < log.first:
            met = {"from": self._next, "to": log.first - 1, "reason": "trimmed"}
            lines.append({"gap": (log.cursors.gap_of(cursor) if cursor else None) or met})
            self._next = log.first
        while self._next <= log.last and len(lines) < MAX_BATCH and not self._at_limit():
            event = log.event(self._next)
            self._next += 1
            if self._match(event):
                lines.append(event)
                self._sent += 1
                self._reported = event["offset"]
        if self._at_limit():
            lines.append(self._end("limit", {}))
        elif self._next > log.last and not self._follow:
            lines.append(self._end("end_of_log", {}))
        return lines

    def _at_limit(self) -> bool:
        return 0 < self._limit == self._sent

    def _end(self, reason: str, more: Json) -> Json:
        self.over = True
        return {"end": {"reason": reason, "scanned": self._next - 1, "last_offset": self._log.last, **more}}


def _head(
    log: Log, status: int, kind: str, warnings: list[Json] | None, length: int | None, last: int | None = None
) -> bytes:
    """Return status line and headers. Without a length the body ends with the connection."""
    lines = [f"HTTP/1.1 {status} memory", f"Content-Type: {kind}", f"Ringlog-Cluster: {log.cluster_id}"]
    lines += ["Connection: close"] if length is None else [f"Content-Length: {length}"]
    lines += [f"Ringlog-Warnings: {json.dumps(warnings)}"] if warnings else []
    lines += [f"Ringlog-Last-Offset: {last}"] if last is not None else []
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def parse_request(data: bytes) -> Request:
    """Read what encode_request has written."""
    head, _, body = data.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    method, target, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
    url = urlsplit(target)
    return Request(method, url.path, parse_qs(url.query, keep_blank_values=True), headers, body)


class Parameters:
    """The query of a request, of which each parameter is read once. done refuses the others."""

    def __init__(self, request: Request) -> None:
        self._left = {name: values for name, values in request.query.items() if name not in ("timeout", "consistency")}
        self.timeout = request.query.get("timeout", [""])[0]

    def given(self, *names: str) -> bool:
        """Report whether any of the parameters is there."""
        return any(name in self._left for name in names)

    def list(self, name: str) -> list[str]:
        """Return a parameter that may be repeated."""
        return self._left.pop(name, [])

    def text(self, name: str) -> str:
        """Return a parameter, "" if it is not there."""
        values = self.list(name)
        if len(values) > 1:
            raise bad_value(name, ",".join(values), "one value")
        return values[0] if values else ""

    def number(self, name: str) -> int:
        """Return a whole number, 0 if it is not there."""
        text = self.text(name)
        if text and not (text.isascii() and text.isdigit()):
            raise bad_value(name, text, "a whole number from 0 to 18446744073709551615, in digits")
        return int(text or 0)

    def flag(self, name: str) -> bool:
        """Return whether a parameter is there and not false."""
        given, text = self.given(name), self.text(name)
        if text not in ("", "1", "true", "0", "false"):
            raise bad_value(name, text, "true or false")
        return given and text in ("", "1", "true")

    def page(self) -> tuple[str, int]:
        """Return after what a page begins, and how many entries it may have. There are no other parameters."""
        after, limit = self.text("after"), self.number("limit") or 100
        self.done()
        if limit > 1000:
            raise bad_value("limit", limit, "up to 1000")
        return after, limit

    def done(self) -> None:
        """Refuse what was not asked for."""
        for name in self._left:
            raise invalid(name, f"there is no parameter {name!r} here", "see openapi.json for those there are")


Shape = dict[str, Any]
"""The keys of a JSON object, each with its kind: a type, a list of one kind, a shape, or ANY."""

ANY = object()
_RANGES = [{"from": int, "to": int}]
_NACK = {"offset": int, "delay_ms": int, "error": str, "dead": bool, "handler": str, "released": bool, "delivery": int}
_EXCHANGE: Shape = {
    "member": str, "session": int, "holding": _RANGES, "acks": _RANGES, "nacks": [_NACK], "progress": _RANGES,
    "want": int, "wait_ms": int, "ahead": bool, "leave": bool, "role": str, "fence": int,
}  # fmt: skip
_LETTERS: Shape = {
    "ids": [int], "all": bool, "type": str, "cursor": str, "error": str, "older_than": str, "after": int,
    "max_events": int, "dry_run": bool,
}  # fmt: skip
_POLICY = {"hold_events": int, "hold_bytes": int, "hold_for": str}
_CHANGE: Shape = {"filter": {name: [str] for name in FILTER}, "policy": _POLICY}
_CURSOR: Shape = {"from": ANY, **_CHANGE}
_GROUP: Shape = {**_CURSOR, "group": {"ack_wait": str, "max_deliver": int, "max_pending": int}}
_TRIM: Shape = {"before": int, "older_than": str, "keep": int, "dry_run": bool, "force": bool}
_HEALTH: Shape = {
    "timed_out": int, "failed_attempts": int, "breaker": str, "last_error": str, "last_error_at": str,
}  # fmt: skip
_SUBSCRIPTION: Shape = {
    "name": str, "filter": {name: [str] for name in FILTER}, "where": str, "mode": str, "critical": bool, "state": str,
    "handler_timeout_seconds": ANY, "cursor": str, "health": _HEALTH,
}  # fmt: skip
_CLIENT: Shape = {
    "host": str,
    "pid": int,
    "version": str,
    "ttl": str,
    "coordinator": str,
    "subscriptions": [_SUBSCRIPTION],
}
_DEDUP: Shape = {"mode": str, "fields": [str], "window": str}
_COMMIT: Shape = {"offset": int, "generation": int}
_ROLE: Shape = {"holder": str, "session": str, "ttl": str, "wait": str}
_ALLOCATION: Shape = {"holder": str, "amounts": ANY, "priority": str, "ttl": str, "wait": str}
_RESOURCE: Shape = {"capacity": int, "unit": str, "preemptible": bool}
_SCHEDULE: Shape = {"at": str, "event": ANY}
_RENEWAL: Shape = {"leases": [{"role": str, "fence": int}]}
_ALLOCATION_RENEWAL: Shape = {"leases": [{"allocation": str, "fence": int}]}
_DEAD: Shape = {**_COMMIT, "handler": str, "error": str, "attempts": int, "first_failed": str}

Handler = Callable[["Node", Request, tuple[str, ...]], "Json | str | Reply"]


class Node:
    """Answers requests on a log. The caller holds the log's lock."""

    def __init__(self, log: Log) -> None:
        self._log, self._cursors, self._letters = log, log.cursors, log.letters

    def handle(self, data: bytes) -> Reply:
        """Return the answer to a request."""
        request = parse_request(data)
        try:
            content = self._route(request)
        except Refusal as e:
            return Answered(self._log, {"error": e.error}, 400)
        if request.method != "GET":
            self._log.changed()
        return content if isinstance(content, Reply) else Answered(self._log, content)

    def _route(self, request: Request) -> Json | str | Reply:
        for method, pattern, handler in _ROUTES:
            if method == request.method and (match := re.fullmatch(pattern, request.path)):
                return handler(self, request, tuple(unquote(part) for part in match.groups()))
        if any(re.fullmatch(pattern, request.path) for pattern in _NODE_ONLY):
            message = f"a memory log has no {request.path}: it has no documents, members, transfers or views"
            raise Refusal("not_implemented", "path", message, "ask a node, such as one of: ringlog dev")
        if any(re.fullmatch(pattern, request.path) for _, pattern, _ in _ROUTES):
            raise Refusal("method_not_allowed", "method", f"{request.method} is not for {request.path}", "see Allow")
        message = f"there is nothing at {request.path}"
        raise Refusal("not_found", "path", message, "see /openapi.json for what there is", reason="unknown_path")

    # Events.

    def publish(self, request: Request, _: tuple[str, ...]) -> Json:
        """Append the events of the body."""
        sequence, lease = _number_header(request, "Ringlog-Sequence"), _lease(request)
        producer = request.headers.get("ringlog-producer", "")
        return self._log.publish(request.body, producer, sequence or None, lease)

    def read(self, request: Request, _: tuple[str, ...]) -> Reply:
        """Read events, and follow the log."""
        log, query = self._log, Parameters(request)
        text = query.text("from")
        given = {name: query.list(parameter) for name, parameter in zip(FILTER, PARAMETERS, strict=True)}
        chosen = types.check_filter(given)
        limit, follow, redriven = query.number("limit"), query.flag("follow"), query.flag("redriven")
        if query.text("where"):
            remedy = "choose events in the test, or ask a node, such as one of: ringlog dev"
            raise Refusal("not_implemented", "where", "a memory log has no conditions in CEL", remedy)
        query.done()
        first = log.position("from", text) or log.first
        passes = types.matcher(chosen)

        def match(event: Json) -> bool:
            return passes(event) if redriven or "target" not in event else redriven

        if not follow and first > log.last + 1:
            message = f"offset {first} is past the tail, which is {log.last}"
            raise Refusal("past_tail", "from", message, "follow the log to wait for it", offset=log.last)
        return Stream(log, match, first, limit, follow, lambda: None, types.warn_of_filter(chosen))

    def event(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return one event."""
        query = Parameters(request)
        query.done()
        return self._log.event(_number("offset", parts[0], "an offset from 1"))

    def dedup(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return what deduplication did with an event."""
        return self._log.explain_dedup(parts[0])

    def list_policies(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return the dedup policies in force."""
        Parameters(request).done()
        return {"policies": [self._log.view_policy(name) for name in self._log.policies.names()]}

    def get_policy(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return the dedup policy of a type."""
        Parameters(request).done()
        return self._log.get_policy(parts[0])

    def set_policy(self, request: Request, parts: tuple[str, ...]) -> Reply:
        """Set the dedup policy of a type."""
        return Answered(self._log, self._log.set_policy(parts[0], _body(request, _DEDUP, "mode")), warned=False)

    def remove_policy(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Remove the dedup policy of a type."""
        Parameters(request).done()
        return self._log.remove_policy(parts[0])

    def compact(self, request: Request, _: tuple[str, ...]) -> Json:
        """Trim the log."""
        body = _body(request, _TRIM)
        names = ("before", "older_than", "keep")
        return self._log.trim(body, retention=not any(body.get(name) is not None for name in names))

    def wait(self, request: Request, _: tuple[str, ...]) -> Reply:
        """Wait until cursors have committed an offset."""
        query = Parameters(request)
        offset, names = query.number("offset"), [*query.list("cursor"), *query.text("cursors").split(",")]
        query.done()
        names = list(dict.fromkeys(filter(None, names)))
        if not 1 <= len(names) <= 256:
            raise invalid("cursors", f"{len(names)} cursors to wait for", "name 1 to 256, comma separated")
        if not offset:
            raise bad_value("offset", 0, "an offset from 1")
        seconds = parse_timeout(query.timeout, 30.0)

        def look() -> Json:
            found = []
            for name in names:
                committed = self._cursors.get(name).committed
                found.append({"name": name, "committed": committed, "lag": max(0, offset - committed),
                              "reached": committed >= offset})  # fmt: skip
            reached = all(one["reached"] for one in found)
            return {"offset": offset, "reached": reached, "last_offset": self._log.last, "cursors": found}

        def ready() -> Json | None:
            found = look()
            return found if found["reached"] else None

        ready()
        return Later(self._log, seconds, ready, look)

    # Cursors and groups.

    def list_cursors(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return a page of cursors, by name."""
        after, limit = Parameters(request).page()
        names = sorted(name for name in self._cursors.all if name > after)
        page: Json = {"cursors": [self._cursors.view(self._cursors.all[name]) for name in names[:limit]]}
        page |= {"next": names[limit - 1]} if len(names) > limit else {}
        return {**page, "cursors_total": len(self._cursors.all)}

    def get_cursor(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return a cursor."""
        return self._cursors.view(self._cursors.get(parts[0]))

    def create_cursor(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Create a cursor."""
        return self._cursors.view(self._cursors.create(parts[0], _body(request, _CURSOR), None), warned=True)

    def delete_cursor(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Remove a cursor and return it as it was."""
        cursor = self._cursors.get(parts[0])
        view = self._cursors.view(cursor)
        self._cursors.remove(cursor)
        return view

    def open_cursor(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Take a cursor over."""
        return self._cursors.view(self._cursors.open(parts[0], _body(request, {"opener": str}).get("opener", "")))

    def read_cursor(self, request: Request, parts: tuple[str, ...]) -> Reply:
        """Read the events after a cursor's commit."""
        log, query = self._log, Parameters(request)
        generation, first = query.number("generation"), query.number("from")
        limit, follow = query.number("limit"), query.flag("follow")
        query.done()
        cursor = self._cursors.check_generation(parts[0], generation)
        first = max(cursor.committed + 1, first)

        def guard() -> Cursor:
            return self._cursors.check_generation(parts[0], generation)

        return Stream(log, cursor.gets, first, limit, follow, guard, [])

    def commit_cursor(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Commit an offset."""
        body, lease = _body(request, _COMMIT, "offset", "generation"), _lease(request)
        self._cursors.check_name(parts[0])
        self._log.roles.check_request(*lease)
        self._log.roles.check_lease(*lease)
        return self._cursors.view(self._cursors.commit(parts[0], body["offset"], body["generation"]))

    def change_cursor(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Change filter and policy."""
        body = _body(request, _CHANGE, "filter")
        return self._cursors.view(self._cursors.change(parts[0], body), warned=True)

    def seek_cursor(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Move a cursor."""
        body = _body(request, {"to": ANY, "offset": int, "seeker": str})
        to = body.get("to") if body.get("offset") is None else body["offset"]
        return self._cursors.view(self._cursors.seek(parts[0], to, body.get("seeker", "")))

    def dead_letter(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Make an event a dead letter."""
        body, lease = _body(request, _DEAD, "offset", "generation"), _lease(request)
        self._log.roles.check_request(*lease)
        self._log.roles.check_lease(*lease)
        return self._letters.dead_letter(parts[0], body)

    def explain(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return what became of an event for a cursor."""
        query = Parameters(request)
        name, offset = query.text("cursor"), query.number("offset")
        query.done()
        if not offset:
            raise bad_value("offset", 0, "an offset from 1")
        return self._cursors.explain(name, offset)

    def _group(self, name: str) -> Group:
        """Return a group. Raises Refusal."""
        cursor = self._cursors.all.get(name)
        if cursor is None:
            raise Refusal("not_found", "group", f"there is no group {name!r}", "create it, or check its name")
        if cursor.group is None:
            raise invalid("group", f"{name!r} is a cursor of one reader, not a group", "use another name")
        return cursor.group

    def list_groups(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return all groups."""
        cursors = sorted(self._cursors.all.values(), key=lambda cursor: cursor.name)
        return {"groups": [self._cursors.view(cursor) for cursor in cursors if cursor.group is not None]}

    def get_group(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return a group."""
        self._group(parts[0])
        return self.get_cursor(request, parts)

    def create_group(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Create a group."""
        body = _body(request, _GROUP)
        made = self._cursors.create(parts[0], body, lambda cursor: Group(self._log, cursor, body.get("group") or {}))
        return self._cursors.view(made, warned=True)

    def delete_group(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Remove a group."""
        self._group(parts[0])
        return self.delete_cursor(request, parts)

    def group_members(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return who shares a group."""
        return {"members": self._group(parts[0]).members()}

    def exchange(self, request: Request, parts: tuple[str, ...]) -> Reply:
        """Take in what a member reports, and deliver events to it."""
        body = _body(request, _EXCHANGE)
        group = self._group(parts[0])
        # The caller's thread makes the first exchange of a member, whatever makes the others.
        member, refused = group.exchange(body, threading.get_ident() if body.get("session") else 0)
        want = body.get("want", 0)
        wait = min(body.get("wait_ms", 0) / 1000, LONG_POLL) if want else 0.0

        def answer(member: Member, events: list[Json]) -> Json:
            return group.answer(member, refused, events)

        def ready() -> Json | None:
            self._group(parts[0])
            events = group.take(member, want)
            return answer(member, events) if events or group.has_news(member) or not wait else None

        return Later(self._log, wait or 1.0, ready, lambda: answer(member, group.take(member, want)))

    # Dead letters, settings and views.

    def list_letters(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return a page of letters, or without parameters a summary."""
        query = Parameters(request)
        if not query.given("limit", "after", "type", "cursor", "error", "state"):
            query.done()
            return self._letters.summary()
        limit, given = query.number("limit") or 100, self._conditions(query)
        if limit > 10_000:
            raise bad_value("limit", limit, "a number up to 10000, and after for the next page")
        found = self._letters.find(given)
        page: Json = {"letters": [public(letter) for letter in found[:limit]]}
        return page | ({"next": found[limit - 1]["id"]} if len(found) > limit else {})

    def _conditions(self, query: Parameters) -> Json:
        """Return the conditions that choose letters, and refuse other parameters."""
        given: Json = {"cursor": query.text("cursor")} if query.given("cursor") else {}
        given |= {"after": query.number("after"), "type": query.text("type"), "error": query.text("error")}
        given["state"] = query.text("state")
        query.done()
        if given["state"] not in ("", "dead", "redriven"):
            raise bad_value("state", given["state"], "dead or redriven")
        return given

    def get_letter(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return a letter with its event."""
        letter = self._letters.get(_number("id", parts[0], "a letter's id, from 1"))
        left_out = ("target", "redrive") if "offset" in letter else ("target", "redrive", "offset", "hash")
        return {**public(letter), "event": {k: v for k, v in letter["_event"].items() if k not in left_out}}

    def letter_errors(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return what the letters died of."""
        return {"errors": self._letters.errors(self._conditions(Parameters(request)))}

    def redrive(self, request: Request, _: tuple[str, ...]) -> Json:
        """Append letters again."""
        body = _body(request, {**_LETTERS, "to": str})
        return self._letters.redrive(body, body.get("to", ""))

    def purge(self, request: Request, _: tuple[str, ...]) -> Json:
        """Remove letters."""
        return self._letters.purge(_body(request, _LETTERS))

    def list_settings(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return all settings."""
        return {"settings": self._log.settings.list()}

    def get_setting(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return a setting."""
        return self._log.settings.get(parts[0])

    def set_setting(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Change a setting."""
        if parts[0] == "chain.deadlines":
            text = _body(request, {"value": ANY}).get("value")
            try:
                parse_deadlines(self._log.flows.all(), filter(None, str(text or "").split(",")))
            except ValueError as e:
                raise invalid("value", str(e), "send FLOW:CAUSE->EFFECT=DURATION, comma separated") from None
        return self._log.settings.set(parts[0], _body(request, {"value": ANY}).get("value"))

    def put_client(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Register what a process listens to."""
        return self._log.clients.put(parts[0], _body(request, _CLIENT))

    def remove_client(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Remove a process."""
        return self._log.clients.remove(parts[0])

    def list_clients(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return a page of the processes that are registered."""
        return self._log.clients.page(*Parameters(request).page())

    def list_roles(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return a page of the roles that are held."""
        return self._log.roles.page(*Parameters(request).page())

    def get_role(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return who holds a role."""
        Parameters(request).done()
        self._log.roles.check_name(parts[0])
        return self._log.roles.view(parts[0])

    def acquire_role(self, request: Request, parts: tuple[str, ...]) -> Json | Reply:
        """Acquire a role, and wait for it if the caller does."""
        body, name, roles = _body(request, _ROLE, "holder"), parts[0], self._log.roles
        for field in ("holder", "session"):
            if not body.get(field):
                raise invalid(field, f"{field} is missing", f"send {field}")
        ttl, seconds, session = parse_ttl(body.get("ttl", "")), parse_wait(body.get("wait", "")), body["session"]
        roles.acquire(name, body["holder"], session, ttl, seconds > 0)
        if not seconds or roles.is_held_by(name, session):
            return roles.answer(name, session)

        def ready() -> Json | None:
            return roles.answer(name, session) if roles.is_held_by(name, session) else None

        def last() -> Json:
            roles.leave(name, session)  # until the caller asks again
            return roles.answer(name, session)

        return Later(self._log, seconds, ready, last)

    def renew_roles(self, request: Request, _: tuple[str, ...]) -> Json:
        """Renew leases."""
        return self._log.roles.renew(_body(request, _RENEWAL, "leases")["leases"])

    def release_role(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Release a role, or revoke its lease."""
        query = Parameters(request)
        session, fence = query.text("session"), query.number("fence")
        query.done()
        return self._log.roles.release(parts[0], session, fence)

    def list_resources(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return a page of the resources."""
        return self._log.allocations.resource_page(*Parameters(request).page())

    def get_resource(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return a resource."""
        Parameters(request).done()
        return self._log.allocations.get_resource(parts[0])

    def set_resource(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Declare a resource, or change it."""
        body = _body(request, _RESOURCE, "capacity")
        unit, preemptible = body.get("unit", ""), body.get("preemptible", False)
        return self._log.allocations.set_resource(parts[0], body["capacity"], unit, preemptible)

    def remove_resource(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Remove a resource."""
        Parameters(request).done()
        return self._log.allocations.remove_resource(parts[0])

    def list_allocations(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return a page of what is granted or waits."""
        return self._log.allocations.page(*Parameters(request).page())

    def get_allocation(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return what is granted, or waits, under an id."""
        Parameters(request).done()
        return self._log.allocations.get(parts[0])

    def allocate(self, request: Request, parts: tuple[str, ...]) -> Json | Reply:
        """Request an allocation, and wait for it if the caller does."""
        body, id_, all_ = _body(request, _ALLOCATION, "holder"), parts[0], self._log.allocations
        if not body["holder"]:
            raise invalid("holder", "holder is missing", "send holder")
        amounts, priority = shares.parse_amounts(body.get("amounts")), shares.parse_priority(body.get("priority", ""))
        ttl, seconds = parse_ttl(body.get("ttl", ""), shares.MAX_TTL), parse_wait(body.get("wait", ""))

        def ask() -> Json:
            all_.request(id_, body["holder"], amounts, priority, ttl, seconds > 0)
            return all_.answer(id_)

        answer = ask()
        if not answer["waiting"]:
            return answer

        def ready() -> Json | None:
            if all_.waits(id_):
                return None
            # One that was dropped because it never fits is refused with what is wrong.
            return all_.answer(id_) if all_.fits(amounts) else ask()

        def last() -> Json:
            all_.leave(id_)  # until the caller asks again
            return all_.answer(id_)

        return Later(self._log, seconds, ready, last)

    def renew_allocations(self, request: Request, _: tuple[str, ...]) -> Json:
        """Renew allocations."""
        return self._log.allocations.renew(_body(request, _ALLOCATION_RENEWAL, "leases")["leases"])

    def release_allocation(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Release an allocation, or a request that waits."""
        return self._log.allocations.release(parts[0])

    def list_scheduled(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return a page of what is scheduled."""
        return self._log.schedule.page(*Parameters(request).page())

    def get_scheduled(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return what is scheduled under an id."""
        Parameters(request).done()
        return self._log.schedule.get(parts[0])

    def put_scheduled(self, request: Request, parts: tuple[str, ...]) -> Reply:
        """Schedule an event."""
        body = _body(request, _SCHEDULE, "at", "event")
        return Answered(self._log, self._log.schedule.put(parts[0], body["at"], body["event"]), warned=False)

    def remove_scheduled(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Remove an event that was not published yet."""
        Parameters(request).done()
        return self._log.schedule.remove(parts[0])

    def list_flows(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return the flows, built in and registered."""
        Parameters(request).done()
        return {"flows": self._log.flows.all()}

    def get_flow(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return a flow."""
        Parameters(request).done()
        return self._log.flows.get(parts[0])

    def register_flows(self, request: Request, _: tuple[str, ...]) -> Reply:
        """Register flows."""
        query = Parameters(request)
        dry_run = query.flag("dry_run")
        query.done()
        return Answered(self._log, self._log.flows.register(request.body, dry_run), warned=False)

    def remove_flow(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Remove a registered flow."""
        Parameters(request).done()
        return self._log.flows.remove(parts[0])

    def chain(self, request: Request, parts: tuple[str, ...]) -> Json:
        """Return how far a run has come."""
        log, query = self._log, Parameters(request)
        first, flow = log.position("from", query.text("from")) or log.first, query.text("flow")
        given, form = query.list("deadline"), query.text("format") or "json"
        query.done()
        flows = log.flows.all()
        check_flow(flows, flow)
        try:
            deadlines = parse_deadlines(flows, given or filter(None, log.settings.text("chain.deadlines").split(",")))
        except ValueError as e:
            raise invalid("deadline", str(e), "send FLOW:CAUSE->EFFECT=DURATION, once for each edge") from None
        if form != "json":
            raise bad_value("format", form, "json; a node has text and mermaid, too")
        first = max(first, log.first)
        kept = log.events[first - log.first :]
        return chain_of(flows, parts[0], kept, first, log.last, log.first, log.clock.now(), flow, deadlines)

    def catalogue(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return the known types."""
        known = types.catalogue()
        listed = [one.to_json() for one in known.types.values() if one.status != "cluster"]
        return {"types": listed, "aliases": ALIASES, "categories": sorted(known.categories())}

    def validate(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return what a publish would answer for each event: the schema Validation."""
        query = Parameters(request)
        settings = Strict(self._log.settings) if query.flag("strict") else self._log.settings
        query.done()
        sent, _alone = types.decode_events(request.body, settings)
        verdicts: list[Json] = []
        for i, one in enumerate(sent):
            try:
                found = types.normalize(one, settings)
                warnings = {"warnings": found.warnings} if found.warnings else {}
                verdicts.append({"type": found.raw["type"], "hash": found.hash, **warnings})
            except Refusal as e:
                named = types.catalogue().resolve(one["type"])
                name = one["type"] if named.definition is None else named.name
                verdicts.append({"type": name, "error": e.under(f"events[{i}]").error})
        return {"valid": not any("error" in verdict for verdict in verdicts), "events": verdicts}

    def cluster(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return the schema Cluster, as far as a log without members has it."""
        return {
            "node_id": "memory",
            "cluster_id": self._log.cluster_id,
            "role": "leader",
            "leader_id": "memory",
            "leader_http": "",
            "term": 1,
            "first_offset": self._log.first,
            "last_offset": self._log.last,
            "time": self._log.now_text(),
            "members": [],
        }

    def history(self, request: Request, _: tuple[str, ...]) -> Json:
        """Return the schema History of a log whose leader and quorum have never changed."""
        query = Parameters(request)
        position, limit = query.text("from"), query.number("limit")
        query.done()
        self._log.position("from", position)
        if limit > MAX_HISTORY:
            raise bad_value("limit", str(limit), f"at most {MAX_HISTORY}")
        return {"history": [], "first_offset": self._log.first, "leader_id": "memory", "term": 1, "outage": None}

    def health(self, request: Request, _: tuple[str, ...]) -> str:
        """Return that it is alive."""
        return "ok\n"


def _number(field: str, text: str, want: str) -> int:
    """Return a number of a path."""
    if not (text.isascii() and text.isdigit() and int(text)):
        raise bad_value(field, text, want)
    return int(text)


def _number_header(request: Request, name: str) -> int:
    """Return the number in a header, 0 if it is missing."""
    text = request.headers.get(name.lower(), "")
    if text and not (text.isascii() and text.isdigit() and int(text)):
        raise bad_value(name, text, "a whole number from 1")
    return int(text or 0)


def _lease(request: Request) -> tuple[str, int]:
    """Return the role and the fence in the headers, "" and 0 if they are missing."""
    name = request.headers.get("ringlog-role", "").encode("latin-1").decode(errors="replace")
    return name, _number_header(request, "Ringlog-Fence")


def _body(request: Request, shape: Shape, *required: str) -> Json:
    """Return the JSON object of a body. Raises Refusal for one of another shape, or without the required keys."""
    if required and not request.body.strip():
        raise Refusal("invalid_json", "body", "the body is empty", f"send a JSON object with {required[0]}")
    try:
        body: Any = json.loads(request.body, object_pairs_hook=types.unique) if request.body.strip() else {}
    except ValueError as e:
        raise Refusal("invalid_json", "body", str(e), reason="invalid_json") from e
    if not isinstance(body, dict):
        raise invalid("body", "the body is not a JSON object", "send a JSON object", reason="invalid_payload")
    types.check_unique(body, "")
    _check_keys(body, shape, "")
    body = _whole(body, shape)
    _check_kinds(body, shape, "")
    for name in required:
        if body.get(name) is None:
            raise invalid(name, f"{name} is missing", f"send {name}")
    return {name: value for name, value in body.items() if value is not None}


def _check_keys(value: Any, shape: Any, at: str) -> None:
    """Refuse keys that a shape does not have."""
    if isinstance(value, dict) and isinstance(shape, dict):
        for name, part in value.items():
            path = f"{at}.{name}".removeprefix(".")
            if name not in shape:
                message = f"there is no key {name!r} here"
                raise Refusal("invalid_json", path, message, "see openapi.json for the form", reason="unknown_key")
            _check_keys(part, shape[name], path)
    elif isinstance(value, list) and isinstance(shape, list):
        for i, part in enumerate(value):
            _check_keys(part, shape[0], f"{at}[{i}]")


def _whole(value: Any, shape: Any) -> Any:
    """Return a value with integers where a shape has them and the value is a float without a fraction."""
    if isinstance(value, dict) and isinstance(shape, dict):
        return {name: _whole(part, shape[name]) for name, part in value.items()}
    if isinstance(value, list) and isinstance(shape, list):
        return [_whole(part, shape[0]) for part in value]
    return whole(value) if shape is int else value


def _check_kinds(value: Any, shape: Any, at: str) -> None:
    """Refuse values of another kind than a shape has. null is absent."""
    if shape is ANY or value is None:
        return
    kind: type = shape if isinstance(shape, type) else type(shape)
    # bool is an int in Python, and numbers here have no sign.
    if not isinstance(value, kind) or isinstance(value, bool) != (kind is bool) or (type(value) is int and value < 0):
        raise invalid(at, f"{value!r:.40} where {kind.__name__} is expected", "see openapi.json for the form")
    if isinstance(shape, dict) and isinstance(value, dict):
        for name, part in value.items():
            _check_kinds(part, shape[name], f"{at}.{name}".removeprefix("."))
    elif isinstance(shape, list) and isinstance(value, list):
        for part in value:
            _check_kinds(part, shape[0], at)


_NAME = "([^/]+)"
_ROUTES: list[tuple[str, str, Handler]] = [
    ("GET", "/healthz|/readyz", Node.health),
    ("GET", "/status|/v1/cluster", Node.cluster),
    ("GET", "/v1/cluster/history", Node.history),
    ("POST", "/v1/events", Node.publish),
    ("GET", "/v1/events", Node.read),
    ("GET", f"/v1/events/{_NAME}", Node.event),
    ("GET", "/v1/dedup/policies", Node.list_policies),
    ("GET", f"/v1/dedup/policies/{_NAME}", Node.get_policy),
    ("PUT", f"/v1/dedup/policies/{_NAME}", Node.set_policy),
    ("DELETE", f"/v1/dedup/policies/{_NAME}", Node.remove_policy),
    ("GET", f"/v1/dedup/{_NAME}", Node.dedup),
    ("POST", "/v1/compact", Node.compact),
    ("GET", "/v1/wait", Node.wait),
    ("GET", "/v1/explain", Node.explain),
    ("GET", "/v1/cursors", Node.list_cursors),
    ("GET", f"/v1/cursors/{_NAME}", Node.get_cursor),
    ("PUT", f"/v1/cursors/{_NAME}", Node.create_cursor),
    ("DELETE", f"/v1/cursors/{_NAME}", Node.delete_cursor),
    ("POST", f"/v1/cursors/{_NAME}/open", Node.open_cursor),
    ("GET", f"/v1/cursors/{_NAME}/events", Node.read_cursor),
    ("POST", f"/v1/cursors/{_NAME}/commit", Node.commit_cursor),
    ("PUT", f"/v1/cursors/{_NAME}/filter", Node.change_cursor),
    ("POST", f"/v1/cursors/{_NAME}/seek", Node.seek_cursor),
    ("POST", f"/v1/cursors/{_NAME}/deadletter", Node.dead_letter),
    ("GET", "/v1/groups", Node.list_groups),
    ("GET", f"/v1/groups/{_NAME}", Node.get_group),
    ("PUT", f"/v1/groups/{_NAME}", Node.create_group),
    ("DELETE", f"/v1/groups/{_NAME}", Node.delete_group),
    ("GET", f"/v1/groups/{_NAME}/members", Node.group_members),
    ("POST", f"/v1/groups/{_NAME}/exchange", Node.exchange),
    ("GET", "/v1/dlq", Node.list_letters),
    ("GET", "/v1/dlq/errors", Node.letter_errors),
    ("POST", "/v1/dlq/redrive", Node.redrive),
    ("POST", "/v1/dlq/purge", Node.purge),
    ("GET", f"/v1/dlq/{_NAME}", Node.get_letter),
    ("GET", "/v1/settings", Node.list_settings),
    ("GET", f"/v1/settings/{_NAME}", Node.get_setting),
    ("PUT", f"/v1/settings/{_NAME}", Node.set_setting),
    ("GET", "/v1/catalogue", Node.catalogue),
    ("POST", "/v1/catalogue/validate", Node.validate),
    ("GET", "/v1/flows", Node.list_flows),
    ("POST", "/v1/flows", Node.register_flows),
    ("GET", f"/v1/flows/{_NAME}", Node.get_flow),
    ("DELETE", f"/v1/flows/{_NAME}", Node.remove_flow),
    ("GET", f"/v1/chain/{_NAME}", Node.chain),
    ("GET", "/v1/clients", Node.list_clients),
    ("PUT", f"/v1/clients/{_NAME}", Node.put_client),
    ("DELETE", f"/v1/clients/{_NAME}", Node.remove_client),
    ("GET", "/v1/roles", Node.list_roles),
    ("PUT", "/v1/roles", Node.renew_roles),
    ("GET", f"/v1/roles/{_NAME}", Node.get_role),
    ("PUT", f"/v1/roles/{_NAME}", Node.acquire_role),
    ("DELETE", f"/v1/roles/{_NAME}", Node.release_role),
    ("GET", "/v1/resources", Node.list_resources),
    ("GET", f"/v1/resources/{_NAME}", Node.get_resource),
    ("PUT", f"/v1/resources/{_NAME}", Node.set_resource),
    ("DELETE", f"/v1/resources/{_NAME}", Node.remove_resource),
    ("GET", "/v1/allocations", Node.list_allocations),
    ("PUT", "/v1/allocations", Node.renew_allocations),
    ("GET", f"/v1/allocations/{_NAME}", Node.get_allocation),
    ("PUT", f"/v1/allocations/{_NAME}", Node.allocate),
    ("DELETE", f"/v1/allocations/{_NAME}", Node.release_allocation),
    ("GET", "/v1/scheduled", Node.list_scheduled),
    ("GET", f"/v1/scheduled/{_NAME}", Node.get_scheduled),
    ("PUT", f"/v1/scheduled/{_NAME}", Node.put_scheduled),
    ("DELETE", f"/v1/scheduled/{_NAME}", Node.remove_scheduled),
]
_NODE_ONLY = [
    "/v1/(publish|readiness|snapshot|dlq/import|"
    "(audit|members|catalogue(?!/validate$)|cluster|transfers|where|views)(/.*)?)",
    "/(metrics|openapi.json)?",
]
