"""Dead letters: events that a cursor's reader could not handle."""

from __future__ import annotations

import re
from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from ringlog._memory import types
from ringlog._memory.values import Refusal, invalid, parse_age, time_text
from ringlog.event import Json

if TYPE_CHECKING:
    from ringlog._memory.cursors import Cursor
    from ringlog._memory.log import Log

MAX_TEXT, MAX_HANDLER = 4 << 10, 256  # characters of a letter's error and handler
MAX_REPORTED = 1 << 10  # bytes of an error in DLQ_EVENTS_STORED


class Letters:
    """The dead letters, by id. A letter is the schema Letter, with what is not shown under names with an underscore."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.all: dict[int, Json] = {}
        self._ever = 0

    def dead_letter(self, name: str, body: Json) -> Json:
        """Keep an event with the dead letters and move the cursor past it: the schema DeadLettered."""
        offset, generation = body["offset"], body["generation"]
        self._log.cursors.check_name(name)
        if not offset:
            raise invalid("offset", "offset='0' is not the offset of an event that was read")
        if offset <= self._log.last:
            self._check_target(name, self._log.event(offset))
        cursor = self._log.cursors.check_commit(name, offset, generation)
        if offset <= cursor.committed:
            letter = self._at(name, offset)
            if letter is None:
                message = f"cursor {name!r} has committed {cursor.committed}, which is not before {offset}"
                raise Refusal("conflict", "offset", message, "it was handled, or its letter is gone")
            return {"letter": public(letter), "cursor": self._log.cursors.view(cursor), "replayed": True}
        letter = self.store(cursor, offset, body.get("handler", ""), body.get("error", ""), body.get("attempts", 0))
        self._log.cursors.commit(name, offset, generation)
        return {"letter": public(letter), "cursor": self._log.cursors.view(cursor)}

    def _check_target(self, name: str, event: Json) -> None:
        if event.get("target", name) != name:
            message = f"offset {event['offset']} is for the cursor {event['target']!r} alone"
            raise invalid("offset", message, "dead-letter what this cursor was given")

    def _at(self, name: str, offset: int) -> Json | None:
        """Return the letter that a cursor made at an offset, or whose copy is there."""
        for letter in self.all.values():
            if letter.get("cursor") == name and offset in (letter.get("copy"), letter.get("offset")):
                return letter
        return None

    def store(
        self, cursor: Cursor, offset: int, handler: str, error: str, attempts: int, first: datetime | None = None
    ) -> Json:
        """Keep the event at an offset as a dead letter of a cursor. A letter whose copy is there is dead again."""
        now = self._log.clock.now()
        letter = self._at(cursor.name, offset)
        event = self._log.event(offset) if letter is None or offset >= self._log.first else letter["_event"]
        if letter is None:
            self._ever += 1
            letter = {"id": self._ever, "cursor": cursor.name, "offset": offset, "type": event["type"]}
            letter |= {name: event[name] for name in ("key", "source", "correlation_id") if name in event}
            letter |= {"attempts": 0, "first_failed": time_text(first or now), "redrives": 0, "lineage": [offset],
                       "state": "dead"}  # fmt: skip
            self.all[letter["id"]] = letter
        elif letter.get("copy") == offset:
            letter["offset"] = letter.pop("copy")
        letter |= {"handler": handler[:MAX_HANDLER], "error": error[:MAX_TEXT], "last_failed": time_text(now)}
        letter["_event"] = event
        letter["attempts"] += max(attempts, 1)
        letter["bytes"] = 256 + len(str(letter["_event"])) + len(letter["error"])
        if "copy" not in letter:
            letter |= {"state": "dead", "dead_lettered_at": time_text(now), "_dead": now}
            self._report_stored(letter)
        return letter

    def keep(self, cursor: str, event: Json, error: str, origin: str) -> None:
        """Keep an event that was never appended as a dead letter of a handler without a cursor."""
        now = self._log.clock.now()
        self._ever += 1
        letter: Json = {"id": self._ever, "cursor": cursor, "type": event["type"]}
        letter |= {name: event[name] for name in ("key", "source", "correlation_id") if name in event}
        letter |= {"handler": cursor, "error": error[:MAX_TEXT], "attempts": 1, "redrives": 0, "lineage": [],
                   "state": "dead", "origin": origin, "bytes": 256 + len(str(event)) + len(error), "_dead": now,
                   "_event": event}  # fmt: skip
        letter |= dict.fromkeys(("first_failed", "last_failed", "dead_lettered_at"), time_text(now))
        self.all[letter["id"]] = letter
        self._report_stored(letter)

    def _report_stored(self, letter: Json) -> None:
        """Emit an event for a new dead letter, unless its own event is about letters or handlers."""
        if letter["type"].startswith(("DLQ_", "HANDLER_")):
            return
        error = letter["error"].encode()[:MAX_REPORTED].decode(errors="ignore")
        payload = {"count": 1, "cursors": {letter["cursor"]: 1}, "letter_id": letter["id"], "event": letter["type"]}
        payload |= {"handler": letter["handler"], "error": error}
        payload |= {"offset": letter["offset"]} if "offset" in letter else {}
        self._log.append_own("DLQ_EVENTS_STORED", {**payload, **self._counts()}, letter.get("correlation_id"))

    def resolve(self, cursor: Cursor) -> None:
        """Remove the letters whose copies a cursor is done with."""
        for letter in list(self.all.values()):
            if letter.get("cursor") == cursor.name and "copy" in letter and cursor.settled(letter["copy"]):
                del self.all[letter["id"]]

    def revive(self, cursor: str, last: int) -> None:
        """Make the letters dead again whose copies up to an offset are not delivered to a cursor any more."""
        for letter in self.all.values():
            if letter.get("cursor") == cursor and letter.get("copy", last + 1) <= last:
                self._revive(letter)

    def revive_trimmed(self) -> None:
        """Make the letters dead again whose copies were trimmed."""
        for letter in self.all.values():
            if letter.get("copy", self._log.first) < self._log.first:
                self._revive(letter)

    def purge_old(self) -> None:
        """Remove what is older than dlq.max_age."""
        if age := self._log.settings.duration("dlq.max_age"):
            latest = self._log.clock.now() - age
            old = [letter["id"] for letter in self.find({"state": "dead", "before": latest})]
            self._report_purged(self._drop(old), "age")

    def _revive(self, letter: Json) -> None:
        """Make a letter dead again whose copy is not delivered any more. Its age is what it was."""
        del letter["copy"]
        letter["state"] = "dead"

    def get(self, id_: int, field: str = "id") -> Json:
        """Return a letter. Raises Refusal, with the field that named it."""
        if id_ not in self.all:
            past = " any more: it was handled after a redrive, or purged" if 0 < id_ <= self._ever else ""
            raise Refusal("not_found", field, f"there is no dead letter {id_}{past}", "Client.dead_letters lists them")
        return self.all[id_]

    def find(self, given: Json) -> list[Json]:
        """Return the letters that meet conditions, by id."""
        if given.get("type"):
            types.check_filter({"types": [given["type"]]})
        cursor, state, old = given.get("cursor"), given.get("state"), given.get("before")
        return [
            letter
            for letter in self.all.values()
            if letter["id"] > given.get("after", 0)
            and (not given.get("type") or types.passes_type({"types": [given["type"]]}, letter["type"]))
            and (cursor is None or letter.get("cursor", "") == cursor)
            and given.get("error", "") in letter["error"]
            and (not state or letter["state"] == state)
            and (old is None or letter["_dead"] <= old)
        ]

    def redrive(self, selection: Json, to: str) -> Json:
        """Append dead letters again, each for its cursor or the one named: the schema LettersResult."""
        chosen = self._select(selection)
        if to and to not in self._log.cursors.all:
            self._log.cursors.get(to)
        answer, blocks = _answer(selection, chosen), dict[str, list[Json]]()
        if not selection.get("dry_run"):
            for id_ in chosen["ids"]:
                letter = self.all.get(id_)
                target = to or (letter or {}).get("cursor", "")
                if letter is None:
                    answer.setdefault("missing", []).append(id_)
                elif "copy" in letter or letter in blocks.get(target, ()):
                    answer["skipped"] += 1
                elif target not in self._log.cursors.all:
                    answer.setdefault("no_cursor", []).append(id_)
                else:
                    blocks.setdefault(target, []).append(letter)
            for target, letters in blocks.items():
                self._append_again(target, letters)
            answer["done"] = sum(map(len, blocks.values()))
            if answer["done"]:
                counts = {target: len(letters) for target, letters in blocks.items()}
                first = self._log.last + 1 - answer["done"]
                self._log.append_own("DLQ_EVENTS_REPLAYED", {"count": answer["done"], "cursors": counts,
                                 "first_offset": first, "last_offset": self._log.last, **self._counts()})  # fmt: skip
        self._check_named(selection, answer)
        return answer

    def _append_again(self, target: str, letters: list[Json]) -> None:
        """Append copies of letters' events for one cursor alone."""
        added = ("offset", "appended_at", "term", "hash", "target", "redrive")
        copies = []
        for letter in letters:
            event = letter["_event"]
            raw = {name: value for name, value in event.items() if name not in added}
            copies.append((raw, event["hash"]))
        first = self._log.append(copies)
        for offset, letter in enumerate(letters, first):
            self._log.event(offset).update(target=target, redrive=letter["id"])
            if letter.get("cursor") != target:
                letter["cursor"] = target
                letter.pop("offset", None)
            letter["redrives"] += 1
            letter["lineage"] = [*letter["lineage"], offset][-100:]
            letter |= {"state": "redriven", "copy": offset}

    def purge(self, selection: Json) -> Json:
        """Remove dead letters: the schema LettersResult."""
        chosen = self._select(selection)
        answer = _answer(selection, chosen)
        if not selection.get("dry_run"):
            missing = [id_ for id_ in chosen["ids"] if id_ not in self.all]
            answer["skipped"] = sum("copy" in self.all[id_] for id_ in chosen["ids"] if id_ in self.all)
            dead = [id_ for id_ in dict.fromkeys(chosen["ids"]) if "copy" not in self.all.get(id_, {"copy": 0})]
            cursors = self._drop(dead)
            answer["done"] = len(dead)
            answer |= {"missing": missing} if missing else {}
            self._report_purged(cursors, "request")
        self._check_named(selection, answer)
        return answer

    def _drop(self, ids: list[int]) -> Counter[str]:
        """Remove letters, and return how many each cursor had."""
        return Counter(self.all.pop(id_).get("cursor", "") for id_ in ids)

    def _report_purged(self, cursors: Counter[str], reason: str) -> None:
        if cursors:
            payload = {"count": cursors.total(), "reason": reason, "cursors": dict(cursors)}
            self._log.append_own("DLQ_EVENTS_PURGED", {**payload, **self._counts()})

    def _counts(self) -> Json:
        under_way = sum("copy" in letter for letter in self.all.values())
        return {"dead": len(self.all) - under_way, "under_way": under_way}

    def _select(self, given: Json) -> Json:
        """Return the ids that a selection chooses, and whether there are more."""
        ids, all_ = given.get("ids") or [], bool(given.get("all"))
        conditions = bool(given.get("type") or given.get("cursor") is not None or given.get("error")
                          or given.get("older_than"))  # fmt: skip
        if ids and (conditions or all_):
            raise invalid("ids", "ids beside other conditions", "send one or the other")
        if all_ and conditions:
            raise invalid("all", "all beside conditions", "send one or the other")
        if not (ids or conditions or all_):
            raise invalid("ids", "nothing says which dead letters", "send ids, or all, type, cursor or error")
        if 0 in ids:
            raise invalid("ids", "ids='0' is not ids from 1", "send ids from 1")
        if not ids:
            given = {**given, "state": "dead"}
            if given.get("older_than"):
                given["before"] = self._log.clock.now() - parse_age("older_than", str(given["older_than"]))
            ids = [letter["id"] for letter in self.find(given)]
        most = given.get("max_events") or len(ids)
        return {"ids": ids[:most], "more": len(ids) > most}

    def _check_named(self, selection: Json, answer: Json) -> None:
        """Refuse letters that were named by id if nothing was done about any of them."""
        if not selection.get("ids") or answer["done"] or answer["skipped"] or selection.get("dry_run"):
            return
        for id_ in answer.get("missing", ()):
            self.get(id_, "ids")
        for id_ in answer.get("no_cursor", ()):
            message = f"letter {id_} has no cursor to be appended again for"
            raise Refusal("not_found", "cursor", message, "say which one is to get it")

    def summary(self) -> Json:
        """Return how many dead letters there are: the schema LetterSummary."""
        all_ = list(self.all.values())
        dead = [letter for letter in all_ if letter["state"] == "dead"]
        found: Json = {
            "count": len(all_),
            "redriven": len(all_) - len(dead),
            "bytes": sum(letter["bytes"] for letter in all_),
            "max_bytes": self._log.settings.number("dlq.max_bytes"),
            "ever": self._ever,
            "dead": len(dead),
            "by_cursor": dict(Counter(letter.get("cursor", "") for letter in all_)),
            "by_type": dict(Counter(letter["type"] for letter in all_)),
        }
        if dead:
            oldest = min(letter["_dead"] for letter in dead)
            found |= {"oldest": time_text(oldest), "oldest_seconds": (self._log.clock.now() - oldest).total_seconds()}
        return found

    def errors(self, given: Json) -> list[Json]:
        """Return the letters grouped by their errors, the most frequent first."""
        groups: dict[str, Json] = {}
        for letter in self.find(given):
            text = re.sub(r"[0-9]+", "#", letter["error"].partition("\n")[0]).strip()[:200] or "(no error was given)"
            empty: Json = {"error": text, "count": 0, "cursors": {}, "types": {}, "letters": []}
            group = groups.setdefault(text, empty | {"first_failed": letter["first_failed"], "last_failed": ""})
            group["count"] += 1
            for name, of in (("cursors", letter.get("cursor", "")), ("types", letter["type"])):
                group[name][of] = group[name].get(of, 0) + 1
            group["first_failed"] = min(group["first_failed"], letter["first_failed"])
            group["last_failed"] = max(group["last_failed"], letter["last_failed"])
            group["letters"] = [*group["letters"], letter["id"]][:3]
        return sorted(groups.values(), key=lambda group: (-group["count"], group["error"]))


def public(letter: Json) -> Json:
    """Return a letter as callers see it: the schema Letter."""
    return {name: value for name, value in letter.items() if not name.startswith("_") and value != ""}


def _answer(selection: Json, chosen: Json) -> Json:
    ids = chosen["ids"]
    dry_run = bool(selection.get("dry_run"))
    return {"matched": len(ids), "done": 0, "skipped": 0, "left": len(ids) if dry_run else 0, "more": chosen["more"],
            "last": 0 if dry_run or not ids else ids[-1], "dry_run": dry_run}  # fmt: skip
