"""CircuitBreaker. In place of the one in app.coordination.data_pipeline_orchestrator."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from enum import Enum

from ringlog.errors import InvalidArgument
from ringlog.event import Json


class CircuitBreakerState(str, Enum):
    """Normal operation, rejecting, or testing recovery."""

    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class CircuitBreaker:
    """Rejects work after failure_threshold failures in a row, and tests after reset_timeout_seconds whether it works.

    HALF_OPEN lets half_open_max_requests through: a success closes it, a failure opens it again.
    """

    def __init__(
        self,
        failure_threshold: int = 3,
        reset_timeout_seconds: float = 300.0,
        half_open_max_requests: int = 1,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        for name, value in (
            ("failure_threshold", failure_threshold),
            ("reset_timeout_seconds", reset_timeout_seconds),
            ("half_open_max_requests", half_open_max_requests),
        ):
            if value <= 0:
                raise InvalidArgument(f"{value} is not above 0", code="invalid_argument", field=name)
        self.failure_threshold, self.reset_timeout_seconds = failure_threshold, reset_timeout_seconds
        self.half_open_max_requests = half_open_max_requests
        self._clock = clock
        self._lock = threading.Lock()
        self._failures = 0  # in a row
        self._opened_at: float | None = None
        self._half_open = False
        self._let_through: list[float] = []  # when each test began that has no outcome
        self._failures_by_stage: dict[str, int] = {}
        self._last_error = ""

    @property
    def state(self) -> CircuitBreakerState:
        """What it does now."""
        with self._lock:
            return self._look()

    def _look(self) -> CircuitBreakerState:
        if self._opened_at is None:
            return CircuitBreakerState.CLOSED
        if not self._half_open and self._clock() - self._opened_at >= self.reset_timeout_seconds:
            self._half_open, self._let_through = True, []
        return CircuitBreakerState.HALF_OPEN if self._half_open else CircuitBreakerState.OPEN

    def open_for(self) -> float:
        """Return the seconds until a test is let through, 0 unless it is open."""
        with self._lock:
            if self._look() is not CircuitBreakerState.OPEN or self._opened_at is None:
                return 0.0
            return self._opened_at + self.reset_timeout_seconds - self._clock()

    def can_execute(self) -> bool:
        """Report whether to do the work now; record what became of it."""
        with self._lock:
            state = self._look()
            if state is not CircuitBreakerState.HALF_OPEN:
                return state is CircuitBreakerState.CLOSED
            # A test whose outcome nobody has recorded does not block for ever.
            now = self._clock()
            self._let_through = [t for t in self._let_through if now - t < self.reset_timeout_seconds]
            if len(self._let_through) >= self.half_open_max_requests:
                return False
            self._let_through.append(now)
            return True

    def record_success(self, stage: str = "") -> None:
        """Record work that succeeded: the breaker closes."""
        with self._lock:
            self._failures, self._opened_at, self._half_open = 0, None, False
            self._failures_by_stage.pop(stage, None)

    def record_failure(self, stage: str = "", error: str = "") -> None:
        """Record work that failed."""
        with self._lock:
            state = self._look()
            self._failures += 1
            self._failures_by_stage[stage] = self._failures_by_stage.get(stage, 0) + 1
            self._last_error = error
            if state is CircuitBreakerState.HALF_OPEN or self._failures >= self.failure_threshold:
                self._opened_at, self._half_open = self._clock(), False

    def reset(self) -> None:
        """Close it by hand."""
        self.record_success()

    def get_status(self) -> Json:
        """Return its state with what led to it."""
        with self._lock:
            return {
                "state": self._look().value,
                "failure_count": self._failures,
                "failure_threshold": self.failure_threshold,
                "reset_timeout_seconds": self.reset_timeout_seconds,
                "failures_by_stage": dict(self._failures_by_stage),
                "last_error": self._last_error,
            }


CircuitState = CircuitBreakerState

__all__ = ["CircuitBreaker", "CircuitBreakerState", "CircuitState"]
