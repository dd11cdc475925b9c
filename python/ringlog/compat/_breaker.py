"""HandlerBreaker: a handler that fails on event after event is not called for a while, as in Go's router."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from ringlog.compat.data_pipeline_orchestrator import CircuitBreaker, CircuitBreakerState
from ringlog.event import Json

CLOSED, OPEN, HALF_OPEN = CircuitBreakerState.CLOSED, CircuitBreakerState.OPEN, CircuitBreakerState.HALF_OPEN
NOTICES = {OPEN: "CIRCUIT_BREAKER_OPENED", HALF_OPEN: "CIRCUIT_BREAKER_HALF_OPEN", CLOSED: "CIRCUIT_BREAKER_CLOSED"}


class HandlerBreaker:
    """The circuit breaker of one handler, which is called in one thread.

    It opens once `failures` different events have failed and no attempt succeeded in between, for reset_timeout
    seconds; then the next attempt closes it or opens it again. Without failures it never opens. That it is half open
    is reported when its time is over, also where no event waits for that.
    """

    def __init__(self, failures: int, reset_timeout: float, report: Callable[[str, Json], None]) -> None:
        self._breaker = CircuitBreaker(failures or 1, reset_timeout)  # which checks the numbers
        self._off = not failures
        self._report = report
        self._lock = threading.Lock()  # guards what follows; the timer is another thread
        self._state, self._since = CLOSED, time.monotonic()
        self._timer: threading.Timer | None = None  # while it is open

    @property
    def state(self) -> str:
        """What it does now, as a registration has it."""
        return "off" if self._off else self._name(self._breaker.state)

    @staticmethod
    def _name(state: CircuitBreakerState) -> str:
        return state.value.replace("_", "-")

    def open_for(self) -> float:
        """Return the seconds until an attempt may be made, 0 if one may now."""
        return 0.0 if self._off else self._breaker.open_for()

    def enter(self) -> None:
        """Note that an attempt begins."""
        if not self._off:
            self._breaker.can_execute()
            self._note_state("", 0)

    def leave(self, error: str, first: bool) -> None:
        """Note the error of an attempt, "" for success; first is whether it was the first at its event."""
        if self._off:
            return
        if not error:
            self._breaker.record_success()
        elif first or self._state is not CLOSED:
            # An event counts once, however often it fails: the fault may be its own.
            self._breaker.record_failure(error=error)
            status = self._breaker.get_status()
            count, threshold = status["failure_count"], status["failure_threshold"]
            if self._state is CLOSED and count == threshold - 1:
                warning = {"state": "closed", "failures": count, "threshold": threshold, "error": error}
                self._report("CIRCUIT_BREAKER_THRESHOLD", warning)
        self._note_state(error, self._breaker.failure_threshold if self._state is CLOSED else 0)

    def close(self) -> None:
        """Report nothing more by itself."""
        with self._lock:
            if self._timer is not None:
                self._timer.cancel()

    def _note_state(self, error: str, failures: int) -> None:
        """Report the state if it has changed."""
        with self._lock:
            state, previous = self._breaker.state, self._state
            if state is previous:
                return
            now = time.monotonic()
            payload: Json = {"state": self._name(state), "failures": failures, "previous": self._name(previous)}
            payload["previous_seconds"] = now - self._since
            if error:
                payload["error"] = error
            if state is OPEN:
                payload["half_open_after_seconds"] = self._breaker.reset_timeout_seconds
                self._timer = threading.Timer(self._breaker.open_for(), self._note_state, ("", 0))
                self._timer.daemon = True
                with contextlib.suppress(RuntimeError):  # the interpreter ends, and starts no more threads
                    self._timer.start()
            self._state, self._since = state, now
            self._report(NOTICES[state], payload)
