"""The shapes of common answers, for annotations. They are dicts; nodes may add keys.

Times are RFC 3339 in UTC; ringlog.event.parse_time reads them.
"""

from __future__ import annotations

from typing import Any, Literal, TypedDict


class GroupInfo(TypedDict):
    """What a group has beside its cursor: the schema GroupInfo."""

    ack_wait: str
    max_deliver: int
    max_pending: int
    pending: int
    redelivering: int
    members: int
    coordinator: str


class _CursorRequired(TypedDict):
    name: str
    filter: dict[str, list[str]]
    policy: dict[str, Any]
    committed: int
    generation: int
    created: str
    touched: str
    lag_events: int
    lag_seconds: float


class CursorInfo(_CursorRequired, total=False):
    """A cursor or group: the schema Cursor. group is there for a group."""

    seeks: int
    last_seek: dict[str, Any]
    gap: dict[str, Any]
    lag_at_least: int
    scanned: int
    found: bool
    moved: str
    stalled: dict[str, Any]
    backpressure: dict[str, Any]
    group: GroupInfo
    start: int
    warnings: list[dict[str, Any]]


class MemberInfo(TypedDict):
    """A member of a group: the schema GroupMember."""

    member: str
    session: int
    since: str
    last_seen: str
    pending: int
    oldest_pending_ms: int
    delivered: int
    acked: int
    nacked: int
    expired: int


class _LetterRequired(TypedDict):
    id: int
    state: Literal["dead", "redriven"]
    type: str
    attempts: int
    dead_lettered_at: str
    redrives: int
    bytes: int


class Letter(_LetterRequired, total=False):
    """A dead letter: the schema Letter."""

    cursor: str
    offset: int
    copy: int
    key: str
    source: str
    correlation_id: str
    handler: str
    error: str
    first_failed: str
    last_failed: str
    lineage: list[int]
    origin: str


class _LettersResultRequired(TypedDict):
    matched: int
    done: int
    left: int


class LettersResult(_LettersResultRequired, total=False):
    """What redrive and purge have done: the schema LettersResult."""

    skipped: int
    missing: list[int]
    no_cursor: list[int]
    dry_run: bool
    last: int
    more: bool


class _ScheduledRequired(TypedDict):
    id: str
    at: str
    made_at: str
    state: Literal["waiting", "published"]
    type: str


class Scheduled(_ScheduledRequired, total=False):
    """An event that is to be published at a time, or was: the schema Scheduled.

    event is there while it waits, where one schedule was asked for. Once it was published, offset is the event's, or
    with duplicate that of an earlier event that it repeats. existing answers a call that was repeated.
    """

    key: str
    event: dict[str, Any]
    offset: int
    duplicate: bool
    published_at: str
    existing: bool
    warnings: list[dict[str, Any]]


class _ResourceRequired(TypedDict):
    resource: str
    capacity: int
    preemptible: bool
    granted: int
    allocations: int
    waiting: int


class ResourceInfo(_ResourceRequired, total=False):
    """A resource: the schema Resource. granted is more than the capacity where that was lowered."""

    unit: str


class _AllocationRequired(TypedDict):
    allocation: str
    holder: str
    amounts: dict[str, int]
    priority: Literal["LOW", "NORMAL", "HIGH", "CRITICAL"]
    risen_to: Literal["LOW", "NORMAL", "HIGH", "CRITICAL"]
    granted: bool
    ttl: str
    since: str
    renewed_at: str
    expires_at: str


class AllocationInfo(_AllocationRequired, total=False):
    """An allocation that is granted, or a request that waits for one: the schema Allocation."""

    fence: int


class TransferStep(TypedDict):
    """The last event that brought a transfer to a step: the schema TransferStep."""

    offset: int
    at: str


# The name is a keyword in a class.
_From = TypedDict("_From", {"from": str}, total=False)


class _TransferRequired(TypedDict):
    transfer: str
    kind: str
    state: str
    last_offset: int


class Transfer(_TransferRequired, _From, total=False):
    """What the log has of a copy of something to a host: the schema Transfer. due is there while it is open."""

    id: str
    name: str
    host: str
    version: str
    requested: TransferStep
    started: TransferStep
    stalled: TransferStep
    ended: TransferStep
    due: str
    overdue: bool
    bytes: int
    files: int
    checked: str
    retries: int
    repeats: int
    contradictions: int
    error: str


class _CopyRequired(TypedDict):
    name: str
    kind: str
    host: str
    since: str
    at: str
    offset: int


class Copy(_CopyRequired, _From, total=False):
    """A dataset or model on a host, by the last event that says so: the schema Copy."""

    version: str
    bytes: int
    files: int
    checked: str
    transfer: str
    host_gone: bool


class ViewDigest(TypedDict):
    """The digest of all rows of a view as of an offset: the schema ViewDigest."""

    offset: int
    hex: str


class _ViewRequired(TypedDict):
    name: str
    generation: int
    defined_at: str
    since: int
    at: int
    of: int
    lag: int
    rows: int
    emitted: int


_FromOffset = TypedDict("_FromOffset", {"from": int}, total=False)


class ViewInfo(_ViewRequired, _FromOffset, total=False):
    """A view as one node has it: the schema View. declaration and digests are there where one view is asked for."""

    description: str
    skipped: int
    beyond_keys: int
    waiting: int
    incomplete: str
    failed: str
    declaration: dict[str, Any]
    digests: list[ViewDigest]
    existing: bool


class _ViewRowRequired(TypedDict):
    key: str
    offset: int
    at: str
    fields: dict[str, Any]


class ViewRow(_ViewRowRequired, total=False):
    """A row of a view: the schema ViewRow. offset and at are those of its last event."""

    rules: dict[str, Any]
    skipped: int


class ViewChange(TypedDict):
    """A row of a watch, as it is at an offset."""

    at: int
    row: ViewRow


class RoleClaim(TypedDict):
    """A claim that waits for a role: the schema RoleClaim."""

    holder: str
    since: str
    expires_at: str


class _RoleInfoRequired(TypedDict):
    role: str
    waiting: int


class RoleInfo(_RoleInfoRequired, total=False):
    """A role with its holder, and how many wait for it: the schema Role. Without a holder nobody holds it.

    queue has the first 100 that wait, in their order, where one role was asked for. released answers a release.
    """

    queue: list[RoleClaim]
    released: bool

    holder: str
    fence: int
    ttl: str
    since: str
    renewed_at: str
    expires_at: str
