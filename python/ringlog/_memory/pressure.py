"""Backpressure: which cursors and groups lag so far that events report it, as fsm/lag_pressure.go decides."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, NamedTuple

from ringlog._memory.values import time_text
from ringlog.event import Json

if TYPE_CHECKING:
    from ringlog._memory.cursors import Cursor
    from ringlog._memory.log import Log


class Limit(NamedTuple):
    """At which lags, in events, backpressure of the cursors that a pattern names is activated and released."""

    pattern: str  # a name, or the start of names and a *
    activate: int
    release: int

    def matches(self, name: str) -> bool:
        """Report whether the limit is for a cursor or group of that name."""
        return name == self.pattern or (self.pattern.endswith("*") and name.startswith(self.pattern[:-1]))


class Pressure:
    """Who is throttled. A node's leader looks twice a second; a memory log does with each change."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._since: dict[str, datetime] = {}  # by the name of the cursor

    def _limit(self, name: str) -> Limit | None:
        """Return the first limit of the setting that is for a cursor."""
        for text in filter(None, self._log.settings.text("backpressure.lag").split(",")):
            pattern, _, numbers = text.rpartition("=")
            high, _, low = numbers.partition("/")
            if (limit := Limit(pattern.strip(), int(high), int(low))).matches(name):
                return limit
        return None

    def look(self) -> None:
        """Report the cursors that have reached a limit."""
        if not self._since and not self._log.settings.text("backpressure.lag"):
            return
        for name in sorted(self._log.cursors.all):
            self._look_at(self._log.cursors.all[name])

    def _look_at(self, cursor: Cursor) -> None:
        limit, since = self._limit(cursor.name), self._since.get(cursor.name)
        if limit is None and since is None:
            return
        lag = len(self._log.cursors.lag(cursor))
        if since is not None and (limit is None or lag <= limit.release):
            self._release(cursor, lag, "setting" if limit is None else "lag")
        elif since is None and limit is not None and lag >= limit.activate:
            self._since[cursor.name] = self._log.clock.now()
            self._log.append_own("BACKPRESSURE_ACTIVATED", self._about(cursor, lag))

    def remove(self, cursor: Cursor) -> None:
        """Release a cursor that is removed."""
        if cursor.name in self._since:
            self._release(cursor, 0, "removed")

    def _release(self, cursor: Cursor, lag: int, reason: str) -> None:
        active = self._log.clock.now() - self._since.pop(cursor.name)
        payload = {"active_ms": active // timedelta(milliseconds=1), "reason": reason}
        self._log.append_own("BACKPRESSURE_RELEASED", {**self._about(cursor, lag), **payload})

    def _about(self, cursor: Cursor, lag: int) -> Json:
        """Return the fields that both events have."""
        about: Json = {"cursor": cursor.name, "group": cursor.group is not None, "lag_events": lag, "queue_depth": lag}
        limit = self._limit(cursor.name)
        return about | ({"activate_at": limit.activate, "release_at": limit.release} if limit else {})

    def view(self, cursor: Cursor) -> Json | None:
        """Return the limits and the backpressure of a cursor, None if it has neither: a part of the schema Cursor."""
        limit, since = self._limit(cursor.name), self._since.get(cursor.name)
        if limit is None and since is None:
            return None
        limits = {"activate_at": limit.activate if limit else 0, "release_at": limit.release if limit else 0}
        return limits | ({"since": time_text(since)} if since is not None else {})
