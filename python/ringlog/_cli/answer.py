"""react --answer: publish what became of an event, for whoever waits for the outcome of its run."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
from datetime import datetime, timezone
from typing import NamedTuple

from ringlog import Client
from ringlog._cli import USAGE, Exit
from ringlog._core.outcome import replies_to
from ringlog.errors import Conflict
from ringlog.event import Event, Json

ALL, FAILURES = "all", "failures"


class Outcome(NamedTuple):
    """The last attempt of a delivery."""

    error: str  # "" for success
    attempt: int  # from 1
    seconds: float


class Answers:
    """Publishes outcomes as the replies that the flows name, as `ringlog react --answer` does."""

    def __init__(self, args: argparse.Namespace, log: Client) -> None:
        self._log, self._name, self._which, self._reply = log, args.group or args.cursor, args.answer, args.reply
        self._source = f"{socket.gethostname()[:200]}:{os.getpid()}"
        self._edges = [(cause, effect) for flow in log.flows() for cause, effect in flow["edges"]]
        self._types: dict[str, tuple[str, str]] = {}
        # A type that is named, and that nothing could answer, is a mistake; a pattern may have some of these.
        for name in (name for given in args.type for name in given.split(",") if name):
            if self._which == ALL and "*" not in name and "?" not in name and not self._chosen(name)[0]:
                raise Exit(
                    USAGE,
                    f"react: --answer all: no flow names a reply to {name}: name it with --reply TYPE, or register a "
                    "flow (ringlog flow register)",
                )

    def _chosen(self, type_: str) -> tuple[str, str]:
        """Return the types that answer a success and a failure of a type; "" is no answer."""
        if type_ not in self._types:
            success, failure = replies_to(type_, self._edges)
            reply = "" if self._which == FAILURES else self._reply or (success[0] if success else "")
            self._types[type_] = (reply, failure[0] if failure else "HANDLER_FAILED")
        return self._types[type_]

    def publish(self, event: Event, outcome: Outcome) -> None:
        """Publish the final outcome of an event, once within the dedup window, also where it was redelivered."""
        # A command for such events would feed itself.
        if event.type.startswith("HANDLER_"):
            return
        type_ = self._chosen(event.type)[1 if outcome.error else 0]
        if not type_:
            return
        now = datetime.now(timezone.utc)
        payload: Json = {
            "success": not outcome.error,
            "event": event.type,
            "offset": event.offset,
            "handler": self._name,
            "attempts": outcome.attempt,
            "delivery": event.raw.get("delivery", 1),
            "duration_seconds": outcome.seconds,
            "timestamp": now.timestamp(),
        }
        if outcome.error:
            payload["error"] = outcome.error
        if type_ == "HANDLER_FAILED":
            payload["answer"] = payload["dead_letter"] = True
        # A conflict is with the answer to another delivery, which has other times in it.
        with contextlib.suppress(Conflict):
            self._log.publish(
                type_,
                payload,
                source=self._source,
                key=event.key,
                correlation_id=event.correlation_id,
                causation_id=str(event.offset),
                dedup_id=f"answer/{self._name}/{event.offset}{'/failed' if outcome.error else ''}",
                time=now,
            )
