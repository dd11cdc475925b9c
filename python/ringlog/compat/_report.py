"""The report of a shadow run: what the observations of both buses say about each handler and type.

    old  e1 e2    e4' e3 e3     e2 is late, e3 is out of order and delivered twice, e4 has another payload, e5 is lost
    log  e1 e2 e3 e4  e5

A delivery of the old bus belongs to the event of the log with its content and time; else to the nearest in time with
its content that has none; else, if the log has its content within WINDOW seconds, it is the event again. What is left
on both sides with one type and time is an event whose payload differs.
"""

from __future__ import annotations

import bisect
import json
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timezone
from statistics import median
from typing import Any

from ringlog.compat._observations import find_files, in_use, read_lines
from ringlog.compat._once import EXACT
from ringlog.event import Json

WINDOW = 60.0  # seconds: the dedup window of the old buses, and by default of the log
NEAR = 0.1  # seconds between the times of an event whose payload differs, where the old bus gives it its own
BORDER = 1.0  # seconds after the beginning for which what one bus alone has is left out: clocks differ

KINDS = {
    "lost": "lost by the old bus",
    "twice": "twice on the old bus",
    "out_of_order": "out of order on the old bus",
    "late": "late on the old bus",
    "payload_differs": "with another payload on the old bus",
    "missing": "on the old bus alone",
    "late_in_log": "late in the log",
}
UNSAFE = ("payload_differs", "missing", "late_in_log")
RULE = (
    "safe: each handler has had min_events, and the log has delivered all that the old bus has, with the same "
    "payloads, at most max_delay later; nothing was unsent or damaged"
)


@dataclass(eq=False)
class Delivery:
    """A line of the kind old or log."""

    type: str
    time: float  # when it was published
    content: str
    source: str
    id: int
    at: float  # when it was delivered
    payload: str | None

    @classmethod
    def of(cls, line: Json) -> Delivery:
        """Return the delivery of a line."""
        payload = line.get("payload")
        return cls(
            str(line["type"]), float(line["time"]), str(line["content"]), str(line["source"]), int(line["id"]),
            float(line["at"]), payload if isinstance(payload, str) else None,
        )  # fmt: skip


@dataclass
class Handler:
    """What is known of a handler."""

    handler: str = ""
    types: str = ""
    start: float = 0.0  # it reads both buses from here on, 0 if it never has
    end: float = 0.0
    old: list[Delivery] = field(default_factory=list)
    log: dict[int, Delivery] = field(default_factory=dict)  # by offset


@dataclass
class Options:
    """What the report is asked for.

    since       leave out what was published before, in seconds since 1970
    grace       seconds for which an event that one bus has delivered may still come from the other
    max_delay   seconds by which one bus may be later than the other
    min_events  events of a handler without which there is no verdict
    evidence    events that are named for each finding
    """

    since: float = 0.0
    grace: float = 10.0
    max_delay: float = 5.0
    min_events: int = 1
    evidence: int = 20


class Observed:
    """The observations of some folders."""

    def __init__(self, folders: Iterable[str], now: float) -> None:
        self.handlers: dict[str, Handler] = {}
        self.unsent: list[Json] = []
        self.damaged: list[str] = []
        self.processes: set[tuple[str, int]] = set()
        self.files = 0
        for folder in folders:
            for file in sorted(find_files(folder), key=_begin):
                self.files += 1
                self._read(file, now)

    def _read(self, file: str, now: float) -> None:
        labels, last, running = set(), 0.0, in_use(file)
        try:
            for line in read_lines(file):
                last = max(last, line["at"])
                if "s" in line:
                    labels.add(line["s"])
                self._take(line)
            if not last and not running:
                raise ValueError("it is empty")
        except (OSError, ValueError, KeyError, TypeError) as e:
            self.damaged.append(f"{file}: {e if isinstance(e, OSError | ValueError) else 'a line lacks a field'}")
        for label in labels:
            handler = self.handlers[label]
            handler.end = max(handler.end, now if running else last)

    def _take(self, line: Json) -> None:
        if line["k"] == "start":
            self.processes.add((line["host"], line["pid"]))
        elif line["k"] == "unsent":
            self.unsent.append({name: line[name] for name in ("type", "time", "error")})
        else:
            handler = self.handlers.setdefault(line["s"], Handler())
            if line["k"] == "sub":
                handler.handler, handler.types = line["h"], line["t"]
                handler.start = min(handler.start or line["at"], line["at"])
            elif line["k"] == "old":
                handler.old.append(Delivery.of(line))
            elif line["k"] == "log":
                handler.log.setdefault(int(line["id"]), Delivery.of(line))


def _begin(file: str) -> tuple[str, str]:
    """Return when a file was begun, by its name."""
    return tuple(file.removesuffix(".ndjson").split("~")[-2:])  # type: ignore[return-value]


class Comparison:
    """The deliveries of one handler and type, paired."""

    def __init__(self, old: list[Delivery], log: list[Delivery]) -> None:
        self.pairs: list[tuple[Delivery, Delivery]] = []
        self.twice: list[tuple[Delivery, Delivery]] = []
        self.differ: list[tuple[Delivery, Delivery]] = []
        self._paired: dict[Delivery, Delivery] = {}  # of the log, with that of the old bus
        by_content = _Times(log, by_content=True)
        left = [o for o in old if not self._pair_exact(o, by_content)]
        left = self._pair_near(left, log)
        left = [o for o in left if not self._pair_again(o, by_content)]
        by_time = _Times(log, by_content=False)
        left = [o for o in left if not self._pair_differing(o, by_time, left)]
        self.missing = left
        self.lost = [e for e in log if e not in self._paired]

    def _pair_exact(self, o: Delivery, log: _Times) -> bool:
        same = log.within(o, EXACT)
        return bool(same) and self._take(o, same)

    def _take(self, o: Delivery, same: list[Delivery]) -> bool:
        free = next((e for e in same if e not in self._paired), None)
        if free is None:
            self.twice.append((o, same[0]))
        else:
            self.pairs.append((o, free))
            self._paired[free] = o
        return True

    def _pair_near(self, left: list[Delivery], log: list[Delivery]) -> list[Delivery]:
        """Pair deliveries with the nearest free event of their content, and return those that have none."""
        groups: dict[str, list[Delivery]] = {}
        for e in sorted(log, key=lambda d: d.time):
            if e not in self._paired:
                groups.setdefault(e.content, []).append(e)
        free = {content: _Free(group) for content, group in groups.items()}
        rest: list[Delivery] = []
        for o in left:
            nearest = free[o.content].take(o.time) if o.content in free else None
            if nearest is None:
                rest.append(o)
            else:
                self._take(o, [nearest])
        return rest

    def _pair_again(self, o: Delivery, log: _Times) -> bool:
        e = log.nearest(o)
        return e is not None and abs(e.time - o.time) <= WINDOW and self._take(o, [e])

    def _pair_differing(self, o: Delivery, log: _Times, left: list[Delivery]) -> bool:
        same = log.within(o, EXACT)
        if not same:
            near = [e for e in log.within(o, NEAR) if e not in self._paired and e.source == o.source]
            rivals = [x for x in left if x.source == o.source and abs(x.time - o.time) <= NEAR]
            same = near if len(near) == 1 and len(rivals) == 1 else []
        if not same:
            return False
        e = next((e for e in same if e not in self._paired), same[0])
        if e in self._paired and self._paired[e].content == o.content:
            self.twice.append((o, e))
        else:
            self.differ.append((o, e))
            self._paired.setdefault(e, o)
        return True

    def out_of_order(self) -> list[tuple[Delivery, Delivery, Delivery]]:
        """Return deliveries of the old bus after one of their source that was published later, with that one.

        Later is what has both the higher offset and the later time: publishers at the same time have no order. Nor
        have equal events, of which a bus without times does not say which it has delivered.
        """
        found = []
        newest: dict[str, Delivery] = {}
        for o, e in sorted(self.pairs + self.differ, key=lambda pair: pair[0].at):
            before = newest.get(e.source)
            later = before is not None and before.id > e.id and before.time > e.time
            if before is not None and later and before.content != e.content:
                found.append((o, e, before))
            if before is None or e.id > before.id:
                newest[e.source] = e
        return found


class _Times:
    """Deliveries of the log by time, to be found near that of one of the old bus."""

    def __init__(self, deliveries: list[Delivery], by_content: bool) -> None:
        self._by_content = by_content
        self._groups: dict[str, list[Delivery]] = {}
        for each in sorted(deliveries, key=lambda d: d.time):
            self._groups.setdefault(each.content if by_content else "", []).append(each)
        self._times = {name: [d.time for d in group] for name, group in self._groups.items()}

    def within(self, o: Delivery, seconds: float) -> list[Delivery]:
        name = o.content if self._by_content else ""
        times = self._times.get(name, [])
        begin, end = bisect.bisect_left(times, o.time - seconds), bisect.bisect_right(times, o.time + seconds)
        return self._groups.get(name, [])[begin:end]

    def nearest(self, o: Delivery) -> Delivery | None:
        """Return the one nearest in time."""
        name = o.content if self._by_content else ""
        i = bisect.bisect_left(self._times.get(name, []), o.time)
        return min(self._groups.get(name, [])[max(0, i - 1) : i + 1], key=lambda e: abs(e.time - o.time), default=None)


class _Free:
    """Deliveries in order of time, of which the nearest is taken. Each call skips those taken in about one step."""

    def __init__(self, deliveries: list[Delivery]) -> None:
        self._all = deliveries
        self._times = [d.time for d in deliveries]
        # The place of the next free one at or after each place, and of the last before it; both are shortened as used.
        self._next = list(range(len(deliveries) + 1))
        self._before = list(range(len(deliveries) + 1))

    def take(self, at: float) -> Delivery | None:
        """Take the nearest within WINDOW seconds, None if none is free."""
        place = bisect.bisect_left(self._times, at)
        after, before = _last(self._next, place), _last(self._before, place) - 1
        near = [i for i in (before, after) if 0 <= i < len(self._all) and abs(self._times[i] - at) <= WINDOW]
        if not near:
            return None
        i = min(near, key=lambda i: abs(self._times[i] - at))
        self._next[i], self._before[i + 1] = i + 1, i
        return self._all[i]


def _last(links: list[int], i: int) -> int:
    """Return where links lead to from i, and shorten the way."""
    while links[i] != i:
        links[i] = links[links[i]]
        i = links[i]
    return i


def report(folders: Iterable[str], options: Options, now: float | None = None) -> Json:
    """Return the report of some folders as JSON has it."""
    now = time.time() if now is None else now
    observed = Observed(folders, now)
    rows = [row for label, h in sorted(observed.handlers.items()) for row in _rows(label, h, options)]
    unsent = [line for line in observed.unsent if line["time"] >= options.since]
    reasons = [f"{row['handler']}, {row['type']}: {reason}" for row in rows for reason in row["reasons"]]
    if unsent:
        reasons.append(f"not sent to the log: {len(unsent)}, the last for {unsent[-1]['error']}")
    reasons += [f"damaged: {text}" for text in observed.damaged]
    verdict = "safe"
    if observed.damaged or not rows or any(row["verdict"] == "unknown" for row in rows):
        verdict = "unknown"
    if unsent or any(row["verdict"] == "unsafe" for row in rows):
        verdict = "unsafe"
    return {
        "verdict": verdict,
        "reasons": reasons,
        "rule": RULE,
        "max_delay_seconds": options.max_delay,
        "min_events": options.min_events,
        "processes": len(observed.processes),
        "files": observed.files,
        "rows": rows,
        "unsent": len(unsent),
        "unsent_events": [{**line, "time": _iso(line["time"])} for line in unsent[: options.evidence]],
    }


def _rows(label: str, handler: Handler, options: Options) -> list[Json]:
    start = max(handler.start, options.since)
    if not handler.start:
        row = _empty(label, handler.types or "*")
        return [{**row, "verdict": "unknown", "reasons": ["it has not read the log yet"]}]
    old, log = ([d for d in each if d.time >= start] for each in (handler.old, handler.log.values()))
    types = sorted({d.type for d in [*old, *log]})
    rows = [
        _row(label, t, [d for d in old if d.type == t], [d for d in log if d.type == t], start, handler.end, options)
        for t in types
    ]
    if (had := sum(row["events"] for row in rows)) < options.min_events:
        reason = f"events so far: {had}, of {options.min_events} that are required"
        rows = rows or [_empty(label, handler.types)]
        for row in rows:
            row["verdict"] = "unsafe" if row["verdict"] == "unsafe" else "unknown"
            row["reasons"].append(reason)
    return rows


def _empty(label: str, kind: str) -> Json:
    row: Json = {"handler": label, "type": kind, "verdict": "safe", "reasons": [], "events": 0, "both": 0, "pending": 0}
    later = {"p50": 0.0, "max": 0.0}
    return {**row, **dict.fromkeys(KINDS, 0), "log_later_seconds": later, "old_later_seconds": later, "evidence": {}}


def _row(
    label: str, kind: str, old: list[Delivery], log: list[Delivery], start: float, end: float, options: Options
) -> Json:
    found = Comparison(old, log)
    both = found.pairs + found.differ

    def decided(alone: list[Delivery]) -> list[Delivery]:
        """Return those that the other bus has had its time for."""
        return [d for d in alone if d.time >= start + BORDER and max(d.time, d.at) <= end - options.grace]

    lost, missing = decided(found.lost), decided(found.missing)
    evidence: dict[str, list[Json]] = {
        "lost": [_event(None, e) for e in lost],
        "twice": [{**_event(o, e), "published_seconds_later": round(o.time - e.time, 6)} for o, e in found.twice],
        "out_of_order": [{**_event(o, e), "after_offset": b.id} for o, e, b in found.out_of_order()],
        "late": [_late(o, e, o.at - e.at) for o, e in both if o.at - e.at > options.max_delay],
        "payload_differs": [{**_event(o, e), "fields": _fields(o, e)} for o, e in found.differ],
        "missing": [_event(o, None) for o in missing],
        "late_in_log": [_late(o, e, e.at - o.at) for o, e in both if e.at - o.at > options.max_delay],
    }
    # Between the two, an event that is neither lost nor missing may still be on its way.
    row = {**_empty(label, kind), "both": len(both), "events": len(both) + len(lost) + len(missing)}
    row["pending"] = sum(
        max(d.time, d.at) > end - options.grace and d.time >= start + BORDER for d in found.lost + found.missing
    )
    row |= {name: len(events) for name, events in evidence.items()}
    row["evidence"] = {name: events[: options.evidence] for name, events in evidence.items() if events}
    row["log_later_seconds"] = _spread([e.at - o.at for o, e in both])
    row["old_later_seconds"] = _spread([o.at - e.at for o, e in both])
    row["reasons"] = [f"{KINDS[name]}: {row[name]}" for name in UNSAFE if row[name]]
    row["verdict"] = "unsafe" if row["reasons"] else "safe"
    return row


def _spread(seconds: list[float]) -> dict[str, float]:
    if not seconds:
        return {"p50": 0.0, "max": 0.0}
    return {"p50": round(median(seconds), 6), "max": round(max(seconds), 6)}


def _event(o: Delivery | None, e: Delivery | None) -> Json:
    """Return what names an event: its offset in the log, and its id on the old bus."""
    one = e or o
    assert one is not None
    named: Json = {"time": _iso(one.time), "source": one.source}
    if e is not None:
        named = {"offset": e.id, **named}
    if o is not None and o.id:
        named["old_id"] = o.id
    return named


def _late(o: Delivery, e: Delivery, seconds: float) -> Json:
    return {**_event(o, e), "seconds": round(seconds, 6)}


def _fields(o: Delivery, e: Delivery) -> list[str]:
    """Return the fields of the payload that differ; none if a payload is too large to be noted."""
    try:
        a, b = json.loads(o.payload or ""), json.loads(e.payload or "")
    except ValueError:
        return []
    if not isinstance(a, dict) or not isinstance(b, dict):
        return []
    absent: Any = object()
    return sorted(name for name in {*a, *b} if a.get(name, absent) != b.get(name, absent))


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, timezone.utc).isoformat().replace("+00:00", "Z")
