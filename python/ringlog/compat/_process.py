"""The router of this process, and what uses it."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import Any

from ringlog.client import Client
from ringlog.compat._publication import Publication
from ringlog.compat._router import UnifiedEventRouter
from ringlog.compat._subscription import Handler
from ringlog.errors import InvalidArgument, Unavailable
from ringlog.event import Json

_router: UnifiedEventRouter | None = None
_router_lock = threading.RLock()
_making = False  # the router of this process is being made


def get_router() -> UnifiedEventRouter:
    """Return the router of this process."""
    global _router
    with _router_lock:
        if _router is None:
            _router = _make_router(None)
        return _router


def configure(log: Client | None = None, *, mode: str | None = None, **options: Any) -> UnifiedEventRouter:
    """Make the router of this process; one that was there is stopped.

    The options are those of UnifiedEventRouter. mode is "log", or "shadow" or "compare" beside an old bus, with the
    options of ShadowRouter; default RINGLOG_MODE.
    """
    global _router
    reset_router()
    with _router_lock:
        _router = _make_router(log, mode, **options)
        return _router


def _make_router(log: Client | None, mode: str | None = None, **options: Any) -> UnifiedEventRouter:
    global _making
    if _making:
        raise InvalidArgument(
            "the old module uses ringlog.compat itself, as where a shim has replaced a module that it imports",
            code="invalid_argument",
            field="old",
            remedy="keep the old modules in place, and change the daemons' import lines to ringlog.compat",
        )
    _making = True
    try:
        return _new_router(log, mode, **options)
    finally:
        _making = False


def _new_router(log: Client | None, mode: str | None, **options: Any) -> UnifiedEventRouter:
    mode = os.environ.get("RINGLOG_MODE", "") if mode is None else mode
    if mode in ("", "log"):
        return UnifiedEventRouter(log, **options)
    if mode not in ("shadow", "compare"):
        raise InvalidArgument(
            f"{mode!r:.40} is no mode",
            code="invalid_argument",
            field="mode",
            remedy="set RINGLOG_MODE, or mode= of configure, to log, shadow or compare",
        )
    from ringlog.compat._shadow import ShadowRouter

    return ShadowRouter(log, mode=mode, **options)


def reset_router() -> None:
    """Stop the router of this process; the next get_router makes a new one."""
    global _router
    with _router_lock:
        stopped, _router = _router, None
    if stopped is not None:
        stopped.stop()


def emit(event_type: Any, arguments: Json, source_is_field: bool = False) -> Publication:
    """Publish the arguments of an emitter: those that are not None, and those beyond the catalogue's."""
    source = arguments.get("source") or ""
    payload = {k: v for k, v in arguments.items() if v is not None and k != "extra"}
    if not source_is_field:
        payload.pop("source", None)
    payload |= arguments["extra"]
    return get_router().publish(event_type, payload, source if isinstance(source, str) else "")


async def subscribe_with_retry(
    event_type: Any,
    handler: Handler,
    max_attempts: int = 3,
    is_critical: bool = False,
    timeout: float | None = None,
    sleep: Callable[[float], Any] = asyncio.sleep,
) -> bool:
    """Subscribe, again after 1, 2 and 4 s where the log cannot be read; False after max_attempts.

    A critical subscription that fails raises Unavailable.
    """
    for attempt in range(max_attempts):
        try:
            get_router().subscribe(event_type, handler, timeout=timeout, critical=True)
            return True
        except Unavailable:
            if is_critical and attempt == max_attempts - 1:
                raise
            await sleep(2.0**attempt)
    return False
