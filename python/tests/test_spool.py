"""The spool: what its files stand, and that what is spooled reaches the log once each and in order."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid
import warnings
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from unittest import mock

from ringlog import AsyncClient, Client
from ringlog._core import drainer
from ringlog._core.config import Clock
from ringlog._core.drainer import parse_nanoseconds
from ringlog._core.spool import Mark, Spool, inspect, scan
from ringlog.errors import InvalidArgument, SpoolError, SpoolFull
from ringlog.event import Event, NewEvent
from tests.cluster import Cluster, eventually
from tests.network import Network
from tests.test_faults import PACKAGE

MIB = 1 << 20


def unit(i: int) -> bytes:
    return json.dumps([{"type": "DATA_SYNC_COMPLETED", "payload": {"i": i, "ü": "\u2028"}}]).encode()


class SpoolTest(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory(prefix="ringlog-spool-")
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def files(self, kind: str) -> list[Path]:
        return sorted(Path(self.folder).glob("*." + kind))


class Files(SpoolTest):
    def write(self, spool: Spool, i: int, mark: Mark | None = None) -> None:
        spool.commit(spool.enqueue([unit(i)], mark))

    def content(self, path: Path) -> list[int]:
        return [event["payload"]["i"] for unit in scan(path.read_bytes()).units.values() for event in unit.events]

    def test_what_is_whole_comes_out_of_a_file_that_is_cut(self) -> None:
        spool = Spool(self.folder, MIB)
        for i in range(3):
            self.write(spool, i)
        data = self.files("spool")[0].read_bytes()
        third = data.rfind(b"\xff\xfeRL")
        for length in range(len(data)):
            found = scan(data[:length])
            complete = sum(end <= length for end in (data.find(b"\xff\xfeRL", 20), third))
            self.assertEqual([found.units[n].body for n in found.units], [unit(i) for i in range(complete)], length)
            boundary = length in (0, 16, data.find(b"\xff\xfeRL", 20), third)
            self.assertEqual([b for _, b in found.damage], [] if boundary else [length])

    def test_what_is_whole_comes_out_of_a_file_with_flipped_bits(self) -> None:
        spool = Spool(self.folder, MIB)
        for i in range(3):
            self.write(spool, i, Mark(0, 0, "p", i + 1, 1.5, "c"))
        data = self.files("spool")[0].read_bytes()
        whole = scan(data)
        self.assertEqual((sorted(whole.units), sorted(whole.marks), whole.damage), ([0, 1, 2], [0, 1, 2], []))
        for at in range(len(data)):
            flipped = bytearray(data)
            flipped[at] ^= 1 << at % 8
            found = scan(bytes(flipped))
            # One record is lost at most, and named; nothing is taken for a record that is none.
            if not 8 <= at < 16:  # the time in the head
                self.assertEqual(len(found.damage), 1, at)
                begin, end = found.damage[0]
                self.assertTrue(begin <= at < end)
            self.assertGreaterEqual(len(found.units) + len(found.marks), 5)
            for number, got in found.units.items():
                self.assertEqual(got.body, unit(number))
            for number, mark in found.marks.items():
                self.assertEqual(mark, whole.marks[number])

    def test_a_unit_is_durable_when_commit_returns_and_threads_share_an_fsync(self) -> None:
        spool = Spool(self.folder, 16 * MIB)
        synced: dict[int, int] = {}
        calls = 0
        real = os.fsync

        def fsync(file: int) -> None:
            nonlocal calls
            size = os.fstat(file).st_size
            time.sleep(0.002)
            real(file)
            calls += 1
            synced[os.fstat(file).st_ino] = size

        def write(worker: int) -> None:
            for i in range(20):
                self.write(spool, worker * 100 + i)
                path = self.files("spool")[0]
                durable = scan(path.read_bytes()[: synced.get(path.stat().st_ino, 0)])
                numbers = [event["payload"]["i"] for unit in durable.units.values() for event in unit.events]
                missing.extend({worker * 100 + i} - set(numbers))

        missing: list[int] = []
        with mock.patch("os.fsync", fsync):
            threads = [threading.Thread(target=write, args=(worker,)) for worker in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        self.assertEqual(missing, [])
        self.assertLess(calls, 120)  # for 160 units
        written = self.content(self.files("spool")[0])
        self.assertEqual(len(written), 160)
        for worker in range(8):  # each in its own order
            own = [i for i in written if i // 100 == worker]
            self.assertEqual(own, sorted(own))

    def test_what_could_not_be_made_durable_is_refused_and_not_kept(self) -> None:
        spool = Spool(self.folder, MIB)
        self.write(spool, 0)
        with mock.patch("os.fsync", side_effect=OSError(28, "No space left on device")):
            with self.assertRaises(SpoolError) as refused:
                self.write(spool, 1)
            self.assertIn("No space left", str(refused.exception))
            self.assertTrue(refused.exception.remedy)
        self.write(spool, 2)
        spool.close()
        self.assertEqual([i for path in self.files("spool") for i in self.content(path)], [0, 2])

    def test_a_full_spool_refuses_and_takes_again_once_there_is_room(self) -> None:
        spool = Spool(self.folder, 1 << 16)
        taken = 0
        with self.assertRaises(SpoolFull) as refused:
            while True:
                self.write(spool, taken)
                taken += 1
        self.assertIn("65536", str(refused.exception))
        self.assertTrue(refused.exception.remedy and refused.exception.retryable)
        self.assertLess(sum(path.stat().st_size for path in self.files("spool")), 1 << 16)
        segment = spool.next_segment()
        assert segment is not None
        segment.note_done(0, taken)
        segment.finish()
        self.assertFalse(spool.pending)
        self.assertEqual(spool.size, 0)
        self.write(spool, taken)

    def test_files_of_a_process_that_runs_are_left_alone_and_those_of_an_ended_one_taken_over(self) -> None:
        first = Spool(self.folder, MIB)
        self.write(first, 1)
        second = Spool(self.folder, MIB)
        self.assertFalse(second.pending)
        self.write(second, 2)
        first.close()
        third = Spool(self.folder, MIB)
        self.assertTrue(third.pending)
        segment = third.next_segment()
        assert segment is not None
        self.assertEqual([unit.events[0]["payload"]["i"] for unit in segment.content.units.values()], [1])
        second.close()
        third.close()
        fourth = Spool(self.folder, MIB)
        self.assertEqual(sum(path.stat().st_size for path in self.files("spool")), fourth.size)

    def test_the_events_of_a_unit_that_are_done_are_not_read_again(self) -> None:
        spool = Spool(self.folder, MIB)
        events = [{"type": "X", "payload": {"i": i}} for i in range(3)]
        spool.commit(spool.enqueue([json.dumps(events).encode(), unit(9)], Mark(0, 0, "p", 1, 1.5, "c")))
        segment = spool.next_segment()
        assert segment is not None
        segment.note_part_done(0, [0, 2])
        found = scan(self.files("spool")[0].read_bytes())
        self.assertEqual(found.units[0], segment.content.units[0])
        self.assertEqual(json.loads(found.units[0].body), events[1:2])
        self.assertEqual(list(found.marks), [1])  # the request that had all of them is sent by nobody
        segment.note_part_done(0, [0])
        self.assertEqual(segment.content.done, {0})

    def test_a_signal_during_the_write_may_publish(self) -> None:
        program = (
            "import os, signal, sys; from ringlog import Client\n"
            "log = Client('127.0.0.1:9', spool=sys.argv[1], spool_after=0.1)\n"
            "def publish(*_): log.publish('DAEMON_STOPPED', {'i': 2}); print('handled', flush=True)\n"
            "signal.signal(signal.SIGTERM, publish)\n"
            "log.publish('DATA_SYNC_COMPLETED', {'i': 0})\n"
            "real, due = os.fsync, [1]\n"
            "def fsync(file):\n"
            "    if due: due.pop(); os.kill(os.getpid(), signal.SIGTERM)\n"
            "    real(file)\n"
            "os.fsync = fsync\n"
            "log.publish('DATA_SYNC_COMPLETED', {'i': 1}); print('published', flush=True); os._exit(0)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, self.folder], env={**os.environ, "PYTHONPATH": str(PACKAGE)},
            capture_output=True, text=True, timeout=30,
        )  # fmt: skip
        self.assertEqual(done.stdout, "handled\npublished\n", done.stderr)
        self.assertEqual(sorted(i for path in self.files("spool") for i in self.content(path)), [0, 1, 2])

    def test_events_are_as_far_apart_as_they_were_published_though_the_clock_is_set_back(self) -> None:
        wall, ticks = 10**18, 5 * 10**9
        clock = Clock()
        times = []
        with mock.patch("time.time_ns", lambda: wall), mock.patch("time.monotonic_ns", lambda: ticks):
            for passed, jump in ((0, 0), (10, 0), (10, -60), (10, 0), (10, -3600)):  # seconds
                wall, ticks = wall + (passed + jump) * 10**9, ticks + passed * 10**9
                times.append(parse_nanoseconds(clock.now()) or 0)
                self.assertEqual((parse_nanoseconds(clock.now()) or 0) - times[-1], 1)
        self.assertEqual([(t - 10**18) // 10**9 for t in times], [0, 10, 20, 30, -3620])

    def test_a_folder_that_cannot_be_used_is_refused(self) -> None:
        file = Path(self.folder) / "file"
        file.touch()
        for folder in (file, file / "below"):
            with self.assertRaises(InvalidArgument) as refused:
                Client("127.0.0.1:1", spool=folder)
            self.assertEqual(refused.exception.field, "spool")
            self.assertIn("RINGLOG_SPOOL", refused.exception.remedy)
        if os.geteuid() != 0:
            self.skipTest("only root can be another user")
        os.chmod(self.folder, 0o700)
        os.seteuid(65534)
        try:
            with self.assertRaises(InvalidArgument) as refused:
                Spool(self.folder, MIB)
        finally:
            os.seteuid(0)
        self.assertIn("user 65534 may not", str(refused.exception))

    def test_files_of_another_user_are_left_alone(self) -> None:
        if os.geteuid() != 0:
            self.skipTest("only root can give a file away")
        spool = Spool(self.folder, MIB)
        self.write(spool, 1)
        spool.close()
        os.chown(self.files("spool")[0], 65534, 65534)
        with self.assertLogs("ringlog", "ERROR") as logged:
            self.assertFalse(Spool(self.folder, MIB).pending)
        self.assertIn("no file of user 0", logged.output[0])
        self.assertEqual(self.content(self.files("spool")[0]), [1])

    def test_times_differ_and_are_read_as_they_are_written(self) -> None:
        clock = Clock()
        times = [parse_nanoseconds(clock.now()) for _ in range(1000)]
        self.assertEqual(len(set(times)), 1000)
        self.assertLess(abs(time.time_ns() - (times[-1] or 0)), 10**9)
        self.assertEqual(parse_nanoseconds("2026-01-05T12:00:00.5+02:00"), 1767607200_500000000)
        for wrong in ("", "soon", "2026-13-05T10:00:00Z", None, 7):
            self.assertIsNone(parse_nanoseconds(wrong))


DAEMON = """
import sys
from ringlog import Client
from ringlog._core import drainer
drainer.AWAY = 0.1
mode, run, first, last, folder = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
log = Client(spool=folder, spool_after=0.3)
for i in range(first, last):
    if mode == "publish" or (mode == "mixed" and i % 3 == 0):
        result = log.publish("DATA_SYNC_COMPLETED", {"i": i}, key=run, dedup=False)
    elif mode == "mixed" and i % 3 == 1:
        [result] = log.publish_many(
            [{"type": "DATA_SYNC_COMPLETED", "payload": {"i": i}, "key": run, "dedup": False}])
    else:
        result = log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}, key=run, dedup=False).result()
    print(i, result.spooled, flush=True)
print("end", flush=True)
sys.stdin.read()
"""


class Away(SpoolTest):
    """A node that is stopped and started."""

    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(voters=1)
        cls.addClassCleanup(cls.cluster.close)

    def setUp(self) -> None:
        super().setUp()
        self.run_id = uuid.uuid4().hex
        self.node = self.cluster.nodes[0]
        away = mock.patch.object(drainer, "AWAY", 0.1)
        away.start()
        self.addCleanup(away.stop)

    def stop(self) -> None:
        self.node.kill()
        self.addCleanup(self.start)

    def start(self) -> None:
        if self.node.process is None or self.node.process.poll() is not None:
            self.cluster.start(self.node)
            eventually("the node leads", self.cluster._converged)

    def client(self, **options: Any) -> Client:
        options = {"spool": self.folder, "spool_after": 0.3, **options}
        log = Client(self.cluster.urls, **options)
        self.addCleanup(log.close)
        return log

    def events(self) -> list[Event]:
        with Client(self.cluster.urls, spool="") as log:
            return list(log.tail("start", keys=[self.run_id], until_end=True))

    def numbers(self) -> list[int]:
        return [event.payload["i"] for event in self.events()]

    def publish(self, log: Client, i: int, **fields: Any) -> bool:
        return log.publish("DATA_SYNC_COMPLETED", {"i": i, "run": self.run_id}, key=self.run_id, **fields).spooled


class OnceEach(Away):
    def daemon(self, mode: str, first: int, last: int) -> subprocess.Popen[str]:
        env = {**os.environ, "PYTHONPATH": str(PACKAGE), "RINGLOG_ENDPOINTS": self.cluster.urls}
        args = [sys.executable, "-c", DAEMON, mode, self.run_id, str(first), str(last), self.folder]
        process = subprocess.Popen(
            args, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        return process

    def read_until(self, process: subprocess.Popen[str], spooled: int) -> list[int]:
        """Return the numbers that are acknowledged, up to and with some that are spooled."""
        assert process.stdout is not None
        taken: list[int] = []
        while spooled:
            number, _, in_spool = process.stdout.readline().strip().partition(" ")
            taken.append(int(number))
            spooled -= in_spool == "True"
        return taken

    def kill(self, process: subprocess.Popen[str]) -> list[int]:
        """End a daemon as kill -9 does, and return what else it has acknowledged."""
        process.kill()
        assert process.stdout is not None
        lines = process.stdout.read().split("\n")[:-1]
        return [int(line.partition(" ")[0]) for line in lines if line.partition(" ")[2]]

    def check(self, mode: str) -> None:
        first = self.daemon(mode, 0, 100_000)
        assert first.stdout is not None
        taken = [int(first.stdout.readline().partition(" ")[0]) for _ in range(20)]
        self.stop()
        taken += self.read_until(first, 80) + self.kill(first)
        # The next process is killed as well.
        begin = 100_000
        second = self.daemon(mode, begin, begin + 100_000)
        taken += self.read_until(second, 40) + self.kill(second)
        third = self.daemon(mode, 200_000, 200_120)
        taken += self.read_until(third, 30)
        self.start()
        assert third.stdout is not None
        taken += [int(line.partition(" ")[0]) for line in iter(third.stdout.readline, "end\n")]
        eventually("the spool is empty", lambda: not self.files("spool"))
        found = self.numbers()
        self.assertEqual(found, sorted(set(found)), "in order and once each")
        # What a killed process was about to publish may be there, too.
        self.assertEqual(set(taken) - set(found), set())
        self.assertLessEqual(len(set(found) - set(taken)), 2)

    def test_publish(self) -> None:
        self.check("publish")

    def test_publish_soon(self) -> None:
        self.check("soon")

    def test_all_three_in_turn(self) -> None:
        self.check("mixed")

    def test_two_processes_in_one_folder(self) -> None:
        self.stop()
        daemons = [self.daemon("publish", first, first + 300) for first in (0, 1000)]
        for process in daemons:
            self.read_until(process, 100)
        self.assertEqual(len(self.files("lock")), 2)
        self.start()
        for process in daemons:
            assert process.stdout is not None
            while process.stdout.readline() != "end\n":
                pass
        eventually("the spool is empty", lambda: not self.files("spool"))
        found = self.numbers()
        self.assertEqual([i for i in found if i < 1000], list(range(300)))
        self.assertEqual([i for i in found if i >= 1000], list(range(1000, 1300)))

    def test_a_drainer_that_is_killed_again_and_again_loses_and_doubles_nothing(self) -> None:
        self.stop()
        with self.client() as log:
            for i in range(6000):
                log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id, dedup=False)
        self.start()
        env = {**os.environ, "PYTHONPATH": str(PACKAGE), "RINGLOG_ENDPOINTS": self.cluster.urls}
        kills, code = 0, None
        with Client(self.cluster.urls, spool="") as log:
            while code is None:
                before = log.status()["last_offset"]
                process = subprocess.Popen(
                    [sys.executable, "-m", "ringlog", "spool", self.folder, "--drain"],
                    env=env,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                )
                # As soon as it has delivered something, in the middle of the next request.
                while (code := process.poll()) is None and log.status()["last_offset"] == before:
                    pass
                if code is None:
                    process.kill()
                    process.wait()
                    kills += 1
        self.assertEqual(code, 0)
        self.assertGreater(kills, 3)
        self.assertEqual(self.numbers(), list(range(6000)))

    def test_a_fork_leaves_the_files_to_the_parent(self) -> None:
        self.stop()
        log = self.client()
        self.assertTrue(self.publish(log, 1))
        child = os.fork()
        if child == 0:
            try:
                done = not log.spooled_bytes and self.publish(log, 2)
                os._exit(0 if done else 1)
            except BaseException:
                os._exit(2)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(len(self.files("spool")), 2)
        self.assertTrue(self.publish(log, 3))
        self.start()
        self.assertTrue(log.drain(60))
        # What the child has left is taken over.
        eventually("all are there", lambda: sorted(self.numbers()) == [1, 2, 3] and not self.files("spool"))
        log.close()
        self.assertEqual(os.listdir(self.folder), [])

    def test_a_fork_renews_the_locks_that_a_thread_holds(self) -> None:
        self.stop()
        log = self.client()
        self.publish(log, 1)
        clock = log._operations._config.clock
        assert clock is not None
        once = log._operations._calls.warnings._once
        with clock._lock, once._lock:
            if (child := os.fork()) == 0:
                signal.alarm(10)
                os._exit(0 if self.publish(log, 2) and once.is_new("x") else 1)
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_what_a_process_publishes_is_after_what_the_one_before_it_has_left_to_another(self) -> None:
        self.stop()
        for key in ("a", "b"):
            with self.client() as log:
                log.publish("DATA_SYNC_COMPLETED", {"i": 0, "of": key}, key=self.run_id)
        # This one has the files of both, and has not found the cluster yet.
        other = Client("127.0.0.1:9", spool=self.folder, spool_after=0.3)
        self.addCleanup(other.close)
        other.publish("DATA_SYNC_COMPLETED", {"i": 1, "of": "a"}, key=self.run_id)
        self.start()
        with self.client() as log:
            self.assertTrue(log.publish("DATA_SYNC_COMPLETED", {"i": 1, "of": "b"}, key=self.run_id).spooled)
            self.assertEqual(self.numbers(), [])
            other.close()  # as if it was restarted
            # What the other one has published itself is taken over once nothing waits here.
            eventually("all files are delivered", lambda: not self.files("spool") and log.drain(60))
            self.assertFalse(log.publish("DATA_SYNC_COMPLETED", {"i": 2, "of": "b"}, key=self.run_id).spooled)
        self.assertEqual(os.listdir(self.folder), [])
        order = [(event.payload["of"], event.payload["i"]) for event in self.events()]
        self.assertEqual([i for of, i in order if of == "b"], [0, 1, 2])

    def test_what_several_processes_have_left_is_delivered_in_order_whoever_has_it(self) -> None:
        self.stop()
        with self.client() as log:
            self.publish(log, 0)
        other = Client("127.0.0.1:9", spool=self.folder, spool_after=0.3)
        self.addCleanup(other.close)
        with self.client() as log:
            self.publish(log, 1)
        self.start()
        with self.client() as log:
            self.assertFalse(log.drain(1))
            self.assertEqual(self.numbers(), [])
            other.close()
            self.assertTrue(log.drain(60))
        self.assertEqual(self.numbers(), [0, 1])

    def test_nobody_waits_for_a_process_that_does_not_deliver(self) -> None:
        self.stop()
        with self.client() as log:
            self.publish(log, 0)
        other = Client("127.0.0.1:9", spool=self.folder, spool_after=0.3)
        self.addCleanup(other.close)
        self.start()
        with mock.patch.object(drainer, "HANGING", 0.3), self.assertLogs("ringlog", "ERROR"), self.client() as log:
            self.publish(log, 1)
            self.assertTrue(log.drain(60))
            self.assertEqual(self.numbers(), [1])

    def test_one_task_delivers_what_several_threads_spool(self) -> None:
        self.stop()
        log = self.client()
        spawned = []

        class SlowIo(type(log._io)):  # type: ignore[misc]
            def spawn(self, name: str, body: Any) -> Any:
                time.sleep(0.2)
                spawned.append(name)
                return super().spawn(name, body)

        assert log._operations._drainer is not None
        log._operations._drainer._io = SlowIo()
        threads = [threading.Thread(target=self.publish, args=(log, i)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(spawned, ["ringlog-spool"])
        self.start()
        self.assertTrue(log.drain(60))
        self.assertEqual(sorted(self.numbers()), [0, 1, 2, 3])

    def test_forks_while_threads_write(self) -> None:
        self.stop()
        log = self.client(spool_after=0.2)
        self.publish(log, 0)
        stop = threading.Event()
        taken = [0]

        def write() -> None:
            while not stop.is_set():
                self.publish(log, taken[-1] + 1, dedup=False)
                taken.append(taken[-1] + 1)

        thread = threading.Thread(target=write)
        thread.start()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of forks beside threads
            for _ in range(100):
                if (child := os.fork()) == 0:
                    code = 2
                    with contextlib.suppress(BaseException):
                        # The parent's locks are not held here.
                        links = [Path("/proc/self/fd") / name for name in os.listdir("/proc/self/fd")]
                        paths = [os.readlink(link) for link in links if link.is_symlink()]
                        code = int(any(path.endswith(".lock") for path in paths))
                    os._exit(code)
                self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        stop.set()
        thread.join()
        self.start()
        self.assertTrue(log.drain(60))
        self.assertEqual(self.numbers(), taken)

    def test_asyncio(self) -> None:
        async def main() -> None:
            async with AsyncClient(self.cluster.urls, spool=self.folder, spool_after=0.3) as log:
                self.stop()
                results = [await log.publish("DATA_SYNC_COMPLETED", {"i": 0}, key=self.run_id, dedup=False)]
                futures = [
                    await log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id, dedup=False)
                    for i in range(1, 1000)
                ]
                self.assertTrue(await log.flush(10))
                results += [await future for future in futures]
                self.assertTrue(all(result.spooled for result in results))
                more = asyncio.gather(
                    *(
                        log.publish("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id, dedup=False)
                        for i in range(1000, 1100)
                    )
                )
                self.assertTrue(all(result.spooled for result in await more))
                self.assertFalse(await log.drain(0.01))
            # Closed, and left for the next one.
            self.start()
            async with AsyncClient(self.cluster.urls, spool=self.folder) as log:
                self.assertTrue(await log.drain(60))
                self.assertEqual(log.spooled_bytes, 0)

        asyncio.run(main())
        self.assertEqual(self.numbers(), list(range(1100)))

    def test_what_publish_soon_has_left_at_close_and_exit_is_spooled(self) -> None:
        self.stop()
        log = self.client(spool_after=20)
        futures = [log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id) for i in range(3000)]
        log.close(0.2)
        self.assertTrue(all(future.result(5).spooled for future in futures))
        program = (
            "import sys; from ringlog import Client; log = Client(spool=sys.argv[1], spool_after=0.3)\n"
            "for i in range(3000, 4000): log.publish_soon('DATA_SYNC_COMPLETED', {'i': i}, key=sys.argv[2])"
        )
        env = {**os.environ, "PYTHONPATH": str(PACKAGE), "RINGLOG_ENDPOINTS": self.cluster.urls}
        args = [sys.executable, "-c", program, self.folder, self.run_id]
        subprocess.run(args, env=env, check=True, stderr=subprocess.DEVNULL)
        self.start()
        with self.client() as log:
            self.assertTrue(log.drain(60))
        self.assertEqual(self.numbers(), list(range(4000)))


class UnderKills(SpoolTest):
    def test_a_leader_killed_again_and_again_loses_and_doubles_nothing(self) -> None:
        cluster = Cluster(voters=3)
        self.addCleanup(cluster.close)
        stop, going, published = threading.Event(), threading.Event(), dict.fromkeys(("publish", "soon"), 0)
        going.set()

        def publish(way: str, log: Client) -> None:
            i = 0
            while going.wait() and not stop.is_set():
                if way == "publish":
                    log.publish("DATA_SYNC_COMPLETED", {"i": i}, key=way, dedup=False)
                else:
                    log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}, key=way, dedup=False)
                    if i % 100 == 99:
                        log.flush()
                i += 1
                published[way] = i

        with Client(cluster.urls, spool=self.folder, spool_after=0.2) as log:
            threads = [threading.Thread(target=publish, args=(way, log)) for way in published]
            for thread in threads:
                thread.start()
            for _ in range(2):
                leader = cluster.leader()
                leader.kill()
                eventually("something is spooled", lambda: log.spooled_bytes)
                going.clear()  # a busy machine may deliver no faster than they publish
                eventually("it is delivered", lambda: log.drain(0.1))
                going.set()
                cluster.start(leader)
                eventually("all nodes know a leader", cluster._converged)
            stop.set()
            for thread in threads:
                thread.join()
            self.assertTrue(log.flush(30) and log.drain(60))
            for way, count in published.items():
                found = [event.payload["i"] for event in log.tail("start", keys=[way], until_end=True)]
                self.assertEqual(found, list(range(count)))


class Doubt(Away):
    """Requests whose answers were lost."""

    network: Network

    @classmethod
    def setUpClass(cls) -> None:
        cls.network = Network()
        cls.cluster = Cluster(voters=1, advertise=lambda node: cls.network.link(node.http))
        cls.addClassCleanup(cls.network.close)
        cls.addClassCleanup(cls.cluster.close)

    def test_an_event_whose_answer_was_lost_is_not_appended_again(self) -> None:
        for idle in (600.0, 0.0):  # while nodes know its producer, and after they have forgotten it
            with self.subTest(idle=idle), mock.patch.object(drainer, "MAX_PRODUCER_IDLE", idle):
                log = self.client()
                self.run_id = uuid.uuid4().hex
                self.network.become("deaf")
                self.addCleanup(self.network.become, "open")
                self.assertTrue(self.publish(log, 1, dedup=False))
                self.assertTrue(self.publish(log, 2, dedup=False))
                lost = self.network.lost
                eventually("it is sent again", lambda: self.network.lost > lost)  # noqa: B023
                self.network.become("open")
                self.assertTrue(log.drain(60))
                self.assertEqual(self.numbers(), [1, 2])

    def spool_with(self, mark: Mark | None, *events: dict[str, Any]) -> Spool:
        spool = Spool(self.folder, MIB)
        spool.commit(spool.enqueue([json.dumps([event]).encode() for event in events], mark))
        return spool

    def event(self, i: int, at: str) -> dict[str, Any]:
        return {"type": "DATA_SYNC_COMPLETED", "payload": {"i": i}, "key": self.run_id, "time": at, "dedup": False}

    def test_what_a_forgotten_producer_has_appended_is_found_in_the_log(self) -> None:
        clock = Clock()
        sent = [self.event(i, clock.now()) for i in range(4)]
        with Client(self.cluster.urls) as log:
            log.publish_many([*sent[:2], sent[3]])  # type: ignore[list-item]
            log.publish_many([self.event(2, clock.now())])  # type: ignore[list-item] # equal but for its time
        self.spool_with(Mark(0, 0, "forgotten-a", 7, time.time() - 3600, ""), *sent[:2]).close()
        self.spool_with(Mark(0, 0, "forgotten-b", 7, time.time() - 3600, ""), sent[2]).close()
        # This was sent a moment ago, says the clock that was set back.
        late = Mark(0, 0, "forgotten-c", 1, time.time(), "", uptime=time.monotonic() - 3600)
        self.spool_with(late, sent[3]).close()
        with self.client() as log:
            self.assertTrue(log.drain(60))
        self.assertEqual(sorted(self.numbers()), [0, 1, 2, 2, 3])

    def test_duplicates_of_what_a_forgotten_producer_has_appended_are_none_if_further_apart(self) -> None:
        now = datetime.now(timezone.utc)
        sent = []
        for i, seconds in ((0, 0), (1, 0), (0, 0.5), (0, 10), (1, 20)):
            event = self.event(i, (now + timedelta(seconds=seconds)).isoformat())
            del event["dedup"]
            sent.append(event)
        with Client(self.cluster.urls) as log:
            log.set_setting("dedup.window", "1s")
            self.addCleanup(lambda: self.client().set_setting("dedup.window", ""))
            self.assertEqual([r.duplicate for r in log.publish_many(sent)], [False, False, True, True, True])  # type: ignore[arg-type]
        self.spool_with(Mark(0, 0, "forgotten", 7, time.time() - 3600, ""), *sent).close()
        time.sleep(1.1)  # until the cluster compares with none of them
        with self.client() as log:
            self.assertTrue(log.drain(60))
        self.assertEqual(self.numbers(), [0, 1, 0, 1])

    def test_what_a_node_fills_in_is_the_same_event_and_another_type_is_another(self) -> None:
        at = Clock().now()
        sent = [
            {**self.event(0, at), "payload": {"i": 0, "correlation_id": "run-17"}},
            {**self.event(1, at[:-1] + "1234Z"), "type": "data_sync_completed"},
        ]
        with Client(self.cluster.urls) as log:
            log.publish_many([*sent, self.event(2, at)])  # type: ignore[list-item]
        self.spool_with(Mark(0, 0, "gone-a", 7, time.time() - 3600, ""), *sent).close()
        other = {**self.event(2, at), "type": "DATA_SYNC_STARTED"}
        self.spool_with(Mark(0, 0, "gone-b", 7, time.time() - 3600, ""), other).close()
        with self.client() as log:
            self.assertTrue(log.drain(60))
        self.assertEqual(sorted(self.numbers()), [0, 1, 2, 2])

    def test_where_the_mark_is_damaged_the_log_is_searched(self) -> None:
        clock = Clock()
        sent = [self.event(i, clock.now()) for i in range(3)]
        with Client(self.cluster.urls) as log:
            log.publish_many(sent[1:2])  # type: ignore[arg-type]
        self.spool_with(Mark(0, 0, "p", 1, time.time(), ""), *sent).close()
        path = self.files("spool")[0]
        path.write_bytes(path.read_bytes()[:-3])
        with self.assertLogs("ringlog", "ERROR") as logged, self.client() as log:
            self.assertTrue(log.drain(60))
        self.assertEqual(self.numbers(), [1, 0, 2])
        self.assertIn("damaged at bytes", logged.output[0])
        self.assertEqual((len(self.files("spool")), len(self.files("damaged"))), (0, 1))

    def test_another_clusters_events_stay(self) -> None:
        self.spool_with(Mark(0, 0, "p", 1, time.time(), "another"), self.event(0, Clock().now())).close()
        with self.client() as log:
            sending = log._operations._drainer
            assert sending is not None
            eventually("it is refused", lambda: "cluster another" in str(sending.failure))
            self.assertFalse(log.drain(0.1))
        self.assertEqual(self.numbers(), [])
        self.assertEqual(len(self.files("spool")), 1)


class Limits(Away):
    def test_what_a_node_refuses_is_kept_aside_and_stops_nothing(self) -> None:
        self.stop()
        log = self.client()
        self.publish(log, 0)
        log.publish_many(
            [
                {"type": "DATA_SYNC_COMPLETED", "payload": {"i": 77}, "key": self.run_id},
                {"type": "LEADER_ELECTED", "payload": {}},
            ]
        )
        log.publish("DATA_SYNC_COMPLETED", {"i": 78, "text": "x" * (2 << 20)}, key=self.run_id)
        self.publish(log, 1, dedup_id=self.run_id)
        self.publish(log, 2, dedup_id=self.run_id)
        self.publish(log, 3)
        self.start()
        with self.assertLogs("ringlog", "ERROR"):
            self.assertTrue(log.drain(60))
        self.assertEqual(self.numbers(), [0, 1, 3])
        lines = [json.loads(line) for line in self.files("rejected")[0].read_text().splitlines()]
        self.assertEqual([line["error"]["code"] for line in lines], ["reserved", "too_large", "conflict"])
        self.assertEqual([len(line["events"]) for line in lines], [2, 1, 1])
        self.assertEqual(lines[0]["error"]["field"], "events[1].type")
        [state] = inspect(self.folder)
        self.assertEqual((state.kind, state.records, state.events), ("rejected", 3, 4))

    def test_a_full_spool_refuses_and_later_takes_again(self) -> None:
        self.stop()
        log = self.client(spool_bytes=1 << 16)
        taken = 0
        with self.assertRaises(SpoolFull):
            while True:
                self.publish(log, taken, dedup=False)
                taken += 1
        refused = log.publish_soon("DATA_SYNC_COMPLETED", {"i": 10**6, "text": "x" * 1000}, key=self.run_id)
        self.assertIsInstance(refused.exception(30), SpoolFull)
        with self.assertRaises(SpoolFull):
            log.flush()
        self.start()
        self.assertTrue(log.drain(60))
        self.assertFalse(self.publish(log, taken))
        self.assertEqual(self.numbers(), list(range(taken + 1)))

    def test_equal_events_are_duplicates_only_within_the_window_in_which_they_were_published(self) -> None:
        with Client(self.cluster.urls) as admin:
            admin.set_setting("dedup.window", "2s")
            # The policies of types say by what events are equal, and for how long.
            admin.set_dedup_policy("REGISTRY_UPDATED", "fields", ["run"])
            admin.set_dedup_policy("MODEL_PROMOTED", "content", window="1h")
            self.stop()
            log = self.client()
            now = datetime.now(timezone.utc)
            for i in range(2):
                for j in range(2):
                    at: Any = {"key": self.run_id, "time": now + timedelta(seconds=2.1 * i + 0.1 * j)}
                    self.publish(log, 1, time=at["time"])
                    log.publish("registry.updated", {"run": self.run_id, "i": 10 * i + j + 2}, **at)
                    log.publish("MODEL_PROMOTED", {"run": self.run_id, "i": 99}, **at)
                    log.publish("TASK_HEARTBEAT", {"run": self.run_id, "i": 7}, **at)
            self.start()
            self.assertTrue(log.drain(60))
            self.assertEqual(self.numbers(), [1, 2, 99, 7, 7, 1, 12, 7, 7])
            admin.set_setting("dedup.window", "")
            for type_ in ("REGISTRY_UPDATED", "MODEL_PROMOTED"):
                admin.remove_dedup_policy(type_)

    def test_equal_events_further_apart_than_the_window_are_all_appended(self) -> None:
        def at(minutes: float) -> str:
            return (hour_ago + timedelta(minutes=minutes)).isoformat()

        def event(i: int, minutes: float) -> NewEvent:
            payload = {"i": i, "run": self.run_id}
            return {"type": "DATA_SYNC_COMPLETED", "payload": payload, "key": self.run_id, "time": at(minutes)}

        hour_ago = datetime.now(timezone.utc) - timedelta(hours=1)
        # What was delivered before is known; or it is forgotten, as by a restart, and so is what was about to be sent.
        for seen, failures in ((drainer.MAX_SEEN, 0), (1, 0), (1, 1)):
            self.run_id = uuid.uuid4().hex
            with Client(self.cluster.urls) as direct:
                self.publish(direct, 3)
            self.stop()
            log = self.client()
            with self.client() as other:  # whose files the first takes over
                self.publish(other, 1, time=at(40))
            self.publish(log, 1, time=at(0))
            self.publish(log, 2, time=at(0))
            log.publish_many([event(4, 0), event(5, 0)])
            self.publish(log, 3, time=at(0))
            self.publish(log, 3, time=at(0.5))
            log.publish("LEADER_ELECTED", {})  # refused, and what is sent beside it with it
            self.publish(log, 1, time=at(20))
            self.publish(log, 1, time=at(20.5))
            for minutes in (0, 0.5, 20):
                self.publish(log, 6, time=at(minutes), dedup_id=self.run_id)
            log.publish("data_sync_completed", {"i": 2.0, "run": self.run_id}, key=self.run_id, time=at(20))
            log.publish_many([event(4, 20), event(5, 0.5)])
            real = drainer.Segment.note_sent

            def note_sent(segment: drainer.Segment, mark: Mark, real: Any = real) -> None:
                nonlocal failures
                if mark.undeduped and failures:
                    failures -= 1
                    raise OSError("the disk")
                real(segment, mark)

            with (
                mock.patch.object(drainer, "MAX_SEEN", seen),
                mock.patch.object(drainer.Segment, "note_sent", note_sent),
                self.assertLogs("ringlog", "ERROR"),
            ):
                self.start()
                eventually("the files of both are delivered", lambda: not self.files("spool"))
            counts = {i: self.numbers().count(i) for i in range(1, 7)}
            self.assertEqual(counts, {1: 3, 2: 2, 3: 2, 4: 2, 5: 1, 6: 2}, (seen, self.numbers()))
            self.assertEqual(failures, 0)
            log.close()

    def test_what_is_sent_at_once_is_no_duplicate_of_what_was_delivered_late(self) -> None:
        hour_ago = datetime.now(timezone.utc) - timedelta(hours=1)
        self.stop()
        log = self.client()
        for i in (1, 2):
            self.publish(log, i, time=hour_ago)
        self.start()
        self.assertTrue(log.drain(60))
        event: NewEvent = {"type": "DATA_SYNC_COMPLETED", "payload": {"i": 2, "run": self.run_id}, "key": self.run_id}
        results = [
            log.publish("DATA_SYNC_COMPLETED", {"i": 1, "run": self.run_id}, key=self.run_id),
            log.publish_soon("DATA_SYNC_COMPLETED", {"i": 2, "run": self.run_id}, key=self.run_id).result(30),
            log.publish("data_sync_completed", {"i": 1, "run": self.run_id}, key=self.run_id),
            *log.publish_many([event]),
        ]
        self.assertEqual([result.duplicate for result in results], [False, False, True, True])
        self.assertEqual(self.numbers(), [1, 2, 1, 2])

    def test_what_is_nested_too_deeply_is_refused_and_stops_nothing(self) -> None:
        self.stop()
        log = self.client()
        deep: Any = 0
        for _ in range(127):
            deep = [deep]
        for payload, fine in (({"i": 0, "x": deep}, True), ({"i": 1, "x": [[[deep]]]}, False)):
            with contextlib.nullcontext() if fine else self.assertRaises(InvalidArgument):
                log.publish("DATA_SYNC_COMPLETED", payload, key=self.run_id)
        spool = log._operations._publisher.spool
        assert spool is not None
        spool.commit(spool.enqueue([b'[{"type":"X","payload":' + b"[" * 10**5 + b"]" * 10**5 + b"}]"]))
        self.publish(log, 2)
        with self.assertLogs("ringlog", "ERROR"):  # as soon as the node answers
            self.start()
            self.assertTrue(log.drain(60))
        self.assertEqual(self.numbers(), [0, 2])
        self.assertEqual(len(self.files("damaged")), 1)

    def test_while_the_cluster_answers_nothing_is_spooled(self) -> None:
        log = self.client()
        self.assertFalse(self.publish(log, 0))
        log.publish_soon("DATA_SYNC_COMPLETED", {"i": 1, "run": self.run_id}, key=self.run_id)
        self.assertTrue(log.flush(30))
        self.assertEqual(os.listdir(self.folder), [])
        first, second = self.events()
        assert first.time is not None and second.time is not None
        self.assertLess(first.time, second.time)  # as they were published

    def test_a_signal_ends_a_daemon_that_waits_for_the_cluster(self) -> None:
        self.stop()
        program = (
            "import sys; from ringlog import Client\n"
            "with Client(spool=sys.argv[1], spool_after=0.3) as log:\n"
            "    log.publish('DATA_SYNC_COMPLETED', {'i': 0}, key=sys.argv[2]); print('spooled', flush=True)\n"
            "    log.drain()"
        )
        env = {**os.environ, "PYTHONPATH": str(PACKAGE), "RINGLOG_ENDPOINTS": self.cluster.urls}
        process = subprocess.Popen(
            [sys.executable, "-c", program, self.folder, self.run_id], env=env, stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        self.assertEqual(process.stdout.readline(), "spooled\n")
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=20)
        self.start()
        with self.client() as log:
            self.assertTrue(log.drain(60))
        self.assertEqual(self.numbers(), [0])
