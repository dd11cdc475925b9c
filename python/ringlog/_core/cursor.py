"""A cursor that this process has opened."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from ringlog._core.calls import Calls, path
from ringlog._core.notices import Failures
from ringlog._core.reader import OnGap, Reader
from ringlog._core.spec import create
from ringlog.answers import Letter
from ringlog.errors import Closed, Fenced, NotFound, RoleLost
from ringlog.event import Event, Json, error_text

if TYPE_CHECKING:
    from ringlog._core.role import ForeignRole, RoleState


class CursorState:
    """A cursor that this process has opened: its generation, and what it has handed out and committed."""

    def __init__(
        self,
        calls: Calls,
        name: str,
        spec: Json,
        stated: bool,
        until_end: bool,
        on_gap: OnGap,
        role: RoleState | ForeignRole | None = None,
    ) -> None:
        self._calls, self.name, self._spec, self._stated = calls, name, spec, stated
        self._until_end, self._on_gap, self._role = until_end, on_gap, role
        self.generation = 0
        self.committed = 0
        self.last: Event | None = None  # handed out last
        self.reader: Reader | None = None
        self._failures = Failures(f"cursor {name}")
        self._pid = os.getpid()
        self._closed = False

    async def open(self) -> Reader:
        """Open the cursor once, creating it if it does not exist, and return its reader."""
        if self._closed or self._pid != os.getpid():
            raise Closed(f"cursor {self.name} is closed, or belongs to the parent process", remedy="open another one")
        if self.reader is not None:
            return self.reader
        if self._role is not None:
            self._role.check()
        # What is stated must be the cursor's own.
        if self._stated:
            await create(self._calls, self.name, self._spec)
        opener = {"opener": os.urandom(16).hex()}
        try:
            info = await self._calls.call("POST", path("cursors", self.name, "open"), opener)
        except NotFound:
            if self._stated:
                raise
            await create(self._calls, self.name, self._spec)
            info = await self._calls.call("POST", path("cursors", self.name, "open"), opener)
        self.generation, self.committed = info["generation"], info["committed"]
        query: dict[str, str | list[str]] = {"generation": str(self.generation)}
        if not self._until_end:
            query["follow"] = "true"
        self.reader = Reader(
            self._calls, path("cursors", self.name, "events"), query, "", 0, self._on_gap, f"cursor {self.name}"
        )
        if self._role is not None:
            self._role.attach(self.reader)
        return self.reader

    async def next(self) -> Event | None:
        """Return the next event, None at the end."""
        event = await (await self.open()).next()
        self.last = event or self.last
        return event

    async def commit(self, event: Event | int | None) -> None:
        """Commit up to an event or offset; None is the event handed out last."""
        offset = self._offset_of(event)
        if offset is None:
            return
        info = await self._report("commit", {"offset": offset})
        self.committed = info["committed"]

    async def dead_letter(
        self, error: str | BaseException, event: Event | int | None, attempts: int, handler: str
    ) -> Letter:
        """Make an event a dead letter, and commit up to it."""
        body: Json = {
            "offset": self._offset_of(event),
            "error": error_text(error),
            "attempts": attempts,
            "handler": handler or self.name,
        }
        answer = await self._report("deadletter", body)
        self.committed = answer["cursor"]["committed"]
        letter: Letter = answer["letter"]
        self._failures.report(self.last if event is None else event, "made a dead letter", error)
        return letter

    async def _report(self, what: str, body: Json) -> Json:
        """Send what became of an event. Once the cursor or the role is another's, what was received is dropped."""
        reader = await self.open()
        lease = None
        if self._role is not None:
            self._role.check()
            lease = self._role.headers
        body["generation"] = self.generation
        try:
            answer: Json = await self._calls.call("POST", path("cursors", self.name, what), body, headers=lease)
        except Fenced as e:
            reader.fail(e)
            if isinstance(e, RoleLost) and self._role is not None:
                self._role.lose(e)
            raise
        return answer

    def _offset_of(self, event: Event | int | None) -> int | None:
        event = self.last if event is None else event
        return event.offset if isinstance(event, Event) else event

    def close(self) -> None:
        """End the reading. The cursor keeps its commit."""
        self._closed = True
        if self.reader is not None:
            self.reader.close()
