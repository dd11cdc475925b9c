"""What both clients stand: killed leaders and members, stopped nodes, forks, Ctrl-C, the interpreter's end."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import tracemalloc
import unittest
import uuid
from concurrent.futures import wait
from pathlib import Path
from typing import Any
from unittest import mock

from ringlog import AsyncClient, Client
from ringlog._core.calls import Calls
from ringlog._core.io import drive
from ringlog._core.notices import Outage
from ringlog._core.publisher import Publisher
from ringlog.answers import Scheduled
from ringlog.errors import Closed, OtherCluster, OutcomeUnknown, RinglogError, Unauthenticated, Unavailable
from ringlog.event import Result
from tests.cluster import Cluster, ClusterTest, Node, eventually, shared
from tests.network import Network

PACKAGE = Path(__file__).resolve().parents[1]


def start(program: str, urls: str, *args: str) -> subprocess.Popen[str]:
    """Run a Python program that uses the package."""
    env = {**os.environ, "PYTHONPATH": str(PACKAGE), "RINGLOG_ENDPOINTS": urls}
    pipe = subprocess.PIPE
    return subprocess.Popen(
        [sys.executable, "-c", program, *args], env=env, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )


class Slow(Publisher):
    """A publisher that sends once it may."""

    def __init__(self, calls: Calls, spool: None) -> None:
        super().__init__(calls, spool)
        self.sends, self.may_send = threading.Event(), threading.Event()

    async def send(self, *args: Any, **kwargs: Any) -> list[Result]:
        self.sends.set()
        self.may_send.wait(10.0)
        return await super().send(*args, **kwargs)


class FaultTest(ClusterTest):
    def setUp(self) -> None:
        self.run_id = uuid.uuid4().hex
        self.log = Client(self.cluster.urls)
        self.addCleanup(self.log.close)

    def numbers(self) -> list[int]:
        """Return the i of all events of this test in the log."""
        events = self.log.tail("start", keys=[self.run_id], until_end=True)
        return [event.payload["i"] for event in events]

    def restart(self, node: Node) -> None:
        self.cluster.start(node)
        eventually("all nodes know a leader", self.cluster._converged)


class UnderKills(FaultTest):
    def kill_leader_once(self, reached: threading.Event) -> threading.Thread:
        """Kill the leader in a thread when reached is set, and start it again when the test ends."""

        def kill() -> None:
            reached.wait(30)
            leader = self.cluster.leader()
            leader.kill()
            self.addCleanup(self.restart, leader)

        thread = threading.Thread(target=kill)
        thread.start()
        self.addCleanup(thread.join)
        return thread

    def test_a_killed_leader_loses_and_doubles_nothing(self) -> None:
        reached = threading.Event()
        killed = self.kill_leader_once(reached)
        # dedup=False: nothing but producer and number keeps a repeated request from appending twice.
        i = 0
        while killed.is_alive() or i < 500:
            self.log.publish("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id, dedup=False)
            i += 1
            if i == 100:
                reached.set()
        self.log.publish("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id, dedup=False)
        self.assertEqual(self.numbers(), list(range(i + 1)))

    def test_a_killed_leader_loses_and_doubles_nothing_in_the_background(self) -> None:
        reached = threading.Event()
        killed = self.kill_leader_once(reached)
        i = 0
        while killed.is_alive() or i < 8000:
            self.log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id, dedup=False)
            i += 1
            if i == 2000:
                reached.set()
            if i % 1000 == 0:
                self.log.flush(60)
        self.assertTrue(self.log.flush(60))
        self.assertEqual(self.numbers(), list(range(i)))

    def test_a_killed_leader_loses_and_doubles_nothing_of_asyncio(self) -> None:
        reached = threading.Event()
        killed = self.kill_leader_once(reached)

        async def main() -> int:
            i = 0
            async with AsyncClient(self.cluster.urls) as log:
                while killed.is_alive() or i < 2000:
                    await asyncio.gather(
                        *(
                            log.publish("DATA_SYNC_COMPLETED", {"i": j}, key=self.run_id, dedup=False)
                            for j in range(i, i + 50)
                        )
                    )
                    i += 50
                    if i == 1000:
                        reached.set()
            return i

        published = asyncio.run(main())
        self.assertEqual(sorted(self.numbers()), list(range(published)))

    def test_a_tail_and_a_cursor_notice_nothing_but_time(self) -> None:
        seen: dict[str, list[int]] = {"tail": [], "cursor": [], "async": []}
        published = 400

        def tail() -> None:
            with Client(self.cluster.urls) as log, log.tail("start", keys=[self.run_id], limit=published) as events:
                seen["tail"] = [event.payload["i"] for event in events]

        def cursor() -> None:
            with Client(self.cluster.urls) as log, log.cursor(self.run_id, keys=[self.run_id]) as events:
                for event in events:
                    seen["cursor"].append(event.payload["i"])
                    events.commit()
                    if len(seen["cursor"]) == published:
                        break

        async def follow() -> None:
            async with AsyncClient(self.cluster.urls) as log:
                async for event in log.tail("start", keys=[self.run_id], limit=published):
                    seen["async"].append(event.payload["i"])

        threads = [
            threading.Thread(target=target, daemon=True) for target in (tail, cursor, lambda: asyncio.run(follow()))
        ]
        for thread in threads:
            thread.start()
        reached = threading.Event()
        self.kill_leader_once(reached)
        for i in range(published):
            self.log.publish("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id, dedup=False)
            if i == published // 4:
                reached.set()
        for thread in threads:
            thread.join(60)
        for name, numbers in seen.items():
            self.assertEqual(numbers, list(range(published)), name)

    def test_a_killed_member_and_a_killed_leader_lose_nothing(self) -> None:
        self.log.set_setting("group.session_timeout", "5s")
        events = [
            {"type": "DATA_SYNC_COMPLETED", "payload": {"i": i}, "key": f"{self.run_id}{i % 8}"} for i in range(400)
        ]
        first_offset = self.log.publish_many(events)[0].offset  # type: ignore[arg-type]
        self.log.create_group(self.run_id, types=["DATA_SYNC_COMPLETED"], from_=first_offset)
        # One file has what all members handle, so that its order is that of the handling.
        program = """
import sys, time
from ringlog import Client
with Client() as log, log.group(sys.argv[1], prefetch=8) as member, open(sys.argv[2], "a", buffering=1) as journal:
    for d in member:
        if d.key.startswith(sys.argv[1]):
            time.sleep(0.003)
            journal.write(f"{d.payload['i']}\\n")
        d.ack()
"""
        journal = self.cluster.folder / self.run_id
        journal.touch()

        def handled() -> list[int]:
            return [int(line) for line in journal.read_text().split()]

        members = [start(program, self.cluster.urls, self.run_id, str(journal)) for _ in range(3)]

        def end() -> None:
            for member in members:
                member.kill()
                member.communicate()

        self.addCleanup(end)
        eventually("some are handled", lambda: len(handled()) > 50)
        members[0].kill()
        leader = self.cluster.leader()
        leader.kill()
        self.addCleanup(self.restart, leader)
        eventually("all are handled", lambda: set(handled()) == set(range(400)))
        eventually("all are acknowledged", lambda: self.log.get_cursor(self.run_id)["lag_events"] == 0)
        # Only what a killed process had in its hands is handled twice, and a key's events stay in order.
        self.assertLess(len(handled()), 400 + 3 * 8)
        for key in range(8):
            first = list(dict.fromkeys(i for i in handled() if i % 8 == key))
            self.assertEqual(first, sorted(first))

    def test_a_stopped_node_delays_and_loses_nothing(self) -> None:
        leader = self.cluster.leader()
        log = Client(self.cluster.urls, attempt_timeout=1)
        self.addCleanup(log.close)
        with log.tail("end", keys=[self.run_id]) as events:
            log.publish("DATA_SYNC_COMPLETED", {"i": 0}, key=self.run_id, dedup=False)
            self.assertEqual(next(events).payload["i"], 0)
            leader.send(signal.SIGSTOP)  # its sockets stay open, and say nothing more
            self.addCleanup(leader.send, signal.SIGCONT)
            began = time.monotonic()
            log.publish("DATA_SYNC_COMPLETED", {"i": 1}, key=self.run_id, dedup=False)
            self.assertEqual(next(events).payload["i"], 1)
            self.assertLess(time.monotonic() - began, 25)
        self.assertEqual(self.numbers(), [0, 1])


class LostAnswers(unittest.TestCase):
    def test_an_event_whose_answer_is_lost_is_scheduled_once(self) -> None:
        network, key, made = Network(), uuid.uuid4().hex, list[Scheduled]()
        self.addCleanup(network.close)
        with Client(network.link(shared(1).nodes[0].http)) as log, Client(shared(1).urls) as direct:

            def schedule() -> None:
                # dedup=False: nothing but the id keeps a repeated call from scheduling another event.
                made.append(log.publish_at(0, "DATA_SYNC_COMPLETED", {}, key=key, dedup=False))

            network.become("deaf")
            thread = threading.Thread(target=schedule)
            thread.start()
            eventually("answers are lost", lambda: network.lost > 1)
            network.become("open")
            thread.join(30)
            self.assertTrue(made[0]["existing"])
            eventually("it is published", lambda: direct.scheduled_event(made[0]["id"])["state"] == "published")
            self.assertEqual(len(list(direct.tail("start", keys=[key], until_end=True))), 1)

    def test_the_error_of_a_lost_answer_names_the_id_to_repeat_the_call_with(self) -> None:
        network = Network()
        self.addCleanup(network.close)
        with Client(network.link(shared(1).nodes[0].http), timeout=0.3) as log:
            log.status()
            network.become("deaf")
            with self.assertRaises(OutcomeUnknown) as unknown:
                log.publish_at(4070908800, "DATA_SYNC_COMPLETED", {})
            network.become("open")
            [id_] = re.findall("id='([0-9a-f]{32})'", unknown.exception.remedy)
            self.assertTrue(log.publish_at(4070908800, "DATA_SYNC_COMPLETED", {}, id=id_)["existing"])
            log.unschedule(id_)


class Processes(FaultTest):
    def test_a_client_works_on_both_sides_of_a_fork(self) -> None:
        self.log.publish("DATA_SYNC_COMPLETED", {"i": -1}, key=self.run_id, dedup=False)
        for i in range(1000):
            self.log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id, dedup=False)
        tail = self.log.tail("start", keys=[self.run_id])
        next(tail)
        stream = tail._reader._answer
        other = Client(self.cluster.urls)
        self.addCleanup(other.close)
        other.status()
        idle = [connection for node in other._operations._calls.nodes.all for connection in node.idle]
        self.assertTrue(idle)
        child = os.fork()
        if child == 0:
            # The parent's waiting events are the parent's. The exit code reports what failed.
            code = 1
            try:
                assert self.log._operations._backlog.unsent == 0
                for i in range(1000, 1100):
                    self.log.publish("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id, dedup=False)
                    self.log.publish_soon("DATA_SYNC_COMPLETED", {"i": i + 100}, key=self.run_id, dedup=False)
                assert self.log.flush(30)
                try:
                    while True:
                        next(tail)
                except Closed:
                    tail.close()
                    code = 0
            finally:
                os._exit(code)
        for i in range(1200, 1300):
            self.log.publish("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id, dedup=False)
        self.assertTrue(self.log.flush(30))
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(sorted(self.numbers()), list(range(-1, 1300)))
        for _ in range(1300):
            next(tail)
        # The child has closed its copies alone.
        self.assertIs(tail._reader._answer, stream)
        self.assertFalse([connection for connection in idle if connection.is_stale()])

    def test_producers_differ_after_a_fork(self) -> None:
        publisher = self.log._operations._publisher
        self.log.publish("DATA_SYNC_COMPLETED", {"i": 0}, key=self.run_id, dedup=False)
        mine = publisher.take()
        publisher.put_back(mine)
        receiving, sending = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(sending, publisher.take().name.encode())
            os._exit(0)
        os.waitpid(child, 0)
        other = os.read(receiving, 1000).decode()
        self.assertTrue(other)
        self.assertNotEqual(other, mine.name)

    def test_an_async_client_works_after_a_fork_and_in_another_loop(self) -> None:
        log = AsyncClient(self.cluster.urls)

        async def publish(first: int) -> None:
            for i in range(first, first + 10):
                await log.publish("DATA_SYNC_COMPLETED", {"i": i}, key=self.run_id, dedup=False)
                await log.publish_soon("DATA_SYNC_COMPLETED", {"i": i + 10}, key=self.run_id, dedup=False)
            await log.flush(30)

        asyncio.run(publish(0))
        child = os.fork()
        if child == 0:
            code = 1
            try:
                asyncio.run(publish(20))
                code = 0
            finally:
                os._exit(code)
        asyncio.run(publish(40))
        self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)
        self.assertEqual(sorted(self.numbers()), list(range(60)))

    def check_exit(self, program: str, interrupt: bool = False) -> None:
        """Run a program that prints how many events it has published; all of them must be in the log.

        One that is interrupted may have published the next event as well, and not have counted it.
        """
        process = start(program, self.cluster.urls, self.run_id)
        if interrupt:
            eventually("the program has published", lambda: len(self.numbers()) > 100)
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        published = int(out.split()[-1])
        self.assertGreater(published, 0, err)
        stored = sorted(self.numbers())
        self.assertEqual(stored, list(range(len(stored))), err)
        self.assertIn(len(stored) - published, (0, 1) if interrupt else (0,), err)

    def test_the_end_of_the_interpreter_sends_what_waits(self) -> None:
        self.check_exit("""
import sys
import tempfile
from ringlog import Client
log = Client()
for i in range(5000):
    log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}, key=sys.argv[1], dedup=False)
print(5000)
raise ValueError("the program fails")
""")

    def test_the_end_of_the_interpreter_does_not_race_with_a_thread_that_adds(self) -> None:
        """What is added while the backlog is drained is sent by one of the two."""
        backlog, start = self.log._operations._backlog, self.log._operations._backlog._start
        publisher = Slow(self.log._operations._publisher.calls, None)
        drain = threading.Thread(target=lambda: drive(backlog.drain(publisher, 10.0)))

        def drain_first() -> None:
            drain.start()
            publisher.sends.wait(10.0)
            start()

        with mock.patch.object(backlog, "_start", drain_first):
            first = self.log.publish_soon("DATA_SYNC_COMPLETED", {"i": 1}, key=self.run_id, dedup=False)
        # A task that has begun would send the batch, and so settle it, while the drain still does.
        first_by_task = wait([first], timeout=0.5).done
        publisher.may_send.set()
        drain.join(10.0)
        second = self.log.publish_soon("DATA_SYNC_COMPLETED", {"i": 2}, key=self.run_id, dedup=False)
        self.log.flush()
        self.assertFalse(first_by_task)
        self.assertLess(first.result().offset, second.result().offset)
        self.assertEqual(self.numbers(), [1, 2])

    def test_the_end_of_the_interpreter_sends_what_an_event_loop_has_left(self) -> None:
        self.check_exit("""
import asyncio, sys
from ringlog import AsyncClient
async def main():
    log = AsyncClient()
    for i in range(5000):
        await log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}, key=sys.argv[1], dedup=False)
    await asyncio.sleep(0.007)  # ends in the midst of a batch
asyncio.run(main())
print(5000)
""")

    def test_the_end_of_a_process_of_multiprocessing_sends_what_waits(self) -> None:
        for method in ("fork", "spawn"):
            with self.subTest(method=method):
                self.run_id = uuid.uuid4().hex
                folder = self.cluster.folder / method
                folder.mkdir()
                (folder / "work.py").write_text(f"""
import multiprocessing, sys
from ringlog import Client
log = Client()
def work(run):
    for i in range(500):
        log.publish_soon("DATA_SYNC_COMPLETED", {{"i": i}}, key=run, dedup=False)
if __name__ == "__main__":
    process = multiprocessing.get_context("{method}").Process(target=work, args=(sys.argv[1],))
    process.start()
    process.join()
    print(500)
""")
                env = {**os.environ, "PYTHONPATH": str(PACKAGE), "RINGLOG_ENDPOINTS": self.cluster.urls}
                args = [sys.executable, str(folder / "work.py"), self.run_id]
                subprocess.run(args, env=env, check=True, timeout=60, stdout=subprocess.DEVNULL)
                self.assertEqual(self.numbers(), list(range(500)))

    def test_ctrl_c_loses_nothing_that_was_accepted(self) -> None:
        self.check_exit(
            """
import itertools, sys
from ringlog import Client
log, n = Client(), 0
try:
    for i in itertools.count():
        log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}, key=sys.argv[1], dedup=False)
        n = i + 1
        if i % 100 == 0:
            log.flush()
finally:
    print(n)
""",
            interrupt=True,
        )

    def test_ctrl_c_ends_a_reader_and_a_member_at_once(self) -> None:
        for what in ("log.tail('start')", "log.cursor(sys.argv[1])", "log.group(sys.argv[1])"):
            with self.subTest(what=what):
                run = uuid.uuid4().hex
                process = start(
                    f"""
import sys
import tempfile
from ringlog import Client
with Client() as log, {what} as events:
    print("ready", flush=True)
    for event in events:
        pass
""",
                    self.cluster.urls,
                    run,
                )
                assert process.stdout is not None
                self.assertEqual(process.stdout.readline(), "ready\n")
                process.send_signal(signal.SIGINT)
                _, err = process.communicate(timeout=15)
                self.assertIn("KeyboardInterrupt", err)


class Outages(unittest.TestCase):
    def test_readers_log_the_beginning_and_the_end_of_an_outage(self) -> None:
        cluster = Cluster(voters=1)
        self.addCleanup(cluster.close)
        [node] = cluster.nodes
        log = Client(cluster.urls)
        self.addCleanup(log.close)
        event = log.publish("DATA_SYNC_COMPLETED", {"host": "a"})
        tail, cursor, member = log.tail("start"), log.cursor("c"), log.group("g")
        seen = dict.fromkeys(("tail", "cursor c", "group g"), 0)

        def read(name: str, reader: Any) -> None:
            with contextlib.suppress(Closed):
                for found in reader:
                    _ = found.ack() if name == "group g" else None
                    seen[name] = found.offset

        readers = zip(seen, (tail, cursor, member), strict=True)
        threads = [threading.Thread(target=read, args=pair, daemon=True) for pair in readers]
        with mock.patch("ringlog._core.notices.OUTAGE", 0.3), self.assertLogs("ringlog", "WARNING") as logged:
            for thread in threads:
                thread.start()
            eventually("all have read the event", lambda: set(seen.values()) == {event.offset})

            def lines(text: str) -> list[str]:
                return sorted(line.split(":")[2] for line in logged.output if text in line)

            node.kill()
            eventually("all log the outage", lambda: lines("cannot reach the cluster") == sorted(seen))
            cluster.start(node)
            eventually("all log its end", lambda: lines("reached the cluster again") == sorted(seen))
            event = log.publish("DATA_SYNC_COMPLETED", {"host": "b"})
            eventually("all have read the next event", lambda: set(seen.values()) == {event.offset})
        self.assertEqual(len(logged.output), 6, logged.output)
        for reader in (tail, cursor, member):
            reader.close()

    def test_a_nack_that_no_node_has_got_counts_once_with_the_next_leader(self) -> None:
        cluster = Cluster(voters=1)
        self.addCleanup(cluster.close)
        [node] = cluster.nodes
        with Client(cluster.urls) as log, log.group("g", types=["DATA_SYNC_*"], max_deliver=2) as member:
            log.publish("DATA_SYNC_COMPLETED", {"host": "a"})
            delivery = member.next(timeout=30)
            delivery.nack(error="busy")
            self.assertTrue(member.flush(30))
            # The log has the first failure. The leader dies before it gets the second.
            second = member.next(timeout=30)
            self.assertEqual((delivery.delivery, second.delivery), (1, 2))
            node.kill()
            second.nack(error="busy")
            cluster.start(node)
            eventually("it is a dead letter", log.dead_letters)
            self.assertEqual([letter["attempts"] for letter in log.dead_letters()], [2])
            self.assertIsNone(member.next(timeout=0.1))

    def test_what_is_shorter_is_not_logged(self) -> None:
        outage = Outage("tail")
        with mock.patch("time.monotonic") as now, self.assertNoLogs("ringlog"):
            for now.return_value in (1.0, 3.9):
                outage.failed(OSError())
            outage.over()
            now.return_value = 5.0
            outage.failed(OSError())


class Refusals(unittest.TestCase):
    def test_a_wrong_token_is_refused_at_once(self) -> None:
        cluster = Cluster(voters=1, token="right-token-0123456789")
        self.addCleanup(cluster.close)
        with Client(cluster.urls, token="right-token-0123456789") as log:
            log.publish("DATA_SYNC_COMPLETED", {})
        file = cluster.folder / "token"
        file.write_text("right-token-0123456789\n")
        with Client(cluster.urls, token_file=file) as log:
            log.publish("DATA_SYNC_COMPLETED", {})
        for token in ("wrong", ""):
            with self.subTest(token=token), Client(cluster.urls, token=token) as log:
                for call in (
                    lambda log: log.publish("DATA_SYNC_COMPLETED", {}),
                    lambda log: next(log.tail("start")),
                    lambda log: next(log.cursor("c")),
                    lambda log: next(log.group("g")),
                ):
                    began = time.monotonic()
                    with self.assertRaises(Unauthenticated) as refused:
                        call(log)
                    error = refused.exception
                    self.assertEqual((error.code, error.field), ("unauthenticated", "token"))
                    which = "not the one given as an argument" if token else "and none was given"
                    self.assertEqual(error.message, f"{cluster.urls} wants the cluster's token, {which}")
                    self.assertIn("RINGLOG_TOKEN_FILE", error.remedy)
                    self.assertEqual("spool" in error.remedy, "publish" in call.__code__.co_names)
                    self.assertLess(time.monotonic() - began, 5)

    def test_a_token_that_is_replaced_in_its_file_is_used_by_the_next_request(self) -> None:
        file = Path(tempfile.mkdtemp()) / "token"
        self.addCleanup(shutil.rmtree, file.parent)
        file.write_text("the-first-token-0123456789\n")
        cluster = Cluster(voters=1, token="the-first-token-0123456789")
        self.addCleanup(cluster.close)
        with Client(cluster.urls, token_file=file) as log:
            log.publish("DATA_SYNC_COMPLETED", {"host": "a"})
            reader = log.tail("start", types=["DATA_SYNC_COMPLETED"])
            self.assertEqual(next(reader).payload, {"host": "a"})

            # The nodes have the first one yet, so it serves until they start with the second.
            file.write_text("the-second-token-0123456789\n")
            log.publish("DATA_SYNC_COMPLETED", {"host": "b"})
            cluster.token = "the-second-token-0123456789"
            cluster.nodes[0].kill()
            cluster.start(cluster.nodes[0])
            log.publish("DATA_SYNC_COMPLETED", {"host": "c"})
            self.assertEqual([next(reader).payload["host"] for _ in range(2)], ["b", "c"])
        with Client(cluster.urls, token_file=file) as log:
            log.publish("DATA_SYNC_COMPLETED", {"host": "d"})
            file.write_text("")  # as while it is written
            log.publish("DATA_SYNC_COMPLETED", {"host": "e"})

    def test_what_a_wrong_token_keeps_out_is_spooled_and_delivered_with_the_right_one(self) -> None:
        cluster = Cluster(voters=1, token="right-token-0123456789")
        self.addCleanup(cluster.close)
        folder = cluster.folder / "spool"
        with self.assertLogs("ringlog", "ERROR") as logged, Client(cluster.urls, token="wrong", spool=folder) as log:
            self.assertTrue(log.publish("DATA_SYNC_COMPLETED", {"host": "a"}).spooled)
            soon = log.publish_soon("DATA_SYNC_COMPLETED", {"host": "b"})
            self.assertTrue(log.flush(10) and soon.result().spooled)
        self.assertIn("not the one given as an argument", logged.output[0])
        with Client(cluster.urls, token="right-token-0123456789", spool=folder) as log:
            self.assertTrue(log.drain(30))
            events = log.tail("start", types=["DATA_SYNC_COMPLETED"], until_end=True)
            self.assertEqual([event.payload["host"] for event in events], ["a", "b"])

    def test_no_node_answers(self) -> None:
        with Client("127.0.0.1:1,127.0.0.1:2", timeout=0.3) as log:
            with self.assertRaises(Unavailable) as failed:
                log.publish("DATA_SYNC_COMPLETED", {})
            self.assertEqual(failed.exception.code, "unreachable")
            self.assertTrue(failed.exception.retryable and failed.exception.remedy)
            self.assertIn("127.0.0.1", str(failed.exception))
            with self.assertRaises(Unavailable):
                next(log.tail("start"))

    def test_events_that_no_node_has_got_are_not_sent_after_close(self) -> None:
        log = Client("127.0.0.1:1,127.0.0.1:2")
        futures = [log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}) for i in range(2000)]
        with self.assertRaises(Unavailable) as failed:
            log.close(0.3)
        self.assertIn("2000 events of publish_soon unanswered after 0.3 s", str(failed.exception))
        for future in futures:
            self.assertIsInstance(future.exception(5), Unavailable)
        task = log._operations._backlog._task
        assert task is not None
        self.assertTrue(drive(task.join(10)))

        async def main() -> None:
            async_log = AsyncClient("127.0.0.1:1")
            future = await async_log.publish_soon("DATA_SYNC_COMPLETED", {})
            with mock.patch("ringlog._core.publisher.MAX_BACKLOG_BYTES", 0):
                without_room = asyncio.create_task(async_log.publish_soon("DATA_SYNC_COMPLETED", {}))
                await asyncio.sleep(0)
                with self.assertRaises(Unavailable) as failed:
                    await async_log.close(0.3)
                with self.assertRaises(Closed):
                    await asyncio.wait_for(without_room, 5)
            self.assertIn("1 event of publish_soon unanswered", str(failed.exception))
            with self.assertRaises(Unavailable):
                await future

        asyncio.run(main())

    def test_an_event_whose_answer_is_awaited_at_close_has_an_unknown_outcome(self) -> None:
        # A node that answers /healthz and is silent on everything else.
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)
        asked = threading.Event()
        connections = []

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connections.append(connection)
                if b"/healthz" in connection.recv(65536):
                    connection.sendall(
                        b"HTTP/1.1 200 OK\r\nRinglog-Cluster: c\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
                    )
                else:
                    asked.set()

        threading.Thread(target=serve, daemon=True).start()
        log = Client(f"http://127.0.0.1:{listener.getsockname()[1]}")
        futures = [log.publish_soon("DATA_SYNC_COMPLETED", {"i": i}) for i in range(2000)]
        self.assertTrue(asked.wait(10))
        with self.assertRaises(OutcomeUnknown):
            log.close(0.1)
        self.assertIsInstance(futures[0].exception(5), OutcomeUnknown)
        self.assertIsInstance(futures[-1].exception(5), Unavailable)  # of another batch
        for connection in connections:
            connection.close()

    def test_the_backlog_counts_the_memory_that_its_events_take(self) -> None:
        log = Client("127.0.0.1:1")
        log.publish_soon("DATA_SYNC_COMPLETED", {})  # imports what it needs
        backlog = log._operations._backlog
        before = backlog._bytes
        tracemalloc.start()
        self.addCleanup(tracemalloc.stop)
        futures = [log.publish_soon("DATA_SYNC_COMPLETED", {"text": "x" * 200}) for _ in range(5000)]
        used, _ = tracemalloc.get_traced_memory()
        self.assertEqual(len(futures), 5000)
        self.assertLess(used, 1.2 * (backlog._bytes - before))
        self.assertGreater(used, 0.5 * (backlog._bytes - before))
        with self.assertRaises(Unavailable):
            log.close(0.1)

    def test_an_answer_that_is_lost_is_an_unknown_outcome(self) -> None:
        # A node that answers /healthz and closes the connection on everything else.
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def serve() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                with connection:
                    if b"/healthz" in connection.recv(65536):
                        connection.sendall(b"HTTP/1.1 200 OK\r\nRinglog-Cluster: c\r\nContent-Length: 0\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        with Client(url, timeout=0.3) as log:
            with self.assertRaises(OutcomeUnknown) as failed:
                log.publish("DATA_SYNC_COMPLETED", {})
            self.assertFalse(failed.exception.retryable)
            with self.assertRaises(Unavailable):
                log.get(1)  # a read has not happened
            log.publish_soon("DATA_SYNC_COMPLETED", {})
            with self.assertRaises(OutcomeUnknown):
                log.close(0.3)

        async def main() -> None:
            async with AsyncClient(url, timeout=0.3) as log:
                with self.assertRaises(OutcomeUnknown):
                    await log.publish("DATA_SYNC_COMPLETED", {})

        asyncio.run(main())

    def test_a_node_of_another_cluster_is_refused(self) -> None:
        one, other = Cluster(voters=1), Cluster(voters=1)
        self.addCleanup(one.close)
        self.addCleanup(other.close)
        with Client([one.urls, other.urls]) as log:
            log.publish("DATA_SYNC_COMPLETED", {"i": 1})
            one.close()
            with self.assertRaises(RinglogError) as failed:
                log._config.timeout = 1.0
                log.publish("DATA_SYNC_COMPLETED", {"i": 2})
            self.assertIsInstance(failed.exception, (OtherCluster, OutcomeUnknown, Unavailable))
        with Client(other.urls) as log:
            types = {event.type for event in log.tail("start", until_end=True)}
            self.assertNotIn("DATA_SYNC_COMPLETED", types)

    def test_tls_with_a_context_that_trusts_the_certificate(self) -> None:
        if shutil.which("openssl") is None:
            self.skipTest("openssl is not installed")
        cluster = Cluster(voters=1)
        self.addCleanup(cluster.close)
        certificate = str(cluster.folder / "localhost.pem")
        make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
        names = ["-addext", "subjectAltName=DNS:localhost", "-keyout", certificate, "-out", certificate + ".crt"]
        subprocess.run([*make.split(), *names], check=True, capture_output=True)
        with open(certificate, "a") as both, open(certificate + ".crt") as public:
            both.write(public.read())
        serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        serving.load_cert_chain(certificate)
        listener = socket.create_server(("127.0.0.1", 0))
        self.addCleanup(listener.close)

        def pump(source: socket.socket, target: socket.socket) -> None:
            with contextlib.suppress(OSError):
                while data := source.recv(65536):
                    target.sendall(data)
            with contextlib.suppress(OSError):
                target.shutdown(socket.SHUT_RDWR)

        def serve() -> None:
            # A proxy of a node: TLS outside, HTTP inside.
            with contextlib.suppress(OSError):
                while True:
                    plain, _ = listener.accept()
                    with contextlib.suppress(OSError):
                        outer = serving.wrap_socket(plain, server_side=True)
                        inner = socket.create_connection(("127.0.0.1", cluster.nodes[0].http))
                        for pair in ((outer, inner), (inner, outer)):
                            threading.Thread(target=pump, args=pair, daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        url = f"https://localhost:{listener.getsockname()[1]}"
        trusting = ssl.create_default_context(cafile=certificate)

        async def publish(tls: ssl.SSLContext | None) -> int:
            async with AsyncClient(url, tls=tls) as log:
                return (await log.publish("DATA_SYNC_COMPLETED", {}, dedup=False)).offset

        with Client(url, tls=trusting) as log:
            first = log.publish("DATA_SYNC_COMPLETED", {}, dedup=False)
        self.assertGreater(asyncio.run(publish(trusting)), first.offset)
        with Client(url) as log, self.assertRaises(Unavailable) as failed:
            log.publish("DATA_SYNC_COMPLETED", {})
        self.assertIn("cafile", failed.exception.remedy)
        began = time.monotonic()
        with self.assertRaises(Unavailable):
            asyncio.run(publish(None))
        self.assertLess(time.monotonic() - began, 10)  # it is not repeated
