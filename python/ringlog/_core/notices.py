"""What is logged of its own accord: what nodes warn about, and the events that a handler could not handle."""

from __future__ import annotations

import contextlib
import json
import math
import threading
import time
from collections.abc import Callable, Hashable, Iterable
from typing import Any

from ringlog.event import Event, Json, error_text

FAILURE_PERIOD = 60.0  # seconds for which the same error of a handler is not logged again
MAX_SEEN = 1024

OnWarning = Callable[[Json], None]


class Once:
    """Tells what is new from what was seen within period seconds. Past MAX_SEEN all is forgotten."""

    def __init__(self, period: float = math.inf) -> None:
        self._period = period
        self.after_fork()
        self._seen: dict[Hashable, float] = {}

    def after_fork(self) -> None:
        """Renew the lock, which a thread of the parent may have held."""
        self._lock = threading.RLock()  # the handler of a signal may publish, too

    def is_new(self, item: Hashable) -> bool:
        """Note an item, and report whether it was not noted before."""
        now = time.monotonic()
        with self._lock:
            if now - self._seen.get(item, -math.inf) < self._period:
                return False
            if len(self._seen) >= MAX_SEEN:
                self._seen.clear()
            self._seen[item] = now
            return True


class Warnings:
    """Reports what nodes warn about, each warning once: a reader that reconnects gives its filter again."""

    def __init__(self, on_warning: OnWarning | None) -> None:
        self._on_warning = on_warning or _log_warning
        self._once = Once()
        self.after_fork = self._once.after_fork

    def report_header(self, text: str) -> None:
        """Report the warnings of a header. One that cannot be read, of a later version, is ignored."""
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            self.report(json.loads(text))

    def report(self, warnings: Iterable[Json]) -> None:
        """Report the warnings that are new."""
        for warning in warnings:
            if self._once.is_new((warning.get("reason"), warning.get("field"), warning.get("message"))):
                self._on_warning(warning)


def _log_warning(warning: Json) -> None:
    _log("a node warns about %s: %s", warning.get("field"), warning.get("message"))


class Failures:
    """Logs the events that a reader's handler could not handle, the same error once in FAILURE_PERIOD."""

    def __init__(self, reader: str) -> None:
        self._reader = reader
        self._once = Once(FAILURE_PERIOD)

    def report(self, event: Event | int | None, outcome: str, error: str | BaseException) -> None:
        """Log an event with what became of it, such as "nacked", and the traceback of an exception."""
        text = error_text(error)
        if self._once.is_new((outcome, text)):
            which = f"{event.offset} ({event.type})" if isinstance(event, Event) else event
            trace = error if isinstance(error, BaseException) else None
            _log("%s: event %s was %s: %s", self._reader, which, outcome, text or "no error was given", exc_info=trace)


def _log(message: str, *args: Any, exc_info: BaseException | None = None) -> None:
    import logging  # takes long to import, and is rarely needed

    logging.getLogger("ringlog").warning(message, *args, exc_info=exc_info)
