"""What this process holds as long as it renews it: a role, or an allocation. Its lease counts as over before it is.

                 sent          sent + ttl / 3            sent + 0.9 ttl      a ttl after the node has counted
    caller       | renewal is sent   | the next one           | held is False      |
    cluster      |     the lease counts from here on                               | another may hold it

`sent` is the time of the last renewal that succeeded. No node can have counted the lease from before. What remains of
the ttl is for clocks whose rates differ.
"""

from __future__ import annotations

import inspect
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Protocol

from ringlog._core.calls import Attempts, Calls, Moment, Query
from ringlog._core.checks import check_name, check_number, invalid
from ringlog._core.io import Io, Task
from ringlog._core.notices import Outage, log_warning
from ringlog.errors import Closed, OutcomeUnknown, RinglogError
from ringlog.event import Json

MIN_TTL = 2.0  # seconds
MARGIN = 0.1  # the share of a lease that its holder does not use
RENEWALS_PER_TTL = 3
MAX_WAIT = 5.0  # seconds for which one call waits in the queue
LOOK = 1.0  # seconds between looks at the clocks, of which one stops while the machine sleeps


class Flag(Protocol):
    """An Event of threading or asyncio."""

    def set(self) -> None:
        """Wake those that wait for it."""

    def is_set(self) -> bool:
        """Report whether it was set."""


class LeaseState:
    """A lease of a client, from acquire to release, or until it is lost.

    fence  that of the lease, 0 before it is acquired
    over   why there is no lease any more; None while there is one
    lost   is set once the lease is over, unless it was released
    """

    # What a kind of lease has of its own: how it is called, and where and how it is asked for, renewed and released.
    what: str  # such as "role SYNC"
    _target: str
    _claim: Json  # the body of a request, without the wait
    _all: str  # the path of renewals
    _release_query: Query | None = None

    def __init__(
        self, io: Io, calls: Calls, ttl: float, most: float, wait: bool | float, holder: str | None, lost: Flag
    ) -> None:
        check_number("ttl", ttl, MIN_TTL, most, 15)
        if not isinstance(wait, bool):
            check_number("wait", wait, 0, 1e9, 30, default=", or True or False")
        self.holder = f"{socket.gethostname()[:200]}:{os.getpid()}" if holder is None else holder
        check_name("holder", self.holder)
        self._io, self._calls = io, calls
        self.ttl, self.lost = ttl, lost
        self._wait = 1e9 if wait is True else float(wait)
        self._claimed = False  # the cluster has the claim, which holds the lease or waits
        self._asking: Task | None = None  # the newest call for the lease
        self.fence = 0
        self.over: RinglogError | None = None
        self._sent = Moment.now()
        self._failure: RinglogError | None = None  # of the last renewal
        self._lock = threading.RLock()  # guards over and _callbacks; the handler of a signal may release, too
        self._callbacks: list[Callable[[], object]] = []
        self._ended = io.signal()  # set once the lease is over
        self._tasks: list[Task] = []
        self._pid = os.getpid()

    def _holds(self, answer: Json) -> bool:
        """Report whether an answer has the lease."""
        raise NotImplementedError

    def _waits(self, answer: Json) -> bool:
        """Report whether an answer has the claim in a queue."""
        raise NotImplementedError

    def _refusal(self, answer: Json, over: bool) -> RinglogError | None:
        """Return why the claim does not wait on after an answer. over says that its time is over."""
        raise NotImplementedError

    def _lease(self) -> Json:
        """Return the lease as a renewal has it."""
        raise NotImplementedError

    def _lost(self, why: str) -> RinglogError:
        """Return the error of a lease that is over."""
        raise NotImplementedError

    # Acquire.

    async def acquire(self) -> None:
        """Acquire the lease and keep it. Once it is acquired this only checks that it is held."""
        if self.fence or self.over is not None:
            self.check()
            return
        try:
            await self._await_turn()
        except GeneratorExit:
            raise
        except BaseException as e:
            # Nobody renews the claim: it would hold the lease, or its place in the queue, for a ttl.
            if self._claimed or isinstance(e, OutcomeUnknown) or not isinstance(e, RinglogError):
                late, patience = self._asking, self._calls.config.attempt_timeout
                on_its_way = late is not None and late.alive()
                await self._leave(patience)
                # The release ends a call that was on its way, which a node may have carried out after it.
                if late is not None and on_its_way:
                    await late.join(patience)
                    await self._leave(patience)
            self.fence = 0
            if isinstance(e, Closed):
                self._calls.nodes.close()  # which a closed client has done before
            raise
        self._tasks = [self._io.spawn("ringlog-watch", self._watch), self._io.spawn("ringlog-lease", self._keep)]

    async def _await_turn(self) -> None:
        """Wait in the queue until the lease is this claim's, and the time is known from which it counts."""
        until = time.monotonic() + self._wait
        outage = Outage(self.what)
        answer: Json = {}
        while True:
            # Each call renews the claim's place in the queue.
            self._check_open()
            wait = round(max(0.0, min(MAX_WAIT, self.ttl / RENEWALS_PER_TTL, until - time.monotonic())), 3)
            if answer and (refusal := self._refusal(answer, wait == 0)):
                raise refusal
            claim = {**self._claim, "holder": self.holder, "ttl": f"{self.ttl}s", "wait": f"{wait}s"}

            # One who waits already waits for the cluster as well.
            patience = self._calls.config.timeout
            if answer:
                patience = max(patience, until - time.monotonic())
            tries = Attempts(f"PUT {self._target}", patience, aside=True)
            tries.outage = outage
            attempt = wait + self._calls.config.attempt_timeout
            answer = await self._ask(claim, attempt, tries)
            outage.over()
            self._claimed = self._holds(answer) or self._waits(answer)
            if not self._holds(answer):
                continue

            # The answer may have waited on its way: the lease counts from a renewal on.
            self.fence, sent = answer["fence"], Moment.now()
            if await self._renew(self._calls.config.timeout, self._calls.config.attempt_timeout):
                self._check_open()
                self._sent = sent
                return
            self.fence = 0

    async def _ask(self, claim: Json, attempt: float, tries: Attempts) -> Json:
        """Make a call for the lease beside the caller, who may stop waiting before there is an answer."""
        answers: list[Json] = []
        errors: list[BaseException] = []
        answered = self._io.signal()

        async def ask() -> None:
            try:
                answers.append(await self._calls.call("PUT", self._target, claim, attempt=attempt, tries=tries))
            except BaseException as e:  # the caller's
                errors.append(e)
            answered.set()

        self._asking = self._io.spawn("ringlog-claim", ask)
        while not (answers or errors):
            seen = answered.version
            if not (answers or errors):
                await answered.wait(seen, None)
        if errors:
            raise errors[0]
        return answers[0]

    def _check_open(self) -> None:
        if self.over is not None:
            raise Closed(f"the wait for {self.what} has ended: it was released, or its client was closed")

    async def _renew(self, patience: float, attempt: float) -> bool:
        """Renew the lease; False if it is over."""
        leases = {"leases": [self._lease()]}
        tries = Attempts(f"PUT {self._all}", patience, aside=True)  # thousands of processes do so every few seconds
        answer = await self._calls.call("PUT", self._all, leases, attempt=attempt, tries=tries)
        return not answer["lost"]

    async def _leave(self, timeout: float) -> bool:
        """End the claim in the cluster; False if no node has answered, and it ends by itself."""
        attempt = min(self._calls.config.attempt_timeout, max(timeout, 0.01))
        query, patience = self._release_query, max(timeout, 0.0)
        try:
            await self._calls.call("DELETE", self._target, None, query, patience=patience, attempt=attempt)
        except RinglogError as e:
            log_warning("%s could not be released, and ends in %g s at most: %s", self.what, self.ttl, e)
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

    def held(self) -> bool:
        """Report whether the lease is certainly this process's."""
        return self.over is None and self.fence > 0 and self._pid == os.getpid() and self._left() > 0

    def check(self) -> None:
        """Raise why there is no lease, unless it is held."""
        if self.over is not None:
            raise self.over
        if self._pid != os.getpid():
            raise self._lost("the lease belongs to the parent process")
        if not self.fence:
            raise self._lost("it is not acquired yet")
        if self._left() <= 0:
            raise self._lost("the lease was not renewed in time")

    def lose(self, error: RinglogError) -> None:
        """End the lease as one that is lost, and report that to all who wait for it."""
        with self._lock:
            if self.over is not None:
                return
            self.over = error
            callbacks, self._callbacks = self._callbacks, []
        log_warning("%s is lost: %s", self.what, error.message)
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

    def _stop(self, error: RinglogError) -> None:
        """Stop what runs under the lease."""
        self._ended.set()

    def on_lost(self, callback: Callable[[], object]) -> None:
        """Have a function called once the lease is lost, at once if it is."""
        if not callable(callback) or inspect.iscoroutinefunction(callback):
            raise invalid("callback", f"{callback!r:.80} is no function to be called", "give one without async")
        with self._lock:
            if self.over is None:
                self._callbacks.append(callback)
                return
        if self.lost.is_set():
            _run(callback)

    # Release.

    async def release(self, timeout: float) -> bool:
        """End the lease, and have the cluster give it to the next; False if it ends by itself."""
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
