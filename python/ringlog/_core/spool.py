"""The spool: a folder with the events that wait for the cluster. It has no socket; its calls block on the disk.

    OWNER.lock            held with flock by the process whose files the next ones are; it is empty while that is the
                          one that has made them, and has a byte once another has taken them over
    OWNER.000001.spool    a segment, the oldest first
    OWNER.000001.damaged  a segment with bytes that are no record, once all that is whole was delivered
    OWNER.rejected        what nodes have refused for good, a JSON object a line

The writer appends to the newest segment. The drainer takes the oldest one, which the writer then leaves, and
appends marks to it. A segment is removed when all of its units are done. It is

    magic    8 bytes  "RLSPOOL1"
    created  u64      nanoseconds since 1970
    records  each     marker   4 bytes  ff fe "RL", which is not in JSON: the next record after damage is found by it
                      length   u32      of the body
                      number   u32      of the unit in its segment, or of the first unit that a mark is about
                      crc      u32      CRC-32 of length, number, kind and body
                      kind     1 byte   U a unit: the events of a call, a JSON list; all are appended or none
                                        S a mark: some units are sent from now on under this producer and sequence
                                        D a mark: some units are done
                                        P a mark: some events of a unit are done, a JSON list of their places among
                                          those that are left. It counts as never sent with the others alone
                      body

with numbers in little-endian. An S is on the disk before its request is sent, so that whoever finds the units sends
them again under the same sequence. Of two that are about the same unit the later one holds.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import re
import socket
import stat
import struct
import threading
import time
import zlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ringlog.errors import Closed, InvalidArgument, OutcomeUnknown, RinglogError, SpoolError, SpoolFull
from ringlog.event import Json

MAGIC = b"RLSPOOL1"
MARKER = b"\xff\xfeRL"
UNIT, SENT, DONE, PART = b"U", b"S", b"D", b"P"
SEGMENT_BYTES = 4 << 20
MAX_BATCH_EVENTS, MAX_BATCH_BYTES = 1024, 512 << 10
MAX_FAILED = 4096  # tickets whose error is remembered
_HEAD = struct.Struct("<8sQ")
_RECORD = struct.Struct("<4sIIIc")
_CHECKED = struct.Struct("<IIc")
_NAME = re.compile(
    r"(?P<owner>[\w.-]+-\d+-[0-9a-f]{16})\.(?:(?P<number>\d{6,})\.(?P<kind>spool|damaged)|lock|rejected)"
)


def encode_record(kind: bytes, number: int, body: bytes) -> bytes:
    """Return a record."""
    crc = zlib.crc32(body, zlib.crc32(_CHECKED.pack(len(body), number, kind)))
    return _RECORD.pack(MARKER, len(body), number, crc, kind) + body


@dataclass
class Mark:
    """Units that were sent, or are about to be, under a producer and sequence."""

    first: int
    count: int
    producer: str
    sequence: int
    began: float  # by time.time(), when they were sent first
    cluster: str  # "" is not known
    undeduped: list[int] = field(default_factory=list)  # rows of the request that are sent with "dedup": false
    uptime: float = field(default_factory=time.monotonic)  # when it was made, by a clock that nobody sets

    def encode(self) -> bytes:
        """Return the record."""
        body = {name: value for name, value in self.__dict__.items() if name != "first"}
        return encode_record(SENT, self.first, json.dumps(body).encode())


class Unit(NamedTuple):
    """The events of a call, as they were encoded and as they are read."""

    body: bytes
    events: list[Json]

    def without(self, rows: list[int]) -> Unit:
        """Return the unit that is left once some of its events are done."""
        events = [event for row, event in enumerate(self.events) if row not in rows]
        return Unit(json.dumps(events).encode(), events)


@dataclass
class Scan:
    """What a segment holds."""

    created: float  # by time.time(); 0 if its head is damaged
    units: dict[int, Unit]
    marks: dict[int, Mark]  # the one that holds, by unit
    done: set[int]
    damage: list[tuple[int, int]]  # from byte, to byte


def scan(data: bytes) -> Scan:
    """Read a segment, past damaged bytes."""
    found = Scan(0.0, {}, {}, set(), [])
    at = 0
    if data[:8] == MAGIC and len(data) >= _HEAD.size:
        found.created = _HEAD.unpack_from(data)[1] / 1e9
        at = _HEAD.size
    while at < len(data):
        length = _take_record(data, at, found)
        if length:
            at += length
            continue
        # What follows the next marker may be whole.
        begin, length = at, 0
        while not length and (at := data.find(MARKER, at + 1)) >= 0:
            length = _take_record(data, at, found)
        found.damage.append((begin, at if length else len(data)))
        at = at + length if length else len(data)
    return found


def _take_record(data: bytes, at: int, found: Scan) -> int:
    """Take in the record at a position, and return its length; 0 if there is none that is whole."""
    if len(data) - at < _RECORD.size:
        return 0
    marker, length, number, crc, kind = _RECORD.unpack_from(data, at)
    body = data[at + _RECORD.size : at + _RECORD.size + length]
    if marker != MARKER or len(body) != length:
        return 0
    if zlib.crc32(body, zlib.crc32(_CHECKED.pack(length, number, kind))) != crc:
        return 0
    try:
        content = json.loads(body)
        if kind == UNIT:
            found.units[number] = Unit(body, [dict(event) for event in content])
        elif kind == SENT:
            mark = Mark(first=number, **{"uptime": -math.inf, **content})
            found.marks.update(dict.fromkeys(range(number, number + mark.count), mark))
        elif kind == DONE:
            found.done.update(range(number, number + content))
        elif kind == PART:
            if number in found.units:
                found.units[number] = found.units[number].without(content)
            found.marks.pop(number, None)
        else:
            return 0
    except (ValueError, TypeError, RecursionError):  # of a later version, or nested too deeply
        return 0
    return _RECORD.size + len(body)


@dataclass
class Batch:
    """Units that follow one another and are sent in one request.

    mark is how they were sent before, and are sent again. Without one they may still be suspect: some of them were
    sent before, perhaps, and nobody knows any more in which request.
    """

    units: list[tuple[int, Unit]]
    mark: Mark | None
    suspect: bool
    since: float  # by time.time(): none was sent before


class Segment:
    """A segment that the writer has left, on its way to the log. The drainer alone uses it."""

    def __init__(self, spool: Spool, path: str) -> None:
        self.path = path
        self._spool = spool
        self._lock = threading.Lock()  # a task that was canceled closes the file while a thread writes
        self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            with open(self._file, "rb", closefd=False) as f:
                self.content = scan(f.read())
        except BaseException:
            self.close()
            raise
        self._order = sorted(self.content.units)
        self._at = 0  # of the first one in order that is not done
        self._holders = self.content.marks
        self.no_duplicates: set[int] = set()  # units: what is left of them the cluster took for duplicates, wrongly
        # Where a mark may be missing, so may any unit have been sent.
        self._suspects = set(self._order) if self.content.damage else set(self._holders)

    @property
    def damage(self) -> str:
        """The bytes that are no record, "" if there are none."""
        return ", ".join(f"{begin} to {end}" for begin, end in self.content.damage)

    def next_batch(self, alone_until: int) -> Batch | None:
        """Return the next units to send, None if all are done. Each up to alone_until is a batch of its own."""
        units, done = self.content.units, self.content.done
        while self._at < len(self._order) and self._order[self._at] in done:
            self._at += 1
        if self._at == len(self._order):
            return None
        first = self._order[self._at]

        # What was sent is sent again as it was, if all of it is there.
        mark = self._holders.get(first)
        if mark is not None:
            numbers = range(mark.first, mark.first + mark.count)
            if all(self._holders.get(n) is mark and n in units and n not in done for n in numbers):
                return Batch([(n, units[n]) for n in numbers], mark, False, mark.began)

        chosen: list[tuple[int, Unit]] = []
        events = size = 0
        for number in self._order[self._at :]:
            unit = units[number]
            full = events + len(unit.events) > MAX_BATCH_EVENTS or size + len(unit.body) > MAX_BATCH_BYTES
            other = number != first + len(chosen) or number in done or self._holders.get(number) is not mark
            if chosen and (full or other or first <= alone_until):
                break
            chosen.append((number, unit))
            events, size = events + len(unit.events), size + len(unit.body)
        since = self.content.created if mark is None else mark.began
        return Batch(chosen, None, first in self._suspects, since)

    def note_sent(self, mark: Mark) -> None:
        """Note on the disk that units are about to be sent."""
        self._append(mark.encode(), True)
        self._holders.update(dict.fromkeys(range(mark.first, mark.first + mark.count), mark))

    def note_done(self, first: int, count: int = 1) -> None:
        """Note that units are done. Where the note is lost, they are sent again under their sequence."""
        self._append(encode_record(DONE, first, b"%d" % count), False)
        self.content.done.update(range(first, first + count))

    def note_part_done(self, number: int, rows: list[int]) -> None:
        """Note that some events of a unit are done, and that the others are for certain not in the log."""
        unit = self.content.units[number]
        if len(rows) == len(unit.events):
            self.note_done(number)
            return
        self._append(encode_record(PART, number, json.dumps(rows).encode()), False)
        self.content.units[number] = unit.without(rows)
        self._holders.pop(number, None)
        self._suspects.discard(number)

    def trust(self, batch: Batch) -> None:
        """Take it for certain that the units of a batch are not in the log, but for those that are done."""
        for number, _ in batch.units:
            self._holders.pop(number, None)
            self._suspects.discard(number)

    def reject(self, number: int, error: RinglogError) -> None:
        """Keep a unit aside that is refused for good."""
        self._spool.reject(self.path, self.content.units[number].events, error)
        self.note_done(number)

    def finish(self) -> None:
        """Remove the segment, whose units are all done; one with damage is kept aside."""
        self._spool.finish(self.path, bool(self.content.damage))

    def _append(self, record: bytes, durable: bool) -> None:
        with self._lock:
            self._spool.check_open()
            if self._file < 0:
                raise Closed("the segment is closed")
            _write_all(self._file, record)
            if durable:
                os.fsync(self._file)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._file >= 0:
                os.close(self._file)
                self._file = -1


class Owner:
    """The lock of one process's files. It is held until release, or the process's end."""

    def __init__(self, folder: str, name: str, lock: int) -> None:
        self.folder, self.name, self.lock = folder, name, lock

    @staticmethod
    def lock_of(folder: str, name: str, new: bool) -> Owner | None:
        """Lock the files of a name, None where another process has them. new is for a name that none has."""
        import fcntl  # not on Windows

        path = os.path.join(folder, name + ".lock")
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | (os.O_EXCL if new else 0)
        lock = os.open(path, flags, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # The one that had it may have removed the file meanwhile: this lock is then on nothing.
            same = os.path.samestat(os.fstat(lock), os.stat(path, follow_symlinks=False))
        except (BlockingIOError, FileNotFoundError):
            same = False
        except BaseException:
            os.close(lock)
            raise
        if not same:
            os.close(lock)
            return None
        if not new:
            with contextlib.suppress(OSError):
                os.ftruncate(lock, 1)
        return Owner(folder, name, lock)

    def release(self, remove: bool) -> None:
        """Release the lock, and remove its file where nothing is left that it guards."""
        if remove:
            with contextlib.suppress(OSError):
                os.unlink(os.path.join(self.folder, self.name + ".lock"))
        self.leave()

    def leave(self) -> None:
        """Close the file. The lock remains with the parent in the child of a fork, and is released elsewhere."""
        os.close(self.lock)


class Spool:
    """The files of this process in a folder, and those of ended processes that it has taken over.

    Writers call enqueue, which decides the order, and then commit, which waits until it is durable. Several of
    them share one fsync. Safe for use by several threads.
    """

    def __init__(self, folder: str, max_bytes: int) -> None:
        self.folder, self.max_bytes = os.path.abspath(folder), max_bytes
        self.check_folder(self.folder)
        self._reset()
        self._adopt(True)

    def _reset(self) -> None:
        self._condition = threading.Condition()
        self._exclusive: set[int] = set()  # threads that wait for the end of all commits; writers let them pass
        self._owner: Owner | None = None  # of this process's own files
        self._adopted: list[Owner] = []
        self._ages: dict[str, int] = {}  # by owner that was taken over, when its first segment was made
        self._awaited: dict[str, list[str]] = {}  # segments that other processes have taken over, by owner
        self._left: list[tuple[str, int]] = []  # segments that no writer uses, oldest first, with their bytes
        self._bytes = 0  # of all segments, and of what is enqueued
        self._number = 0  # of the newest own segment
        self._file = -1  # the segment that is written; -1 is none
        self._path = ""
        self._size = 0  # of that segment, as far as it is durable
        self._next = 0  # number of the next unit
        self._queue: list[bytes] = []
        self._enqueued = self._committed = 0  # tickets
        self._committing = False
        self._failed: dict[int, RinglogError] = {}  # by ticket
        self._closed = False

    def before_fork(self) -> None:
        """Let no other thread open or close a file until the fork is over: the child would not know of it."""
        self._exclusive.add(threading.get_ident())
        self._condition.acquire()
        while self._committing:
            self._condition.wait()

    def after_fork_in_parent(self) -> None:
        """Let other threads continue."""
        self._exclusive.discard(threading.get_ident())
        self._condition.notify_all()
        self._condition.release()

    def after_fork(self) -> None:
        """Leave all files to the parent: the child has its own ones, once it needs them."""
        for owner in (self._owner, *self._adopted):
            if owner is not None:
                owner.leave()
        if self._file >= 0:
            os.close(self._file)
        closed = self._closed
        self._reset()
        self._closed = closed

    @staticmethod
    def check_folder(folder: str) -> None:
        """Make a folder where there is none, and refuse one that cannot be used."""
        try:
            import fcntl  # noqa: F401

            os.makedirs(folder, 0o700, exist_ok=True)
            effective = os.access in os.supports_effective_ids
            if not os.access(folder, os.R_OK | os.W_OK | os.X_OK, effective_ids=effective):
                user = os.stat(folder).st_uid
                raise PermissionError(f"user {os.geteuid()} may not read and write it; it is of user {user}")
            os.listdir(folder)
        except (OSError, ImportError) as e:
            raise InvalidArgument(
                f"the spool {folder} cannot be used: {e}",
                code="invalid_argument",
                field="spool",
                remedy="name a folder on a local disk that this user may write, in spool or RINGLOG_SPOOL",
            ) from e

    def _adopt(self, first: bool = False) -> None:
        """Take over the files of processes that have ended.

        A process that has just begun, or has just ended, may follow one whose files another has taken over: they
        are delivered before.
        """
        others: dict[str, list[str]] = {}
        segments: dict[str, list[str]] = {}  # by owner
        for name in sorted(os.listdir(self.folder)):
            if match := _NAME.fullmatch(name):
                paths = segments.setdefault(match["owner"], [])
                if match["kind"] == "spool":
                    paths.append(os.path.join(self.folder, name))
        # A process that was restarted during the outage resumes where the one before it has ended.
        for name, paths in sorted(segments.items(), key=lambda item: _created(item[1])):
            try:
                if not self._adopt_one(name, paths) and self._is_taken_over(name):
                    others[name] = paths
            except OSError as e:
                log_error("spool %s: the files of %s are left alone: %s", self.folder, name, e)
        if first or self._left:
            self._awaited = others

    def _is_taken_over(self, name: str) -> bool:
        """Report whether the files of an owner are another process's by now."""
        with contextlib.suppress(FileNotFoundError):
            return os.path.getsize(os.path.join(self.folder, name + ".lock")) > 0
        return False

    def look_for_awaited(self) -> list[tuple[str, int]]:
        """Return the segments that others deliver before the next one here, with their bytes, which change meanwhile.

        Those of a process that has ended are taken over.
        """
        with self._condition:
            self.check_open()
            left: dict[str, list[tuple[str, int]]] = {}
            for name, paths in list(self._awaited.items()):
                sizes = []
                for path in paths:
                    with contextlib.suppress(FileNotFoundError):
                        sizes.append((path, os.path.getsize(path)))
                with contextlib.suppress(OSError):
                    if sizes and not self._adopt_one(name, [path for path, _ in sizes]):
                        left[name] = sizes
                        continue
                del self._awaited[name]
            return [entry for name in self._find_older() for entry in left[name]]

    def _find_older(self) -> list[str]:
        """Return the owners of what others deliver before the next segment here. The oldest one waits for nobody."""
        age = self._age_of(self._left[0][0]) if self._left else math.inf
        return [name for name, paths in self._awaited.items() if _created(paths) < age]

    def _age_of(self, path: str) -> float:
        """Return when the first segment of an ended owner was made; our own are after all of those."""
        return self._ages.get(os.path.basename(path).rsplit(".", 2)[0], math.inf)

    @property
    def awaits(self) -> bool:
        """Report whether other processes may have to deliver something before."""
        return bool(self._awaited)

    def forget_awaited(self) -> None:
        """Deliver what is ours before what others have."""
        self._awaited = {}

    def _adopt_one(self, name: str, paths: list[str]) -> bool:
        """Take over the files of an owner; False if another process has them."""
        # Another user could have made them to have events sent in this one's name.
        for path in [*paths, os.path.join(self.folder, name + ".lock")]:
            with contextlib.suppress(FileNotFoundError):
                info = os.stat(path, follow_symlinks=False)
                if info.st_uid != os.geteuid() or not stat.S_ISREG(info.st_mode):
                    raise PermissionError(f"{path} is no file of user {os.geteuid()}, but of {info.st_uid}")
        if not paths and not os.path.exists(os.path.join(self.folder, name + ".lock")):
            return True  # rejected or damaged ones alone, which wait for a person
        owner = Owner.lock_of(self.folder, name, False)
        if owner is None:
            return False
        sizes = {path: os.path.getsize(path) for path in paths if os.path.exists(path)}
        if not sizes:
            owner.release(True)
            return True
        self._adopted.append(owner)
        self._ages[name] = _created(list(sizes))
        self._left += sizes.items()
        self._left.sort(key=lambda entry: self._age_of(entry[0]))
        self._bytes += sum(sizes.values())
        return True

    @property
    def pending(self) -> bool:
        """Report whether something waits: what is published next goes after it."""
        return bool(self._left or self._awaited) or self._file >= 0 or self._committed < self._enqueued

    @property
    def size(self) -> int:
        """The bytes of what waits."""
        return self._bytes

    def check_open(self) -> None:
        """Raise Closed if another client may have the files by now."""
        if self._closed:
            raise Closed("the spool is closed", remedy="make a new client")

    def enqueue(self, units: list[bytes], mark: Mark | None = None) -> int:
        """Decide the place of units, and return a ticket for commit. mark is how all of them were sent before."""
        with self._condition:
            while self._exclusive:
                self._condition.wait()
            self.check_open()
            # A signal's handler may publish between any two lines: the lock lets its own thread in.
            count = len(units)
            first, self._next = self._next, self._next + count
            records = [encode_record(UNIT, first + i, unit) for i, unit in enumerate(units)]
            if mark is not None:
                mark.first, mark.count = first, count
                records.append(mark.encode())
            data = b"".join(records)
            if self._bytes + len(data) > self.max_bytes:
                raise SpoolFull(
                    f"the spool {self.folder} has {self._bytes} of {self.max_bytes} bytes, and {len(data)} more do "
                    "not fit",
                    code="spool_full",
                    remedy="publish it again once the cluster is back, or raise spool_bytes",
                )
            self._queue.append(data)
            size = len(data)
            self._bytes += size
            self._enqueued += 1
            return self._enqueued

    def commit(self, ticket: int) -> None:
        """Return when what was enqueued under a ticket is durable. One caller writes for all that wait."""
        with self._condition:
            while self._committed < ticket:
                if self._committing or self._start_commit():
                    self._condition.wait()
                else:
                    self._commit()
            if error := self._failed.get(ticket):
                raise error

    def _start_commit(self) -> bool:
        """In the main thread, have another one write; False in others, and where none can be started.

        The handler of a signal runs in the main thread. One that publishes would wait for the write that it has
        interrupted.
        """
        if threading.current_thread() is not threading.main_thread():
            return False
        try:
            threading.Thread(target=self._commit_beside, name="ringlog-spool-write", daemon=True).start()
        except RuntimeError:  # at the interpreter's end
            return False
        return True

    def _commit_beside(self) -> None:
        with self._condition:
            if not self._committing and self._committed < self._enqueued:
                self._commit()

    def _commit(self) -> None:
        """Write and sync what is enqueued. The caller holds the lock, which is released meanwhile."""
        queue, self._queue = self._queue, []
        tickets = range(self._committed + 1, self._enqueued + 1)
        data = b"".join(queue)
        self._committing = True
        error: RinglogError | None = None
        try:
            if self._size > SEGMENT_BYTES:
                self._close_segment()
            # While it is committing, no other thread uses the file.
            self._condition.release()
            try:
                if self._file < 0:
                    self._open_segment()
                _write_all(self._file, data)
                os.fsync(self._file)
            finally:
                self._condition.acquire()
            self._bytes += _HEAD.size if self._size == _HEAD.size else 0
            self._size += len(data)
        except OSError as e:
            error = self._undo(len(data), e)
        except BaseException as e:  # Ctrl-C
            error = self._undo(len(data), e)
            raise
        finally:
            self._committing = False
            self._committed = tickets[-1]
            if error is not None:
                self._failed.update(dict.fromkeys(tickets, error))
                for ticket in list(self._failed)[:-MAX_FAILED]:
                    del self._failed[ticket]
            self._condition.notify_all()

    def _undo(self, size: int, cause: BaseException) -> RinglogError:
        """Remove what could not be made durable, and return the error of its callers."""
        error: RinglogError = SpoolError(
            f"the spool {self.folder} cannot be written: {cause or type(cause).__name__}",
            code="spool",
            remedy="make room on its disk, or name another folder, and publish it again",
        )
        error.__cause__ = cause
        self._bytes -= size
        if self._file >= 0:
            try:
                os.ftruncate(self._file, self._size)
            except OSError:
                # It may be found there later, or not.
                error = OutcomeUnknown(error.message, code="outcome_unknown", remedy="look before repeating it")
            self._close_segment()
        return error

    def _open_segment(self) -> None:
        """Begin a segment."""
        host = re.sub(r"[^\w-]", "_", socket.gethostname(), flags=re.ASCII)[:40] or "host"
        while self._owner is None:  # a process that looks for files to take over may have the lock for a moment
            self._owner = Owner.lock_of(self.folder, f"{host}-{os.getpid()}-{os.urandom(8).hex()}", True)
        self._number += 1
        self._path = os.path.join(self.folder, f"{self._owner.name}.{self._number:06d}.spool")
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        file = os.open(self._path, flags, 0o600)
        try:
            _write_all(file, _HEAD.pack(MAGIC, time.time_ns()))
            _sync_folder(self.folder)
        except BaseException:
            os.close(file)
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            raise
        self._file, self._size = file, _HEAD.size

    def _leave_segment(self) -> None:
        """Make what is written next go into another segment. The caller holds the lock."""
        self._exclusive.add(threading.get_ident())
        try:
            while self._committing:
                self._condition.wait()
            if self._queue:
                self._commit()
            self._close_segment()
        finally:
            self._exclusive.discard(threading.get_ident())
            self._condition.notify_all()

    def _close_segment(self) -> None:
        """Have a segment delivered, unless it is empty."""
        if self._file < 0:
            return
        os.close(self._file)
        self._left.append((self._path, self._size))
        empty = self._size <= _HEAD.size
        self._file, self._size = -1, 0
        if empty:
            self._remove(self._path, False)

    def next_segment(self) -> Segment | None:
        """Return the oldest segment to deliver, None if nothing waits or others have what goes before it."""
        while True:
            with self._condition:
                self.check_open()
                if not self._left:
                    self._leave_segment()
                if not self._left:
                    self._adopt()  # of a process that has ended meanwhile
                if not self._left or self._find_older():
                    return None
                path = self._left[0][0]
            try:
                segment = Segment(self, path)
            except FileNotFoundError:  # someone has removed it
                log_error("spool: %s is gone, and with it the events that it had", path)
                self.finish(path, False)
                continue
            if segment.damage:
                log_error(
                    "spool: %s is damaged at bytes %s; what is whole is delivered, and the file kept as *.damaged",
                    path,
                    segment.damage,
                )
            return segment

    def finish(self, path: str, damaged: bool) -> None:
        """Remove a segment whose units are all done, or keep it aside."""
        with self._condition:
            self.check_open()
            self._remove(path, damaged)

    def _remove(self, path: str, damaged: bool) -> None:
        with contextlib.suppress(FileNotFoundError):
            if damaged:
                os.rename(path, path.removesuffix(".spool") + ".damaged")
            else:
                os.unlink(path)
        self._bytes = max(0, self._bytes - sum(size for left, size in self._left if left == path))
        self._left = [entry for entry in self._left if entry[0] != path]
        for owner in [owner for owner in self._adopted if not self._has_files(owner)]:
            self._adopted.remove(owner)
            owner.release(True)

    def _has_files(self, owner: Owner) -> bool:
        return any(os.path.basename(path).startswith(owner.name + ".") for path, _ in self._left)

    def reject(self, path: str, events: list[Any], error: RinglogError) -> None:
        """Keep events aside that are refused for good, with the reason."""
        owner = os.path.basename(path).rpartition(".spool")[0].rpartition(".")[0]
        target = os.path.join(self.folder, owner + ".rejected")
        reason = {"code": error.code, "field": error.field, "message": error.message, "remedy": error.remedy}
        line = json.dumps({"rejected_at": time.time(), "error": reason, "events": events}) + "\n"
        self.check_open()
        file = os.open(target, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            _write_all(file, line.encode())
            os.fsync(file)
        finally:
            os.close(file)
        log_error("spool: %d event(s) refused for good and kept in %s: %s", len(events), target, error)

    def close(self) -> None:
        """Make durable what is enqueued, and leave the files to the next client that opens the folder."""
        with self._condition:
            if self._closed:
                return
            self._leave_segment()
            self._closed = True
            for owner in (self._owner, *self._adopted):
                if owner is not None:
                    owner.release(not self._has_files(owner))
            self._owner, self._adopted = None, []


def _created(paths: list[str]) -> int:
    """Return when the first of some segments was made, in nanoseconds since 1970; 0 if that is not known."""
    try:
        with open(paths[0], "rb") as f:
            magic, created = _HEAD.unpack(f.read(_HEAD.size))
        return int(created) if magic == MAGIC else 0
    except (OSError, LookupError, struct.error):
        return 0


def _write_all(file: int, data: bytes) -> None:
    """Write all of data."""
    view = memoryview(data)
    while view:
        view = view[os.write(file, view) :]


def _sync_folder(folder: str) -> None:
    """Make the names of new files durable."""
    file = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def log_error(message: str, *args: Any) -> None:
    """Log what a person has to look at."""
    import logging  # takes long to import, and is rarely needed

    logging.getLogger("ringlog").error(message, *args)


@dataclass
class FileState:
    """What a file of a spool holds, as `python -m ringlog spool` shows it."""

    path: str
    kind: str  # spool, damaged or rejected
    bytes: int
    records: int  # units that wait, or lines of rejected
    events: int
    oldest: float  # by time.time(), when the file was made; 0 is not known
    damage: list[tuple[int, int]]
    in_use: bool  # by a process that runs
    problem: str  # why it cannot be read, "" if it can


def inspect(folder: str) -> list[FileState]:
    """Return what the files of a folder hold. Nothing is changed, also while processes use them."""
    states: list[FileState] = []
    for name in sorted(os.listdir(folder)):
        match = _NAME.fullmatch(name)
        kind = name.rpartition(".")[2]
        if match is None or kind == "lock":
            continue
        path = os.path.join(folder, name)
        state = FileState(path, kind, 0, 0, 0, 0.0, [], _is_locked(folder, match["owner"]), "")
        states.append(state)
        try:
            with open(path, "rb") as f:
                data = f.read()
        except OSError as e:
            state.problem = str(e)
            continue
        state.bytes = len(data)
        if kind == "rejected":
            try:
                lines = [json.loads(line) for line in data.splitlines()]
                state.records, state.events = len(lines), sum(len(line["events"]) for line in lines)
                state.oldest = lines[0]["rejected_at"] if lines else 0.0
            except (ValueError, LookupError, TypeError) as e:
                state.problem = f"a line is not as it was written: {e}"
            continue
        content = scan(data)
        waiting = [unit for number, unit in content.units.items() if number not in content.done]
        state.records, state.events = len(waiting), sum(len(unit.events) for unit in waiting)
        state.oldest, state.damage = content.created, content.damage
        if state.in_use and content.damage and content.damage[-1][1] == len(data):
            content.damage.pop()  # which is being written
    return states


def _is_locked(folder: str, owner: str) -> bool:
    """Report whether a process has the files of an owner."""
    import fcntl

    try:
        lock = os.open(os.path.join(folder, owner + ".lock"), os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    except OSError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False
