"""A role that this process holds, and what it publishes and reads under it."""

from __future__ import annotations

import os
import weakref
from typing import Protocol

from ringlog._core.calls import Attempts, Calls, path
from ringlog._core.checks import check_number, check_role
from ringlog._core.io import Io
from ringlog._core.lease import Flag, LeaseState
from ringlog._core.publisher import PUBLISH, Publisher, lease_headers
from ringlog.errors import OutcomeUnknown, RinglogError, RoleHeld, RoleLost, Unavailable
from ringlog.event import Json, Result

MAX_TTL = 3600.0  # seconds
REMEDY = "stop what the role allows; acquire it again to continue"


class Attached(Protocol):
    """What ends with a lease: a reader, or a member of a group."""

    def fail(self, error: RinglogError) -> None:
        """End with an error."""


class ForeignRole:
    """A role that another process holds, such as the parent of this one, and which only the cluster can find lost."""

    def __init__(self, name: str, fence: int) -> None:
        check_role(name)
        check_number("fence", fence, 1, 1 << 63, 1, whole=True)
        self.name, self.fence = name, fence
        self._lost: RinglogError | None = None
        self._attached: weakref.WeakSet[Attached] = weakref.WeakSet()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that is refused once the lease is over."""
        return lease_headers(self.name, self.fence)

    def check(self) -> None:
        """Raise RoleLost if the cluster has said that the lease is over."""
        if self._lost is not None:
            raise self._lost

    def attach(self, attached: Attached) -> None:
        """Have a reader or a member end once the lease is known to be over."""
        self._attached.add(attached)

    def lose(self, error: RinglogError) -> None:
        """Note that the cluster has said that the lease is over."""
        self._lost = error
        for attached in tuple(self._attached):
            attached.fail(error)


class RoleState(LeaseState):
    """A role of a client."""

    _all = "/v1/roles"

    def __init__(
        self,
        io: Io,
        calls: Calls,
        publisher: Publisher,
        name: str,
        ttl: float,
        wait: bool | float,
        holder: str | None,
        lost: Flag,
    ) -> None:
        check_role(name)
        super().__init__(io, calls, ttl, MAX_TTL, wait, holder, lost)
        self.name, self.what, self._publisher = name, f"role {name}", publisher
        self._session = os.urandom(16).hex()
        self._target, self._claim = path("roles", name), {"session": self._session}
        self._release_query = {"session": self._session}
        self._attached: weakref.WeakSet[Attached] = weakref.WeakSet()
        self._publishing: set[Attempts] = set()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that is refused once the lease is over."""
        return lease_headers(self.name, self.fence)

    def _holds(self, answer: Json) -> bool:
        return bool(answer["acquired"])

    def _waits(self, answer: Json) -> bool:
        return bool(answer["place"])

    def _refusal(self, answer: Json, over: bool) -> RinglogError | None:
        if not over:
            return None
        return RoleHeld(
            f"{answer['holder']} holds {self.name}, with the fence {answer['fence']}",
            code="held",
            field="role",
            remedy="wait for longer, or revoke the role: Client.revoke_role",
            offset=answer["fence"],
        )

    def _lease(self) -> Json:
        return {"role": self.name, "fence": self.fence}

    def _lost(self, why: str) -> RinglogError:
        return RoleLost(
            f"role {self.name} with the fence {self.fence}: {why}", code="fenced", field="fence", remedy=REMEDY
        )

    def _stop(self, error: RinglogError) -> None:
        super()._stop(error)
        for tries in tuple(self._publishing):
            tries.stop()
        for attached in tuple(self._attached):
            attached.fail(error)

    def attach(self, attached: Attached) -> None:
        """Have a reader or a member end with the lease."""
        self._attached.add(attached)
        if self.over is not None:
            attached.fail(self.over)

    async def publish(self, body: bytes) -> list[Result]:
        """Append the events of a request, all or none, if the lease is not over when the cluster decides."""
        self.check()
        tries = Attempts(PUBLISH, self._calls.config.timeout)
        self._publishing.add(tries)
        try:
            return await self._publisher.publish_under(self.headers, body, tries)
        except RoleLost as e:
            self.lose(e)
            raise
        except OutcomeUnknown as e:
            if isinstance(e.__cause__, RoleLost):
                self.lose(e.__cause__)
            raise
        except Unavailable as e:
            # The end of the lease has stopped it, and nothing has happened.
            if self.over is not None:
                raise self.over from e
            raise
        finally:
            self._publishing.discard(tries)
