"""The methods tail, cursor and group of both clients, and the filters and positions in them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from ringlog._core.calls import Calls
from ringlog._core.checks import check_name, check_number, invalid
from ringlog._core.cursor import CursorState
from ringlog._core.encode import Position, format_position
from ringlog._core.io import Io
from ringlog._core.member import MemberLoop
from ringlog._core.reader import OnGap, Reader, log_gap
from ringlog._core.spec import build_filter, build_group

if TYPE_CHECKING:
    from ringlog._core.role import ForeignRole, RoleState

TailT = TypeVar("TailT")
CursorT = TypeVar("CursorT")
MemberT = TypeVar("MemberT")

MAX_PREFETCH = 10_000


class Holder(Protocol):
    """A Role or AsyncRole."""

    _state: RoleState


def _state_of(role: Holder | tuple[str, int] | None) -> RoleState | ForeignRole | None:
    """Return the lease of the argument role, None without one."""
    if role is None:
        return None
    if isinstance(role, tuple) and len(role) == 2:
        from ringlog._core.role import ForeignRole  # is rarely needed

        return ForeignRole(*role)
    state: RoleState | None = getattr(role, "_state", None)
    if state is None:
        raise invalid("role", f"{role!r:.80} is not a role", 'give that of acquire_role, or ("NAME", FENCE)')
    return state


class Readers(Generic[TailT, CursorT, MemberT]):
    """What both clients read with. None of these methods sends anything: the first event does, or the with block."""

    def _reading(self) -> tuple[Calls, Io]:
        """Return what reads. Raises Closed if the client is closed."""
        raise NotImplementedError

    def _new_tail(self, reader: Reader) -> TailT:
        raise NotImplementedError

    def _new_cursor(self, state: CursorState) -> CursorT:
        raise NotImplementedError

    def _new_member(self, loop: MemberLoop) -> MemberT:
        raise NotImplementedError

    def tail(
        self,
        from_: Position = "end",
        *,
        types: Iterable[str] = (),
        categories: Iterable[str] = (),
        sources: Iterable[str] = (),
        keys: Iterable[str] = (),
        correlation_ids: Iterable[str] = (),
        where: str = "",
        until_end: bool = False,
        limit: int = 0,
        stale: bool = False,
        on_gap: OnGap | None = None,
    ) -> TailT:
        """Read events in the order of the log, each once, and follow it.

        from_            "start", "end", an offset, -N for the last N, a datetime or timedelta, or text as
                         of the command line such as "36h". "end" is where the log ends when the with block
                         is entered, or else when the first event is asked for.
        types            names or patterns such as "training.*"; the lists must all agree, an empty one allows all
        where            a condition in CEL, such as "payload.loss > 3", that what the lists allow must meet; events
                         for which it cannot be evaluated are passed over, the first with a warning in the log.
                         A wrong one raises InvalidArgument with its position, once the reading begins
        until_end        stop at the end of the log, with all that was acknowledged before the read
        limit            stop after that many events; 0 is no limit
        stale            with until_end: what the node that is asked has, without asking the leader
        on_gap           called with a Gap for events that were trimmed before they were read; it is logged otherwise

        The reading resumes at another node after failures: while no node has answered yet for the
        client's timeout, and after that for as long as the caller reads.
        """
        calls, io = self._reading()
        check_number("limit", limit, 0, 1 << 53, 100, whole=True)
        parameters = {
            "types": "type",
            "categories": "category",
            "sources": "source",
            "keys": "key",
            "correlation_ids": "correlation_id",
        }
        chosen = build_filter(types, categories, sources, keys, correlation_ids)
        query: dict[str, str | list[str]] = {parameters[name]: values for name, values in chosen.items()}
        if not isinstance(where, str):
            raise invalid("where", f"{where!r:.40} is not a string", 'give a condition such as "payload.loss > 3"')
        if where:
            query["where"] = where
        if not until_end:
            query["follow"] = "true"
        elif not stale:
            query["consistency"] = "linearizable"
        position = format_position(from_, io.now())
        return self._new_tail(Reader(calls, "/v1/events", query, position, limit, on_gap or log_gap))

    def cursor(
        self,
        name: str,
        *,
        types: Iterable[str] = (),
        categories: Iterable[str] = (),
        sources: Iterable[str] = (),
        keys: Iterable[str] = (),
        correlation_ids: Iterable[str] = (),
        from_: Position = "start",
        until_end: bool = False,
        on_gap: OnGap | None = None,
        role: Holder | tuple[str, int] | None = None,
    ) -> CursorT:
        """Subscribe durably: the cluster stores what was committed, and the next reading resumes after it.

        The cursor is created if it does not exist, to begin at from_. If it exists, what is given of
        types to correlation_ids must be its own, else Conflict is raised. Opening it fences the reader
        that had it before, which gets Fenced with its next read or commit.

        With a role of acquire_role, reads, commits and dead letters raise RoleLost once the role is lost or released. A
        process that was given a role and its fence by the holder, such as a child, gives (name, fence): what it commits
        then is refused once the lease is over, with RoleLost.
        """
        calls, io = self._reading()
        check_name("cursor", name)
        chosen = build_filter(types, categories, sources, keys, correlation_ids)
        spec = {"from": format_position(from_, io.now()), "filter": chosen}
        state = CursorState(calls, name, spec, bool(chosen), until_end, on_gap or log_gap, _state_of(role))
        return self._new_cursor(state)

    def group(
        self,
        name: str,
        *,
        types: Iterable[str] = (),
        categories: Iterable[str] = (),
        sources: Iterable[str] = (),
        keys: Iterable[str] = (),
        correlation_ids: Iterable[str] = (),
        from_: Position = "start",
        member: str = "",
        prefetch: int = 64,
        ack_wait: float | None = None,
        max_deliver: int | None = None,
        auto_progress: bool = False,
        on_gap: OnGap | None = None,
        role: Holder | tuple[str, int] | None = None,
    ) -> MemberT:
        """Become a member of a group, whose events each go to one member.

        The group is created if it does not exist. If it exists, what is given of types to correlation_ids,
        ack_wait and max_deliver must be its own, else Conflict is raised.

        member       a name that no other process has; the default is made of host, process and a random part
        prefetch     how many events may wait here, beside those that are being handled; others of the group
                     do not get them, so choose 1 where handling takes long
        ack_wait     seconds for which a member may hold an event without ack, nack or progress; after that the event
                     is delivered again, and the first one is logged as a warning
        max_deliver  deliveries that fail before the event becomes a dead letter
        auto_progress
                     report progress of all that is being handled: an event goes to others only when this process is
                     gone. A handler that hangs then keeps its event, and the next ones of its key, until that
        role         one of acquire_role, or the (name, fence) that its holder has given to this process. Once it is
                     lost or released, what the member settles is refused with RoleLost, and the events go to others

        Deliveries may be handled in any order and at the same time: they have different keys, or none.
        """
        calls, io = self._reading()
        check_name("group", name)
        check_number("prefetch", prefetch, 1, MAX_PREFETCH, 64, whole=True)
        chosen = build_filter(types, categories, sources, keys, correlation_ids)
        spec = build_group(chosen, format_position(from_, io.now()), ack_wait, max_deliver)
        stated = bool(chosen or spec["group"])
        return self._new_member(
            MemberLoop(
                calls,
                io,
                name,
                spec,
                stated,
                member,
                prefetch,
                auto_progress,
                on_gap or log_gap,
                _state_of(role),
            )
        )
