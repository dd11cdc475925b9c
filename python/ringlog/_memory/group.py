"""Which member of a group holds which event."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from ringlog._core.member import span, spans
from ringlog._memory.types import check_name
from ringlog._memory.values import Refusal, Settings, bad_value, duration_text, invalid, parse_age, time_text
from ringlog.event import Json

if TYPE_CHECKING:
    from ringlog._memory.cursors import Cursor
    from ringlog._memory.log import Log

MAX_PARTS, MAX_WANT = 10_000, 10_000
MAX_WAIT, MAX_DELAY = 30_000, 86_400_000  # milliseconds


class Slot:
    """An event that the group has not settled. member is who holds it, None if it waits."""

    def __init__(self, event: Json) -> None:
        self.event = event
        self.offset: int = event["offset"]
        self.key: str = event.get("key", "")
        self.member: Member | None = None
        self.count = 0  # deliveries, the present one included
        self.extended = False  # the last exchange of its member has begun the ack wait again
        self.due: datetime | None = None  # not delivered before, or where it is held, not acknowledged by then
        self.error = self.handler = ""  # of the newest failure
        self.first: datetime | None = None  # when the first delivery failed


class Member:
    """A member with its session."""

    def __init__(self, name: str, session: int, now: datetime) -> None:
        self.name, self.session, self.since, self.seen = name, session, now, now
        self.asked = time.monotonic()  # the last exchange
        self.thread = 0  # which made it, 0 before that is known
        self.killed = False
        self.lost: set[int] = set()  # what it must not handle any more and has not been notified of
        self.figures = {"delivered": 0, "acked": 0, "nacked": 0, "expired": 0}


class Group:
    """The part of a group that a leader keeps. Only killed members have a timeout: the others are in this process."""

    def __init__(self, log: Log, cursor: Cursor, given: Json) -> None:
        self._log, self._cursor = log, cursor
        self.policy = _check_policy({name: value for name, value in given.items() if value})
        self._slots: dict[int, Slot] = {}  # by offset, ascending
        self._next = cursor.committed + 1  # the next offset to look at
        self._members: dict[str, Member] = {}
        self._sessions = 0
        self._gaps: list[Json] = []

    # What callers see.

    def _ack_wait(self) -> timedelta:
        text = self.policy.get("ack_wait") or self._settings.text("group.ack_wait")
        return parse_age("group.ack_wait", text)

    @property
    def _settings(self) -> Settings:
        return self._log.settings

    def _max_deliver(self) -> int:
        return self.policy.get("max_deliver") or self._settings.number("group.max_deliver")

    def _max_pending(self) -> int:
        return self.policy.get("max_pending") or self._settings.number("group.max_pending")

    def view(self) -> Json:
        """Return what a group adds to its cursor: the schema GroupInfo."""
        held = sum(slot.member is not None for slot in self._slots.values())
        return {
            "ack_wait": duration_text(self._ack_wait()),
            "max_deliver": self._max_deliver(),
            "max_pending": self._max_pending(),
            "pending": held,
            "redelivering": sum(slot.member is None and slot.count > 0 for slot in self._slots.values()),
            "members": len(self._members),
            "coordinator": "memory",
        }

    def members(self) -> list[Json]:
        """Return the members in the order in which they joined: the schema GroupMember."""
        now = self._log.clock.now()
        found = []
        for member in self._members.values():
            held = [slot for slot in self._slots.values() if slot.member is member]
            ages = [now - slot.due + self._ack_wait() for slot in held if slot.due is not None]
            found.append({
                "member": member.name,
                "session": member.session,
                "since": time_text(member.since),
                "last_seen": time_text(member.seen),
                "pending": len(held),
                "oldest_pending_ms": int(max(ages, default=timedelta(0)).total_seconds() * 1000),
                **member.figures,
            })  # fmt: skip
        return found

    def is_settled(self, offset: int) -> bool:
        """Report whether the group is done with an offset after its commit."""
        return offset < self._next and offset not in self._slots

    def deliveries(self, offset: int) -> int:
        """Return how often an open event was delivered."""
        return self._slots[offset].count if offset in self._slots else 0

    # What the log holds.

    def feed(self) -> None:
        """Take in what the log has after what was seen, as far as the group may have events open."""
        if self._next < self._log.first or any(offset < self._log.first for offset in self._slots):
            self._skip_trimmed()
        most = self._max_pending()
        while self._next <= self._log.last and len(self._slots) < most:
            event = self._log.event(self._next)
            if self._cursor.gets(event):
                self._slots[self._next] = Slot(event)
            self._next += 1
        self._advance()

    def _skip_trimmed(self) -> None:
        """Settle what was trimmed, and report it as a gap."""
        if gap := self._log.cursors.gap_of(self._cursor):
            self._gaps.append(gap)
        for offset in [offset for offset in self._slots if offset < self._log.first]:
            slot = self._slots.pop(offset)
            if slot.member is not None:
                slot.member.lost.add(offset)
        self._next = max(self._next, self._log.first)

    def _advance(self) -> None:
        """Commit up to the first event that is not settled."""
        committed = next(iter(self._slots), self._next) - 1
        if committed > self._cursor.committed:
            self._cursor.committed = committed
            self._cursor.moved = self._cursor.touched = self._log.clock.now()

    def move(self, committed: int) -> None:
        """Begin again after an offset: what members hold is no longer theirs."""
        for slot in self._slots.values():
            if slot.member is not None:
                slot.member.lost.add(slot.offset)
        self._slots.clear()
        self._next = committed + 1

    # Exchanges.

    def exchange(self, body: Json, thread: int) -> tuple[Member, list[Json]]:
        """Take in what a member reports, and return it with the ranges that it does not hold."""
        request = _check_exchange(body, self._settings.number("limits.name_bytes"))
        self._log.roles.check_request(body.get("role", ""), body.get("fence", 0))
        self.feed()
        try:
            self._log.roles.check_lease(body.get("role", ""), body.get("fence", 0))
        except Refusal:
            member = self._members.get(body["member"])
            if member is not None and member.session == body.get("session", 0):
                self._leave(member)
            raise
        member = self._enter(body, request)
        member.seen, member.asked, member.thread = self._log.clock.now(), time.monotonic(), thread

        # Progress that comes too late is ignored, but for an event whose ack wait the member extends with each
        # exchange: there were none while the clock was moved at once.
        now = self._log.clock.now()
        extended = set(self._held(member, request["progress"]))
        for slot in self._slots.values():
            if slot in extended and ((slot.due and slot.due > now) or slot.extended):
                slot.due = now + self._ack_wait()
            if slot.member is member:
                slot.extended = slot in extended
        acked = self._held(member, request["acks"])
        refused = self._offsets(request["acks"]) - {slot.offset for slot in acked}
        for slot in acked:
            self._settle(slot)
        member.figures["acked"] += len(acked)
        for nack in request["nacks"]:
            held = self._slots.get(nack["offset"])
            if held is None or held.member is not member:
                refused.add(nack["offset"])
                continue
            self._nack(member, held, nack)
        if body.get("leave"):
            self._leave(member)
        self.expire()
        self._advance()
        self._log.letters.resolve(self._cursor)
        self._log.exchanged.notify_all()
        return member, spans(refused)

    def _enter(self, body: Json, request: Json) -> Member:
        """Return the member of an exchange, which joins with session 0."""
        name, session = body["member"], body.get("session", 0)
        member = self._members.get(name)
        if session:
            if member is None or member.session != session or member.killed:
                message = f"session {session} of member {name!r} of group {self._cursor.name!r} is over"
                raise Refusal("fenced", "session", message, "join again: session 0, with holding")
            return member
        self._sessions += 1
        joined = Member(name, self._sessions, self._log.clock.now())
        nacked = [span(nack["offset"]) for nack in request["nacks"]]
        claimed = self._offsets([*request["holding"], *request["acks"], *request["progress"], *nacked])
        for slot in list(self._slots.values()):
            if member is not None and slot.member is member and slot.offset not in claimed:
                self._fail(slot, "its member joined again without it", "", None)
            elif member is not None and slot.member is member:
                slot.member = joined
        joined.lost = {offset for offset in claimed if not self._is_of(offset, joined)}
        self._members[name] = joined
        return joined

    def _offsets(self, ranges: Iterable[Json]) -> set[int]:
        """Return the offsets of ranges, of which one may claim more than there is."""
        last = self._log.last + MAX_PARTS
        return {offset for one in ranges for offset in range(one["from"], min(one["to"], last) + 1)}

    def _is_of(self, offset: int, member: Member) -> bool:
        slot = self._slots.get(offset)
        return slot is not None and slot.member is member

    def _held(self, member: Member, ranges: list[Json]) -> list[Slot]:
        """Return what a member holds of ranges."""
        return [
            slot
            for slot in self._slots.values()
            if slot.member is member and any(one["from"] <= slot.offset <= one["to"] for one in ranges)
        ]

    def _settle(self, slot: Slot) -> None:
        del self._slots[slot.offset]

    def _nack(self, member: Member, slot: Slot, nack: Json) -> None:
        """End a delivery that a member could not handle."""
        if nack.get("released"):
            self._release(slot)
            return
        member.figures["nacked"] += 1
        due = self._log.clock.now() + timedelta(milliseconds=nack.get("delay_ms", 0))
        self._fail(slot, nack.get("error", ""), nack.get("handler", ""), due, dead=bool(nack.get("dead")))

    def _release(self, slot: Slot) -> None:
        """Take an event from its member as if it had not been delivered."""
        slot.member, slot.due = None, None
        slot.count -= 1

    def _fail(self, slot: Slot, error: str, handler: str, due: datetime | None, dead: bool = False) -> None:
        """End a delivery that counts: the event is delivered again, or becomes a dead letter."""
        assert slot.member is not None
        slot.error = error or slot.error
        slot.handler = handler or slot.member.name
        slot.first = slot.first or self._log.clock.now()
        slot.member, slot.due = None, due
        most = self._max_deliver()
        if dead or (most and slot.count >= most):
            self._log.letters.store(self._cursor, slot.offset, slot.handler, slot.error, slot.count, slot.first)
            self._settle(slot)

    def _leave(self, member: Member) -> None:
        for slot in self._slots.values():
            if slot.member is member:
                self._release(slot)
        self._members.pop(member.name, None)

    def _overdue(self) -> Iterator[Slot]:
        now = self._log.clock.now()
        return (slot for slot in self._slots.values() if slot.member and slot.due and slot.due <= now)

    def expire(self) -> None:
        """End the sessions of killed members, and fail the deliveries that exceed the ack wait.

        Others than the killed could have asked for more time before.
        """
        self._expire_sessions()
        for slot in list(self._overdue()):
            member, moved = slot.member, self._log.advanced
            heard = member is not None and (member.asked > moved or time.monotonic() > moved + self._log.grace)
            if member is not None and (heard or member.killed):
                member.figures["expired"] += 1
                member.lost.add(slot.offset)
                text = f"not acknowledged within {duration_text(self._ack_wait())} by {member.name}"
                self._fail(slot, text, "", None)

    def kill(self, name: str) -> None:
        """Take a member for killed: nothing is heard of it any more, and its session ends when its time is up."""
        if name in self._members:
            self._members[name].killed = True

    def _expire_sessions(self) -> None:
        """End the sessions of killed members that were silent for too long."""
        now, timeout = self._log.clock.now(), self._settings.duration("group.session_timeout")
        for member in [m for m in self._members.values() if m.killed and m.seen + timeout <= now]:
            del self._members[member.name]
            for slot in [slot for slot in self._slots.values() if slot.member is member]:
                self._fail(slot, f"{member.name} was not heard of for {duration_text(timeout)}", "", None)

    def awaits_members(self, since: float, here: int | None) -> bool:
        """Report whether a member in another thread than here holds something and has not asked since a time."""
        holders = {slot.member for slot in self._slots.values()}
        return any(m is not None and not m.killed and m.thread != here and m.asked < since for m in holders)

    def take(self, member: Member, want: int) -> list[Json]:
        """Deliver up to want events to a member: of each key the first that is open, once nobody holds it."""
        self.feed()
        self.expire()
        now = self._log.clock.now()
        taken: list[Json] = []
        busy: set[str] = set()  # keys whose first open event is held or waits
        for slot in self._slots.values():
            if len(taken) >= want:
                break
            if slot.key in busy:
                continue
            if slot.key:
                busy.add(slot.key)
            if slot.member is None and (slot.due is None or slot.due <= now):
                slot.member, slot.due = member, now + self._ack_wait()
                slot.count += 1
                slot.extended = False
                taken.append({**slot.event, "delivery": slot.count})
        member.figures["delivered"] += len(taken)
        return taken

    def answer(self, member: Member, refused: list[Json], events: list[Json]) -> Json:
        """Return the answer to an exchange."""
        lost, member.lost = member.lost, set()
        gaps, self._gaps = self._gaps, []
        return {
            "session": member.session,
            "events": events,
            "revoked": spans(lost),
            "refused": refused,
            "gaps": gaps,
            "ack_wait_ms": int(self._ack_wait().total_seconds() * 1000),
            "session_timeout_ms": int(self._settings.duration("group.session_timeout").total_seconds() * 1000),
            "committed": self._cursor.committed,
            "last_offset": self._log.last,
        }

    def has_news(self, member: Member) -> bool:
        """Report whether there is something to answer beside events."""
        return bool(member.lost or self._gaps)


def _check_policy(policy: Json) -> Json:
    """Return what a group is made with. Raises Refusal for what it cannot have."""
    if "ack_wait" in policy:
        wait = parse_age("group.ack_wait", policy["ack_wait"])
        if wait and not timedelta(milliseconds=100) <= wait <= timedelta(days=1):
            raise invalid("ack_wait", f"an ack_wait of {duration_text(wait)}", "use 100ms to 24h")
        policy = {**policy, "ack_wait": duration_text(wait)}
    for name, most in (("max_deliver", 1_000_000), ("max_pending", 50_000)):
        value = policy.get(name, 0)
        if not isinstance(value, int) or value < 0:
            raise invalid(f"group.{name}", f"{value!r:.40} where a whole number is expected")
        if value > most:
            raise invalid(name, f"a {name} of {value}", f"use 1 to {most}")
    return policy


def _check_exchange(body: Json, limit: int) -> Json:
    """Return the lists of an exchange. Raises Refusal for what no group could take."""
    if not body.get("member"):
        raise invalid("member", "member is missing", "send the member's name, one for each process")
    check_name("member", body["member"], limit)
    lists = {name: body.get(name) or [] for name in ("holding", "acks", "nacks", "progress")}
    for name, ranges in lists.items():
        if len(ranges) > MAX_PARTS:
            raise Refusal("too_large", name, f"{len(ranges)} of them, the limit is {MAX_PARTS}", "join ranges")
        for i, one in enumerate(ranges):
            if name != "nacks" and not 0 < one.get("from", 0) <= one.get("to", 0):
                raise invalid(f"{name}[{i}]", f"{one} is not a range of offsets", "send from, from 1, and to")
    for i, nack in enumerate(lists["nacks"]):
        if not nack.get("offset"):
            raise bad_value(f"nacks[{i}].offset", 0, "an offset from 1")
        if not 0 <= nack.get("delay_ms", 0) <= MAX_DELAY:
            raise bad_value(f"nacks[{i}].delay_ms", nack["delay_ms"], f"milliseconds up to {MAX_DELAY}")
        if nack.get("dead") and nack.get("released"):
            raise invalid(f"nacks[{i}].dead", "dead and released contradict each other", "send one of them")
    if lists["holding"] and body.get("session"):
        raise invalid("holding", "holding is for joining, and a session is given", "send it with session 0")
    if not 0 <= body.get("want", 0) <= MAX_WANT:
        raise invalid("want", f"more than {MAX_WANT} events at once", f"want 0 to {MAX_WANT}")
    if not 0 <= body.get("wait_ms", 0) <= MAX_WAIT:
        raise bad_value("wait_ms", body["wait_ms"], f"milliseconds up to {MAX_WAIT}")
    if body.get("leave") and body.get("want"):
        raise invalid("want", "a member that leaves wants nothing", "leave it out")
    return lists
