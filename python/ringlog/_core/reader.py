"""Reading: a stream of events that resumes at another node after it was cut, and cursors on top of it."""

from __future__ import annotations

import json
import math
import os
import time
from collections import deque
from collections.abc import Callable
from typing import cast

from ringlog._core.calls import PASSING, Answer, Attempts, Calls
from ringlog._core.http import ProtocolError
from ringlog._core.notices import Outage
from ringlog.errors import Closed, Fenced, RinglogError, from_answer
from ringlog.event import Event, Gap, Json

SILENCE = 8.0  # seconds; nodes send a line at least every 5
MAX_PAUSE = 1.0  # seconds between connections that bring nothing

OnGap = Callable[[Gap], None]


def log_gap(gap: Gap) -> None:
    """Log a gap as a warning. It is what readers do unless they are given another on_gap."""
    import logging  # takes long to import, and is rarely needed

    logging.getLogger("ringlog").warning(
        "events %d to %d were trimmed before they were read (%s)", gap.first, gap.last, gap.reason
    )


def log_unmet(failure: Json) -> None:
    """Log as a warning that a condition could not be evaluated, of which a node reports the first event alone."""
    import logging  # takes long to import, and is rarely needed

    logging.getLogger("ringlog").warning(
        "where could not be evaluated for event %d, which is passed over like all others of the kind: %s",
        failure["offset"],
        failure["error"],
    )


class Reader:
    """Reads the lines of GET /v1/events or of a cursor's events."""

    def __init__(
        self,
        calls: Calls,
        target: str,
        query: dict[str, str | list[str]],
        position: str,
        limit: int,
        on_gap: OnGap,
        name: str = "tail",
    ) -> None:
        self._calls, self._target, self._query = calls, target, query
        self._position, self._limit, self._on_gap = position, limit, on_gap
        self._follows = "follow" in query
        self._resume = 0  # the offset to read from after a reconnect; 0 before anything was received
        self._received = 0  # events
        self._buffer: deque[Event | Gap | Json] = deque()  # Json is a row of a RowReader
        self._rest = b""  # the beginning of a line
        self._answer: Answer | None = None
        self._connected = False  # at any time
        self._empty = 0  # connections in a row that brought nothing
        self._outage = Outage(name)
        self._done = False
        self._failure: RinglogError | None = None  # what ended the reading
        self._closed = False
        self._pid = os.getpid()
        self.until = math.inf  # time.monotonic() at which next returns None

    def next_buffered(self) -> Event | None:
        """Return the next event that was received, None if there is none. Gaps on the way are reported."""
        while self._buffer:
            item = self._buffer.popleft()
            if not isinstance(item, Gap):
                return cast(Event, item)
            self._on_gap(item)
        return None

    async def next(self) -> Event | None:
        """Return the next event, None at the end or at the time `until`."""
        event = self.next_buffered()
        while event is None and await self._fill():
            event = self.next_buffered()
        return event

    def set_query(self, name: str, value: str) -> None:
        """Add a parameter before the first connection."""
        self._query[name] = value

    async def connect(self) -> None:
        """Connect now, so that a read from "end" has everything that is published after this call."""
        if self._answer is None and not self._done:
            await self._open()

    async def _fill(self) -> bool:
        """Receive until something is in the buffer; False at the end."""
        while not self._buffer:
            if self._closed or self._pid != os.getpid():
                raise Closed("this reader is closed, or belongs to the parent process", remedy="open another one")
            if self._failure is not None:
                raise self._failure
            if self._done or time.monotonic() >= self.until:
                return False
            try:
                if self._answer is None:
                    await self._open()
                answer = self._answer
                assert answer is not None
                answer.timeout = min(SILENCE, max(0.001, self.until - time.monotonic()))
                data = await answer.receive_some()
                if not data:
                    raise ProtocolError("the stream ended without its last line")
                self._empty = 0
                self._outage.over()
                self._take(data)
                self._done = self._done or self._limit == self._received > 0
            except OSError as e:
                if time.monotonic() >= self.until:
                    return False  # the node is not to blame
                if not self._closed and self._failure is None:
                    self._outage.failed(e)
                    await self._after_cut()
        return True

    async def _open(self) -> None:
        """Begin a read after what was received."""
        query: dict[str, str | list[str]] = dict(self._query)
        if self._resume or self._position:
            query["from"] = str(self._resume or self._position)
        if self._limit:
            query["limit"] = str(self._limit - self._received)

        # A follower that has been connected waits for the cluster for as long as its caller does.
        patience = math.inf if self._connected and self._follows else self._calls.config.timeout
        if self.until < math.inf:
            patience = self.until - time.monotonic()
        tries = Attempts(f"GET {self._target}", patience)
        tries.outage = self._outage
        answer, _ = await self._calls.open("GET", self._target, None, query, tries=tries, stream=True)
        self._answer, self._connected, self._rest = answer, True, b""
        if self._position == "end" and not self._resume:
            self._resume = int(answer.header("ringlog-last-offset") or 0) + 1

    async def _after_cut(self) -> None:
        """Leave a node whose stream was cut or is silent."""
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.connection.close()
            self._calls.nodes.failed(answer.node)
        self._empty += 1
        if self._empty > 1:
            await self._calls.io.sleep(min(0.02 * 2**self._empty, MAX_PAUSE))

    def _take(self, data: bytes) -> None:
        """Take in the lines that were received."""
        lines = (self._rest + data).split(b"\n")
        self._rest = lines.pop()
        # One call decodes all lines: empty ones, which are heartbeats, are no JSON.
        try:
            records = json.loads(b"[" + b",".join(filter(None, lines)) + b"]")
        except ValueError as e:
            raise ProtocolError(f"a line is not JSON: {e}") from e
        for record in records:
            if "offset" in record:
                self._buffer.append(Event(record))
                self._resume = record["offset"] + 1
                self._received += 1
            else:
                self._take_control(record)

    def _take_control(self, record: Json) -> None:
        """Take in a line that is not an event."""
        if "gap" in record:
            gap = record["gap"]
            self._buffer.append(Gap(gap["from"], gap["to"], gap["reason"]))
            self._resume = gap["to"] + 1
        elif "where" in record:
            log_unmet(record["where"])
        elif "scanned" in record:
            self._resume = max(self._resume, record["scanned"] + 1)
        elif "end" in record:
            self._end(record["end"])

    def _end(self, end: Json) -> None:
        """Take in the last line of a stream."""
        answer, self._answer = self._answer, None
        assert answer is not None
        answer.connection.close()
        reason = end["reason"]
        if reason == "error":
            error = from_answer(end["error"])
            if error.code not in PASSING:
                self._failure = error
                if isinstance(error, Fenced):
                    self._buffer.clear()
                return
            self._calls.nodes.failed(answer.node)
            return
        self._resume = max(self._resume, end.get("scanned", 0) + 1)
        if reason == "limit" or (reason == "end_of_log" and not self._follows):
            self._done = True
        else:
            self._calls.nodes.declined(answer.node, "")

    def close(self) -> None:
        """End the reading. May be called from another thread, whose `next` then raises Closed."""
        self._closed = True
        self._drop()

    def fail(self, error: RinglogError) -> None:
        """End the reading with an error, which every `next` raises from now on."""
        self._failure = error
        self._drop()

    def _drop(self) -> None:
        """Drop what was received, and the connection."""
        self._buffer.clear()
        answer, self._answer = self._answer, None
        if answer is not None:
            answer.connection.close()
