"""One log in memory: its time, events, duplicates, producers and retention."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import uuid
import weakref
from collections import Counter
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone

from ringlog._core.io import Signal
from ringlog._memory import types
from ringlog._memory.allocations import Allocations
from ringlog._memory.clients import Clients
from ringlog._memory.cursors import Cursor, Cursors
from ringlog._memory.flows import Flows
from ringlog._memory.letters import Letters
from ringlog._memory.policies import NOT_COMPARED, Compared, Key, Policies, read_policy, warn_of_fields
from ringlog._memory.pressure import Pressure
from ringlog._memory.roles import Roles
from ringlog._memory.schedule import Schedule
from ringlog._memory.values import Refusal, Settings, invalid, parse_duration, parse_position, time_text
from ringlog.event import Event, Json

RESULTS_KEPT = 64  # of a producer


class Clock:
    """The time of a memory log, in UTC. It begins as the real one and passes only where a test moves it."""

    def __init__(self) -> None:
        self._now = datetime.now(timezone.utc)
        self.moved = 0.0  # seconds
        self._log: Log  # which has the clock

    def now(self) -> datetime:
        """Return the time."""
        return self._now

    def advance(self, seconds: float | timedelta) -> datetime:
        """Let time pass, with all that it changes, and return what time it is then.

        Before it passes and after, members of groups report what was done with their deliveries. Those of asyncio
        can only where the loop runs: use advance_async there.
        """
        span = _check_span(seconds)
        with self._log.lock:
            self._log.hear_members()
            self._pass(span)
            self._log.hear_members()
        return self._now

    async def advance_async(self, seconds: float | timedelta) -> datetime:
        """Do the same in a loop of asyncio."""
        span = _check_span(seconds)
        await self._log.hear_members_async()
        with self._log.lock:
            self._pass(span)
        await self._log.hear_members_async()
        return self._now

    def _pass(self, span: timedelta) -> None:
        self._now += span
        self.moved += span.total_seconds()
        self._log.time_passed()


def _check_span(seconds: float | timedelta) -> timedelta:
    """Return how long time is to pass."""
    span = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
    if span < timedelta(0):
        raise ValueError(f"time cannot move back by {-span}")
    return span


class _Producer:
    """A sender whose retries are answered from its last results. Its time is real, as its client's is."""

    def __init__(self) -> None:
        self.last = 0
        self.used = 0.0  # by time.monotonic()
        self.results: dict[int, tuple[object, list[Json] | Refusal]] = {}


class Log:
    """The state. Whoever calls a method holds the lock."""

    def __init__(self, clock: Clock) -> None:
        self.lock = threading.RLock()
        self.clock = clock
        clock._log = self
        self.advanced = 0.0  # time.monotonic() when the clock was moved last
        self.grace = 1.0  # seconds of real time for a member to ask for more time after that
        self.cluster_id = uuid.uuid4().hex
        self.settings = Settings()
        self.first = 1  # the first offset that is kept
        self.events: list[Json] = []  # from first on
        self.blocks: list[tuple[int, int, datetime]] = []  # first and last offset of each request that is kept
        self.trim_reason = ""
        self.policies = Policies(self.settings)
        self.keys: dict[Key, tuple[int, str, datetime]] = {}  # the dedup window
        self.compared: dict[int, Compared] = {}  # by offset, but for events that were not compared
        self.receipts: dict[int, list[tuple[str, datetime]]] = {}  # by offset: its duplicates
        self.producers: dict[str, _Producer] = {}
        self.cursors = Cursors(self)
        self.letters = Letters(self)
        self.clients = Clients(clock)
        self.roles = Roles(self)
        self.allocations = Allocations(self)
        self.schedule = Schedule(self)
        self.flows = Flows(self.settings)
        self.pressure = Pressure(self)
        self.waiting: weakref.WeakSet[Signal] = weakref.WeakSet()  # connections that wait for a change
        self.signals: weakref.WeakSet[Signal] = weakref.WeakSet()  # all others of clients
        self.exchanged = threading.Condition(self.lock)

    # Time and changes.

    @property
    def last(self) -> int:
        """The last offset."""
        return self.first + len(self.events) - 1

    def now_text(self) -> str:
        """Return the time as JSON has it."""
        return time_text(self.clock.now())

    def changed(self) -> None:
        """Publish what is due, report who lags, apply retention and wake those that wait for a change."""
        self.schedule.publish_due()
        self.pressure.look()
        self.trim({}, retention=True)
        for signal in list(self.waiting):
            signal.set_threadsafe()

    def time_passed(self) -> None:
        """Apply what the time that passed changes."""
        self.advanced = time.monotonic()
        self._expire()
        self.changed()

    def hear_members(self) -> None:
        """Wake all members of groups, and wait until those in other threads have reported what they hold."""
        since, here = time.monotonic(), threading.get_ident()
        self._wake_members()
        self.exchanged.wait_for(lambda: not self._awaits_members(since, here), self.grace)

    async def hear_members_async(self) -> None:
        """Do the same for those of asyncio, too."""
        since = time.monotonic()
        while time.monotonic() < since + self.grace:
            with self.lock:
                self._wake_members()
                if not self._awaits_members(since, None):
                    return
            await asyncio.sleep(0)

    def _wake_members(self) -> None:
        for signal in list(self.signals):
            signal.set_threadsafe()

    def _awaits_members(self, since: float, here: int | None) -> bool:
        groups = [cursor.group for cursor in self.cursors.all.values() if cursor.group is not None]
        return any(group.awaits_members(since, here) for group in groups)

    def kill_member(self, group: str, name: str) -> None:
        """Take a member of a group for killed."""
        cursor = self.cursors.all.get(group)
        if cursor is not None and cursor.group is not None:
            cursor.group.kill(name)

    def _expire(self) -> None:
        """Remove what is too old: dead letters, leases, schedules and idle cursors."""
        now = self.clock.now()
        self.schedule.forget_published()
        self.letters.purge_old()
        self.roles.expire()
        self.allocations.expire()
        if idle := self.settings.duration("cursor.idle_expiry"):
            for cursor in list(self.cursors.all.values()):
                if cursor.touched + idle <= now:
                    self.cursors.remove(cursor)

    # Events.

    def event(self, offset: int) -> Json:
        """Return the event at an offset. Raises Refusal for one that is trimmed or past the tail."""
        if offset > self.last:
            message = f"offset {offset} is past the tail, which is {self.last}"
            raise Refusal("past_tail", "offset", message, "ask for one up to the tail", offset=self.last)
        if offset < self.first:
            message = f"offset {offset} is trimmed; the first kept is {self.first}"
            raise Refusal("trimmed", "offset", message, "read from start", offset=self.first)
        return self.events[offset - self.first]

    def position(self, field: str, value: object) -> int | None:
        """Return the offset of the next event at a position, None if none is given."""
        return parse_position(field, value, self.first, self.last, self.clock.now(), self._offset_at)

    def _offset_at(self, at: datetime) -> int:
        return next((first for first, _, appended in self.blocks if appended >= at), self.last + 1)

    def append(self, raws: Iterable[tuple[Json, str]]) -> int:
        """Append events, each with its hash, as one block, and return the offset of the first."""
        first, at = self.last + 1, self.clock.now()
        for offset, (raw, content) in enumerate(raws, first):
            place = {"appended_at": time_text(at), "term": 1, "hash": content}
            self.events.append({"offset": offset, **raw, **place})
        self.blocks.append((first, self.last, at))
        return first

    def append_own(self, type_: str, payload: Json, correlation_id: str | None = None) -> None:
        """Append an event of the cluster itself."""
        self.append([self.own(type_, payload, correlation_id=correlation_id)])

    def own(self, type_: str, payload: Json, **fields: str | None) -> tuple[Json, str]:
        """Return an event of the cluster itself with its hash, to be appended. A field that is None is absent."""
        raw: Json = {"type": type_, "payload": types._canonical(payload, 1 << 20)}
        found = types.normalize(raw | {name: text for name, text in fields.items() if text}, _OWN)
        found.raw.pop("foreign", None)
        found.raw["source"] = "ringlog"
        return found.raw, found.hash

    def publish(self, body: bytes, producer: str, sequence: int | None, lease: tuple[str, int]) -> Json:
        """Append the events of a request, all or none: the schema PublishAnswer. lease has a role and its fence."""
        sent, alone = types.decode_events(body, self.settings)
        if sequence is not None and not producer:
            raise invalid("producer", "a sequence without a producer", "send both, or neither")
        if producer and sequence is None:
            raise invalid("sequence", "a producer without a sequence", "send both")
        types.check_name("producer", producer, self.settings.number("limits.name_bytes"))
        self.roles.check_request(*lease)
        events = []
        for i, one in enumerate(sent):
            try:
                events.append(types.normalize(one, self.settings))
            except Refusal as e:
                raise e if alone else e.under(f"events[{i}]") from None
        results, replayed = self._numbered(events, alone, producer, sequence or 0, lease)
        warned = ({"warnings": event.warnings} if event.warnings else {} for event in events)
        answer = {"results": [{**result, **warning} for result, warning in zip(results, warned, strict=True)]}
        self.changed()
        return {**answer, "cluster_id": self.cluster_id, **({"replayed": True} if replayed else {})}

    def _numbered(
        self, events: list[types.Event], alone: bool, name: str, sequence: int, lease: tuple[str, int]
    ) -> tuple[list[Json], bool]:
        """Place the events of a producer's next request, or return what became of a repeated one, and which it is."""
        if not name:
            self.roles.check_lease(*lease)
            return self.place(events, alone), False
        now, expiry = time.monotonic(), self.settings.duration("producer.ttl").total_seconds()
        known = self.producers.get(name)
        if known is not None and known.used + expiry <= now:
            del self.producers[name]
            known = None
        last = known.last if known else 0
        print_ = [(event.key, event.hash) for event in events]
        if sequence != last + 1:
            if known is None:
                message = f"nothing is known of producer {name!r}, whose sequence is {sequence}"
                raise Refusal("unknown_producer", "sequence", message, "start over with a new producer id")
            if sequence not in known.results:
                message = f"producer {name!r} sent sequence {sequence}, expected is {last + 1}"
                raise Refusal("out_of_sequence", "sequence", message, "send the next number", offset=last + 1)
            kept_print, kept = known.results[sequence]
            if kept_print != print_:
                message = f"producer {name!r} already used sequence {sequence} for other events"
                raise Refusal("conflict", "sequence", message, "a new request takes the next sequence")
            if isinstance(kept, Refusal):
                raise kept
            return kept, True
        self.roles.check_lease(*lease)  # a refusal by it uses no number
        outcome: list[Json] | Refusal
        try:
            outcome = self.place(events, alone)
        except Refusal as e:
            outcome = e
        known = self.producers.setdefault(name, _Producer())
        known.last, known.used = sequence, now
        known.results[sequence] = print_, outcome
        known.results.pop(sequence - RESULTS_KEPT, None)
        if isinstance(outcome, Refusal):
            raise outcome
        return outcome, False

    def place(self, events: list[types.Event], alone: bool) -> list[Json]:
        """Give each event an offset, its own or that of the one that it repeats."""
        now = self.clock.now()
        fresh: list[types.Event] = []
        placed: dict[Key, tuple[int, str, datetime]] = {}
        compared: dict[int, Compared] = {}
        results: list[Json] = []
        repeated: list[tuple[int, str]] = []
        for i, event in enumerate(events):
            how = self.policies.compare(event)
            earlier = None if how.key is None else placed.get(how.key) or self.keys.get(how.key)
            duplicate = earlier is not None and earlier[2] + self.policies.window(how, event.raw["type"]) > now
            if earlier is not None and duplicate:
                offset, content, at = earlier
                if content != event.hash and how.kind == "dedup_id":
                    message = f"the dedup_id was used at offset {offset} for an event with other content"
                    refusal = Refusal("conflict", "dedup_id", message, "use a new dedup_id", offset=offset)
                    raise refusal if alone else refusal.under(f"events[{i}]")
                repeated.append((offset, event.raw.get("source", "")))
            else:
                offset, at = self.last + 1 + len(fresh), now
                fresh.append(event)
                compared[offset] = how
                if how.key is not None:
                    placed[how.key] = offset, event.hash, now
            placement = {"offset": offset, "duplicate": duplicate, "hash": event.hash, "appended_at": time_text(at)}
            results.append(placement)
        if fresh:
            self.append((event.raw, event.hash) for event in fresh)
        self.keys |= placed
        self.compared |= compared
        for offset, source in repeated:
            self.receipts.setdefault(offset, []).append((source, now))
        return results

    def explain_dedup(self, subject: str) -> Json:
        """Return what deduplication did with an event, by its offset or content hash: the schema Explanation."""
        others: list[int] = []
        if subject.isdigit() and len(subject) != 64:
            if not int(subject):
                raise invalid("offset", "offset='0' is not an offset from 1, or a content hash")
            event = self.event(int(subject))
        else:
            if not re.fullmatch(r"[0-9a-f]{64}", subject.lower()):
                raise invalid("hash", f"a content hash has 64 hex digits: {subject!r:.80}", reason="invalid_field")
            same = [event for event in self.events if event["hash"] == subject.lower()]
            if not same:
                raise Refusal("not_found", "hash", "no event that is kept has that content hash", "check the digits")
            event, others = same[-1], [event["offset"] for event in same[:-1]][-100:]
        offset, now, name = event["offset"], self.clock.now(), event["type"]
        how = self.compared.get(offset, NOT_COMPARED)
        until = self.appended(event) + self.policies.window(how, name)
        # Events of a type with a policy are compared with what that has accepted, unless they have a dedup id.
        counts = how.kind == "dedup_id" or (how.decided_by == "policy") == self.policies.has(name)
        held = how.key is not None and self.keys.get(how.key, (0,))[0] == offset
        found = {
            "offset": offset,
            "type": name,
            "hash": event["hash"],
            "kind": how.kind,
            "decided_by": how.decided_by,
            "policy": self.view_policy(name),
            "source": event.get("source", ""),
            "appended_at": event["appended_at"],
            "in_window": held and counts and until > now,
            "until": time_text(until),
            **self.suppressed(offset),
        }
        found |= {"dedup_id": event["dedup_id"]} if "dedup_id" in event else {}
        return found | ({"others": others} if others else {})

    def suppressed(self, offset: int) -> Json:
        """Return how often the event was sent again."""
        receipts = self.receipts.get(offset, [])
        if not receipts:
            return {"suppressed": 0}
        counts = Counter(source for source, _ in receipts)
        return {
            "suppressed": len(receipts),
            "first_suppressed": time_text(receipts[0][1]),
            "last_suppressed": time_text(receipts[-1][1]),
            "sources": [{"source": source, "count": counts[source]} for source in sorted(counts)],
        }

    def set_policy(self, type_: str, body: Json) -> Json:
        """Set the dedup policy of a type: the schema DedupPolicy."""
        found = types.normalize({"type": type_, "payload": "{}"}, self.settings)
        name, policy = found.raw["type"], read_policy(body)
        kept = self._policy_keys(name) if self.policies.put(name, policy) else ()
        self._forget_keys(name, kept)
        return {**self.view_policy(name), "warnings": found.warnings + warn_of_fields(name, policy.fields)}

    def remove_policy(self, type_: str) -> Json:
        """Remove the policy that was set for a type, and return the one in force without it."""
        found = self.get_policy(type_)
        self.policies.remove(found["type"])
        self._forget_keys(found["type"])
        return self.view_policy(found["type"])

    def get_policy(self, type_: str) -> Json:
        """Return the policy in force for a type by any of its names."""
        return self.view_policy(types.normalize({"type": type_, "payload": "{}"}, _OWN).raw["type"])

    def view_policy(self, name: str) -> Json:
        """Return the policy in force for a type."""
        return self.policies.view(name, len(self._policy_keys(name)))

    def _policy_keys(self, name: str) -> set[Key]:
        """Return the keys in the window of a type's policy."""
        now, window = self.clock.now(), self.policies.window(Compared("", "policy", ()), name)
        return {key for key, (_, _, at) in self.keys.items() if key[0] == name and at + window > now}

    def _forget_keys(self, name: str, kept: Iterable[Key] = ()) -> None:
        """Remove the keys of a type's policy."""
        self.keys = {key: value for key, value in self.keys.items() if key[0] != name or key in kept}

    def appended(self, event: Json) -> datetime:
        """Return when an event was appended."""
        return Event(event).appended_at

    # Retention.

    def trim(self, body: Json, retention: bool = False) -> Json:
        """Remove the oldest blocks, as settings or a caller ask: the schema TrimResult."""
        force = bool(body.get("force"))
        wanted = self._wanted_by_settings() if retention else self._wanted_by_caller(body)
        holder = None
        if not force and wanted > self.first:
            held = [c for c in self.cursors.all.values() if c.committed + 1 < wanted and self._holds(c)]
            holder = min(held, key=lambda c: c.committed, default=None)
            wanted = wanted if holder is None else min(wanted, holder.committed + 1)
        # A block is removed as a whole or not at all, and the newest one stays.
        target = max((first for first, _, _ in self.blocks if first <= wanted), default=self.first)
        removed = max(0, target - self.first)
        result: Json = {"first": self.first + removed, "removed": removed, "dry_run": bool(body.get("dry_run"))}
        result |= {"held_by": holder.name} if holder else {}
        if removed and not body.get("dry_run"):
            self.trim_reason = "retention" if retention else "forced" if force else "compacted"
            passed = sorted(name for name, c in self.cursors.all.items() if self._record_gap(c, target - 1))
            result |= {"passed": passed} if passed else {}
            del self.events[:removed]
            self.first = target
            self.blocks = [block for block in self.blocks if block[0] >= target]
            self.letters.revive_trimmed()
        return result

    def _record_gap(self, cursor: Cursor, last: int) -> bool:
        """Note what a cursor loses where the events up to last are removed, and report whether it loses any."""
        if cursor.committed >= last:
            return False
        lost = [event for event in self.events[: last + 1 - self.first] if event["offset"] > cursor.committed]
        lost_types = Counter(event["type"] for event in lost if cursor.gets(event))
        before = self.cursors.gap_of(cursor) or {"from": cursor.committed + 1, "types": {}}
        cursor.gap = {"from": before["from"], "to": last, "reason": self.trim_reason,
                      "types": dict(lost_types + Counter(before["types"]))}  # fmt: skip
        return True

    def _wanted_by_settings(self) -> int:
        """Return the offset that retention would like to be the first."""
        wanted = self.first
        if most := self.settings.number("retention.events"):
            wanted = max(wanted, self.last + 1 - most)
        if age := self.settings.duration("retention.age"):
            wanted = max(wanted, self._offset_at(self.clock.now() - age + timedelta(microseconds=1)))
        return wanted

    def _wanted_by_caller(self, body: Json) -> int:
        """Return the offset that a caller would like to be the first."""
        given = [name for name in ("before", "keep", "older_than") if body.get(name) is not None]
        if len(given) > 1:
            raise invalid("body", "before, older_than and keep say different things", "send one of them")
        if not given:
            return self._wanted_by_settings()
        if given == ["keep"]:
            return max(self.first, self.last + 1 - int(body["keep"]))
        if given == ["older_than"]:
            wanted = self.position("older_than", str(body["older_than"]))
            return wanted or self.first
        if body["before"] > self.last + 1:
            message = f"offset {body['before']} is past the tail, which is {self.last}"
            raise Refusal("past_tail", "before", message, "send an offset that is there", offset=self.last)
        return int(body["before"])

    def _holds(self, cursor: Cursor) -> bool:
        """Report whether a cursor may keep what it has not committed."""
        most = cursor.policy.get("hold_events") or self.settings.number("cursor.hold_events")
        if most and self.last - cursor.committed > most:
            return False
        own = cursor.policy.get("hold_for")
        age = parse_duration(own) if own else self.settings.duration("cursor.hold_for")
        at = next((at for _, last, at in self.blocks if last > cursor.committed), None)
        return at is not None and (not age or self.clock.now() - at < age)


class _Own(Settings):
    """The settings under which the cluster's own events are accepted."""

    def text(self, key: str) -> str:
        """Return a value as text."""
        return "accept-as-foreign" if key == "catalogue.reserved" else super().text(key)


_OWN = _Own()
