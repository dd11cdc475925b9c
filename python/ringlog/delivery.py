"""Delivery: an event that a member of a group is to handle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ringlog.event import Event, Json, error_text

if TYPE_CHECKING:
    from ringlog._core.member import MemberLoop


class Delivery(Event):
    """An event that a member of a group is to handle, and then to ack or nack.

    The methods note what is to be reported and return at once, in the blocking and in the asyncio
    client; the member reports it in a moment, and it is durable once the member's flush or close has
    returned. They return False if the event is no longer the member's: it took longer than the group's
    ack wait, and another member gets it.
    """

    __slots__ = ("_loop",)

    def __init__(self, raw: Json, loop: MemberLoop) -> None:
        super().__init__(raw)
        self._loop = loop

    @property
    def delivery(self) -> int:
        """Which delivery of the event this is, from 1."""
        number: int = self.raw["delivery"]
        return number

    def ack(self) -> bool:
        """Report the event as handled."""
        return self._loop.settle(self.offset, None)

    def nack(self, delay: float = 0.0, error: str | BaseException = "", handler: str = "") -> bool:
        """Report that the event could not be handled: it is redelivered after delay seconds.

        After the last delivery that the group allows it becomes a dead letter with the error and the
        handler, which is the member's name by default.
        """
        return self._nack(error, handler, {"delay_ms": int(delay * 1000)})

    def reject(self, error: str | BaseException = "", handler: str = "") -> bool:
        """Make the event a dead letter at once."""
        return self._nack(error, handler, {"dead": True})

    def release(self) -> bool:
        """Return the event unhandled: it is redelivered without counting as a delivery."""
        return self._loop.settle(self.offset, {"offset": self.offset, "released": True})

    def progress(self) -> bool:
        """Report that the event is still being handled: its ack wait begins again."""
        return self._loop.progress(self.offset)

    def _nack(self, error: str | BaseException, handler: str, what: Json) -> bool:
        nack = {"offset": self.offset, "error": error_text(error), "handler": handler, **what}
        return self._loop.settle(self.offset, nack)
