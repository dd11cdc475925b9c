"""Publication: an event on its way to the log and to the handlers of this process."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Generator
from concurrent.futures import Future
from typing import Any, TypeVar

from ringlog.compat._event import DataEvent
from ringlog.compat._subscription import OwnTasks, inside_handler
from ringlog.event import Result

T = TypeVar("T")


def running_loop() -> asyncio.AbstractEventLoop | None:
    """Return the event loop of this thread, None without one."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def complete_as(future: Future[T], to: Future[T]) -> None:
    """Complete a future as another one was."""
    if error := future.exception():
        to.set_exception(error)
    else:
        to.set_result(future.result())


class Publication:
    """A published event. Awaited, it is the event once the log has it and the handlers here have tried it.

    publish itself waits for that where no event loop runs, as nobody could await it there.
    """

    def __init__(self, event: DataEvent) -> None:
        self.event = event
        self.sent: Future[Result] = Future()
        self.appended: Future[None] = Future()  # the event has its offset, or will never have one
        self.tasks: OwnTasks = {}

    def __await__(self) -> Generator[Any, None, DataEvent]:
        # Shielded: whoever no longer waits does not take the event back.
        result = yield from asyncio.shield(asyncio.wrap_future(self.sent)).__await__()
        self._take(result)
        if not inside_handler.get():
            for subscription, task in self.tasks.items():
                with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                    waiting = asyncio.wait_for(asyncio.shield(asyncio.wrap_future(task.tried)), subscription.timeout)
                    yield from asyncio.ensure_future(waiting).__await__()
        return self.event

    def wait(self) -> DataEvent:
        """Block until what awaiting waits for has happened, and return the event. Raises as Client.publish does."""
        self._take(self.sent.result())
        if not inside_handler.get():
            for subscription, task in self.tasks.items():
                with contextlib.suppress(TimeoutError):
                    _wait_for(task.tried, subscription.timeout)
        return self.event

    def _take(self, result: Result) -> None:
        self.event.offset, self.event.duplicate = result.offset, result.duplicate

    def __getattr__(self, name: str) -> Any:
        return getattr(self.__dict__["event"], name)

    def __repr__(self) -> str:
        return f"<Publication of {self.event!r}>"


def _wait_for(future: Future[T], timeout: float) -> T:
    """Return a future's result. Raises TimeoutError, which that of a future is not before Python 3.11."""
    try:
        return future.result(timeout)
    except concurrent.futures.TimeoutError as e:
        raise TimeoutError("timed out") from e
