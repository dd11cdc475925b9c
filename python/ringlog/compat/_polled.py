"""The queue that a daemon polls, in the modes shadow and compare.

The log is read in a thread that each poll starts: a poll waits for the old queue alone. In compare an event that both
have is returned once, and acknowledging it acknowledges it on both. What the log alone has is numbered from LOG_IDS.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ringlog.compat._event import DataEvent, Selection
from ringlog.compat._old import OldRow
from ringlog.compat._once import Bounded, Delivery, Once
from ringlog.compat._shadow import ShadowRouter, note_delivery

if TYPE_CHECKING:
    from ringlog.compat.cross_process_events import _Subscriber

LOG_IDS = 1 << 52
PAGE = 1000
MAX_WORK = 1000  # acknowledgements that wait for the log

logger = logging.getLogger("ringlog")


class PolledSubscriber:
    """A process that polls the old queue, and what the log has for it."""

    def __init__(self, router: ShadowRouter, name: str, types: list[Any], log: _Subscriber) -> None:
        self._router, self._queue, self._log = router, router.old_queue, log
        self._types = [Selection(t) for t in types]
        self._id = self._queue.register(name, [getattr(t, "value", t) for t in types])
        self.label = f"queue.{name}"
        self._lock = threading.Lock()
        self._noted: dict[str, set[int]] = {"old": set(), "log": set()}
        self._once = Once()
        self._handed: dict[int, Delivery] = {}
        self._buffer: list[DataEvent] = []
        self._last_row = 0  # the highest number that a poll has returned of the queue
        self._reading = False
        self._attached = False
        self._worker = Bounded("ringlog-shadow-queue", MAX_WORK)
        if router.mode == "compare":
            for line in router.handled_before(self.label):
                self._once.settle(self._once.find(line["via"], line["content"], line["time"]), True)
        self._read_soon()

    def poll(self, types: Iterable[Any], limit: int, after: int) -> list[OldRow]:
        """Return what is not acknowledged: rows, and in compare events of the log that have none."""
        wanted = [Selection(t) for t in types] or self._types
        # A number of the log says nothing of rows.
        since = after if after < LOG_IDS else self._last_row
        rows = self._queue.poll(self._id, wanted, limit, since)
        for row in rows:
            self._note("old", row, row.event_id)
        self._read_soon()
        if self._router.mode == "shadow":
            return rows
        found = self._merge(rows, wanted)
        found = [row for row in found if row.event_id > (after if row.event_id >= LOG_IDS else since)][:limit]
        self._last_row = max([self._last_row, *(row.event_id for row in found if row.event_id < LOG_IDS)])
        return found

    def _note(self, bus: str, event: Any, number: int) -> None:
        with self._lock:
            if number in self._noted[bus]:
                return
            self._noted[bus].add(number)
        note_delivery(self._router, self.label, bus, event, number)

    def _merge(self, rows: list[OldRow], wanted: list[Selection]) -> list[OldRow]:
        with self._lock:
            events = [e for e in self._buffer if not wanted or any(s.matches(e.event_type) for s in wanted)]
        found: dict[Delivery, OldRow] = {}
        done: dict[str, list[int]] = {"old": [], "log": []}
        of_log = [OldRow(e.offset, e.name, e.payload, e.source, "", e.timestamp) for e in events]
        for bus, row in [*(("old", row) for row in rows), *(("log", row) for row in of_log)]:
            content, at = note_delivery(None, self.label, bus, row, row.event_id)
            delivery = self._once.find(bus, content, at)
            delivery.ids[bus] = row.event_id
            if delivery.done:
                done[bus].append(row.event_id)
                continue
            number = delivery.ids.setdefault("handed", row.event_id + (LOG_IDS if bus == "log" else 0))
            self._handed[number] = delivery
            row.event_id = number
            found.setdefault(delivery, row)
        self._acknowledge(done)
        return sorted(found.values(), key=lambda row: row.created_at)

    def ack(self, numbers: Iterable[int]) -> int:
        """Acknowledge events, on both buses in compare."""
        sides: dict[str, list[int]] = {"old": [], "log": []}
        count = 0
        for number in numbers:
            count += 1
            delivery = self._handed.pop(int(number), None)
            if delivery is None:
                bus = "log" if number >= LOG_IDS else "old"
                sides[bus].append(int(number) % LOG_IDS)
                continue
            self._once.settle(delivery, True)
            for bus in ("old", "log"):
                if bus in delivery.ids:
                    sides[bus].append(delivery.ids[bus])
            content = self._once.content_of(delivery)
            for bus, at in delivery.times.items():
                line = {"k": "done", "s": self.label, "via": bus, "time": at, "content": content}
                self._router.observations.note(line)
        self._acknowledge(sides)
        return count

    def _acknowledge(self, sides: dict[str, list[int]]) -> None:
        if sides["old"]:
            self._queue.ack(self._id, sides["old"])
            self._noted["old"].difference_update(sides["old"])
        if sides["log"]:
            offsets = set(sides["log"])
            with self._lock:
                self._buffer = [e for e in self._buffer if e.offset not in offsets]
                self._noted["log"].difference_update(offsets)
            self._worker.add(1, lambda: self._with_log(lambda: self._log.ack(offsets)))

    def count(self) -> int:
        """Return how many rows are not acknowledged."""
        return len(self._queue.poll(self._id, self._types, 1 << 30))

    def close(self, timeout: float) -> None:
        """Have what was acknowledged committed in the log, within timeout seconds."""
        self._worker.drain(timeout)

    # The log, in the worker's thread.

    def _read_soon(self) -> None:
        with self._lock:
            if self._reading:
                return
            self._reading = True
        if not self._worker.add(1, lambda: self._with_log(self._read)):
            self._reading = False

    def _with_log(self, work: Any) -> None:
        try:
            work()
        except Exception as e:
            logger.warning("shadow: %s does not read the log: %s", self.label, e)

    def _read(self) -> None:
        try:
            more = True
            while more:
                events = self._log.poll(PAGE, set(), 0)
                if not self._attached:
                    self._attached = True
                    self._router.note_subscribed(self.label, [name for s in self._types for name in s.types], "poll")
                for event in events:
                    self._note("log", event, event.offset)
                if self._router.mode == "shadow":
                    offsets = [event.offset for event in events]
                    self._log.ack(offsets)
                    self._noted["log"].difference_update(offsets)
                else:
                    with self._lock:
                        self._buffer = events
                more = len(events) == PAGE and self._router.mode == "shadow"
        finally:
            self._reading = False
