"""Registration: the cluster knows who listens to what here, for /status, ringlog clients and the audit."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
from collections.abc import Callable

from ringlog._core.calls import path
from ringlog.client import Client
from ringlog.errors import RinglogError
from ringlog.event import Json

TTL = 300.0  # seconds for which the cluster keeps a registration that is not renewed
RENEW = TTL / 3
MIN_END = 0.5  # seconds that the removal of a registration may take
SETTLE = 0.1  # seconds in which further changes go with the first


class Registration:
    """Keeps the list of subscriptions registered, in a thread that the first change starts."""

    def __init__(self, log: Client, source: str, subscriptions: Callable[[], list[Json]]) -> None:
        self._log, self._subscriptions = log, subscriptions
        self.coordinator = ""  # of the platform's registry, that this process is
        self._target = path("clients", f"{source}:{socket.gethostname()}:{os.getpid()}")
        self._changed = threading.Event()
        self._ended = threading.Event()
        self._registered = False
        self._lock = threading.Lock()  # a thread that end sees has been started
        self._thread: threading.Thread | None = None

    def change(self) -> None:
        """Have the list registered as it is now."""
        self._changed.set()
        with self._lock:
            if self._thread is None and not self._ended.is_set():
                self._thread = threading.Thread(target=self._run, name="ringlog-register", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        while not self._ended.is_set():
            self._changed.wait(RENEW)
            self._ended.wait(SETTLE)
            self._changed.clear()
            if self._ended.is_set():
                break
            body: Json = {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "ttl": f"{TTL:.0f}s",
                "subscriptions": self._subscriptions(),
            }
            if self.coordinator:
                body["coordinator"] = self.coordinator
            try:
                self._log.request("PUT", self._target, body)
                self._registered = True
            except RinglogError as e:
                logging.getLogger("ringlog").warning("the subscriptions are not registered: %s", e)
        if self._registered:
            with contextlib.suppress(RinglogError):
                self._log.request("DELETE", self._target)

    def end(self, timeout: float = 5.0) -> None:
        """Remove the registration, unless that takes longer than timeout seconds: it expires."""
        with self._lock:
            self._ended.set()
        self._changed.set()
        if self._thread is not None:
            self._thread.join(max(MIN_END, timeout))
