"""Exceptions of this package.

Every one is a RinglogError with the fields of the node's answer: `code` and `reason` are for
programs, the message and `remedy` for people. docs/http.md lists the codes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RinglogError(Exception):
    """A call that failed.

    code       what went wrong, such as "fenced"; "" if there is no code for it
    message    what went wrong, for people
    field      the argument that is wrong, such as "events[3].payload"; "" if none is
    remedy     what to do about it, for people; "" if unknown
    reason     distinguishes errors of one code; "" if there is one alone
    offset     what the code says it is, such as the newer generation with "fenced"; None if absent
    retryable  the same call may be made again: nothing has happened, and the cause may pass
    """

    retryable = False

    def __init__(
        self, message: str, *, code: str = "", field: str = "", remedy: str = "", reason: str = "",
        offset: int | None = None,
    ) -> None:  # fmt: skip
        self.message, self.code, self.field = message, code, field
        self.remedy, self.reason, self.offset = remedy, reason, offset
        super().__init__(message)

    def __str__(self) -> str:
        return "; ".join(filter(None, (": ".join(filter(None, (self.code, self.field, self.message))), self.remedy)))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (type(self), self.__dict__.copy())


def _restore(kind: type[RinglogError], fields: dict[str, Any]) -> RinglogError:
    """Unpickle an error, for process pools."""
    error = kind(fields["message"])
    error.__dict__.update(fields)
    return error


class InvalidArgument(RinglogError, ValueError):
    """A value that is never accepted: the codes invalid_argument, invalid_json, unknown_type and reserved."""


class TooLarge(InvalidArgument):
    """More bytes or events than the cluster accepts; the message names the limit."""


class Unauthenticated(RinglogError):
    """The token is missing or wrong, or the caller may not do this."""


class NotFound(RinglogError, LookupError):
    """There is no such cursor, group, dead letter, setting or path."""


class Trimmed(NotFound):
    """The event is no longer kept; `offset` is the first that is."""


class PastTail(NotFound):
    """The log has not reached the offset; `offset` is its last."""


class Conflict(RinglogError):
    """It exists with other settings, or was used before with other content."""


class Fenced(RinglogError):
    """Another process has opened the cursor, whose newer generation is `offset`."""


class RoleLost(Fenced):
    """The lease of a role is over. `offset` is the fence of its holder, if the cluster has said so and there is one.

    What was about to be published or committed under the lease was not.
    """


class RoleHeld(RinglogError):
    """Another process holds the role, with the fence `offset`, and has not released it in time."""

    retryable = True


class AllocationLost(RinglogError):
    """An allocation is over: not renewed in time, preempted, or released. What it had may be another's."""


class NotGranted(RinglogError):
    """What was to be allocated is not free, or others wait for it, and it was not granted in time."""

    retryable = True


class OtherCluster(RinglogError):
    """The node is of another cluster than the one that answered first."""


class Unavailable(RinglogError):
    """No node could serve the call in its time, and nothing has happened.

    With the code "unreachable" no node has answered at all; the __cause__ says why.
    """

    retryable = True


class OutcomeUnknown(RinglogError):
    """The call may have happened or not: its answer was lost. The __cause__ says how.

    Look whether it happened before you repeat it. Repeating a publish is safe within the dedup
    window, unless its dedup is False.
    """


class NoReply(RinglogError, TimeoutError):
    """A run that Client.call has started, at `offset`, has no outcome after the timeout. It may still get one."""


class SpoolError(RinglogError):
    """The spool cannot keep an event, which is not published: the cluster is away, and the disk refuses."""

    retryable = True


class SpoolFull(SpoolError):
    """The spool has as many bytes as it may have. The event is not published."""


class Closed(RinglogError):
    """The client, cursor or member was closed, or belongs to the process from which this one was forked."""


_KINDS: dict[str, type[RinglogError]] = {
    "invalid_argument": InvalidArgument,
    "invalid_json": InvalidArgument,
    "unknown_type": InvalidArgument,
    "reserved": InvalidArgument,
    "unsupported_media": InvalidArgument,
    "method_not_allowed": InvalidArgument,
    "too_large": TooLarge,
    "unauthenticated": Unauthenticated,
    "forbidden": Unauthenticated,
    "not_found": NotFound,
    "trimmed": Trimmed,
    "past_tail": PastTail,
    "conflict": Conflict,
    "exists": Conflict,
    "out_of_sequence": Conflict,
    "unknown_producer": Conflict,
    "fenced": Fenced,
    "other_cluster": OtherCluster,
    "timeout": Unavailable,
    "overloaded": Unavailable,
    "no_leader": Unavailable,
    "no_quorum": Unavailable,
    "unavailable": Unavailable,
    "outcome_unknown": OutcomeUnknown,
}


def from_answer(error: Mapping[str, Any]) -> RinglogError:
    """Return the exception for the object `error` of a node's answer."""
    code, field = str(error.get("code", "")), str(error.get("field", ""))
    kind = RoleLost if (code, field) == ("fenced", "fence") else _KINDS.get(code, RinglogError)
    return kind(
        str(error.get("message", "")),
        code=code,
        field=field,
        remedy=str(error.get("remedy", "")),
        reason=str(error.get("reason", "")),
        offset=error.get("offset"),
    )
