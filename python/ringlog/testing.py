"""A log in memory for tests of daemons, and events and deliveries for tests of handlers, without a cluster.

log = MemoryLog()
with Client(log.url) as client:
    client.publish("DATA_SYNC_COMPLETED", {"host": "gpu-7"})
    log.clock.advance(60)  # the same event is no duplicate any more

delivery = make_delivery("DATA_SYNC_COMPLETED", {"host": "gpu-7"}, key="gpu-7")
handle(delivery)
assert delivery.outcome == "acked"
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

from ringlog._core.encode import build_event, encode, format_time
from ringlog._core.role import RoleState
from ringlog._memory import wire
from ringlog._memory.log import Clock, Log
from ringlog.delivery import Delivery
from ringlog.event import Event, EventFields, Json

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ringlog._core.payload import Payload
    from ringlog.aio import AsyncAllocation, AsyncMember, AsyncRole
    from ringlog.client import Allocation, Member, Role


def kill(ended: Member | AsyncMember | Role | AsyncRole | Allocation | AsyncAllocation) -> None:
    """End a member, or the holder of a role or an allocation, as if its process was killed: it reports nothing more.

    What a member has not flushed may be lost, and its group takes back what it holds once it was silent for
    group.session_timeout (10 s): of a MemoryLog, once the clock was moved by that. Roles and allocations are lost
    after their ttl.
    """
    if not hasattr(ended, "_loop"):
        state = ended._state
        state.kill()
        if isinstance(state._io, wire.MemoryIo):
            log = state._io.log
            with log.lock:
                if isinstance(state, RoleState):
                    log.roles.leave(state.name, state._session, killed=True)
                else:
                    log.allocations.leave(state.id, killed=True)
        return
    loop = ended._loop
    loop.kill()
    io = loop._io
    if isinstance(io, wire.MemoryIo):
        with io.log.lock:
            io.log.kill_member(loop.group, loop.state.name)


class MemoryLog:
    """A log that is kept in this process, and forgotten with it. Client and AsyncClient use it as they use a cluster.

    url    its endpoint: Client(log.url), or RINGLOG_ENDPOINTS for a daemon that makes its own client
    clock  its time, which passes only by clock.advance(seconds), or clock.advance_async with asyncio: the dedup window,
           the delay of a nack, ack_wait, the times of scheduled events, the ages of retention and dead letters.
           Timeouts of calls are of real time.

    It answers what a node answers: the same results, errors and warnings. What it lacks is what only members and
    the platform's documents give, and what nodes fold of the log: audit, audit_coordinator, transfers, where and held,
    and a tail with where, raise RinglogError with the code "not_implemented".
    Members of groups need not report in time: their sessions end when they are closed, or 10 s of its time after kill.
    Nor need holders of roles and allocations: they keep them until release or revoke_role, or for the ttl after kill.
    """

    def __init__(self) -> None:
        name = os.urandom(8).hex()
        self.clock = Clock()
        self.url = f"memory://{name}"
        self._log = wire.logs[name] = Log(self.clock)


def make_event(
    type: str | Payload,
    payload: Mapping[str, Any] | None = None,
    *,
    offset: int = 1,
    **fields: Unpack[EventFields],
) -> Event:
    """Return an event as a reader gets it, with the arguments of Client.publish.

    It was appended now, and its hash is 64 zeros. Raises InvalidArgument for what has no JSON.
    """
    return Event(_stored(type, payload, offset, fields))


def make_delivery(
    type: str | Payload,
    payload: Mapping[str, Any] | None = None,
    *,
    offset: int = 1,
    number: int = 1,
    **fields: Unpack[EventFields],
) -> RecordedDelivery:
    """Return a delivery, the number-th of its event, that keeps what is reported of it."""
    return RecordedDelivery({**_stored(type, payload, offset, fields), "delivery": number})


class RecordedDelivery(Delivery):
    """A delivery that belongs to no member.

    outcome  "acked", "nacked", "rejected" or "released"; "" until then
    error    the error of a nack or reject, as it would be kept with a dead letter
    delay    seconds after which a nacked event would be redelivered
    """

    __slots__ = ("delay", "error", "outcome")

    def __init__(self, raw: Json) -> None:
        super().__init__(raw, self)
        self.outcome, self.error, self.delay = "", "", 0.0

    def settle(self, offset: int, nack: Json | None) -> bool:
        """Keep the first report, as a member does."""
        if self.outcome:
            return False
        nack = {"acked": True} if nack is None else nack
        self.error, self.delay = nack.get("error", ""), nack.get("delay_ms", 0) / 1000
        self.outcome = next((o for o in ("acked", "released") if o in nack), "rejected" if "dead" in nack else "nacked")
        return True

    def extend(self, offset: int) -> bool:
        """Report whether nothing was reported yet."""
        return not self.outcome

    def failed(self, event: Event, outcome: str, error: str | BaseException) -> None:
        """Log nothing: the test sees outcome and error."""


def _stored(type: str | Payload, payload: Any, offset: int, fields: Mapping[str, Any]) -> Json:
    """Return the JSON object of an event that is stored at an offset."""
    raw: Json = json.loads(encode(build_event(type, payload, fields, "")))
    raw.pop("dedup", None)
    now = format_time(datetime.now(timezone.utc), "appended_at")
    return {**raw, "offset": offset, "value": raw["type"].lower(), "hash": "0" * 64, "appended_at": now}
