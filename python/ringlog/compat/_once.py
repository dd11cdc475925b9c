"""Once: which deliveries of two buses are the same event, so that its handler is called once.

old ──▶ claim ──▶ first of its event, or the other has failed ──▶ handler ──▶ done, or failed
log ──▶ claim ──▶ handled, or another delivery is being handled ──▶ no call
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Callable

MAX_EVENTS = 10_000  # of a handler that are remembered
EXACT = 1e-5  # seconds: the log keeps microseconds
NEAR = 60.0  # seconds between the times that two buses gave an event


class Delivery:
    """An event with what became of it. times has its time as each bus gave it, ids its number."""

    def __init__(self) -> None:
        self.times: dict[str, float] = {}
        self.ids: dict[str, int] = {}
        self.running = ""  # the bus whose delivery is being handled
        self.done = False
        self.settled = threading.Event()  # nothing is being handled


class Once:
    """The last events of a handler."""

    def __init__(self, max_events: int = MAX_EVENTS) -> None:
        self._max = max_events
        self._lock = threading.Lock()
        self._by_content: dict[str, list[Delivery]] = {}
        self._order: OrderedDict[Delivery, str] = OrderedDict()

    def find(self, bus: str, content: str, at: float) -> Delivery:
        """Return the event that a bus delivers: the one with this time, else the nearest that the bus has not had."""
        with self._lock:
            known = self._by_content.setdefault(content, [])
            for delivery in known:
                if bus in delivery.times and abs(delivery.times[bus] - at) <= EXACT:
                    return delivery
            other = [(abs(t - at), i, d) for i, d in enumerate(known) if bus not in d.times for t in d.times.values()]
            best = min(other, default=None)
            if best is not None and best[0] <= NEAR:
                found = best[2]
            else:
                found = Delivery()
                known.append(found)
                self._order[found] = content
            found.times[bus] = at
            while len(self._order) > self._max:
                self._drop()
            return found

    def content_of(self, delivery: Delivery) -> str:
        """Return the content of an event, "" if it is no longer remembered."""
        with self._lock:
            return self._order.get(delivery, "")

    def _drop(self) -> None:
        oldest, content = self._order.popitem(last=False)
        left = self._by_content[content]
        left.remove(oldest)
        if not left:
            del self._by_content[content]

    def claim(self, delivery: Delivery, bus: str, wait: bool) -> bool:
        """Report whether the handler is to be called; with wait once another call has returned."""
        while True:
            with self._lock:
                if delivery.done:
                    return False
                if not delivery.running:
                    delivery.running = bus
                    delivery.settled.clear()
                    return True
            if not wait:
                return False
            delivery.settled.wait()

    def settle(self, delivery: Delivery, done: bool) -> None:
        """Note how the call of the handler ended. One that failed leaves the event to the next delivery."""
        with self._lock:
            delivery.running, delivery.done = "", done
            delivery.settled.set()


class Bounded:
    """Work for one thread, in order, with a bound on what waits."""

    def __init__(self, name: str, max_bytes: int) -> None:
        self._name, self._max = name, max_bytes
        self._ready = threading.Condition()
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._bytes = 0
        self._busy = False

    def add(self, size: int, work: Callable[[], None]) -> bool:
        """Have work done; False if there is no room."""
        with self._ready:
            if self._bytes + size > self._max:
                return False
            if not self._busy:
                try:
                    threading.Thread(target=self._run, name=self._name, daemon=True).start()
                except RuntimeError:  # too many threads, or the interpreter ends
                    return False
                self._busy = True
            self._bytes += size
            self._waiting.append((size, work))
        return True

    def _run(self) -> None:
        while True:
            with self._ready:
                batch, self._waiting = self._waiting, []
                if not batch:
                    self._busy = False
                    self._ready.notify_all()
                    return
            for size, work in batch:
                work()
                with self._ready:
                    self._bytes -= size

    def drain(self, timeout: float) -> bool:
        """Wait until nothing is left."""
        until = time.monotonic() + timeout
        with self._ready:
            return self._ready.wait_for(lambda: not self._busy, max(0.0, until - time.monotonic()))
