"""Draining: what is spooled reaches the log in its order, once each.

A request with spooled events has a producer and a sequence, which are on the disk before it is sent. If its answer is
lost it is sent again under them, also by another process, and the cluster answers as it did at first. Nodes forget a
producer a while after its last request, `producer.ttl`. If it is only then that the cluster is back, they cannot say
whether the request was carried out, and the log is searched for its events by their times: each has a time of its own.

The cluster takes an event for a duplicate by when it appends. What was spooled for an hour is appended within moments,
so here an event is a duplicate of those that were published within the window of its type, before it or after. One
that this process knows to be none is sent with "dedup": false, at its place. Of any other that the cluster takes for a
duplicate, the first one is read from the log, and it is sent again if that was published further apart.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timezone
from functools import partial
from typing import Any, NamedTuple, TypeVar

from ringlog._core.calls import LINEARIZABLE, Attempts, path
from ringlog._core.checks import parse_duration
from ringlog._core.encode import encode, format_time
from ringlog._core.io import Io, Signal, Task
from ringlog._core.publisher import MAX_PRODUCER_IDLE, PUBLISH, Producer, Publisher
from ringlog._core.reader import Reader
from ringlog._core.spool import Batch, Mark, Segment, Spool, Unit, log_error
from ringlog.errors import (
    Closed,
    Conflict,
    InvalidArgument,
    NotFound,
    OtherCluster,
    OutcomeUnknown,
    RinglogError,
    SpoolError,
    Trimmed,
)
from ringlog.event import Event, Gap, Json, Result

T = TypeVar("T")

PAUSE, MAX_PAUSE = 0.1, 15.0  # seconds after a failure
AWAY = 1.0  # seconds at most, while the cluster is away
HANGING = 30.0  # seconds without a change, after which nobody waits for what another process is to deliver
CLOCKS = 900.0  # seconds by which this machine's clock may differ from the cluster's
MAX_SEEN = 100_000  # contents that are remembered: they spare requests, and keep the order of equal events


class _Rule(NamedTuple):
    """Which events of a type are duplicates: by the payload fields that are compared, none for all, and how long."""

    type: str  # as the catalogue spells it
    fields: tuple[str, ...]
    window: float  # nanoseconds; 0 if none are

    def content_of(self, payload: Any) -> int:
        """Return a hash of what is compared."""
        if self.fields and isinstance(payload, dict):
            payload = {name: payload[name] for name in self.fields if name in payload} or payload
        return hash((self.type, _freeze(payload or {})))


class Drainer:
    """Sends what is spooled, in a task beside the caller, whenever something is."""

    def __init__(self, publisher: Publisher, io: Io, spool: Spool) -> None:
        self._publisher, self._io, self._spool = publisher, io, spool
        self.after_fork()

    def after_fork(self) -> None:
        """Leave the task to the parent."""
        self._lock = threading.RLock()  # the handler of a signal may publish, too
        self._starting = False
        self._task: Task | None = None
        self._due: Signal = self._io.signal()  # something is spooled, or it is time to stop
        self._moved: Signal = self._io.signal()  # something was delivered, or an attempt failed
        self._tries: Attempts | None = None
        self._stopping = False
        self.failure: RinglogError | None = None  # of the last attempt, until one succeeds
        self._producer: Producer | None = None  # of what is sent for the first time
        self._seen: dict[int, int] = {}  # by content, when the last event that was appended was published
        self._times: dict[int, int | None] = {}  # when the event at an offset was published, None if it is trimmed
        self._late_until = 0.0  # by time.monotonic(), while the cluster may compare with what was delivered late
        self._window = 60e9  # the cluster's dedup window in nanoseconds
        self._rules: dict[str, _Rule] = {}  # by type, as it is spelled

    def wake(self) -> None:
        """Have delivered what is spooled."""
        with self._lock:  # two tasks would deliver everything twice
            if self._stopping or not self._spool.pending:
                return
            if not self._starting and (self._task is None or not self._task.alive()):
                self._starting = True
                try:
                    self._task = self._io.spawn("ringlog-spool", self._run)
                finally:
                    self._starting = False
        self._due.set()

    async def keep_up(self) -> None:
        """Wait until more was delivered than a batch that is published now adds, while the cluster takes events.

        Without it who publishes faster than that is delivered would fill the spool.
        """
        until = time.monotonic() + self._publisher.calls.config.spool_after
        begin = self._moved.version
        while self._spool.pending and self.failure is None and self._moved.version - begin < 2:
            if self._spool.awaits:
                return  # nothing is delivered
            left = until - time.monotonic()
            if left <= 0 or self._task is None or not self._task.alive():
                return
            await self._moved.wait(self._moved.version, left)

    async def drain(self, timeout: float | None, while_it_moves: bool = False) -> bool:
        """Wait until nothing is spooled; False if timeout seconds were too short.

        With while_it_moves it waits for no longer than the cluster answers.
        """
        until = None if timeout is None else time.monotonic() + timeout
        self.wake()
        while True:
            seen = self._moved.version
            if not self._spool.pending or (while_it_moves and not self._spool.size):
                return True
            left = None if until is None else until - time.monotonic()
            if (left is not None and left <= 0) or (while_it_moves and self.failure is not None):
                return False
            await self._moved.wait(seen, left)

    async def close(self, timeout: float) -> None:
        """Deliver what the cluster takes within timeout seconds, and leave the rest to the next client."""
        if self._task is not None and self._task.alive():
            await self.drain(timeout, while_it_moves=True)
        self._stopping = True
        if self._tries is not None:
            self._tries.stop()
        self._due.set()
        if self._task is not None:
            await self._task.join(1.0)
        await self._io.run(self._spool.close)

    async def _run(self) -> None:
        """Deliver segment after segment until the client is closed."""
        pause = PAUSE
        while not self._stopping:
            seen = self._due.version
            try:
                segment = await self._io.run(self._spool.next_segment)
                if segment is None:
                    self._moved.set()
                    if self._spool.awaits:
                        await self._wait_for_others()
                    else:
                        await self._due.wait(seen, None)
                    continue
                try:
                    await self._deliver(segment)
                    pause = PAUSE
                finally:
                    segment.close()
            except Closed:
                return
            except Exception as e:  # the disk's, or a defect: what is on the disk stays there
                log_error("spool %s: %s: %s", self._spool.folder, type(e).__name__, e)
                self.failure = SpoolError(str(e), code="spool")
                self._moved.set()
                pause = await self._pause(pause)

    async def _wait_for_others(self) -> None:
        """Wait until other processes have delivered what goes before this one's, but not for one that hangs."""
        before: list[tuple[str, int]] = []
        while not self._stopping and (left := await self._io.run(self._spool.look_for_awaited)):
            if left != before:
                before, until = left, time.monotonic() + HANGING
            elif time.monotonic() > until:
                log_error(
                    "spool %s: another process does not deliver %s: what was published here is no longer after it",
                    self._spool.folder,
                    left[0][0],
                )
                self._spool.forget_awaited()
                return
            # It cannot deliver while the cluster is away.
            began = time.monotonic()
            await self._patiently("GET /v1/settings", self._get_settings)
            until += time.monotonic() - began
            await self._pause(PAUSE)

    async def _pause(self, seconds: float) -> float:
        """Wait, but not once it is time to stop, and return how long to wait the next time."""
        until = time.monotonic() + seconds
        while not self._stopping and (left := until - time.monotonic()) > 0:
            await self._due.wait(self._due.version, left)
        return min(2 * seconds, MAX_PAUSE)

    async def _patiently(self, what: str, call: Callable[[Attempts], Awaitable[T]], *final: type[RinglogError]) -> T:
        """Repeat a call until it succeeds or raises a final error. Raises Closed once it is time to stop."""
        pause = PAUSE
        while True:
            tries = self._tries = Attempts(what, self._publisher.calls.config.spool_after)
            if self._stopping:
                raise Closed("the client is closed")
            try:
                result = await call(tries)
            except RinglogError as e:
                if isinstance(e, (Closed, *final)):
                    raise
                if self.failure is None:
                    log_error("spool %s: %d bytes wait: %s", self._spool.folder, self._spool.size, e)
                self.failure = e
                self._moved.set()
                away = e.retryable or isinstance(e, OutcomeUnknown)  # not the token, a full disk, another cluster
                pause = await self._pause(min(pause, AWAY) if away else pause)
            else:
                self.failure = None
                return result

    async def _deliver(self, segment: Segment) -> None:
        """Send all units of a segment, and remove it."""
        settings = await self._patiently("GET /v1/settings", self._get_settings)
        self._window = parse_duration(settings.get("dedup.window", "60s")) * 1e9
        self._rules.clear()
        alone_until = -1
        # What an ended process has delivered of it is known again.
        done = [(n, unit) for n, unit in segment.content.units.items() if n in segment.content.done]
        await self._learn_rules(done)
        for _, unit in done:
            for compared in map(self._compared, unit.events):
                if compared is not None:
                    self._note_appended(*compared)
        while (batch := segment.next_batch(alone_until)) is not None:
            if batch.mark is None and batch.suspect:
                await self._settle_doubt(segment, batch)
            elif await self._send(segment, batch):
                alone_until = batch.units[-1][0]
            self._moved.set()
        windows = [self._window, *(rule.window for rule in self._rules.values())]
        self._late_until = time.monotonic() + max(windows) / 1e9
        await self._io.run(segment.finish)
        self._moved.set()

    async def _get_settings(self, tries: Attempts) -> dict[str, str]:
        calls = self._publisher.calls
        _, content = await calls.open("GET", "/v1/settings", None, LINEARIZABLE, tries=tries)
        return {setting["key"]: setting["value"] for setting in json.loads(content)["settings"]}

    async def _learn_rules(self, units: list[tuple[int, Unit]]) -> None:
        """Ask for the dedup policies of the types of some units."""
        for type_ in {str(event.get("type")) for _, unit in units for event in unit.events}:
            if type_ not in self._rules:
                target = path("dedup", "policies", type_)
                self._rules[type_] = await self._patiently(f"GET {target}", partial(self._get_rule, type_, target))

    async def _get_rule(self, type_: str, target: str, tries: Attempts) -> _Rule:
        try:
            _, content = await self._publisher.calls.open("GET", target, None, LINEARIZABLE, tries=tries)
        except (InvalidArgument, NotFound):  # no type, which the events are refused for, or an older node
            return _Rule(type_, (), self._window)
        policy = json.loads(content)
        window = 0 if policy["mode"] == "off" else parse_duration(policy["window"]) * 1e9
        return _Rule(policy.get("type", type_), tuple(policy.get("fields", ())), window)

    async def _send(self, segment: Segment, batch: Batch) -> bool:
        """Send a batch until what became of it is known. True asks for its units one by one."""
        unknown = batch.mark is not None
        await self._learn_rules(batch.units)
        mark = batch.mark or self._new_mark(batch, self._find_apart(segment, batch))
        if batch.mark is None:
            batch.mark = mark
            await self._io.run(lambda: segment.note_sent(mark))
        body = _request(batch, mark)
        calls = self._publisher.calls

        async def post(tries: Attempts) -> list[Result]:
            nonlocal unknown
            if mark.cluster and mark.cluster != calls.cluster_id:
                raise OtherCluster(
                    f"the events were sent to cluster {mark.cluster}, and the endpoints are of {calls.cluster_id}",
                    code="other_cluster",
                    remedy="name nodes of that cluster, or another folder for this one",
                )
            # A first request is also taken from a producer that nodes have forgotten. The time may have been set.
            ages = time.time() - mark.began, time.monotonic() - mark.uptime
            if unknown and mark.sequence == 1 and not all(0 <= age < MAX_PRODUCER_IDLE for age in ages):
                raise Conflict("the producer may be forgotten", code="unknown_producer", field="sequence")
            try:
                return await self._publisher.post(mark.producer, mark.sequence, body, tries)
            except OutcomeUnknown:
                unknown = True
                raise

        try:
            results = await self._patiently(PUBLISH, post, Conflict, InvalidArgument)
        except (Conflict, InvalidArgument) as refusal:
            return await self._refused(segment, batch, refusal, unknown)
        if self._producer is not None and mark.producer == self._producer.name:
            self._producer.number, self._producer.used = mark.sequence, time.monotonic()
        missing = await self._find_missing(batch, results)
        if not missing:
            await self._io.run(lambda: segment.note_done(mark.first, mark.count))
            return False

        # What is left is sent next, for certain.
        begin = 0
        for number, unit in batch.units:
            rows = [row for row in range(len(unit.events)) if begin + row not in missing]
            begin += len(unit.events)
            await self._io.run(partial(segment.note_part_done, number, rows))
            segment.no_duplicates.add(number)
        return False

    async def _refused(self, segment: Segment, batch: Batch, refusal: RinglogError, unknown: bool) -> bool:
        """Settle a batch that a node has refused. True asks for its units one by one."""
        if isinstance(refusal, Conflict) or unknown:
            self._producer = None  # the sequence may have been used
        if unknown and await self._settle_doubt(segment, batch):
            return False
        segment.trust(batch)
        if isinstance(refusal, Conflict) and "dedup_id" not in refusal.field:
            return False  # about the sequence: they are sent under another one

        # One that is refused does not take the others with it.
        rows = [(number, i) for number, unit in batch.units for i in range(len(unit.events))]
        row, bracket, field = refusal.field.removeprefix("events[").partition("]")
        if bracket and row.isdigit() and int(row) < len(rows):
            number, i = rows[int(row)]
            refusal.field = f"events[{i}]{field}"
        elif len(batch.units) == 1:
            number = batch.units[0][0]
        else:
            return True
        await self._io.run(lambda: segment.reject(number, refusal))
        return False

    def _new_mark(self, batch: Batch, undeduped: list[int]) -> Mark:
        """Return how a batch is sent that was never sent before."""
        if self._producer is None or time.monotonic() - self._producer.used > MAX_PRODUCER_IDLE:
            self._producer = Producer()
        return Mark(
            batch.units[0][0],
            len(batch.units),
            self._producer.name,
            self._producer.number + 1,
            time.time(),
            self._publisher.calls.cluster_id,
            undeduped,
        )

    def _find_apart(self, segment: Segment, batch: Batch) -> list[int]:
        """Return the rows of a batch that are no duplicates, though the same is in the log or before them.

        It need not find all: the others are found once the cluster has taken them for duplicates.
        """
        apart: list[int] = []
        before: dict[int, int] = {}  # in the batch
        row = -1
        for number, unit in batch.units:
            for event in unit.events:
                row += 1
                if (compared := self._compared(event)) is None:
                    continue
                content, at, window = compared
                last = before.get(content, self._seen.get(content))
                if number in segment.no_duplicates or (last is not None and abs(at - last) >= window):
                    apart.append(row)
                if last is None or abs(at - last) >= window:
                    before[content] = at
        return apart

    async def _find_missing(self, batch: Batch, results: list[Result]) -> set[int]:
        """Return the rows that the cluster took for duplicates of what was published further apart."""
        missing: set[int] = set()
        events = [event for _, unit in batch.units for event in unit.events]
        for row, (event, result) in enumerate(zip(events, results, strict=True)):
            if (compared := self._compared(event)) is None:
                continue
            content, at, window = compared
            if result.duplicate:
                equal = (await self._get_time(result.offset), self._seen.get(content))
                if any(other is not None and abs(at - other) < window for other in equal):
                    continue
                missing.add(row)
            else:
                self._note_time(result.offset, at)
            self._note_appended(content, at, window)
        return missing

    def mark_apart(self, body: bytes) -> bytes:
        """Return an event or a list of them, with "dedup": false where an equal one was published further away.

        They are sent at once, and the cluster may have appended that one, which was spooled, a moment ago.
        """
        if time.monotonic() > self._late_until:
            return body
        events = json.loads(body)
        marked = False
        for event in events if isinstance(events, list) else [events]:
            if (compared := self._compared(event)) is None:
                continue
            content, at, window = compared
            last = self._seen.get(content)
            if last is not None and abs(at - last) >= window:
                self._seen[content] = at
                event["dedup"] = False
                marked = True
        return encode(events) if marked else body

    def _compared(self, event: Json) -> tuple[int, int, float] | None:
        """Return the content that is compared, when it was published, and the window in nanoseconds; None if not."""
        at, rule = parse_nanoseconds(event.get("time")), self._rules.get(str(event.get("type")))
        if at is None or rule is None or event.get("dedup") is False:
            return None
        if name := event.get("dedup_id"):
            return hash(str(name)), at, self._window
        return (rule.content_of(event.get("payload")), at, rule.window) if rule.window else None

    def _note_appended(self, content: int, at: int, window: float) -> None:
        """Remember an event that is in the log, or a duplicate of one that is remembered."""
        last = self._seen.get(content)
        if last is None or abs(at - last) >= window:
            if len(self._seen) >= MAX_SEEN:
                self._seen.clear()
            self._seen[content] = at

    def _note_time(self, offset: int, at: int | None) -> None:
        if len(self._times) >= MAX_SEEN:
            self._times.clear()
        self._times[offset] = at

    async def _get_time(self, offset: int) -> int | None:
        """Return when an event of the log was published, None if it is trimmed."""
        target = path("events", offset)

        async def get(tries: Attempts) -> int | None:
            try:
                _, content = await self._publisher.calls.open("GET", target, None, LINEARIZABLE, tries=tries)
            except (NotFound, Trimmed):
                return None
            return _published(Event(json.loads(content)))

        if offset not in self._times:
            self._note_time(offset, await self._patiently(f"GET {target}", get))
        return self._times[offset]

    async def _settle_doubt(self, segment: Segment, batch: Batch) -> bool:
        """Search the log for a batch that may be in it, and note what is. False if nothing is."""
        await self._learn_rules(batch.units)
        found = await self._patiently("GET /v1/events", lambda _: self._find(batch))
        if found is None:
            error = OutcomeUnknown(
                "it may be in the log: its answer was lost, and what was appended then is trimmed",
                code="outcome_unknown",
                remedy="look for what follows from it, and publish it again if it is not there",
            )
            for number, _ in batch.units:
                await self._io.run(partial(segment.reject, number, error))
            return True
        for number, rows in found.items():
            await self._io.run(partial(segment.note_part_done, number, sorted(rows)))
        segment.trust(batch)
        return bool(found)

    async def _find(self, batch: Batch) -> dict[int, set[int]] | None:
        """Return what of a batch is in the log, or a duplicate of what is: rows of units, by the units' numbers.

        It is None if that cannot be known any more.
        """
        wanted: dict[int, list[tuple[int, int, Json]]] = {}  # number, row and event, by time
        for number, unit in batch.units:
            for row, event in enumerate(unit.events):
                if (at := parse_nanoseconds(event.get("time"))) is not None:
                    wanted.setdefault(at, []).append((number, row, event))
        rules = {rule.type: rule for rule in self._rules.values()}
        gaps: list[Gap] = []
        query = dict(LINEARIZABLE)
        calls, since = self._publisher.calls, max(min(batch.since, time.time()) - CLOCKS, 0.0)
        oldest = await Reader(calls, "/v1/events", dict(LINEARIZABLE), "start", 1, gaps.append).next()
        if oldest is not None and oldest.offset > 1 and oldest.appended_at.timestamp() > since:
            return None

        # Nothing else has its time, to the nanosecond, and is the same otherwise.
        found: dict[int, set[int]] = {}
        for field, parameter in (("source", "source"), ("key", "key")):
            values = {str(event.get(field) or "") for same in wanted.values() for _, _, event in same}
            if "" not in values and len(values) <= 100:
                query[parameter] = sorted(values)
        position = "@" + format_time(datetime.fromtimestamp(since, timezone.utc), "since")
        reader = Reader(calls, "/v1/events", query, position, 0, gaps.append)
        while (stored := await reader.next()) is not None:
            published, rule = _published(stored), rules.get(stored.type)
            if rule is None:
                continue
            for number, row, event in wanted.get(published, []):
                if self._rules[str(event.get("type"))] == rule and _is_same(event, stored):
                    found.setdefault(number, set()).add(row)
        if gaps:
            return None

        # The others of the request were duplicates, or are published further apart, and are to be sent again.
        appended: dict[int, list[int]] = {}  # by content, when they were published
        for number, unit in batch.units:
            for row, compared in enumerate(map(self._compared, unit.events)):
                if compared is None:
                    continue
                content, at, window = compared
                if row in found.get(number, ()):
                    appended.setdefault(content, []).append(at)
                elif any(abs(at - other) < window for other in appended.get(content, ())):
                    found.setdefault(number, set()).add(row)
        return found


def _is_same(event: Json, stored: Event) -> bool:
    """Report whether an event of the log is one that was published, at the same time."""
    fields = ("source", "key", "causation_id", "dedup_id")
    same = all((event.get(name) or "") == stored.raw.get(name, "") for name in fields)
    payload = event.get("payload") or {}
    # A node fills it from the payload where the event has none.
    run = event.get("correlation_id") or stored.correlation_id in ("", str(payload.get("correlation_id", "")))
    return same and run in (True, stored.correlation_id) and payload == stored.payload


def _published(stored: Event) -> int:
    """Return when an event of the log was published, in nanoseconds since 1970."""
    at = parse_nanoseconds(stored.raw.get("time"))
    return parse_nanoseconds(stored.raw["appended_at"]) or 0 if at is None else at


def _freeze(value: Any) -> Any:
    """Return a JSON value as one that can be hashed: 1 and 1.0 are the same, as they are for nodes, 1 and True not."""
    if isinstance(value, dict):
        return frozenset((name, _freeze(part)) for name, part in value.items())
    if isinstance(value, list):
        return tuple(map(_freeze, value))
    return ("", value) if isinstance(value, bool) else value


def _request(batch: Batch, mark: Mark) -> bytes:
    """Return the body of a request with the events of a batch."""
    if not mark.undeduped:
        return b"[" + b",".join(unit.body[1:-1] for _, unit in batch.units) + b"]"
    events = [event for _, unit in batch.units for event in unit.events]
    for row in mark.undeduped:
        events[row] = {**events[row], "dedup": False}
    return encode(events)


_TIME = re.compile(r"(\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d)(?:\.(\d+))?([Zz]|[+-]\d\d:\d\d)")


def parse_nanoseconds(text: object) -> int | None:
    """Return an RFC 3339 time in nanoseconds since 1970, None if it is none."""
    match = _TIME.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        return None
    seconds, fraction, zone = match.groups()
    try:
        at = datetime.fromisoformat(seconds + ("+00:00" if zone in "Zz" else zone))
    except ValueError:
        return None
    return int(at.timestamp()) * 10**9 + int(f"{(fraction or '0')[:9]:0<9}")
