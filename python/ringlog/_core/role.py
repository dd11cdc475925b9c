"""A role that this process holds: its lease is renewed beside the caller, and counts as over before it is.

                 sent          sent + ttl / 3            sent + 0.9 ttl      a ttl after the node has counted
    caller       | renewal is sent   | the next one           | held is False      |
    cluster      |     the lease counts from here on                               | another may hold the role

`sent` is the time of the last renewal that succeeded. No node can have counted the lease from before. What remains of
the ttl is for clocks whose rates differ.
"""

from __future__ import annotations

import inspect
import os
import socket
import threading
import time
import weakref
from collections.abc import Callable
from typing import Protocol

from ringlog._core.calls import Attempts, Calls, Moment, path
from ringlog._core.checks import check_name, check_number, check_role, invalid
from ringlog._core.io import Io, Task
from ringlog._core.notices import Outage, log_warning
from ringlog._core.publisher import PUBLISH, Publisher, lease_headers
from ringlog.errors import Closed, OutcomeUnknown, RinglogError, RoleHeld, RoleLost, Unavailable
from ringlog.event import Json, Result

MIN_TTL, MAX_TTL = 2.0, 3600.0  # seconds
MARGIN = 0.1  # the share of a lease that its holder does not use
RENEWALS_PER_TTL = 3
MAX_WAIT = 5.0  # seconds for which one call waits in the queue
LOOK = 1.0  # seconds between looks at the clocks, of which one stops while the machine sleeps
REMEDY = "stop what the role allows; acquire it again to continue"


class Flag(Protocol):
    """An Event of threading or asyncio."""

    def set(self) -> None:
        """Wake those that wait for it."""

    def is_set(self) -> bool:
        """Report whether it was set."""


class Attached(Protocol):
    """What ends with a lease: a reader, or a member of a group."""

    def fail(self, error: RinglogError) -> None:
        """End with an error."""


class RoleState:
    """A role of a client: its lease from acquire to release, or until it is lost.

    fence  that of the lease, 0 before it is acquired
    over   why there is no lease any more; None while there is one
    lost   is set once the lease is over, unless it was released
    """

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
        check_number("ttl", ttl, MIN_TTL, MAX_TTL, 15)
        if not isinstance(wait, bool):
            check_number("wait", wait, 0, 1e9, 30, default=", or True or False")
        self.holder = f"{socket.gethostname()[:200]}:{os.getpid()}" if holder is None else holder
        check_name("holder", self.holder)
        self._io, self._calls, self._publisher = io, calls, publisher
        self.name, self.ttl, self.lost = name, ttl, lost
        self._wait = 1e9 if wait is True else float(wait)
        self._session = os.urandom(16).hex()
        self._claimed = False  # the cluster has the claim, which holds the role or waits
        self.fence = 0
        self.over: RoleLost | None = None
        self._sent = Moment.now()
        self._failure: RinglogError | None = None  # of the last renewal
        self._lock = threading.RLock()  # guards over and _callbacks; the handler of a signal may release, too
        self._callbacks: list[Callable[[], object]] = []
        self._attached: weakref.WeakSet[Attached] = weakref.WeakSet()
        self._publishing: set[Attempts] = set()
        self._ended = io.signal()  # set once the lease is over
        self._tasks: list[Task] = []
        self._pid = os.getpid()

    @property
    def headers(self) -> dict[str, str]:
        """The headers of a request that is refused once the lease is over."""
        return lease_headers(self.name, self.fence)

    # Acquire.

    async def acquire(self) -> None:
        """Acquire the role and keep it. Once it is acquired this only checks that it is held."""
        if self.fence or self.over is not None:
            self.check()
            return
        try:
            await self._claim()
        except GeneratorExit:
            raise
        except BaseException as e:
            # Nobody renews the claim: it would hold the role, or its place in the queue, for a ttl.
            if self._claimed or isinstance(e, OutcomeUnknown) or not isinstance(e, RinglogError):
                await self._leave(self._calls.config.attempt_timeout)
            self.fence = 0
            if isinstance(e, Closed):
                self._calls.nodes.close()  # which a closed client has done before
            raise
        self._tasks = [self._io.spawn("ringlog-role", self._watch), self._io.spawn("ringlog-lease", self._keep)]

    async def _claim(self) -> None:
        """Wait in the queue until the role is this claim's, and the time is known from which its lease counts."""
        until = time.monotonic() + self._wait
        outage = Outage(f"role {self.name}")
        answer: Json = {}
        while True:
            # Each call renews the claim's place in the queue.
            self._check_open()
            wait = max(0.0, min(MAX_WAIT, self.ttl / RENEWALS_PER_TTL, until - time.monotonic()))
            if answer and wait == 0:
                raise RoleHeld(
                    f"{answer['holder']} holds {self.name}, with the fence {answer['fence']}",
                    code="held",
                    field="role",
                    remedy="wait for longer, or revoke the role: Client.revoke_role",
                    offset=answer["fence"],
                )
            claim = {"holder": self.holder, "session": self._session, "ttl": f"{self.ttl}s", "wait": f"{wait:.3f}s"}

            # One who waits already waits for the cluster as well.
            patience = self._calls.config.timeout
            if answer:
                patience = max(patience, until - time.monotonic())
            target = path("roles", self.name)
            tries = Attempts(f"PUT {target}", patience)
            tries.outage = outage
            attempt = wait + self._calls.config.attempt_timeout
            answer = await self._calls.call("PUT", target, claim, attempt=attempt, tries=tries)
            outage.over()
            self._claimed = answer["acquired"] or answer["place"] > 0
            if not answer["acquired"]:
                continue

            # The answer may have waited on its way: the lease counts from a renewal on.
            self.fence, sent = answer["fence"], Moment.now()
            if await self._renew(self._calls.config.timeout, self._calls.config.attempt_timeout):
                self._check_open()
                self._sent = sent
                return
            self.fence = 0

    def _check_open(self) -> None:
        if self.over is not None:
            raise Closed(f"the wait for role {self.name} has ended: it was released, or its client was closed")

    async def _renew(self, patience: float, attempt: float) -> bool:
        """Renew the lease; False if it is over."""
        lease = {"role": self.name, "fence": self.fence}
        answer = await self._calls.call("PUT", "/v1/roles", {"leases": [lease]}, patience=patience, attempt=attempt)
        return not answer["lost"]

    async def _leave(self, timeout: float) -> bool:
        """End the claim in the cluster; False if no node has answered, and it ends by itself."""
        attempt = min(self._calls.config.attempt_timeout, max(timeout, 0.01))
        query = {"session": self._session}
        try:
            await self._calls.call(
                "DELETE", path("roles", self.name), None, query, patience=max(timeout, 0.0), attempt=attempt
            )
        except RinglogError as e:
            log_warning("role %s could not be released, and ends in %g s at most: %s", self.name, self.ttl, e)
            return False
        return True

    # Keep.

    def _left(self) -> float:
        """Return the seconds for which the lease is certainly this process's."""
        return self.ttl * (1 - MARGIN) - self._sent.elapsed()

    async def _keep(self) -> None:
        """Renew the lease until it is over."""
        began = self._sent
        while self.over is None:
            seen = self._ended.version
            if self.over is None:
                await self._ended.wait(seen, max(0.0, self.ttl / RENEWALS_PER_TTL - began.elapsed()))
            left = self._left()
            if self.over is not None or left <= 0:
                return
            began = Moment.now()
            patience = min(left, self.ttl / RENEWALS_PER_TTL)
            try:
                held = await self._renew(patience, min(patience, self._calls.config.attempt_timeout))
            except RinglogError as e:
                self._failure = e
                continue
            if not held:
                self.lose(self._lost("the cluster has ended the lease"))
                return
            self._sent, self._failure = began, None

    async def _watch(self) -> None:
        """End the lease in time, also while a renewal waits for its answer."""
        try:
            while self.over is None:
                seen = self._ended.version
                left = self._left()
                if left <= 0:
                    why = "" if self._failure is None else f": {self._failure}"
                    self.lose(self._lost(f"the lease was not renewed in time{why}"))
                elif self.over is None:
                    await self._ended.wait(seen, min(left, LOOK))
        finally:
            self.lose(self._lost("nothing renews the lease any more"))  # as after the end of an event loop

    def _lost(self, why: str) -> RoleLost:
        return RoleLost(
            f"role {self.name} with the fence {self.fence}: {why}", code="fenced", field="fence", remedy=REMEDY
        )

    def held(self) -> bool:
        """Report whether the lease is certainly this process's."""
        return self.over is None and self.fence > 0 and self._pid == os.getpid() and self._left() > 0

    def check(self) -> None:
        """Raise RoleLost unless the role is held."""
        if self.over is not None:
            raise self.over
        if self._pid != os.getpid():
            raise self._lost("the lease belongs to the parent process")
        if not self.fence:
            raise self._lost("it is not acquired yet")
        if self._left() <= 0:
            raise self._lost("the lease was not renewed in time")

    def lose(self, error: RoleLost) -> None:
        """End the lease as one that is lost, and report that to all who wait for it."""
        with self._lock:
            if self.over is not None:
                return
            self.over = error
            callbacks, self._callbacks = self._callbacks, []
        log_warning("role %s is lost: %s", self.name, error.message)
        self.lost.set()
        self._stop(error)
        for callback in callbacks:
            _run(callback)

    def _end(self, why: str) -> None:
        """End the lease as one that is not lost."""
        with self._lock:
            if self.over is not None:
                return
            self.over = error = self._lost(why)
        self._stop(error)

    def _stop(self, error: RoleLost) -> None:
        """Stop what runs under the lease."""
        self._ended.set()
        for tries in tuple(self._publishing):
            tries.stop()
        for attached in tuple(self._attached):
            attached.fail(error)

    def on_lost(self, callback: Callable[[], object]) -> None:
        """Have a function called once the role is lost, at once if it is."""
        if not callable(callback) or inspect.iscoroutinefunction(callback):
            raise invalid("callback", f"{callback!r:.80} is no function to be called", "give one without async")
        with self._lock:
            if self.over is None:
                self._callbacks.append(callback)
                return
        if self.lost.is_set():
            _run(callback)

    # Use and release.

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

    async def release(self, timeout: float) -> bool:
        """End the lease, and have the cluster give the role to the next; False if it ends by itself."""
        if self._pid != os.getpid():
            return False
        held, acquired = self.over is None, self.fence > 0
        self._end("it was released")
        done = await self._leave(timeout) if held and acquired else True
        for task in self._tasks:
            await task.join(1.0)
        return done

    def kill(self) -> None:
        """End as a process does that is killed: nothing renews or releases the lease from now on."""
        self._end("its process was killed")


def _run(callback: Callable[[], object]) -> None:
    """Call a callback, whose error ends nothing else."""
    try:
        callback()
    except Exception as e:
        log_warning("a callback of on_lost has failed: %r: %s", callback, e, exc_info=e)
