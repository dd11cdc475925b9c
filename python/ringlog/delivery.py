"""Delivery: an event that a member of a group is to handle."""

from __future__ import annotations

from typing import Protocol

from ringlog.errors import InvalidArgument
from ringlog.event import Event, Json, error_text

MAX_DELAY = 86400.0  # seconds; nodes take no more


class Holder(Protocol):
    """What a delivery is reported to: the member that holds it."""

    def settle(self, offset: int, nack: Json | None) -> bool:
        """Note an ack (None) or nack; False if the event is no longer held."""

    def extend(self, offset: int) -> bool:
        """Begin the ack wait again; False if the event is no longer held."""

    def failed(self, event: Event, outcome: str, error: str | BaseException) -> None:
        """Log that an event could not be handled."""


class Delivery(Event):
    """An event that a member of a group is to handle, and then to ack or nack.

    It is an Event: delivery.payload is the payload. The methods note what is to be reported and return at
    once, in the blocking and in the asyncio client; the member reports it in a moment, and it is durable once
    the member's flush or close has returned. They return False if the event is no longer the member's: it took
    longer than the group's ack wait, and another member gets it.
    """

    __slots__ = ("_holder",)

    def __init__(self, raw: Json, holder: Holder) -> None:
        super().__init__(raw)
        self._holder = holder

    @property
    def delivery(self) -> int:
        """Which delivery of the event this is, from 1."""
        number: int = self.raw["delivery"]
        return number

    def ack(self) -> bool:
        """Report the event as handled."""
        return self._holder.settle(self.offset, None)

    def nack(self, delay: float = 0.0, error: str | BaseException = "", handler: str = "") -> bool:
        """Report that the event could not be handled: it is redelivered after delay seconds.

        After the last delivery that the group allows it becomes a dead letter with the error and the
        handler, which is the member's name by default. With an error it is logged, the same one once a minute.
        """
        if not isinstance(delay, int | float) or not 0 <= delay <= MAX_DELAY:
            raise InvalidArgument(
                f"{delay!r:.40} is not a number of seconds from 0 to {MAX_DELAY:.0f}",
                code="invalid_argument",
                field="delay",
            )
        return self._nack(error, handler, {"delay_ms": int(delay * 1000)})

    def reject(self, error: str | BaseException = "", handler: str = "") -> bool:
        """Make the event a dead letter at once. It is logged, the same error once a minute."""
        return self._nack(error, handler, {"dead": True})

    def release(self) -> bool:
        """Return the event unhandled: it is redelivered without counting as a delivery."""
        return self._holder.settle(self.offset, {"offset": self.offset, "released": True})

    def progress(self) -> bool:
        """Report that the event is still being handled: its ack wait begins again."""
        return self._holder.extend(self.offset)

    def _nack(self, error: str | BaseException, handler: str, what: Json) -> bool:
        nack = {"offset": self.offset, "delivery": self.delivery, "handler": handler, **what}
        nack["error"] = error_text(error)
        held = self._holder.settle(self.offset, nack)
        if held and ("dead" in what or nack["error"]):
            self._holder.failed(self, "rejected" if "dead" in what else "nacked", error)
        return held
