"""Events that are published once the clock has reached their time."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any

from ringlog._memory import types
from ringlog._memory.values import Refusal, bad_value, parse_date, time_text
from ringlog.event import Json

if TYPE_CHECKING:
    from ringlog._memory.log import Log

HANDLER = "schedule"  # of the dead letters of what cannot be published any more
MAX_TIME = 9_000_000_000  # seconds between 1970 and a time


class Scheduled:
    """An event that is to be published at a time, or was. done is when that was, None while it waits."""

    def __init__(self, id_: str, at: datetime, made: datetime, sent: Json, event: types.Event) -> None:
        self.id, self.at, self.made, self.sent, self.event = id_, at, made, sent, event
        self.done: datetime | None = None
        self.offset, self.duplicate = 0, False

    def is_repeated_by(self, other: Scheduled) -> bool:
        """Report whether another one asks for the same event at the same time."""
        mine, its = (
            (one.at, one.event.hash, one.event.raw.get("dedup_id"), one.event.key is None) for one in (self, other)
        )
        return mine == its

    def view(self) -> Json:
        """Return it as callers see it: the schema Scheduled."""
        raw = self.event.raw
        view = {"id": self.id, "at": time_text(self.at), "made_at": time_text(self.made), "type": raw["type"]}
        view |= {"key": raw["key"]} if "key" in raw else {}
        if self.done is None:
            return {**view, "state": "waiting"}
        view |= {"state": "published", "published_at": time_text(self.done)}
        return {**view, "offset": self.offset, **({"duplicate": True} if self.duplicate else {})}


class Schedule:
    """What is scheduled, and what was published within producer.ttl, by id."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._all: dict[str, Scheduled] = {}

    def put(self, id_: str, at: str, event: Any) -> Json:
        """Schedule an event, or return what became of one that was scheduled by the same call."""
        settings, when = self._log.settings, parse_date(at)
        if when is None:
            raise bad_value("at", at, "a time, such as 2026-03-01T09:30:00Z")
        try:
            sent = types.decode_one(event, settings)
        except Refusal as e:
            raise e.under("event") from None
        self._check_id(id_)
        if abs(when.timestamp()) > MAX_TIME:
            raise bad_value("at", at, "a time up to the year 2255")
        try:
            normal = types.normalize(sent, settings)
        except Refusal as e:
            raise e.under("event") from None
        warned = {"warnings": normal.warnings} if normal.warnings else {}
        new, known = Scheduled(id_, when, self._log.clock.now(), sent, normal), self._all.get(id_)
        if known is not None:
            if not known.is_repeated_by(new):
                message = f"{id_!r} is an event for {time_text(known.at)} with other content, or another time"
                raise Refusal("exists", "id", message, "use another id, or remove the one that is scheduled first")
            return {**known.view(), "existing": True, **warned}
        if sum(one.done is None for one in self._all.values()) >= (most := settings.number("schedule.max")):
            message = f"{most} events are scheduled, which is the limit"
            raise Refusal("overloaded", "id", message, "wait, remove some, or raise schedule.max")
        self._all[id_] = new
        return {**new.view(), **warned}

    def _check_id(self, id_: str) -> None:
        types.check_name("id", id_, self._log.settings.number("limits.name_bytes"))

    def _find(self, id_: str) -> Scheduled:
        """Return what is known under an id. Raises Refusal."""
        if id_ not in self._all:
            raise Refusal("not_found", "id", f"no event is scheduled as {id_!r}", "list them: Client.scheduled")
        return self._all[id_]

    def get(self, id_: str) -> Json:
        """Return what is scheduled under an id, with its event while that waits."""
        one = self._find(id_)
        if one.done is not None:
            return one.view()
        return {**one.view(), "event": {**one.event.raw, **({"dedup": False} if one.event.key is None else {})}}

    def page(self, after: str, limit: int) -> Json:
        """Return a page by id: the schema ScheduledPage."""
        ids = sorted(id_ for id_ in self._all if id_ > after)
        page: Json = {"scheduled": [self._all[id_].view() for id_ in ids[:limit]]}
        return page | ({"next": ids[limit - 1]} if len(ids) > limit else {})

    def remove(self, id_: str) -> Json:
        """Remove an event that was not published yet, and return it."""
        self._check_id(id_)
        one = self._find(id_)
        if one.done is not None:
            message = f"the event {id_!r} was published"
            raise Refusal("conflict", "id", message, "read it at its offset", offset=one.offset)
        del self._all[id_]
        return one.view()

    def publish_due(self) -> None:
        """Publish what is due, in the order of its times. What cannot be published any more becomes a dead letter."""
        now = self._log.clock.now()
        due = [one for one in self._all.values() if one.done is None and one.at <= now]
        for one in sorted(due, key=lambda one: (one.at, one.id)):
            try:
                [result] = self._log.place([types.normalize(one.sent, self._log.settings)], alone=True)
            except Refusal as e:
                del self._all[one.id]
                self._log.letters.keep(HANDLER, one.event.raw, str(e), one.id)
                continue
            one.done, one.offset, one.duplicate = now, result["offset"], result["duplicate"]

    def forget_published(self) -> None:
        """Forget what was published producer.ttl ago."""
        latest = self._log.clock.now() - self._log.settings.duration("producer.ttl")
        self._all = {id_: one for id_, one in self._all.items() if one.done is None or one.done > latest}
