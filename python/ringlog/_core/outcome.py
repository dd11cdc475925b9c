"""call: publish an event, and wait for the outcome of the run that it starts."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ringlog._core.calls import Calls
from ringlog._core.cause import has_run_in_payload
from ringlog._core.checks import check_number
from ringlog._core.encode import encode
from ringlog._core.publisher import Publisher
from ringlog._core.reader import Reader
from ringlog._definitions import FLOWS
from ringlog._memory.chain import run_of
from ringlog._memory.types import catalogue
from ringlog.errors import InvalidArgument, NoReply, NotFound, RinglogError, Trimmed
from ringlog.event import CallResult, Event, Gap, Json

if TYPE_CHECKING:
    from ringlog._core.operations import Operations

Edges = Iterable[tuple[str, str]]

# The last words of types that begin something, end it, and say that it has failed.
BEGINNINGS = ("_STARTED", "_REQUESTED", "_TRIGGERED", "_INITIATED")
ENDINGS = ("_COMPLETED", "_COMPLETE")
FAILINGS = ("_FAILED", "_TIMEOUT", "_REJECTED", "_ROLLED_BACK")


def replies_to(type_: str, edges: Edges) -> tuple[list[str], list[str]]:
    """Return the types that say that a run has succeeded, and that it has failed, as event.RepliesTo in Go does."""
    name = catalogue().resolve(type_).name
    effects: dict[str, list[str]] = {}
    for cause, effect in edges:
        effects.setdefault(cause, []).append(effect)
    # Dicts keep the order, and each type once. A type that only begins something is followed to its own effects.
    success: dict[str, None] = {}
    failure: dict[str, None] = {}
    walk = [name]
    for stage in walk:
        for effect in effects.get(stage, ()):
            if effect == name:
                continue
            if effect.endswith(BEGINNINGS):
                walk += [effect] if effect not in walk else []
            else:
                (failure if effect.endswith(FAILINGS) else success)[effect] = None
    if not success and name.endswith(BEGINNINGS):
        success |= dict.fromkeys(_namesakes(name, ENDINGS))
    for stage in (name, *success):
        failure |= dict.fromkeys(_namesakes(stage, FAILINGS))
    return list(success), [kind for kind in failure if kind != name and kind not in success]


def _namesakes(name: str, words: tuple[str, ...]) -> list[str]:
    """Return the known types that differ from a name in the last word alone, which is one of words."""
    stem, separator, _ = name.rpartition("_")
    known = catalogue().types
    return [
        stem + word
        for word in words
        if separator and stem + word in known and known[stem + word].status != "cluster"
    ]  # fmt: skip


async def call(
    log: Operations,
    calls: Calls,
    publisher: Publisher,
    event: dict[str, Any],
    timeout: float,
    reply: str | Iterable[str],
    failure: str | Iterable[str],
) -> CallResult:
    """Publish an event, and return the outcome of its run."""
    check_number("timeout", timeout, 0, 1e9, 30.0)
    until = time.monotonic() + timeout
    flows = await _flows(log)
    replies, failures = _expected(flows, event["type"], _names("reply", reply), _names("failure", failure))
    if not event.get("correlation_id") and not has_run_in_payload(event):
        event["correlation_id"] = os.urandom(16).hex()
    result = (await publisher.publish(encode(event), 1))[0]
    if result.spooled:
        raise NoReply(
            "the event is spooled: the cluster is away, and the run has not started yet",
            code="timeout",
            remedy="call again once the cluster answers; the spool delivers this event meanwhile",
            offset=0,
        )
    run = _Run(await _started(log, result.offset, until), flows, replies, failures)
    started = run.started
    if not run.name:
        raise InvalidArgument(
            f"it repeats {result.offset}, which has no correlation id by which its outcome could be found",
            code="invalid_argument",
            field="correlation_id",
            remedy="give another dedup_id, or dedup=False, to start a run",
        )
    ended = await _outcome(calls, run, until)
    if ended is None:
        awaited = ", ".join(run.awaited)
        raise NoReply(
            f"event {started.offset}, run {run.name}: none of {awaited} within {timeout:g} s",
            code="timeout",
            remedy="the run may still end: look with chain(), or give a longer timeout",
            offset=started.offset,
        )
    said = ended.payload
    success = ended.type in replies and said.get("success") is not False
    texts = (said.get(name) for name in ("error", "reason", "message"))
    error = "" if success else next((t for t in texts if isinstance(t, str) and t), ended.type)
    seconds = max(0.0, (ended.appended_at - started.appended_at).total_seconds())
    return CallResult(success, seconds, error, ended, started.offset, result.duplicate, started.correlation_id)


def _names(field: str, types: str | Iterable[str]) -> list[str]:
    """Return the names of the types that are given."""
    names = [catalogue().resolve(str(name)).name for name in ([types] if isinstance(types, str) else types)]
    if wrong := [name for name in names if not name or "*" in name or "?" in name]:
        raise InvalidArgument(
            f"{wrong[0]!r:.40} is no type", code="invalid_argument", field=field, remedy="name types, without patterns"
        )
    return names


class _Run:
    """The run that an event has started.

    by_fields has its ids by the flows that find runs by payload fields: those that have the event as a stage and whose
    fields are in its payload. name says which run it is, "" if it has no id at all.
    """

    def __init__(self, started: Event, flows: list[Json], replies: list[str], failures: list[str]) -> None:
        self.started, self.awaited = started, [*replies, *failures]
        staged = [flow for flow in flows if any(started.type in edge for edge in flow["edges"])]
        named = [(flow, run_of(flow, started.payload)) for flow in staged]
        self.by_fields = [(flow, id_) for flow, id_ in named if id_]
        self.name = " or ".join(filter(None, [*(id_ for _, id_ in self.by_fields), started.correlation_id]))

    def is_outcome(self, event: Event) -> bool:
        """Report whether an event ends the run. A HANDLER_FAILED does as the answer of react, not of a subscriber."""
        if event.type not in self.awaited:
            return event.payload.get("answer") is True and event.payload.get("offset") == self.started.offset
        ids = [(run_of(flow, event.payload), id_) for flow, id_ in self.by_fields]
        if any(found == id_ for found, id_ in ids):
            return True
        # Without the fields it is of the run that its correlation id or its cause says.
        correlated = bool(event.correlation_id) and event.correlation_id == self.started.correlation_id
        related = correlated or event.causation_id == str(self.started.offset)
        return related and not any(found for found, _ in ids)


def _expected(flows: list[Json], type_: str, replies: list[str], failures: list[str]) -> tuple[list[str], list[str]]:
    """Return the types that are waited for: those given, or those that the flows name."""
    if not replies or not failures:
        success, failing = replies_to(type_, [(cause, effect) for flow in flows for cause, effect in flow["edges"]])
        replies = replies or [name for name in success if name not in failures]
        failures = failures or [name for name in failing if name not in replies]
    if not replies:
        raise InvalidArgument(
            f"no flow names a reply to {type_}",
            code="invalid_argument",
            field="reply",
            remedy="give reply=TYPE, or register a flow that names it",
        )
    if both := sorted(set(replies) & set(failures)):
        raise InvalidArgument(
            f"{both[0]} is a reply as well", code="invalid_argument", field="failure", remedy="give other types"
        )
    return replies, failures


async def _flows(log: Operations) -> list[Json]:
    """Return the flows: the built-in ones of a node of an earlier build, which has no others."""
    try:
        return await log.flows()
    except NotFound:
        return [{"edges": edges} for edges in FLOWS.values()]


async def _started(log: Operations, offset: int, until: float) -> Event:
    """Return the event that started the run, which is the original of a duplicate."""
    while True:
        try:
            return await log.get(offset)
        except RinglogError as e:
            if not e.retryable or time.monotonic() >= until:
                raise


async def _outcome(calls: Calls, run: _Run, until: float) -> Event | None:
    """Return the first event that ends the run, None if there is none in time."""

    def lost(gap: Gap) -> None:
        raise Trimmed(
            f"events {gap.first} to {gap.last}, of which one may be the reply, were trimmed",
            code="trimmed",
            remedy="look with chain() how far the run has come",
            offset=gap.last + 1,
        )

    query: dict[str, str | list[str]] = {"follow": "true", "type": [*run.awaited, "HANDLER_FAILED"]}
    # No index leads to payload fields: of a run that these name, all events of the types are read.
    if not run.by_fields:
        query["correlation_id"] = [run.started.correlation_id]
    reader = Reader(calls, "/v1/events", query, str(run.started.offset + 1), 0, lost, "call")
    reader.until = until
    try:
        while (event := await reader.next()) is not None:
            if run.is_outcome(event):
                return event
    except RinglogError as e:
        if not e.retryable:
            raise  # else no node has answered until the end
    finally:
        reader.close()
    return None
