"""Chain: how far a run has come on its way through the flows. It is what internal/platform/stages is in Go."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from ringlog._memory import types
from ringlog._memory.flows import MAX_NAME
from ringlog._memory.values import Refusal, invalid, parse_duration, time_text
from ringlog.event import Event, Json

MOST = 10_000  # events of a chain; the newest are shown
MAX_RUNS = 20  # runs that are named beside a chain
MAX_IDS = 250  # correlation ids of a run that payload fields name, the newest

Deadlines = Mapping[tuple[str, str, str], timedelta]
"""The longest time of an edge, by flow, cause and effect."""


def parse_deadlines(flows: Iterable[Json], texts: Iterable[str]) -> Deadlines:
    """Read texts of the form FLOW:CAUSE->EFFECT=DURATION. Raises ValueError."""
    found: dict[tuple[str, str, str], timedelta] = {}
    edges = {flow["name"]: flow["edges"] for flow in flows}
    for text in texts:
        at, _, limit = text.partition("=")
        name, _, ends = at.partition(":")
        cause, _, effect = (types.catalogue().resolve(end.strip()).name for end in ends.partition("->"))
        span = parse_duration(limit)
        if [cause, effect] not in edges.get(name, ()) or span <= timedelta(0) or (name, cause, effect) in found:
            raise ValueError(f"{text!r:.200} is no deadline of an edge")
        found[name, cause, effect] = span
    return found


# Runs that payload fields name.


def _field_text(value: Any) -> str:
    """Return the text of a payload field: a text itself, a number or a boolean as JSON spells it, else ""."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, bool | int | float) else ""


def run_of(flow: Json, payload: Mapping[str, Any]) -> str:
    """Return the id of the run that the fields of run_by name in a payload, such as config_key=hex8_2p; "" for none."""
    parts = []
    for name in flow.get("run_by", ()):
        if not (text := _field_text(payload.get(name))):
            return ""
        parts.append(f"{name}={_escape(text)}")
    run = ",".join(parts)
    return "" if len(run.encode()) > MAX_NAME or types.has_control(run) else run


def _escape(text: str) -> str:
    return text.replace("%", "%25").replace(",", "%2C").replace("=", "%3D")


def _may_name(flow: Json, run: str) -> bool:
    """Report whether an id has the form of those that run_of makes."""
    names, parts = flow.get("run_by", ()), run.split(",")
    if not names or len(parts) != len(names):
        return False
    for name, part in zip(names, parts, strict=True):
        key, separator, text = part.partition("=")
        plain = text.replace("%2C", ",").replace("%3D", "=").replace("%25", "%")
        if key != name or not separator or not text or _escape(plain) != text:
            return False
    return True


def _stages(flow: Json) -> set[str]:
    return {end for edge in flow["edges"] for end in edge}


def _named_run(flows: list[Json], run: str, events: list[Json]) -> list[Json]:
    """Return the stages of the run that payload fields name, of flows with one run_by."""
    flow, stages = flows[0], set[str]().union(*map(_stages, flows))
    listed = [event for event in events if event["type"] in stages]
    found = {event["offset"]: event for event in listed if run_of(flow, event["payload"]) == run}
    ids = dict.fromkeys(event["correlation_id"] for event in reversed(found.values()) if event.get("correlation_id"))
    newest = set(list(ids)[:MAX_IDS])
    # A stage that names no run belongs to the one that the newest before it with its correlation id names, else to the
    # first after it.
    seen: dict[str, str] = {}
    waiting: dict[str, list[Json]] = {}
    for event in listed:
        id_ = event.get("correlation_id", "")
        if id_ not in newest:
            continue
        named, known = run_of(flow, event["payload"]), seen.get(id_, "")
        if named:
            seen[id_] = named
            before = waiting.pop(id_, []) if not known else []
            found |= {one["offset"]: one for one in before} if named == run else {}
        elif known == run:
            found[event["offset"]] = event
        elif not known:
            waiting.setdefault(id_, []).append(event)
    return [found[offset] for offset in sorted(found)]


def chain_of(
    flows: list[Json], run: str, kept: list[Json], first: int, last: int, kept_from: int,
    now: datetime, only: str, deadlines: Deadlines,
) -> Json:  # fmt: skip
    """Return how far a run has come: the schema Chain. kept are the events from first on. Raises Refusal."""
    named_by = [flow for flow in flows if _may_name(flow, run)]
    if only and only not in [flow["name"] for flow in named_by]:
        named_by = []
    found = _named_run(named_by, run, kept) if named_by else []
    runs: dict[str, None] = {}
    if found:
        flows = named_by
    else:
        found = [event for event in kept if event.get("correlation_id") == run]
        elsewhere = []
        for event in found:
            for flow in flows:
                if event["type"] in _stages(flow) and (other := run_of(flow, event["payload"])):
                    elsewhere.append(flow["run_by"])
                    runs[other] = None
        flows = [flow for flow in flows if flow.get("run_by") not in elsewhere]
    if not found:
        message = f"no event from offset {first} on has the correlation id {run!r:.300}"
        message += "; what was before is trimmed" if kept_from > 1 and first == kept_from else ""
        raise Refusal("not_found", "correlation_id", message, "check the id: Client.tail shows those of events")
    scope: Json = {"from": first, "to": last, "kept_from": kept_from}
    if len(found) > MOST:
        scope["left_out"] = len(found) - MOST
    chain = _follow(flows, run, found[-MOST:], now, only, deadlines, scope)
    return {**chain, **({"runs": list(runs)[:MAX_RUNS]} if runs else {})}


# Following.


def _follow(
    flows: list[Json], run: str, events: list[Json], now: datetime, only: str, deadlines: Deadlines, scope: Json
) -> Json:
    at = [Event(event).appended_at for event in events]
    shown = []
    for i, event in enumerate(events):
        after = (at[i] - at[i - 1]).total_seconds() if i else 0
        names = ("source", "key", "causation_id", "dedup_id")
        link: Json = {"offset": event["offset"], "type": event["type"], "at": event["appended_at"]}
        shown.append({**link, "after_seconds": after, **{name: event[name] for name in names if event.get(name)}})
    chosen, covered = _choose(flows, events, only)
    causes = _causes(events)
    runs = [_Walk(flow, events, at, causes, now, deadlines).run() for flow in chosen]
    begun = any(start["first"] for one in runs for start in one["starts"])
    known = set[str]().union(*map(_stages, chosen))
    chain: Json = {
        "correlation_id": run,
        "now": time_text(now),
        "seconds": (at[-1] - at[0]).total_seconds(),
        "events": shown,
        "flows": runs,
        "scope": scope,
        "beginning_trimmed": not begun and scope["kept_from"] > 1,
        "overdue": sum(1 for one in runs for missing in one["next"] if missing.get("overdue")),
    }
    outside = [event["offset"] for event in events if event["type"] not in known]
    return {**chain, **({"covered": covered} if covered else {}), **({"outside": outside} if outside else {})}


def _choose(flows: list[Json], events: list[Json], only: str) -> tuple[list[Json], list[str]]:
    """Return the flows to follow, and the names of those of which another has all events and more."""
    if only:
        return [flow for flow in flows if flow["name"] == only], []
    touched = [(flow, {i for i, event in enumerate(events) if event["type"] in _stages(flow)}) for flow in flows]
    chosen, covered = [], []
    for flow, stages in touched:
        if stages and any(stages < others for _, others in touched):
            covered.append(flow["name"])
        elif stages:
            chosen.append(flow)
    return chosen, covered


def _causes(events: list[Json]) -> list[int]:
    """Return for each event the index of the earlier one that its causation id names, or -1."""
    named: dict[str, int] = {}
    causes = []
    for i, event in enumerate(events):
        causes.append(named.get(event.get("causation_id") or "", -1))
        for name in (event["hash"], event.get("dedup_id"), str(event["offset"])):
            if name:
                named[name] = i
    return causes


Use = tuple[int, int]  # an edge out of an event: the indexes of the event and of the edge


class _Walk:
    """Goes once through the events of a run along one flow, as walk.go does."""

    def __init__(
        self, flow: Json, events: list[Json], at: list[datetime], causes: list[int], now: datetime, deadlines: Deadlines
    ) -> None:
        self.flow, self.edges = flow, [(cause, effect) for cause, effect in flow["edges"]]
        self.notes = {note.get("edge", 0): note for note in flow["edge_notes"]}
        self.types = [event["type"] for event in events]
        self.offsets = [event["offset"] for event in events]
        self.at, self.causes, self.now, self.deadlines = at, causes, now, deadlines
        self.newest: dict[str, int] = {}  # the newest event so far of each stage
        self.used: set[Use] = set()
        self.into: dict[int, set[str]] = {}  # the stages that each event was reached from
        self.starts: list[Json] = []
        self.taken: list[Json] = []
        self.next: list[Json] = []

    def run(self) -> Json:
        """Return the run on its way through the flow, a part of the schema Chain."""
        stages = _stages(self.flow)
        for i, type_ in enumerate(self.types):
            if type_ in stages:
                self._arrive(i)
                self.newest[type_] = i
        complete = self._missing()
        return {"flow": self.flow["name"], "starts": self.starts, "edges": self.taken, "next": self.next,
                "complete": complete}  # fmt: skip

    def _arrive(self, i: int) -> None:
        """Determine how an event was reached: over edges from earlier ones, early, past skipped edges, or not."""
        fresh, again = self._coming_from(i)
        for use in fresh:
            self._take(use, i, "taken")
        if fresh:
            return
        if again is not None:
            self._take(again, i, "again")
        elif (early := self._came_early(i)) is not None:
            self._take(early, i, "early")
        elif not self._skip(i):
            first = all(effect != self.types[i] for _, effect in self.edges)
            self.starts.append({"offset": self.offsets[i], "type": self.types[i], "first": first})

    def _into(self, type_: str) -> list[int]:
        return [i for i, (_, effect) in enumerate(self.edges) if effect == type_]

    def _coming_from(self, i: int) -> tuple[list[Use], Use | None]:
        """Return the unused edges from earlier events to one, and the used one with the newest cause."""
        fresh: list[Use] = []
        again: Use | None = None
        for edge in self._into(self.types[i]):
            cause, named = self.edges[edge][0], self.causes[i]
            start = named if named >= 0 and self.types[named] == cause else self.newest.get(cause, -1)
            if start < 0:
                continue
            if (start, edge) not in self.used:
                fresh.append((start, edge))
            elif again is None or again[0] < start:
                again = start, edge
        return fresh, again

    def _came_early(self, i: int) -> Use | None:
        """Return a cause of an event that was appended after it, and that can have no other effect."""
        to, later = self.types[i], self.types[i + 1 :]
        for edge in self._into(to):
            cause = self.edges[edge][0]
            if cause in later and to not in later and (to, cause) not in self.edges:
                return i + 1 + later.index(cause), edge
        return None

    def _edge(self, edge: int) -> Json:
        cause, effect = self.edges[edge]
        note = self.notes.get(edge, {})
        return {"from": cause, "to": effect, **{key: note[key] for key in ("condition", "to_state") if note.get(key)}}

    def _take(self, use: Use, i: int, state: str) -> None:
        start, edge = use
        self.used.add(use)
        self.into.setdefault(i, set()).add(self.types[start])
        took, limit = self.at[i] - self.at[start], self._deadline(edge)
        found = {**self._edge(edge), "from_offset": self.offsets[start], "to_offset": self.offsets[i], "state": state}
        found |= {"basis": "causation" if self.causes[i] == start else "order", "seconds": took.total_seconds()}
        found |= {"deadline_seconds": limit.total_seconds()} if limit else {}
        self.taken.append(found | ({"late": True} if limit and took > limit and state != "again" else {}))

    def _deadline(self, edge: int) -> timedelta:
        return self.deadlines.get((self.flow["name"], *self.edges[edge]), timedelta(0))

    def _skip(self, i: int) -> bool:
        """Record the edges between the nearest earlier stage that leads to an event and that event as skipped."""
        path, start = self._detour(self.types[i])
        if not path:
            return False
        self.used.add((start, path[0]))
        for n, edge in enumerate(path):
            found = {**self._edge(edge), "state": "skipped", "seconds": 0}
            found |= {"from_offset": self.offsets[start]} if n == 0 else {}
            self.taken.append(found | ({"to_offset": self.offsets[i]} if n == len(path) - 1 else {}))
        return True

    def _detour(self, to: str) -> tuple[list[int], int]:
        """Return the path with the fewest edges from an event so far to a type, and that event, the newest."""
        paths: list[list[int]] = [[]]
        seen = {to}
        while paths:
            longer: list[list[int]] = []
            best: tuple[list[int], int] = [], -1
            for path in paths:
                for edge in self._into(self.edges[path[0]][0] if path else to):
                    cause, way = self.edges[edge][0], [edge, *path]
                    i = self.newest.get(cause, -1)
                    if i > best[1] and (i, edge) not in self.used:
                        best = way, i
                    if cause not in seen:
                        seen.add(cause)
                        longer.append(way)
            if best[0]:
                return best
            paths = longer
        return [], 0

    def _missing(self) -> bool:
        """List the unused edges out of the last stages, and report whether the run is complete."""
        complete = bool(self.newest)
        for i in sorted(self.newest.values()):
            edges = [edge for edge, (cause, _) in enumerate(self.edges) if cause == self.types[i]]
            optional = any((i, edge) in self.used for edge in edges)
            for edge in edges:
                if (i, edge) in self.used or self.edges[edge][1] in self.into.get(i, ()):
                    continue
                self.next.append(self._next(i, edge, optional))
                complete = complete and optional
        self.next.sort(key=lambda one: bool(one.get("optional")))
        return complete

    def _next(self, i: int, edge: int, optional: bool) -> Json:
        waiting, limit = max(timedelta(0), self.now - self.at[i]), self._deadline(edge)
        found = {**self._edge(edge), "from_offset": self.offsets[i], "waiting_seconds": waiting.total_seconds()}
        found |= {"optional": True} if optional else {}
        found |= {"deadline_seconds": limit.total_seconds()} if limit else {}
        return found | ({"overdue": True} if limit and waiting > limit and not optional else {})


def check_flow(flows: Iterable[Json], name: str) -> None:
    """Refuse a name that no flow has."""
    names = [flow["name"] for flow in flows]
    if name and name not in names:
        raise invalid("flow", f"there is no such flow: {name!r:.80}; there are {', '.join(names)}", "name one of these")
