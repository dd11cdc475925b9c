"""Observations: what each bus has delivered, on this host's disk.

    DIR/NAME~HOST~PID~START~N.ndjson      a JSON object a line

    {"k":"start","name":…,"host":…,"pid":…,"mode":…,"at":…}    first in each file
    {"k":"sub","s":…,"h":…,"t":…,"at":…}                       handler h of type t reads both buses from here on
    {"k":"old"|"log","s":…,"type":…,"time":…,"content":…,"payload":…,"source":…,"id":…,"at":…}
                                                               delivered; id is the row or the offset, 0 if unknown
    {"k":"done","s":…,"via":…,"time":…,"content":…,"at":…}     handled, in the mode compare
    {"k":"unsent","type":…,"time":…,"error":…,"at":…}          given to the old bus, and not to the log

Times are seconds since 1970. A line is written with one call before its handler is called: the kill of a process loses
none, and cuts the last at most. A failed disk stops no handler: the error is logged, and lines are lost.
"""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import json
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

from ringlog.event import Json

MAX_BYTES = 64 << 20  # of the files of one name; the oldest are removed
SEGMENTS = 8
MAX_PAYLOAD = 1024  # characters of a payload that a line has beside its hash

logger = logging.getLogger("ringlog")


def default_folder() -> str:
    """Return RINGLOG_SHADOW, or the folder for state of this user."""
    state = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
    return os.environ.get("RINGLOG_SHADOW") or os.path.join(state, "ringlog", "shadow")


def content_of(kind: str, payload: Any) -> tuple[str, str]:
    """Return the hash of a type and its payload, and the payload's text."""
    try:
        # As JSON has it: the log's payload has been through it.
        text = json.dumps(json.loads(json.dumps(payload, default=repr)), sort_keys=True)
    except (TypeError, ValueError, RecursionError):
        text = repr(type(payload))
    return hashlib.sha256(f"{kind}:{text}".encode()).hexdigest()[:32], text


class Observations:
    """Writes lines to files of this process; a child has its own after a fork."""

    def __init__(self, folder: str, name: str, mode: str, max_bytes: int = MAX_BYTES) -> None:
        self.folder, self.name, self.mode, self.max_bytes = folder, name, mode, max_bytes
        self.prefix = re.sub(r"[^\w.-]+", "_", name) or "_"
        self._reset()

    def after_fork(self) -> None:
        """Leave the file to the parent: a child that had it open would show it as in use."""
        if self._file >= 0:
            os.close(self._file)
        self._reset()

    def _reset(self) -> None:
        self._lock = threading.Lock()
        self._file, self._bytes, self._number = -1, 0, 0
        self._start = time.time_ns()
        self._subs: dict[str, Json] = {}
        self._failed = 0.0  # when a failure was logged

    def note(self, line: Json) -> None:
        """Write a line. It raises nothing."""
        try:
            self._note({**line, "at": time.time()})
        except Exception as e:
            if time.monotonic() - self._failed > 60 or not self._failed:
                self._failed = time.monotonic()
                logger.error("shadow: what was delivered is not noted in %s: %s", self.folder, e)

    def _note(self, line: Json) -> None:
        with self._lock:
            if line["k"] == "sub":
                self._subs[line["s"]] = line
            if self._file < 0 or self._bytes > self.max_bytes // SEGMENTS:
                self._open(line["at"])
                if line["k"] == "sub":
                    return  # among the first lines
            self._write(line)

    def _write(self, line: Json) -> None:
        data = (json.dumps(line, separators=(",", ":")) + "\n").encode()
        self._bytes += len(data)
        if os.write(self._file, data) < len(data):
            # A cut line is the last of its file.
            os.close(self._file)
            self._file = -1
            raise OSError("the disk is full")

    def _open(self, at: float) -> None:
        """Begin a file, and remove the oldest of this name that no process writes."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
        os.makedirs(self.folder, mode=0o700, exist_ok=True)
        host = re.sub(r"[^\w.-]+", "_", socket.gethostname())
        parts = (self.prefix, host, str(os.getpid()), str(self._start), f"{self._number:06}")
        path = os.path.join(self.folder, "~".join(parts) + ".ndjson")
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        self._number, self._bytes = self._number + 1, 0
        head = {"k": "start", "name": self.name, "host": socket.gethostname(), "pid": os.getpid(), "mode": self.mode}
        for line in (head, *self._subs.values()):
            self._write({**line, "at": at})
        self._remove_oldest()

    def _remove_oldest(self) -> None:
        files = sorted((os.stat(f).st_mtime, os.stat(f).st_size, f) for f in find_files(self.folder, self.prefix))
        left = sum(size for _, size, _ in files)
        for _, size, file in files:
            if left <= self.max_bytes * (SEGMENTS - 1) // SEGMENTS:
                return
            if not in_use(file):
                os.remove(file)
                left -= size

    def close(self) -> None:
        """End the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1


def find_files(folder: str, prefix: str = "") -> list[str]:
    """Return the files of a folder, of one name if it is given."""
    return glob.glob(os.path.join(glob.escape(folder), f"{glob.escape(prefix) or '*'}~*~*~*~*.ndjson"))


def in_use(file: str) -> bool:
    """Report whether a process writes a file."""
    with open(file, "rb") as f:
        try:
            fcntl.flock(f, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def read_lines(file: str) -> Iterator[Json]:
    """Return the lines of a file that are whole. The last may be cut, as of a killed process.

    Raises ValueError with the number of another line that is none of these.
    """
    with open(file, encoding="utf-8", errors="replace") as f:
        bad = 0
        for number, text in enumerate(f, 1):
            if bad:
                raise ValueError(f"line {bad} is no observation")
            try:
                line = json.loads(text)
                if not isinstance(line, dict) or not isinstance(line.get("at"), int | float):
                    raise ValueError("no object with a time")
            except ValueError:
                bad = number
                continue
            yield line
    if bad and text.endswith("\n"):
        raise ValueError(f"line {bad} is no observation")


def read_done(folder: str, name: str, limit: int) -> Iterator[Json]:
    """Return the last lines of what a name has handled, the oldest first."""
    prefix = re.sub(r"[^\w.-]+", "_", name) or "_"
    found: list[Json] = []
    for file in sorted(find_files(folder, prefix), key=os.path.getmtime):
        with contextlib.suppress(OSError, ValueError):
            found += [line for line in read_lines(file) if line.get("k") == "done"]
        del found[: max(0, len(found) - 10 * limit)]
    return iter(found)
