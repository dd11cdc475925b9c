"""Cursors: where readers and groups are, who may move them, and what became of an event for one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from ringlog._memory import types
from ringlog._memory.values import Refusal, duration_text, invalid, parse_age, time_text
from ringlog.event import Json

if TYPE_CHECKING:
    from ringlog._memory.group import Group
    from ringlog._memory.log import Log

CALLERS_KEPT = 4  # openers and seekers of a cursor
MAX_CALLER = 256  # bytes of one's id


class Cursor:
    """A cursor. group is set where members share it."""

    def __init__(self, name: str, chosen: Json, policy: Json, committed: int, now: datetime) -> None:
        self.name, self.filter, self.policy, self.committed = name, chosen, policy, committed
        self.match = types.matcher(chosen)
        self.start = committed
        self.generation = 0
        self.created = self.touched = self.moved = now
        self.seeks = 0
        self.last_seek: Json | None = None
        self.openers: list[str] = []
        self.seekers: list[str] = []
        self.group: Group | None = None
        self.gap: Json | None = None  # the newest that it has lost

    def gets(self, event: Json) -> bool:
        """Report whether an event is for the cursor: it passes the filter, or is a letter appended again for it."""
        target = event.get("target")
        return target == self.name if target else self.match(event)

    def settled(self, offset: int) -> bool:
        """Report whether the cursor is done with an offset."""
        return offset <= self.committed or (self.group is not None and self.group.is_settled(offset))

    def start_generation(self, opener: str) -> None:
        """Fence the reader that has the cursor open."""
        self.generation += 1
        self.openers = [*self.openers, opener][-CALLERS_KEPT:]


class Cursors:
    """All cursors and groups, by name."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.all: dict[str, Cursor] = {}
        self._generations = 0  # of groups

    def get(self, name: str) -> Cursor:
        """Return a cursor or group. Raises Refusal."""
        self.check_name(name)
        if name not in self.all:
            raise Refusal("not_found", "cursor", f"there is no cursor {name!r}", "create it, or check its name")
        return self.all[name]

    def check_name(self, name: str) -> None:
        """Refuse what cannot be the name of a cursor."""
        if not name:
            raise invalid("cursor", "a cursor without a name", "name it")
        types.check_name("cursor", name, self._log.settings.number("limits.name_bytes"))

    def reader(self, name: str) -> Cursor:
        """Return a cursor that is not a group."""
        cursor = self.get(name)
        if cursor.group is not None:
            raise invalid("cursor", f"{name!r} is a group; join it", "its members exchange events and acks")
        return cursor

    def _place_of(self, field: str, value: object, default: int | None) -> int:
        """Return the commit of a cursor that is at a position."""
        at = self._log.position(field, value)
        if at is None:
            if default is None:
                raise invalid(field, f"{field}='' is not a position", "use start, end or an offset")
            return default
        if at > self._log.last + 1:
            message = f"offset {at} is past the tail, which is {self._log.last}"
            raise Refusal("past_tail", field, message, "send end", offset=self._log.last)
        return at - 1

    def create(self, name: str, body: Json, group: Callable[[Cursor], Group] | None) -> Cursor:
        """Create a cursor, with group one that members share, or return the one there is if it is the same."""
        self.check_name(name)
        chosen = types.check_filter(body.get("filter") or {})
        committed = self._place_of("from", body.get("from"), self._log.first - 1)
        policy = _policy(body)
        made = Cursor(name, chosen, policy, committed, self._log.clock.now())
        made.group = group(made) if group is not None else None
        old = self.all.get(name)
        if old is None:
            if made.group is not None:
                self._generations += 1
                made.generation = self._generations
            self.all[name] = made
            return made
        if _described(old) != _described(made):
            # A clash of kinds is one of cursors.
            kind = "group" if old.group is not None and made.group is not None else "cursor"
            message = f"the {kind} {name!r} exists with another filter or policy"
            raise Refusal("exists", kind, message, "use another name, or remove it first")
        return old

    def change(self, name: str, body: Json) -> Cursor:
        """Give a cursor another filter and policy, for the events after its commit."""
        chosen = types.check_filter(body["filter"])
        policy = _policy(body)
        cursor = self.get(name)
        if cursor.group is not None:
            raise invalid("cursor", f"{name!r} is a group, and some of its events were settled by its filter")
        if (cursor.filter, cursor.policy) != (chosen, policy):
            cursor.filter, cursor.policy, cursor.match = chosen, policy, types.matcher(chosen)
            cursor.start_generation("")
            cursor.touched = self._log.clock.now()
        return cursor

    def open(self, name: str, opener: str) -> Cursor:
        """Give a cursor to an opener, which fences the reader before."""
        self.check_name(name)
        types.check_name("opener", opener, MAX_CALLER)
        cursor = self.reader(name)
        if not opener or opener not in cursor.openers:
            cursor.start_generation(opener)
            cursor.touched = self._log.clock.now()
        elif cursor.openers[-1] != opener:
            self._raise_fenced(cursor, "opener", f"cursor {name!r} was opened again since")
        return cursor

    def _raise_fenced(self, cursor: Cursor, field: str, message: str) -> None:
        remedy = "another reader opened the cursor; open it again to take it back"
        raise Refusal("fenced", field, message, remedy, offset=cursor.generation)

    def check_generation(self, name: str, generation: int) -> Cursor:
        """Return a cursor that a generation holds. Raises Refusal."""
        self.check_name(name)
        if not generation:
            raise invalid("generation", "a read without the generation that holds the cursor", "open the cursor first")
        cursor = self.get(name)
        if cursor.generation < generation:
            message = f"generation {generation} of cursor {name!r} does not exist"
            raise invalid("generation", message, "open the cursor first", offset=cursor.generation)
        if cursor.generation > generation:
            self._raise_fenced(cursor, "generation", f"generation {generation} of cursor {name!r} is over")
        return cursor

    def commit(self, name: str, offset: int, generation: int) -> Cursor:
        """Move a cursor forward for the reader that holds its generation."""
        cursor = self.check_commit(name, offset, generation)
        if offset > cursor.committed:
            cursor.committed, cursor.moved = offset, self._log.clock.now()
            self._log.letters.resolve(cursor)
        cursor.touched = self._log.clock.now()
        return cursor

    def check_commit(self, name: str, offset: int, generation: int) -> Cursor:
        """Return the cursor that a generation may commit an offset of. Raises Refusal."""
        cursor = self.reader(name)
        if generation != cursor.generation:
            self._raise_fenced(cursor, "generation", f"generation {generation} of cursor {name!r} is over")
        if offset > self._log.last:
            message = f"a commit of {offset} is past the tail, which is {self._log.last}"
            raise Refusal("past_tail", "offset", message, "commit an event that was read", offset=self._log.last)
        return cursor

    def seek(self, name: str, to: object, seeker: str) -> Cursor:
        """Move a cursor or group in either direction."""
        self.check_name(name)
        if to is None:
            raise invalid("to", "to='' is not a position", "use start, end or an offset")
        types.check_name("seeker", seeker, MAX_CALLER)
        place = self._place_of("to", to, None)
        cursor = self.get(name)
        if seeker and seeker in cursor.seekers:
            return cursor
        now = self._log.clock.now()
        cursor.seeks += 1
        cursor.last_seek = {"from": cursor.committed, "to": place, "at": time_text(now)}
        cursor.seekers = [*cursor.seekers, seeker][-CALLERS_KEPT:] if seeker else cursor.seekers
        cursor.start = min(cursor.start, place)
        cursor.committed, cursor.touched, cursor.moved = place, now, now
        self._log.letters.revive(name, place)
        if cursor.group is not None:
            cursor.group.move(place)
            self._generations += 1
            cursor.generation = self._generations
        return cursor

    def remove(self, cursor: Cursor) -> None:
        """Remove a cursor, and leave its letters."""
        self._log.pressure.remove(cursor)
        del self.all[cursor.name]
        self._log.letters.revive(cursor.name, self._log.last)

    def lag(self, cursor: Cursor) -> list[Json]:
        """Return the events that a cursor lags by."""
        after = self._log.events[max(0, cursor.committed + 1 - self._log.first) :]
        # Without a filter a node counts the events that were appended again for others as well.
        every = not cursor.filter and cursor.group is None
        return [event for event in after if every or (not cursor.settled(event["offset"]) and cursor.gets(event))]

    def view(self, cursor: Cursor, warned: bool = False) -> Json:
        """Return a cursor as callers see it: the schema Cursor."""
        open_ = self.lag(cursor)
        waits = (self._log.clock.now() - self._log.appended(open_[0])).total_seconds() if open_ else 0.0
        found: Json = {
            "name": cursor.name,
            "filter": cursor.filter,
            "policy": cursor.policy,
            "committed": cursor.committed,
            "generation": cursor.generation,
            "created": time_text(cursor.created),
            "touched": time_text(cursor.touched),
            "moved": time_text(cursor.moved),
            "lag_events": len(open_),
            "lag_seconds": waits,
        }
        found |= {"start": cursor.start} if cursor.start else {}
        found |= {"seeks": cursor.seeks, "last_seek": cursor.last_seek} if cursor.seeks else {}
        found |= {"backpressure": pressure} if (pressure := self._log.pressure.view(cursor)) else {}
        found |= {"gap": gap} if (gap := self.gap_of(cursor)) else {}
        found |= {"group": cursor.group.view()} if cursor.group is not None else {}
        warnings = types.warn_of_filter(cursor.filter) if warned else []
        return found | ({"warnings": warnings} if warnings else {})

    def gap_of(self, cursor: Cursor) -> Json | None:
        """Return what was trimmed before a cursor committed it."""
        return cursor.gap if cursor.gap is not None and cursor.committed < cursor.gap["to"] else None

    def explain(self, name: str, offset: int) -> Json:
        """Return what became of an event for a cursor: the schema DeliveryFate."""
        cursor = self.get(name)
        found: Json = {
            "cursor": name,
            "offset": offset,
            "committed": cursor.committed,
            "generation": cursor.generation,
            "in_front": sum(not cursor.settled(o) for o in range(cursor.committed + 1, offset)),
        }
        event: Json | None = None
        if offset < self._log.first:
            found["trimmed"] = True
        else:
            event = self._log.event(offset)
            shown = ("type", "source", "key", "correlation_id", "appended_at", "target", "redrive")
            found["event"] = {field: event[field] for field in shown if field in event}
            again = self._log.suppressed(offset)
            if again["suppressed"]:
                found["duplicates"] = {name.removesuffix("_suppressed"): value for name, value in again.items()}
        of_cursor = [letter for letter in self._log.letters.all.values() if letter.get("cursor") == name]
        for letter in [one for one in of_cursor if offset in (one.get("offset"), *one["lineage"])][:1]:
            parts = ("id", "handler", "error", "attempts", "dead_lettered_at", "copy")
            found["letter"] = {part: letter[part] for part in parts if part in letter}
        if event is not None and (rejecting := _rejecting(cursor, event)):
            found["filtered_by"] = rejecting
        found["fate"], found["reason"] = self._fate(cursor, offset, found)
        if found["fate"] != "pending":
            found["in_front"] = 0
        elif cursor.group is not None and (number := cursor.group.deliveries(offset)):
            found["deliveries"] = number
        return found

    def _fate(self, cursor: Cursor, offset: int, found: Json) -> tuple[str, str]:
        """Return the fate of an event and the reason: the first that holds."""
        letter, seek, settled = found.get("letter"), cursor.last_seek, cursor.settled(offset)
        if letter is not None:
            copy = letter.get("copy")
            if copy == offset:
                return "pending", f"it is the copy of dead letter {letter['id']}, appended again for this cursor"
            if copy:
                return "redriven", f"dead letter {letter['id']} was appended again at offset {copy}"
            if not settled:
                return "pending", f"the cursor was moved back before it, though it is dead letter {letter['id']}"
            return "dead", f"it is dead letter {letter['id']}"
        if "filtered_by" in found:
            return "filtered", "the cursor's filter does not let it through"
        if settled and offset > cursor.committed:
            return "committed", "the group has settled it, and not yet others before it"
        if settled and seek is not None and seek["from"] < offset <= seek["to"]:
            found["seek"] = seek
            return "skipped", f"the cursor was moved over it, from {seek['from']} to {seek['to']}"
        if settled and (offset <= cursor.start or cursor.generation == 0):
            return "before-cursor", "the cursor began after it: it was never handed to a reader"
        if settled:
            return "committed", "its reader has committed it, or an offset after it"
        if found.get("trimmed"):
            found["gap"] = self.gap_of(cursor)
            return "trimmed", "it was trimmed before the cursor had committed it"
        if cursor.group is not None:
            return "pending", "the group has not settled it"
        if cursor.generation == 0:
            return "pending", "nobody has opened the cursor yet"
        return "pending", "it was not committed yet; whether its reader has it is not known here"


def _rejecting(cursor: Cursor, event: Json) -> list[Json]:
    """Return the parts of a cursor's filter that keep an event from it."""
    target = event.get("target")
    if target:
        return [] if target == cursor.name else [{"part": "target", "wants": [cursor.name], "has": target}]
    known = types.catalogue().types.get(event["type"])
    has = {
        "types": event["type"],
        "categories": known.category if known else "",
        "sources": event.get("source", ""),
        "keys": event.get("key", ""),
        "correlation_ids": event.get("correlation_id", ""),
    }
    return [
        {"part": part, "wants": wants, "has": has[part]}
        for part, wants in cursor.filter.items()
        if not types.matcher({part: wants})(event)
    ]


def _described(cursor: Cursor) -> tuple[Json, Json, Json | None]:
    """Return what a cursor is made with: one of the same name must be described alike."""
    return cursor.filter, cursor.policy, None if cursor.group is None else cursor.group.policy


def _policy(body: Json) -> Json:
    """Return what a cursor keeps from retention, without what is the cluster's."""
    policy = {name: value for name, value in (body.get("policy") or {}).items() if value}
    if "hold_for" in policy:
        policy["hold_for"] = duration_text(parse_age("policy.hold_for", policy["hold_for"]))
    return policy
