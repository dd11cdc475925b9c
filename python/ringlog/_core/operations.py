"""The operations of a client, as coroutines. AsyncClient has them as they are, Client runs each to its end."""

from __future__ import annotations

import os
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, cast

from ringlog._core import trace
from ringlog._core.calls import LINEARIZABLE, Attempts, Calls, Query, path
from ringlog._core.cause import cause_of_now, inherit, trace_of
from ringlog._core.checks import check_fields, check_name, check_number, check_role
from ringlog._core.config import Config
from ringlog._core.encode import Position, build_event, encode, format_instant, format_position
from ringlog._core.io import Io
from ringlog._core.publisher import PUBLISH, Backlog, Publisher, is_away, lease_headers
from ringlog._core.spec import build_filter, build_group, create
from ringlog.answers import (
    AllocationInfo,
    Copy,
    CursorInfo,
    Letter,
    LettersResult,
    MemberInfo,
    ResourceInfo,
    RoleInfo,
    Scheduled,
    Transfer,
    ViewInfo,
)
from ringlog.errors import Closed, InvalidArgument, NotFound, OutcomeUnknown, RinglogError, RoleLost
from ringlog.event import CallResult, Event, EventFields, Json, NewEvent, Result

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from ringlog._core.allocation import AllocationState
    from ringlog._core.drainer import Drainer
    from ringlog._core.lease import Flag, LeaseState
    from ringlog._core.payload import Payload
    from ringlog._core.role import RoleState
    from ringlog._core.spool import Spool
    from ringlog._core.view import ViewState


class Operations:
    """What a client can do, over an Io. Calls may be made from several threads or tasks at a time."""

    def __init__(self, io: Io, config: Config, spool: Spool | None = None) -> None:
        self._io, self._config = io, config
        self._calls = Calls(io, config)
        self._publisher = Publisher(self._calls, spool)
        self._backlog = Backlog(self._publisher, io, config.delivery_timeout)
        self._drainer: Drainer | None = None
        if config.spool and spool is None:
            from ringlog._core.drainer import Drainer  # takes long to import
            from ringlog._core.spool import Spool

            self._publisher.spool = opened = Spool(config.spool, config.spool_bytes)
            self._drainer = Drainer(self._publisher, io, opened)
            self._publisher.wake, self._publisher.keep_up = self._drainer.wake, self._drainer.keep_up
            self._publisher.mark_apart = self._drainer.mark_apart
        self._leases: weakref.WeakSet[LeaseState] = weakref.WeakSet()  # to release when the client is closed
        self._closed = False

    def _before_fork(self) -> None:
        if self._publisher.spool is not None:
            self._publisher.spool.before_fork()

    def _after_fork_in_parent(self) -> None:
        if self._publisher.spool is not None:
            self._publisher.spool.after_fork_in_parent()

    def _after_fork(self) -> None:
        self._calls.nodes.after_fork()
        self._config.secure.after_fork()
        self._calls.warnings.after_fork()
        if self._config.clock is not None:
            self._config.clock.after_fork()
        self._publisher.after_fork()
        self._backlog.after_fork()
        self._leases = weakref.WeakSet()
        if self._drainer is not None:
            self._drainer.after_fork()

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the client is closed", remedy="make a new one")

    async def _close(self, timeout: float) -> None:
        """Send what waits, for at most timeout seconds, release roles and allocations, and end the connections."""
        self._closed = True
        until = time.monotonic() + timeout
        try:
            await self._backlog.close(timeout)
        finally:
            # Those that wait come first, so that they do not get what the others release.
            for lease in sorted(self._leases, key=lambda lease: lease.fence):
                await lease.release(until - time.monotonic())
            if self._drainer is not None:
                await self._drainer.close(until - time.monotonic())
            self._calls.nodes.close()

    def _new_role(self, name: str, ttl: float, wait: bool | float, holder: str | None, lost: Flag) -> RoleState:
        """Return a role that is not acquired yet."""
        from ringlog._core.role import RoleState  # is rarely needed

        self._check_open()
        state = RoleState(self._io, self._calls, self._publisher, name, ttl, wait, holder, lost)
        self._leases.add(state)
        return state

    def _new_allocation(
        self,
        amounts: Mapping[str, int],
        priority: str,
        ttl: float,
        wait: bool | float,
        holder: str | None,
        lost: Flag,
    ) -> AllocationState:
        """Return an allocation that is not granted yet."""
        from ringlog._core.allocation import AllocationState  # is rarely needed

        self._check_open()
        state = AllocationState(self._io, self._calls, amounts, priority, ttl, wait, holder, lost)
        self._leases.add(state)
        return state

    async def _publish_under(
        self, role: RoleState, type: str | Payload, payload: Mapping[str, Any] | None, fields: EventFields
    ) -> Result:
        """Append one event under a role."""
        event = encode(build_event(type, payload, fields, self._config.source, self._config.clock))
        self._check_open()
        return (await role.publish(event))[0]

    async def _publish_many_under(self, role: RoleState, events: Iterable[NewEvent]) -> list[Result]:
        """Append events, all or none, under a role."""
        self._check_open()
        body, count = self._encode_many(events)
        return await role.publish(body) if count else []

    @property
    def spooled_bytes(self) -> int:
        """The size of what waits in the spool, 0 if nothing does or there is none."""
        spool = self._publisher.spool
        return spool.size if spool is not None and spool.pending else 0

    async def drain(self, timeout: float | None = None) -> bool:
        """Wait until nothing waits in the spool; False if timeout seconds were too short.

        It is delivered without this call, too.
        """
        self._check_open()
        return self._drainer is None or await self._drainer.drain(timeout)

    async def request(self, method: str, path: str, body: Any = None, query: Query | None = None) -> Any:
        """Send any request of the HTTP interface, and return the decoded answer.

        It is repeated until a node answers for good, so it must be one that may be repeated. openapi.json
        has the paths, such as "/v1/catalogue", and the shapes.
        """
        self._check_open()
        return await self._calls.call(method, path, body, query)

    async def publish(
        self,
        type: str | Payload,
        payload: Mapping[str, Any] | None = None,
        **fields: Unpack[EventFields],
    ) -> Result:
        """Append one event, and return its offset once it is on the disks of a majority.

        type is a name such as "TRAINING_COMPLETED", or a payload of ringlog.payloads, which has its own.
        fields are those of EventFields: source, key, correlation_id, causation_id, dedup_id, dedup, time.
        An event with the content, or the dedup_id, of one that was appended within the dedup window (60 s)
        is not appended: the result is then a duplicate.

        Retries append nothing twice. Raises InvalidArgument for an event that is never accepted,
        Unavailable if the cluster could not take it in the client's timeout, and OutcomeUnknown if it
        may be in the log or not. With a spool neither is raised: the event is spooled.
        """
        with trace.sending(_kind(type), 1, trace_of(cause_of_now())) as sent:
            event = encode(build_event(type, payload, fields, self._config.source, self._config.clock))
            self._check_open()
            result = (await self._publisher.publish(event, 1))[0]
            sent(result)
            return result

    async def call(
        self,
        type: str | Payload,
        payload: Mapping[str, Any] | None = None,
        *,
        timeout: float = 30.0,
        reply: str | Iterable[str] = (),
        failure: str | Iterable[str] = (),
        **fields: Unpack[EventFields],
    ) -> CallResult:
        """Publish an event, and wait for the outcome of the run that it starts.

        The outcome is the first event after it of the same run that is a reply or a failure: the types that reply and
        failure name, or else those that the flows of the cluster name, as TRAINING_COMPLETED and TRAINING_FAILED for
        TRAINING_STARTED. It has the correlation id of the event, which gets one if it has none, or where a flow of the
        event has run_by the same payload fields. A duplicate waits for the outcome of the original. A reply whose
        payload has "success": False is a failure.

        Raises NoReply if there is no outcome after timeout seconds, InvalidArgument if no reply is known, and what
        publish raises. Changes of leaders meanwhile are not noticed.
        """
        from ringlog._core.outcome import call  # is rarely needed

        event = build_event(type, payload, fields, self._config.source, self._config.clock)
        self._check_open()
        return await call(self, self._calls, self._publisher, event, timeout, reply, failure)

    async def publish_at(
        self,
        at: datetime | float,
        type: str | Payload,
        payload: Mapping[str, Any] | None = None,
        *,
        id: str | None = None,
        **fields: Unpack[EventFields],
    ) -> Scheduled:
        """Have the cluster publish an event at a time, once, whatever becomes of this process: the schema Scheduled.

        at is a datetime with a zone, or seconds since 1970; one that has passed is now. id names the schedule, and ""
        is a random one, which the retries of this call share. The event is that of publish: it is checked now, and
        deduplicated when it is published.

        For producer.ttl, 15 minutes, after it was published, the same call with the same id changes nothing and returns
        what became of the event; with another event or time it raises Conflict. The event is never spooled: Unavailable
        or OutcomeUnknown is raised where no node takes it.
        """
        event = build_event(type, payload, fields, self._config.source)
        name = os.urandom(16).hex() if id is None or id == "" else id
        check_name("id", name)
        body = {"at": format_instant(at), "event": event}
        try:
            return cast(Scheduled, await self.request("PUT", path("scheduled", name), body))
        except RinglogError as e:
            if isinstance(e, OutcomeUnknown):
                e.remedy += f"; the same call with id={name!r} schedules nothing twice"
            if self._publisher.spool is not None and (isinstance(e, OutcomeUnknown) or is_away(e)):
                e.remedy += "; what is scheduled is not spooled"
            raise

    async def scheduled(self) -> list[Scheduled]:
        """Return what is scheduled, and what was published within producer.ttl, by id: the schema Scheduled."""
        return cast(list[Scheduled], await self._pages("/v1/scheduled", "scheduled"))

    async def scheduled_event(self, id: str) -> Scheduled:
        """Return what is scheduled under an id, with its event if it waits: the schema Scheduled. Raises NotFound."""
        check_name("id", id)
        return cast(Scheduled, await self.request("GET", path("scheduled", id), None, LINEARIZABLE))

    async def unschedule(self, id: str) -> Scheduled:
        """Remove an event that was not published yet, and return it: the schema Scheduled.

        Raises NotFound if there is none, and Conflict with its offset if it was published.
        """
        check_name("id", id)
        return cast(Scheduled, await self.request("DELETE", path("scheduled", id)))

    async def publish_many(self, events: Iterable[NewEvent]) -> list[Result]:
        """Append events, all or none, and return what became of each, in order.

        Raises as publish does; the field of an error names the event, such as "events[3].payload".
        """
        self._check_open()
        events = list(events)
        with trace.sending(_kind_of(events), len(events), trace_of(cause_of_now())):
            body, count = self._encode_many(events)
            return await self._publisher.publish(body, count) if count else []

    async def publish_under(self, role: str, fence: int, events: Iterable[NewEvent]) -> list[Result]:
        """Append events, all or none, if the lease of a role with that fence is not over when the cluster decides.

        It is for those who know both from another process, such as a child of the holder, which has Role.publish_many.
        Raises RoleLost if the lease is over, else as publish_many does. Nothing is spooled.
        """
        check_role(role)
        check_number("fence", fence, 1, 1 << 63, 1, whole=True)
        self._check_open()
        events = list(events)
        with trace.sending(_kind_of(events), len(events), trace_of(cause_of_now())):
            body, count = self._encode_many(events)
            tries = Attempts(PUBLISH, self._config.timeout)
            return await self._publisher.publish_under(lease_headers(role, fence), body, tries) if count else []

    def _encode_many(self, events: Iterable[NewEvent]) -> tuple[bytes, int]:
        """Return the events of a request with what they inherit, and how many there are."""
        source, clock = self._config.source, self._config.clock
        adds = source or clock is not None or cause_of_now() is not None or trace.current()
        events = list(events)
        for i, event in enumerate(events):
            if type(event) is not dict and not isinstance(event, Mapping):  # the first is fast
                raise InvalidArgument(
                    f"{event!r:.40} is no event",
                    code="invalid_argument",
                    field=f"events[{i}]",
                    remedy='give dicts such as {"type": "TRAINING_COMPLETED", "payload": {}}',
                )
            try:
                check_fields(event)
            except InvalidArgument as e:
                e.field = f"events[{i}].{e.field}"
                raise
            if not adds and type(event) is dict:
                continue
            copied = {**event, "source": source} if source and not event.get("source") else {**event}
            if clock is not None and event.get("time") is None:
                copied["time"] = clock.now()
            events[i] = cast(NewEvent, inherit(copied))
        return encode(events, "events"), len(events)

    async def get(self, offset: int, *, stale: bool = False) -> Event:
        """Return the event at an offset. Raises Trimmed or PastTail if there is none.

        With stale the node may lag: it answers without asking the leader, also where there is none.
        """
        return Event(await self.request("GET", path("events", offset), None, {} if stale else LINEARIZABLE))

    async def wait(self, offset: int, cursors: Iterable[str], timeout: float = 30.0) -> bool:
        """Wait until all cursors and groups have committed an offset; False if timeout seconds were too short."""
        self._check_open()
        cursors = [cursors] if isinstance(cursors, str) else list(cursors)
        for name in cursors:
            check_name("cursor", name)
        query: Query = {"offset": str(offset), "cursors": ",".join(cursors), "timeout": f"{timeout:.3f}s"}
        answer = await self._calls.call("GET", "/v1/wait", None, query, attempt=timeout + self._config.attempt_timeout)
        return bool(answer["reached"])

    async def explain(self, cursor: str, offset: int) -> Json:
        """Return what became of an event for a cursor: the schema DeliveryFate, with `fate` and `reason`."""
        check_name("cursor", cursor)
        query: Query = {**LINEARIZABLE, "cursor": cursor, "offset": str(offset)}
        return dict(await self.request("GET", "/v1/explain", None, query))

    async def explain_dedup(self, subject: int | str) -> Json:
        """Return what deduplication did with an event, by its offset or dedup_id: the schema Explanation."""
        return dict(await self.request("GET", path("dedup", subject), None, LINEARIZABLE))

    async def chain(self, correlation_id: str, *, flow: str = "") -> Json:
        """Return how far a run has come on its way through the flows: the schema Chain."""
        query: Query = {**LINEARIZABLE, **({"flow": flow} if flow else {})}
        return dict(await self.request("GET", path("chain", correlation_id), None, query))

    async def create_cursor(self, name: str, *, types: Iterable[str] = (), from_: Position = "start") -> CursorInfo:
        """Create a cursor and return it: the schema Cursor. One that exists is returned if it has the types
        that are given, else Conflict is raised."""
        check_name("cursor", name)
        spec = {"from": format_position(from_, self._io.now()), "filter": build_filter(types=types)}
        self._check_open()
        return cast(CursorInfo, await create(self._calls, name, spec))

    async def get_cursor(self, name: str) -> CursorInfo:
        """Return a cursor or group with its commit and lag: the schema Cursor. Raises NotFound."""
        check_name("cursor", name)
        return cast(CursorInfo, await self.request("GET", path("cursors", name), None, LINEARIZABLE))

    async def cursors(self) -> list[CursorInfo]:
        """Return all cursors and groups by name: the schema Cursor."""
        return cast(list[CursorInfo], await self._pages("/v1/cursors", "cursors"))

    async def _pages(self, target: str, name: str, chosen: Query | None = None) -> list[Json]:
        """Return the entries of all pages of a list."""
        found: list[Json] = []
        after = ""
        while True:
            query: Query = {**LINEARIZABLE, **(chosen or {}), **({"after": after} if after else {})}
            page = await self.request("GET", target, None, query)
            found += page[name]
            after = page.get("next", "")
            if not after:
                return found

    async def seek_cursor(self, name: str, to: Position) -> CursorInfo:
        """Move a cursor or group on purpose, and return it: the schema Cursor."""
        check_name("cursor", name)
        body = {"to": format_position(to, self._io.now(), "to"), "seeker": os.urandom(16).hex()}
        return cast(CursorInfo, await self.request("POST", path("cursors", name, "seek"), body))

    async def delete_cursor(self, name: str) -> None:
        """Remove a cursor. Raises NotFound."""
        await self._remove("cursor", name)

    async def create_group(
        self,
        name: str,
        *,
        types: Iterable[str] = (),
        from_: Position = "start",
        ack_wait: float | None = None,
        max_deliver: int | None = None,
    ) -> CursorInfo:
        """Create a group and return it: the schema Cursor. One that exists is returned if it has what
        is given of types, ack_wait and max_deliver, else Conflict is raised.

        ack_wait is for how many seconds a member may hold an event without a sign of progress,
        max_deliver after how many deliveries that fail an event becomes a dead letter; None is the
        cluster's setting.
        """
        check_name("group", name)
        spec = build_group(build_filter(types=types), format_position(from_, self._io.now()), ack_wait, max_deliver)
        self._check_open()
        return cast(CursorInfo, await create(self._calls, name, spec))

    async def delete_group(self, name: str) -> None:
        """Remove a group. Raises NotFound."""
        await self._remove("group", name)

    async def _remove(self, kind: str, name: str) -> None:
        check_name(kind, name)
        try:
            await self.request("DELETE", path(kind + "s", name))
        except NotFound as e:
            e.remedy = (
                f"nothing was removed: if it should be there, look for its name in cursors() or ringlog {kind} ls"
            )
            raise

    async def group_members(self, name: str) -> list[MemberInfo]:
        """Return who shares a group now: the schema GroupMember."""
        check_name("group", name)
        answer = await self.request("GET", path("groups", name, "members"), None, LINEARIZABLE)
        return list[MemberInfo](answer["members"])

    async def dead_letters(
        self,
        *,
        type: str = "",
        cursor: str = "",
        error: str = "",
        state: Literal["", "dead", "redriven"] = "",
        limit: int = 100,
        after: int = 0,
    ) -> list[Letter]:
        """Return at most limit dead letters with an id above after, by id: the schema Letter.

        type is a name or pattern, cursor the name of the one that could not handle the event, error a part of its
        error. state is "dead" for those that wait for somebody, "redriven" for those that were appended again.
        """
        query: Query = {**LINEARIZABLE, "limit": str(limit), "after": str(after)}
        given = {"type": type, "cursor": cursor, "error": error, "state": state}
        chosen = {name: value for name, value in given.items() if value}
        return list[Letter]((await self.request("GET", "/v1/dlq", None, {**query, **chosen}))["letters"])

    async def dead_letter(self, letter_id: int) -> Json:
        """Return one dead letter with its event: the schema LetterWithEvent. Raises NotFound."""
        return dict(await self.request("GET", path("dlq", letter_id), None, LINEARIZABLE))

    async def dead_letter_summary(self) -> Json:
        """Return how many dead letters there are, by cursor and by type: the schema LetterSummary."""
        return dict(await self.request("GET", "/v1/dlq", None, LINEARIZABLE))

    async def dead_letter_errors(self, *, cursor: str = "") -> list[Json]:
        """Return what the dead letters died of, the most frequent first."""
        query: Query = {**LINEARIZABLE, **({"cursor": cursor} if cursor else {})}
        return list((await self.request("GET", "/v1/dlq/errors", None, query))["errors"])

    async def redrive(
        self,
        *ids: int,
        type: str = "",
        cursor: str = "",
        error: str = "",
        all: bool = False,
        to: str = "",
    ) -> LettersResult:
        """Append dead letters again, each for the cursor that it left: the schema LettersResult.

        Give ids, or conditions that must all hold, or all=True. to names another cursor that gets them.
        """
        body = _chosen_letters(ids, type, cursor, error, all)
        return cast(LettersResult, await self.request("POST", "/v1/dlq/redrive", {**body, "to": to} if to else body))

    async def purge(
        self,
        *ids: int,
        type: str = "",
        cursor: str = "",
        error: str = "",
        all: bool = False,
    ) -> LettersResult:
        """Remove dead letters for good, chosen as in redrive: the schema LettersResult."""
        body = _chosen_letters(ids, type, cursor, error, all)
        return cast(LettersResult, await self.request("POST", "/v1/dlq/purge", body))

    async def settings(self) -> dict[str, str]:
        """Return all replicated settings, by key."""
        answer = await self.request("GET", "/v1/settings", None, LINEARIZABLE)
        return {setting["key"]: setting["value"] for setting in answer["settings"]}

    async def set_setting(self, key: str, value: str | float | bool) -> None:
        """Change a setting on every node; "" restores the default. Raises NotFound or InvalidArgument."""
        await self.request("PUT", path("settings", key), {"value": value})

    async def dedup_policies(self) -> list[Json]:
        """Return the dedup policies of types, by type: the schema DedupPolicy."""
        answer = await self.request("GET", "/v1/dedup/policies", None, LINEARIZABLE)
        return list(answer["policies"])

    async def set_dedup_policy(
        self, type: str, mode: Literal["off", "content", "fields"], fields: Sequence[str] = (), window: str = ""
    ) -> Json:
        """Say which events of a type are duplicates, and return the policy: the schema DedupPolicy.

        off appends every event, content compares the payload, fields the payload fields named. window is how long
        an event suppresses the same, such as "90s"; "" is the setting dedup.window. An event that has a dedup_id or
        dedup=False goes by that.
        """
        body: Json = {"mode": mode, "fields": list(fields), "window": window}
        return dict(await self.request("PUT", path("dedup", "policies", type), body))

    async def remove_dedup_policy(self, type: str) -> Json:
        """Remove the policy that was set for a type, and return the one in force without it. Raises NotFound."""
        return dict(await self.request("DELETE", path("dedup", "policies", type)))

    async def status(self) -> Json:
        """Return what the node that is asked knows of itself and its cluster: the schema Status."""
        return dict(await self.request("GET", "/status"))

    async def cluster(self) -> Json:
        """Return leader, members and quorum as the node that is asked sees them: the schema Cluster."""
        return dict(await self.request("GET", "/v1/cluster"))

    async def catalogue(self) -> list[Json]:
        """Return the known event types: the schema Definition."""
        return list((await self.request("GET", "/v1/catalogue", None, LINEARIZABLE))["types"])

    async def flows(self) -> list[Json]:
        """Return the flows that runs are followed through, built in and registered: the schema Flow."""
        return list((await self.request("GET", "/v1/flows", None, LINEARIZABLE))["flows"])

    async def register_flow(self, flow: Json) -> list[Json]:
        """Register a flow on all nodes, or replace the one of its name: the schema Flow. Return warnings."""
        return list((await self.request("POST", "/v1/flows", flow)).get("warnings", []))

    async def remove_flow(self, name: str) -> None:
        """Remove a registered flow."""
        await self.request("DELETE", path("flows", name))

    async def roles(self) -> list[RoleInfo]:
        """Return the roles that are held, by name: the schema Role."""
        return cast(list[RoleInfo], await self._pages("/v1/roles", "roles"))

    async def role(self, name: str) -> RoleInfo:
        """Return who holds a role and who waits for it: the schema Role. Without a holder nobody holds it."""
        check_name("role", name)
        return cast(RoleInfo, await self.request("GET", path("roles", name), None, LINEARIZABLE))

    async def revoke_role(self, name: str, fence: int = 0) -> RoleInfo:
        """End the lease of a role, whoever has it, and return the role: the schema Role. The next in its queue gets it.

        With a fence the lease is ended only if it has that one, else RoleLost is raised. Raises NotFound if nobody
        holds the role.
        """
        fence = fence or (await self.role(name)).get("fence", 0)
        if not fence:
            raise NotFound(
                f"nobody holds the role {name}", code="not_found", field="role", remedy="roles() lists those held"
            )
        try:
            return cast(RoleInfo, await self.request("DELETE", path("roles", name), None, {"fence": str(fence)}))
        except OutcomeUnknown as e:
            # Where an answer was lost, this call may have ended the lease, which is over in any case.
            if not isinstance(e.__cause__, RoleLost):
                raise
            return await self.role(name)

    async def resources(self) -> list[ResourceInfo]:
        """Return the resources, by name: the schema Resource."""
        return cast(list[ResourceInfo], await self._pages("/v1/resources", "resources"))

    async def resource(self, name: str) -> ResourceInfo:
        """Return a resource and how much of it is granted: the schema Resource. Raises NotFound."""
        check_name("resource", name)
        return cast(ResourceInfo, await self.request("GET", path("resources", name), None, LINEARIZABLE))

    async def set_resource(
        self, name: str, capacity: int, *, unit: str = "", preemptible: bool = False
    ) -> ResourceInfo:
        """Declare a resource, or change it, and return it: the schema Resource.

        unit is a text for people, such as "Mbit/s". With preemptible a CRITICAL request may end LOW allocations of it.
        A lower capacity takes nothing from those who have more; nothing is granted until it fits.
        """
        check_name("resource", name)
        body = {"capacity": capacity, "unit": unit, "preemptible": preemptible}
        return cast(ResourceInfo, await self.request("PUT", path("resources", name), body))

    async def remove_resource(self, name: str) -> ResourceInfo:
        """Remove a resource, and return it as it was: the schema Resource.

        Raises NotFound if there is none, and Conflict while anybody has or wants anything of it.
        """
        check_name("resource", name)
        return cast(ResourceInfo, await self.request("DELETE", path("resources", name)))

    async def allocations(self) -> list[AllocationInfo]:
        """Return what is granted, and what waits for it, by id: the schema Allocation."""
        return cast(list[AllocationInfo], await self._pages("/v1/allocations", "allocations"))

    async def allocation(self, id: str) -> AllocationInfo:
        """Return what is granted, or waits, under an id: the schema Allocation. Raises NotFound."""
        check_name("allocation", id)
        return cast(AllocationInfo, await self.request("GET", path("allocations", id), None, LINEARIZABLE))

    async def release_allocation(self, id: str) -> None:
        """End an allocation, or a request that waits for one, whoever has it. That there is none is no error."""
        check_name("allocation", id)
        await self.request("DELETE", path("allocations", id))

    def _view(self, name: str) -> ViewState:
        """Return a view by its name."""
        from ringlog._core.view import ViewState  # is rarely needed

        return ViewState(self, name)

    async def views(self) -> list[ViewInfo]:
        """Return the views, by name, as far as the node that answers has folded the log: the schema View."""
        return cast(list[ViewInfo], (await self.request("GET", "/v1/views", None, LINEARIZABLE))["views"])

    async def transfers(self, *, host: str = "", state: str = "", overdue: bool = False) -> list[Transfer]:
        """Return the transfers to a host, in a state, or overdue, the oldest first: the schema Transfer."""
        chosen = {"host": host, "state": state, "overdue": "true" if overdue else ""}
        query = {key: value for key, value in chosen.items() if value}
        return cast(list[Transfer], await self._pages("/v1/transfers", "transfers", query))

    async def where(self, name: str) -> list[Copy]:
        """Return the copies of a dataset or model, by kind and host: the schema Copy."""
        check_name("copy", name)
        return cast(list[Copy], await self._pages(path("where", name), "copies"))

    async def held(self, host: str) -> list[Copy]:
        """Return the copies that a host has, by name and kind: the schema Copy."""
        return cast(list[Copy], await self._pages("/v1/where", "copies", {"host": host}))

    async def audit(self, *, live: bool = False) -> Json:
        """Return who emits what and who listens, with orphans and dead subscriptions: the schema Audit.

        With live it is of what is registered and seen alone, without what documents and definitions declare.
        """
        query = {**LINEARIZABLE, "live": "true"} if live else LINEARIZABLE
        return dict(await self.request("GET", "/v1/audit", None, query))

    async def audit_coordinator(self, name: str) -> Json:
        """Return what is declared of a coordinator of the platform's registry against what is live.

        It is the schema CoordinatorAudit; NotFound for an unknown name.
        """
        return dict(await self.request("GET", path("audit", "coordinators", name), None, LINEARIZABLE))

    async def history(self) -> Json:
        """Return the timeline of leadership and quorum: the schema History."""
        return dict(await self.request("GET", "/v1/cluster/history", None, LINEARIZABLE))


def _chosen_letters(ids: tuple[int, ...], type_: str, cursor: str, error: str, all_: bool) -> Json:
    """Return the schema LetterSelection."""
    chosen = {"ids": list(ids), "type": type_, "cursor": cursor, "error": error, "all": all_}
    return {name: value for name, value in chosen.items() if value}


def _kind(type: Any) -> str:
    """Return the name of a type or of a payload's, for a span; what is neither is refused later."""
    return str(getattr(type, "EVENT_TYPE", type))


def _kind_of(events: list[NewEvent]) -> str:
    """Return the type of events that all have the same, else ""."""
    kinds = {_kind(event.get("type", "")) for event in events if isinstance(event, Mapping)}
    return kinds.pop() if len(kinds) == 1 else ""
