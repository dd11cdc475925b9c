"""A member of a group: which events it holds, what it reports of them, and the calls that do so.

One call, `exchange`, reports and asks for more; one is in flight at a time. MemberState knows no
clock of its own and sends nothing, so that a test can drive it.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections import deque
from collections.abc import Iterable

from ringlog._core.calls import PASSING, Calls, path
from ringlog._core.io import Io, Task
from ringlog._core.notices import Failures, Outage, log_warning
from ringlog._core.reader import OnGap
from ringlog._core.role import ForeignRole, RoleState
from ringlog._core.spec import create
from ringlog.errors import Closed, NotFound, RinglogError, RoleLost
from ringlog.event import Event, Gap, Json

POLL = 0.25  # seconds between calls for more while events are being handled
LONG_POLL = 1.0  # seconds that a node waits for an event where nothing is being handled


def span(offset: int) -> dict[str, int]:
    """Return a range of one offset."""
    return {"from": offset, "to": offset}


def spans(offsets: Iterable[int]) -> list[dict[str, int]]:
    """Return offsets as ranges."""
    ranges: list[dict[str, int]] = []
    for offset in sorted(offsets):
        if ranges and ranges[-1]["to"] == offset - 1:
            ranges[-1]["to"] = offset
        else:
            ranges.append(span(offset))
    return ranges


class MemberState:
    """The events that a member holds. All times are seconds of a monotonic clock, given by the caller.

    ready         received, not handed out
    out           handed out, not settled, with the time of that or of the last progress
    settled       acked (None) or nacked, and not confirmed by the group
    extend        whose ack wait is to begin again with the next call
    slow          settled after more than half an ack wait
    late          slow, and taken back by the group
    """

    def __init__(self, name: str, prefetch: int, now: float, auto_progress: bool = False) -> None:
        self.name, self.prefetch, self.auto_progress = name, prefetch, auto_progress
        self.session = 0
        self.ready: deque[Json] = deque()
        self.out: dict[int, float] = {}
        self.settled: dict[int, Json | None] = {}
        self.extend: set[int] = set()
        self.slow: set[int] = set()
        self.late: list[int] = []
        self.gaps: list[Gap] = []
        self.ack_wait, self.session_timeout = 30.0, 10.0
        self.heard = now  # when the group answered last
        self.active = now  # when the caller took or settled an event last
        self.committed = 0
        self.poll = POLL  # seconds until the next call for more; grows while none brings anything

    def take(self, now: float) -> Json | None:
        """Hand out the next event, None if there is none that may be handled."""
        self.active = now
        # Without contact for the session's time the group may have given all to others.
        if not self.ready or now - self.heard > self.session_timeout:
            return None
        raw = self.ready.popleft()
        self.out[raw["offset"]] = now
        self.extend.add(raw["offset"])
        return raw

    def settle(self, offset: int, nack: Json | None, now: float) -> bool:
        """Note an ack (None) or nack; False if the event is not held, as after its revocation."""
        self.active = now
        if offset not in self.out:
            return False
        if self._is_slow(self.out.pop(offset), now):
            self.slow.add(offset)
        self.extend.discard(offset)
        self.settled[offset] = nack
        return True

    def _is_slow(self, since: float, now: float) -> bool:
        """Report whether an ack wait may have ended, of which the group's part begins before this one's."""
        return not self.auto_progress and now - since > self.ack_wait / 2

    def progress(self, offset: int, now: float) -> bool:
        """Begin the ack wait of an event again; False if the event is not held."""
        self.active = now
        if offset not in self.out:
            return False
        self.out[offset] = now
        self.extend.add(offset)
        return True

    def request(self, now: float, leave: bool) -> tuple[Json, dict[int, Json | None]]:
        """Return the next call and what of `settled` it reports."""
        # Events that wait for a caller that does nothing go to others, not counted as deliveries.
        stuck = self._is_stuck(now)
        if leave or stuck:
            self.release_ready()
        sent = dict(self.settled)
        ready = {raw["offset"] for raw in self.ready}
        # Who joins again claims what is held.
        extended = self.out.keys() if self.auto_progress or self.session == 0 else self.out.keys() & self.extend
        self.extend = set()
        # Acks are not kept waiting for an event.
        waits = not (self.out or ready or sent or leave or stuck)
        return {
            "member": self.name,
            "session": self.session,
            "acks": spans(offset for offset, nack in sent.items() if nack is None),
            "nacks": [nack for nack in sent.values() if nack is not None],
            "progress": spans(extended | ready),
            "want": 0 if leave or stuck else max(0, self.prefetch - len(ready)),
            "wait_ms": int(min(LONG_POLL, self.session_timeout / 3) * 1000) if waits else 0,
            "leave": leave,
        }, sent

    def _is_stuck(self, now: float) -> bool:
        """Report whether the caller has neither taken nor settled anything for an ack wait."""
        return now - self.active > self.ack_wait

    def release_ready(self) -> None:
        """Return the events that wait to the group."""
        for raw in self.ready:
            self.settled[raw["offset"]] = {"offset": raw["offset"], "released": True}
        self.ready.clear()

    def answered(self, answer: Json, sent: dict[int, Json | None], now: float) -> None:
        """Take in the answer to a call."""
        rejoined = self.session != answer["session"]
        self.session, self.heard = answer["session"], now
        self.ack_wait = answer["ack_wait_ms"] / 1000
        self.session_timeout = answer["session_timeout_ms"] / 1000
        self.committed = max(self.committed, answer["committed"])
        # A report is refused that came too late, but after a lost answer also one that was taken in before.
        for refused in [] if rejoined else answer["refused"]:
            self.late += [o for o in sent if o in self.slow and refused["from"] <= o <= refused["to"]]
        for offset in sent:
            self.settled.pop(offset, None)
            self.slow.discard(offset)
        for lost in answer["revoked"]:
            for offset in [o for o in self.out if lost["from"] <= o <= lost["to"]]:
                # One that is not slow was revoked for another reason, such as a seek of the group.
                if self._is_slow(self.out.pop(offset), now):
                    self.late.append(offset)
            self.ready = deque(r for r in self.ready if not lost["from"] <= r["offset"] <= lost["to"])
        self.ready.extend(answer["events"])
        self.poll = POLL if answer["events"] or sent else min(self.poll * 1.5, self.session_timeout / 3)
        self.gaps.extend(Gap(gap["from"], gap["to"], gap["reason"]) for gap in answer["gaps"])

    def failed(self) -> None:
        """Note a call without an answer: the next one joins again and claims what is held."""
        self.session = 0

    def wants_more(self) -> bool:
        """Report whether so few events wait that it is time to ask for more."""
        return len(self.ready) < max(1, self.prefetch // 2)

    def due_in(self, now: float, waiting: bool) -> float:
        """Return the seconds until the next call, 0 where it is due. waiting is whether somebody waits in `take`."""
        stuck = self._is_stuck(now)
        if self.settled or self.session == 0 or not (self.out or self.ready or stuck):
            return 0.0
        # The session is kept alive, and with it what the group must not take back.
        pause = self.session_timeout / 3
        if self.ready or self.extend or self.auto_progress:
            pause = min(pause, self.ack_wait / 3)
        if self.wants_more() and not stuck:
            pause = min(pause, POLL if waiting else self.poll)
        return max(0.0, self.heard + pause - now)


class MemberLoop:
    """Runs a member beside its caller."""

    def __init__(
        self,
        calls: Calls,
        io: Io,
        group: str,
        spec: Json,
        stated: bool,
        member: str,
        prefetch: int,
        auto_progress: bool,
        on_gap: OnGap,
        role: RoleState | ForeignRole | None = None,
    ) -> None:
        self._calls, self._io, self.group, self._role = calls, io, group, role
        self._spec, self._stated, self._on_gap = spec, stated, on_gap
        name = member or f"{socket.gethostname()[:200]}-{os.getpid()}-{os.urandom(4).hex()}"
        self._lock = threading.Lock()  # guards state
        self.state = MemberState(name, prefetch, io.monotonic(), auto_progress)
        self._due = io.signal()  # the loop has something to do
        self._news = io.signal()  # the caller should look again
        self._task: Task | None = None
        self._error: RinglogError | None = None  # what ended the membership
        self._failures = Failures(f"group {group}")
        self._outage = Outage(f"group {group}")
        self._warned = False  # of a handler that takes too long
        self._closing = False
        self._killed = False
        self._pid = os.getpid()
        self._waiting = 0  # callers that wait for an event

    async def join(self) -> None:
        """Join once, creating the group if it does not exist."""
        self._check_open()
        if self._task is not None:
            return
        if self._role is not None:
            self._role.check()
            self._role.attach(self)
        if self._stated:
            await create(self._calls, self.group, self._spec)
        try:
            await self._exchange(wait=False)
        except NotFound:
            if self._stated:
                raise
            await create(self._calls, self.group, self._spec)
            await self._exchange(wait=False)
        self._task = self._io.spawn("ringlog-group", self._run)

    def _check_open(self) -> None:
        if self._closing or self._pid != os.getpid():
            raise Closed(
                f"this member of group {self.group} is closed, or of the parent process",
                remedy="join again: log.group()",
            )

    async def next(self, timeout: float | None) -> Json | None:
        """Return the next event to handle, None after timeout seconds without one. Raises Closed after close."""
        await self.join()
        until = None if timeout is None else time.monotonic() + timeout
        while True:
            seen = self._news.version
            with self._lock:
                gaps, self.state.gaps = self.state.gaps, []
                raw = None if gaps or self._closing else self.state.take(self._io.monotonic())
                low = self.state.wants_more()
            for gap in gaps:
                self._on_gap(gap)
            if raw is not None:
                if low:
                    self._due.set()
                return raw
            self._check_open()
            if self._error is not None:
                raise self._error
            left = None if until is None else until - time.monotonic()
            if left is not None and left <= 0:
                return None
            if not gaps:
                self._waiting += 1
                self._due.set()
                try:
                    await self._news.wait(seen, left)
                finally:
                    self._waiting -= 1

    async def next_until_closed(self) -> Json | None:
        """Return the next event for a loop over the member, which ends when it is closed: None."""
        try:
            return await self.next(None)
        except Closed:
            if self._pid != os.getpid():
                raise
            return None

    def settle(self, offset: int, nack: Json | None) -> bool:
        """Note an ack (None) or nack, which is sent in a moment; False if the event is no longer the member's."""
        if self._pid != os.getpid():
            raise Closed(f"this member of {self.group} belongs to the parent process", remedy="join in the child")
        with self._lock:
            held = self.state.settle(offset, nack, self._io.monotonic())
        self._due.set()
        return held

    def extend(self, offset: int) -> bool:
        """Begin the ack wait of an event again; False if it is no longer the member's."""
        with self._lock:
            held = self.state.progress(offset, self._io.monotonic())
        if held:
            self._due.set()
        return held

    def failed(self, event: Event, outcome: str, error: str | BaseException) -> None:
        """Log an event that was nacked or rejected."""
        self._failures.report(event, outcome, error)

    async def flush(self, timeout: float) -> bool:
        """Wait until what was settled is durable; False if timeout seconds were too short."""
        until = time.monotonic() + timeout
        while True:
            seen = self._news.version
            if not self.state.settled:
                return True
            if self._error is not None:
                raise self._error
            left = until - time.monotonic()
            if left <= 0:
                return False
            self._due.set()
            await self._news.wait(seen, left)

    async def close(self, timeout: float) -> None:
        """Report what was settled, return the rest to the group, and leave it. A second call waits for the first."""
        if self._pid != os.getpid():
            return
        self._closing = True
        self._due.set()
        self._news.set()
        if self._task is not None:
            await self._task.join(timeout)

    def fail(self, error: RinglogError) -> None:
        """End the membership with the lease of its role. The group takes back what is held with the next call."""
        self._error = error
        self._due.set_threadsafe()
        self._news.set_threadsafe()

    def kill(self) -> None:
        """End as a process does that is killed: nothing is reported from now on."""
        self._killed = True  # before the other, which alone means that the member leaves
        self._closing = True
        self._due.set_threadsafe()
        self._news.set_threadsafe()

    async def _run(self) -> None:
        """Make call after call until the member is closed."""
        pause = 0.02
        while True:
            seen = self._due.version
            with self._lock:
                due = 0.0 if self._closing else self.state.due_in(self._io.monotonic(), self._waiting > 0)
            if due > 0:
                await self._due.wait(seen, due)
            leaving = self._closing
            if self._killed:
                return
            try:
                await self._exchange(wait=True, leave=leaving)
                pause = 0.02
                self._outage.over()
            except RinglogError as e:
                if isinstance(e, RoleLost) and self._role is not None:
                    self._role.lose(e)
                if isinstance(e, RoleLost) or (e.code not in PASSING and e.code not in ("fenced", "unreachable")):
                    self._error = e
                    self._news.set()
                    return
                self._outage.failed(e.__cause__ if e.code == "unreachable" else e)
                with self._lock:
                    self.state.failed()
                if leaving:
                    return  # the group takes back what was held when the session ends
                await self._io.sleep(pause)
                pause = min(pause * 2, 1.0)
                continue
            if leaving:
                return

    async def _exchange(self, wait: bool, leave: bool = False) -> None:
        """Make one call."""
        with self._lock:
            request, sent = self.state.request(self._io.monotonic(), leave)
        if self._role is not None:
            request |= {"role": self._role.name, "fence": self._role.fence}
        if not wait:
            request["wait_ms"] = 0
        target = path("groups", self.group, "exchange")
        patience = self._calls.config.timeout if not wait else 0.0
        attempt = request["wait_ms"] / 1000 + self._calls.config.attempt_timeout
        try:
            answer = await self._calls.call("POST", target, request, patience=patience, attempt=attempt)
        except RinglogError as e:
            if e.reason != "unknown_key" or not e.field.endswith(".delivery"):
                raise
            # An older node, which has carried out nothing of the call: it counts nacks without their numbers.
            request["nacks"] = [{k: v for k, v in nack.items() if k != "delivery"} for nack in request["nacks"]]
            answer = await self._calls.call("POST", target, request, patience=patience, attempt=attempt)
        with self._lock:
            self.state.answered(answer, sent, self._io.monotonic())
            late, self.state.late = self.state.late, []
        self._news.set()
        if late and not self._warned:
            self._warned = True
            log_warning(
                "group %s: event %d was handled for longer than the ack_wait of %g s and is delivered again, until"
                " max_deliver makes it a dead letter: call delivery.progress() while it is handled, join with"
                " auto_progress=True, or make the group with a longer ack_wait",
                self.group,
                late[0],
                self.state.ack_wait,
            )
