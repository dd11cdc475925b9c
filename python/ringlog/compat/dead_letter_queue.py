"""Events that a handler could not handle. In place of app.coordination.dead_letter_queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from ringlog.client import Client
from ringlog.compat._outcome import Outcome, call
from ringlog.compat._process import get_router
from ringlog.errors import InvalidArgument, NotFound
from ringlog.event import Json

_PAGE = 1000


@dataclass
class FailedEvent:
    """A dead letter. Its fields can be read as attributes, or by name as those of a dict."""

    raw: Mapping[str, Any]
    log: Client

    @property
    def event_id(self) -> int:
        """The id of the letter, which retry_event takes."""
        return int(self.raw["id"])

    id = event_id

    @property
    def event_type(self) -> str:
        """The name of the type."""
        return str(self.raw["type"])

    @cached_property
    def payload(self) -> Json:
        """The payload, which is read from the cluster when it is asked for."""
        return dict(self.log.dead_letter(self.event_id)["event"]["payload"])

    @property
    def event_data(self) -> Json:
        """The payload."""
        return self.payload

    @property
    def error(self) -> str:
        """The error of the last attempt."""
        return str(self.raw.get("error", ""))

    @property
    def handler_name(self) -> str:
        """The handler that failed."""
        return str(self.raw.get("handler", ""))

    @property
    def retry_count(self) -> int:
        """How often the event was delivered again."""
        return int(self.raw.get("redrives", 0))

    @property
    def created_at(self) -> str:
        """When it became a dead letter, RFC 3339 in UTC."""
        return str(self.raw["dead_lettered_at"])

    @property
    def source(self) -> str:
        """The publisher."""
        return str(self.raw.get("source", ""))

    def to_dict(self) -> Json:
        """Return the fields as a dict."""
        names = ("event_id", "event_type", "payload", "handler_name", "error", "retry_count", "created_at", "source")
        return {name: getattr(self, name) for name in names}

    def __getitem__(self, name: str) -> Any:
        if name in ("raw", "log") or name.startswith("_") or not hasattr(type(self), name):
            raise KeyError(name)
        return getattr(self, name)


class DeadLetterQueue:
    """The dead letters of the cluster, of all processes."""

    @property
    def _log(self) -> Client:
        return get_router().log

    def get_pending_events(self, limit: int = 100, event_type: Any = None) -> list[FailedEvent]:
        """Return the oldest letters that are not being delivered again."""
        found: list[FailedEvent] = []
        after = 0
        kind = "" if event_type is None else str(getattr(event_type, "value", event_type))
        while len(found) < limit:
            page = self._log.dead_letters(type=kind, limit=_PAGE, after=after)
            found += [FailedEvent(letter, self._log) for letter in page if letter["state"] == "dead"]
            if len(page) < _PAGE:
                break
            after = page[-1]["id"]
        return found[:limit]

    get_failed_events = get_pending_events

    def retry_event(self, event_id: int | str) -> Outcome:
        """Deliver an event again, to the handler that it has failed alone; True if there is such a letter.

        The handler gets it in the process that has it, which may be another one. It may be awaited.
        """
        try:
            number = int(event_id)
        except ValueError:
            raise InvalidArgument(
                f"{event_id!r:.40} is no id of a dead letter",
                code="invalid_argument",
                field="event_id",
                remedy="get_pending_events has the ids",
            ) from None

        def work() -> bool:
            try:
                return bool(self._log.redrive(number)["done"])
            except NotFound:
                return False

        return call(work)

    def retry_all(self, max_events: int = 0, event_type: Any = None) -> Outcome:
        """Deliver all events again, or those of a type, max_events at most; return how many. It may be awaited."""
        body: Json = {"all": True} if event_type is None else {"type": str(getattr(event_type, "value", event_type))}
        if max_events:
            body["max_events"] = max_events
        return call(lambda: self._change("redrive", body))

    retry_failed_events = retry_all

    def cleanup(self, older_than_hours: float = 24) -> Outcome:
        """Remove letters that have been dead for longer; return how many. It may be awaited."""
        if older_than_hours < 0:
            raise InvalidArgument(
                f"{older_than_hours} hours are below 0", code="invalid_argument", field="older_than_hours"
            )
        body: Json = {"older_than": f"{int(older_than_hours * 3600)}s"} if older_than_hours else {"all": True}
        return call(lambda: self._change("purge", body))

    def _change(self, what: str, body: Json) -> int:
        """Repeat a change until nothing is left: one request changes a bounded number."""
        done = 0
        while True:
            answer = self._log.request("POST", f"/v1/dlq/{what}", body)
            done += int(answer["done"])
            if not answer["left"] or not answer["done"]:
                return done
            body = {**body, "after": answer["last"]}

    def get_pending_count(self) -> int:
        """Return how many letters are not being delivered again."""
        return int(self._log.dead_letter_summary()["dead"])

    def get_error_summary(self) -> dict[str, int]:
        """Return how many letters each error has, the most frequent first; numbers in an error are shown as #."""
        return {str(error["error"]): int(error["count"]) for error in self._log.dead_letter_errors()}

    def get_stats(self) -> Json:
        """Return counts in all, by type and by cursor."""
        summary = self._log.dead_letter_summary()
        return {
            "pending": summary["dead"],
            "retrying": summary["redriven"],
            "total": summary["count"],
            "by_event_type": summary["by_type"],
            "by_cursor": summary["by_cursor"],
        }


_queue = DeadLetterQueue()


def get_dead_letter_queue(*_old_arguments: Any) -> DeadLetterQueue:
    """Return the dead letters of the cluster. The path of a database, which the old one took, is ignored."""
    return _queue


__all__ = ["DeadLetterQueue", "FailedEvent", "get_dead_letter_queue"]
