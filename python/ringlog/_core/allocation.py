"""An allocation that this process holds: amounts of resources, all or none."""

from __future__ import annotations

import os
from collections.abc import Mapping

from ringlog._core.calls import Calls, path
from ringlog._core.checks import invalid
from ringlog._core.io import Io
from ringlog._core.lease import Flag, LeaseState
from ringlog.errors import AllocationLost, NotGranted, RinglogError
from ringlog.event import Json

MAX_TTL = 86400.0  # seconds
REMEDY = "stop what it allows; allocate again to continue"


class AllocationState(LeaseState):
    """An allocation of a client."""

    _all = "/v1/allocations"

    def __init__(
        self,
        io: Io,
        calls: Calls,
        amounts: Mapping[str, int],
        priority: str,
        ttl: float,
        wait: bool | float,
        holder: str | None,
        lost: Flag,
    ) -> None:
        if not isinstance(amounts, Mapping):
            message = f"{amounts!r:.80} does not name amounts of resources"
            raise invalid("amounts", message, 'give a dict such as {"net:gpu-1": 50}')
        super().__init__(io, calls, ttl, MAX_TTL, wait, holder, lost)
        self.id, self.amounts = os.urandom(16).hex(), dict(amounts)
        self.what = f"allocation {self.id}"
        self._target = path("allocations", self.id)
        self._claim = {"amounts": self.amounts, "priority": priority}

    def _holds(self, answer: Json) -> bool:
        return bool(answer["granted"])

    def _waits(self, answer: Json) -> bool:
        return bool(answer["waiting"])

    def _refusal(self, answer: Json, over: bool) -> RinglogError | None:
        if over:
            remedy = "wait for longer, or look at Client.allocations() for who has what"
            message = f"{_text(self.amounts)} is not free, or others wait for it"
            return NotGranted(message, code="not_granted", field="amounts", remedy=remedy)
        # Who released it does not want it to be granted.
        return None if self._waits(answer) else self._lost("the request was released")

    def _lease(self) -> Json:
        return {"allocation": self.id, "fence": self.fence}

    def _lost(self, why: str) -> RinglogError:
        fence = f" with the fence {self.fence}" if self.fence else ""
        return AllocationLost(f"{_text(self.amounts)}{fence}: {why}", code="lost", remedy=REMEDY)


def _text(amounts: Mapping[str, int]) -> str:
    """Return amounts as the command line has them."""
    return " ".join(f"{name}={amount}" for name, amount in amounts.items())
