"""Client of ringlog, a replicated event log. It needs the standard library alone.

    from ringlog import Client

    with Client() as log:
        log.publish("TRAINING_COMPLETED", {"config_key": "hex8_2p"}, key="hex8_2p")
        for event in log.tail("start", types=["training.*"], until_end=True):
            print(event.offset, event.type, event.payload)

Client blocks, AsyncClient is for asyncio. ringlog.errors has the exceptions, ringlog.event what is
sent and received, ringlog.answers the shapes of answers, ringlog.payloads a class for the payload of
each type of the catalogue, ringlog.testing a log in memory for tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ringlog._core.cause import caused_by
from ringlog.client import Allocation, Client, Cursor, Member, Role, RowWatch, Tail, View
from ringlog.delivery import Delivery
from ringlog.errors import OutcomeUnknown, RinglogError
from ringlog.event import Event, Gap, NewEvent, Result

if TYPE_CHECKING:
    from ringlog.aio import (
        AsyncAllocation,
        AsyncClient,
        AsyncCursor,
        AsyncMember,
        AsyncRole,
        AsyncRowWatch,
        AsyncTail,
        AsyncView,
    )
    from ringlog.catalogue import EventType

__version__ = "0.1.0"

__all__ = [
    "Allocation",
    "AsyncAllocation",
    "AsyncClient",
    "AsyncCursor",
    "AsyncMember",
    "AsyncRole",
    "AsyncRowWatch",
    "AsyncTail",
    "AsyncView",
    "Client",
    "Cursor",
    "Delivery",
    "Event",
    "EventType",
    "Gap",
    "Member",
    "NewEvent",
    "OutcomeUnknown",
    "Result",
    "RinglogError",
    "Role",
    "RowWatch",
    "Tail",
    "View",
    "caused_by",
]


def __dir__() -> list[str]:
    return ["__version__", *__all__]


def __getattr__(name: str) -> Any:
    """Import what takes long, such as asyncio, when it is first used."""
    if name.startswith("Async") and name in __all__:
        from ringlog import aio

        return getattr(aio, name)
    if name == "EventType":
        from ringlog.catalogue import EventType

        return EventType
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
