"""Calls that old code makes with and without await."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from typing import Any, cast

from ringlog.compat._publication import running_loop


class Outcome(int):
    """A number, or a bool as 0 and 1, that may be awaited as well."""

    def __await__(self) -> Generator[Any, None, int]:
        yield from ()
        return int(self)


def call(work: Callable[[], int]) -> Outcome:
    """Do blocking work: in a thread, to be awaited, where an event loop runs, and here where none does."""
    if (loop := running_loop()) is None:
        return Outcome(work())
    future: Awaitable[int] = loop.run_in_executor(None, work)
    return cast(Outcome, asyncio.ensure_future(future))
