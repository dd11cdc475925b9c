"""ringlog.compat against real nodes: the old buses' calls, on the log."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import uuid
from pathlib import Path
from typing import Any
from unittest import mock

from ringlog import Client
from ringlog.compat import configure, reset_router
from ringlog.compat._breaker import HandlerBreaker
from ringlog.compat._event import from_log
from ringlog.compat._registration import Registration
from ringlog.compat._subscription import Task, handler_name
from ringlog.compat.cross_process_events import get_cross_process_queue, publish_cross_process
from ringlog.compat.data_pipeline_orchestrator import CircuitBreaker, CircuitBreakerState
from ringlog.compat.dead_letter_queue import get_dead_letter_queue
from ringlog.compat.event_bus import Event, EventFilter, get_event_bus
from ringlog.compat.event_router import (
    DataEventType,
    UnifiedEventRouter,
    get_router,
    publish,
    subscribe,
    subscribe_with_retry,
)
from ringlog.compat.stage_events import StageCompletionResult, StageEvent, get_stage_event_bus, next_stages
from ringlog.errors import InvalidArgument, OutcomeUnknown, Unavailable
from ringlog.event import parse_time
from ringlog.testing import make_event
from tests.cluster import Cluster, ClusterTest, eventually
from tests.test_faults import PACKAGE, start

FAST = (0.01, 0.02, 0.04)


async def finish(publication: Any) -> Any:
    return await publication


def done_task() -> Task:
    task = Task(from_log(make_event("HOST_ONLINE", {})))
    task.done.set_result("")
    return task


class CompatTest(ClusterTest):
    def setUp(self) -> None:
        self.run_id = uuid.uuid4().hex
        self.log = Client(self.cluster.urls)
        self.addCleanup(self.log.close)
        self.use()
        self.addCleanup(reset_router)  # before the clients are closed

    def use(self, name: str = "", retry_delays: tuple[float, ...] = FAST, **options: Any) -> Any:
        """Begin as a process that has just started would."""
        log = Client(self.cluster.urls)
        self.addCleanup(log.close)
        return configure(log, name=name, source="test", retry_delays=retry_delays, **options)

    def other(self, type: str, payload: dict[str, Any] | None = None, **fields: Any) -> int:
        """Publish as another process does."""
        return self.log.publish(type, {"run": self.run_id, **(payload or {})}, **fields).offset

    def events(self, type: str) -> list[Any]:
        events = self.log.tail("start", types=[type], until_end=True)
        return [event for event in events if self.run_id in str(event.raw)]


class Delivery(CompatTest):
    def test_a_local_handler_is_called_at_once_and_not_again_from_the_log(self) -> None:
        for name in ("", f"d{self.run_id}"):
            with self.subTest(durable=bool(name)):
                self.use(name)
                got: list[Any] = []
                subscribe("HOST_ONLINE", got.append)
                published = publish("HOST_ONLINE", {"run": self.run_id, "name": name})
                self.assertEqual([(e.type, e.payload["run"]) for e in got], [("host_online", self.run_id)])
                # The marker is after it in the log: once that is here, nothing else is on the way.
                marker = self.other("HOST_ONLINE", {"marker": name})
                eventually("the marker is handled", lambda g=got, m=marker: g[-1].offset == m)
                self.assertEqual([e.offset for e in got], [published.offset, marker])

    def test_a_publisher_that_does_not_wait_takes_nothing_back(self) -> None:
        got: list[Any] = []

        async def main() -> None:
            subscribe("HOST_ONLINE", got.append)
            waiting = asyncio.ensure_future(finish(publish("HOST_ONLINE", {"run": self.run_id})))
            await asyncio.sleep(0)  # it waits now
            waiting.cancel()
            publish("HOST_ONLINE", {"run": self.run_id, "second": 1})  # not awaited
            await publish("HOST_ONLINE", {"run": self.run_id, "third": 1})

        asyncio.run(main())
        marker = self.other("HOST_ONLINE", {"marker": 1})
        eventually("the marker is handled", lambda: got[-1].offset == marker)
        self.assertEqual([e.offset for e in got], [e.offset for e in self.events("HOST_ONLINE")])
        self.assertEqual(len(got), 4)
        self.assertEqual(get_router()._own, {})  # nothing is kept of what came back

    def test_a_spooled_event_is_handled_once(self) -> None:
        cluster = Cluster(1)
        self.addCleanup(cluster.close)
        for name in (f"d{self.run_id}", ""):
            with self.subTest(durable=bool(name)), tempfile.TemporaryDirectory() as folder:
                log = Client(cluster.urls, spool=folder, spool_after=0.2)
                self.addCleanup(log.close)
                configure(log, name=name, source="test")
                got: list[Any] = []
                subscribe("HOST_ONLINE", got.append, critical=True)
                cluster.nodes[0].kill()
                publish("HOST_ONLINE", {"run": self.run_id, "name": name})
                self.assertEqual([e.offset for e in got], [0])
                cluster.start(cluster.nodes[0])
                self.assertTrue(log.drain(60))
                marker = log.publish("HOST_ONLINE", {"marker": name}).offset
                eventually("the marker is handled", lambda g=got, m=marker: g[-1].offset == m)
                self.assertEqual(len(got), 2)
                self.assertEqual(len(get_router()._away), 0)
                reset_router()

    def test_an_event_whose_answer_is_lost_is_handled_once(self) -> None:
        router = self.use(f"d{self.run_id}")
        got: list[Any] = []
        subscribe("HOST_ONLINE", got.append)
        append = router.log.publish

        def lose(*args: Any, **fields: Any) -> Any:
            append(*args, **fields)
            raise OutcomeUnknown("no answer", code="outcome_unknown")

        with mock.patch.object(router.log, "publish", lose), self.assertRaises(OutcomeUnknown):
            publish("HOST_ONLINE", {"run": self.run_id})
        marker = self.other("HOST_ONLINE", {"marker": 1})
        eventually("the marker is handled", lambda: got[-1].offset == marker)
        self.assertEqual(len(got), 2)

    def test_equal_events_on_purpose_are_each_handled_once(self) -> None:
        events: list[Any] = []
        subscribe("TASK_HEARTBEAT", events.append)
        offsets = [publish("TASK_HEARTBEAT", {"run": self.run_id}, dedup=False).offset for _ in range(20)]
        marker = self.other("TASK_HEARTBEAT", {"marker": 1})
        eventually("the marker is handled", lambda: events[-1].offset == marker)
        self.assertEqual([e.offset for e in events], [*offsets, marker])

    def test_a_duplicate_calls_no_handler(self) -> None:
        got: list[Any] = []
        subscribe("HOST_ONLINE", got.append)
        first = publish("HOST_ONLINE", {"run": self.run_id})
        again = publish("HOST_ONLINE", {"run": self.run_id})
        self.assertEqual((again.duplicate, again.offset, len(got)), (True, first.offset, 1))
        self.assertEqual(len(get_router()._recent_events), 1)

    def test_a_durable_subscription_gets_what_was_published_while_it_was_down(self) -> None:
        name, got = f"d{self.run_id}", []

        def on_sync(event: Any) -> None:
            got.append(event.payload["i"])

        self.use(name)
        subscribe("DATA_SYNC_COMPLETED", on_sync)
        self.other("DATA_SYNC_COMPLETED", {"i": 0})
        eventually("the first is handled", lambda: got == [0])
        reset_router()
        for i in range(1, 4):
            self.other("DATA_SYNC_COMPLETED", {"i": i})
        self.use(name)
        subscribe("DATA_SYNC_COMPLETED", on_sync)
        eventually("the others are handled", lambda: len(got) >= 4)
        self.assertEqual(got, [0, 1, 2, 3])
        cursor = f"{name}.{handler_name(on_sync)}.data_sync_completed"
        eventually("all is committed", lambda: self.log.get_cursor(cursor)["lag_events"] == 0)

        # What is published and handled here just before the end is committed, too, however late it comes back.
        router = get_router()
        meet = router._own_task
        router._own_task = lambda *args: time.sleep(0.002) or meet(*args)  # type: ignore[method-assign]

        async def burst() -> None:
            for i in range(4, 100):
                publish("DATA_SYNC_COMPLETED", {"run": self.run_id, "i": i})

        asyncio.run(burst())
        reset_router()
        self.assertEqual(got, list(range(100)))
        self.assertEqual(self.log.get_cursor(cursor)["lag_events"], 0)

    def test_a_blocking_handler_stops_neither_the_loop_nor_other_handlers(self) -> None:
        release, got = threading.Event(), []
        self.addCleanup(release.set)

        async def main() -> tuple[int, Any]:
            loop = asyncio.get_running_loop()
            loops = []

            async def on_event(event: Any) -> None:
                loops.append(asyncio.get_running_loop())
                got.append(event)

            subscribe("HOST_ONLINE", lambda e: release.wait(60), timeout=30)
            subscribe("HOST_ONLINE", on_event)
            waiting = asyncio.ensure_future(finish(publish("HOST_ONLINE", {"run": self.run_id})))
            ticks = 0
            while not got:
                await asyncio.sleep(0.001)
                ticks += 1
            self.assertIs(loops[0], loop)
            self.assertFalse(waiting.done())
            release.set()
            return ticks, await waiting

        ticks, event = asyncio.run(main())
        self.assertGreater(ticks, 0)
        self.assertEqual(event.payload["run"], self.run_id)

    def test_what_a_handler_publishes_inherits_run_and_cause(self) -> None:
        def on_training(event: Any) -> None:
            publish("EVALUATION_STARTED", {"run": self.run_id})

        async def on_evaluation(event: Any) -> None:
            await publish("EVALUATION_COMPLETED", {"run": self.run_id})

        subscribe("TRAINING_COMPLETED", on_training)
        subscribe("EVALUATION_STARTED", on_evaluation)
        cause = self.other("TRAINING_COMPLETED", correlation_id=f"run-{self.run_id}")
        eventually("the last is there", lambda: self.events("EVALUATION_COMPLETED"))
        started, completed = self.events("EVALUATION_STARTED")[0], self.events("EVALUATION_COMPLETED")[0]
        self.assertEqual((started.correlation_id, started.causation_id), (f"run-{self.run_id}", str(cause)))
        self.assertEqual(completed.correlation_id, f"run-{self.run_id}")
        # A handler that is called at once names its cause by the content, as it has no offset yet.
        self.assertIn(completed.causation_id, (started.hash, str(started.offset)))
        run = self.log.chain(f"run-{self.run_id}", flow="training_pipeline")["flows"][0]
        self.assertEqual([edge["basis"] for edge in run["edges"]], ["causation", "causation"])

    def test_the_cluster_knows_who_listens(self) -> None:
        self.use(f"d{self.run_id}")
        get_event_bus().subscribe("TRAINING_FAILED", print, timeout=7, critical=True)

        def registered() -> list[Any]:
            # A node that lags may still have what the test before registered.
            clients = self.log.request("GET", "/v1/clients", None, {"consistency": "linearizable"})["clients"]
            return [
                c for c in clients if c["id"].startswith("test:") and c["pid"] == os.getpid() and c["subscriptions"]
            ]

        eventually("it is attached", lambda: registered()[0]["subscriptions"][0]["state"] == "attached")
        (client,) = registered()
        (subscription,) = client["subscriptions"]
        self.assertEqual((subscription["filter"], subscription["critical"]), ({"types": ["TRAINING_FAILED"]}, True))
        self.assertEqual(subscription["cursor"], f"d{self.run_id}.print.training_failed")
        self.assertIn("training_failed", str(self.log.status()["event_subscription_status"]).lower())
        reset_router()
        self.assertEqual(registered(), [])

    def test_a_coordinator_gets_what_the_registry_lists(self) -> None:
        self.use(f"d{self.run_id}")
        got: list[str] = []
        router = get_router()
        router.subscribe_coordinator("UnifiedHealthManager", lambda event: got.append(str(event.event_type)))
        router.subscribe("MODEL_PROMOTED", print)
        eventually("it is registered", lambda: self.log.audit_coordinator("health_manager")["clients"])
        self.other("HEALTH_ALERT")
        self.other("HOST_OFFLINE", {"host_id": self.run_id})
        eventually("the listed one is handled", lambda: got == ["host_offline"])
        report = self.log.audit_coordinator("health_manager")
        drift = {s["type"]: s["drift"] for s in report["subscriptions"] if "drift" in s}
        self.assertEqual(drift, {"MODEL_PROMOTED": "undeclared"})
        for name, says in {"nobody": "no coordinator", "cache_orchestrator": "does not list"}.items():
            with self.assertRaisesRegex(ValueError, says):
                router.subscribe_coordinator(name, print)
        with self.assertRaisesRegex(ValueError, "is health_manager already"):
            router.subscribe_coordinator("training_coordinator", print)

    def test_the_end_does_not_wait_for_a_cluster_that_is_away(self) -> None:
        log = Client("http://127.0.0.1:9")
        self.addCleanup(log.close)
        configure(log, name=f"d{self.run_id}")
        with mock.patch("ringlog.compat._router.ATTACH_TIMEOUT", 0.1):
            subscribe("HOST_ONLINE", print)
        began = time.monotonic()
        with mock.patch("ringlog.compat._router.EXIT_TIMEOUT", 0.5):
            reset_router()
        self.assertLess(time.monotonic() - began, 5)

    def test_the_end_does_not_wait_for_a_cluster_that_went_away(self) -> None:
        for name in (f"d{self.run_id}", ""):
            with self.subTest(durable=bool(name)):
                cluster = Cluster(1)
                self.addCleanup(cluster.close)
                log = Client(cluster.urls)
                self.addCleanup(log.close, 0.1)
                router = configure(log, name=name, source="test", retry_delays=FAST)
                for kind in ("HOST_ONLINE", "HOST_OFFLINE"):
                    subscribe(kind, lambda event: None, critical=True)
                eventually("it is registered", lambda r=router: r._registration._registered)
                handled = [s for s in router._subscriptions if s.selection.matches("host_online")]
                cluster.nodes[0].kill()
                if name:  # something is left to be committed
                    handled[0]._settling.append((1, done_task()))
                began = time.monotonic()
                with mock.patch("ringlog.compat._router.EXIT_TIMEOUT", 0.5):
                    reset_router()
                self.assertLess(time.monotonic() - began, 5)

    def test_a_registration_may_end_while_it_begins(self) -> None:
        registration, begun, begin = (
            Registration(self.log, self.run_id, list),
            threading.Event(),
            threading.Thread.start,
        )

        def start_late(thread: threading.Thread) -> None:
            begun.set()
            time.sleep(0.1)
            begin(thread)

        with mock.patch.object(threading.Thread, "start", start_late):
            beginning = threading.Thread(target=registration.change)
            begin(beginning)
            self.assertTrue(begun.wait(10))
            registration.end()
            beginning.join()

    @unittest.skipUnless(hasattr(os, "fork"), "nothing forks here")
    def test_a_child_publishes_and_takes_no_subscription_from_its_parent(self) -> None:
        self.use(f"d{self.run_id}")
        got: list[Any] = []
        subscribe("HOST_ONLINE", got.append)
        publish("HOST_ONLINE", {"run": self.run_id, "by": "parent"})
        pid = os.fork()
        if pid == 0:
            with contextlib.suppress(BaseException):
                publish("HOST_ONLINE", {"run": self.run_id, "by": "child"})
                os._exit(len(get_event_bus().list_subscribers()))
            os._exit(9)
        self.assertEqual(os.waitpid(pid, 0)[1], 0)
        eventually("the parent has it", lambda: len(got) == 2)
        self.assertEqual([e.payload["by"] for e in got], ["parent", "child"])


class Failures(CompatTest):
    def test_a_handler_that_raises_is_retried_then_reported_then_a_dead_letter_that_can_be_retried(self) -> None:
        for durable in (False, True):
            for local in (True, False):
                with self.subTest(durable=durable, local=local):
                    self.check_failure(f"d{local}{self.run_id}" if durable else "", local)

    def failures(self, handler: str, offset: int) -> list[Any]:
        events = self.log.tail("start", types=["HANDLER_FAILED"], keys=[handler], until_end=True)
        return [event for event in events if event.payload.get("offset") == offset]

    def check_failure(self, name: str, local: bool) -> None:
        self.use(name)
        broken, calls = [True], []
        case = {"run": self.run_id, "name": name, "local": local}

        def on_failing(event: Any) -> None:
            calls.append(event)
            if broken:
                raise KeyError("no such model")

        handler = handler_name(on_failing)
        subscribe("MODEL_CORRUPTED", on_failing)
        if local:
            publish("MODEL_CORRUPTED", case)
        else:
            self.other("MODEL_CORRUPTED", case)
        letters = get_dead_letter_queue()

        def mine() -> list[Any]:
            return [e for e in letters.get_pending_events() if e["payload"] == case]

        eventually("it is a dead letter", mine)
        (letter,) = mine()
        self.assertEqual(len(calls), 4)
        self.assertEqual((letter.event_type, letter.handler_name), ("MODEL_CORRUPTED", handler))
        self.assertEqual((letter.error, letter.raw["attempts"]), ("KeyError: 'no such model'", 4))
        self.assertIn("KeyError: 'no such model'", letters.get_error_summary())
        self.assertGreaterEqual(letters.get_pending_count(), 1)
        reported = f"{handler}.model_corrupted"
        eventually("it is reported", lambda: self.failures(reported, letter.raw["offset"]))
        notice = self.failures(reported, letter.raw["offset"])[0].payload
        self.assertEqual((notice["attempts"], notice["dead_letter"], notice["event"]), (4, True, "MODEL_CORRUPTED"))

        # Redriven it comes to this handler alone, which can do it now.
        others: list[Any] = []
        subscribe("MODEL_CORRUPTED", others.append)
        broken.clear()
        self.assertTrue(letters.retry_event(letter.event_id))
        eventually("it is handled", lambda: len(calls) == 5)
        eventually("the letter is gone", lambda: letter.event_id not in [x["id"] for x in self.log.dead_letters()])
        self.assertEqual((calls[-1].payload, others), (case, []))

    def test_live_failures_out_of_order_and_of_two_processes_are_one_letter_each(self) -> None:
        self.use(breaker_failures=0)
        broken, handled = [True], []

        def on_reordered(event: Any) -> None:
            if broken:
                raise ValueError(self.run_id)
            handled.append(event.payload["i"])

        offsets = [self.log.publish("TRAINING_STARTED", {"run": self.run_id, "i": i}).offset for i in range(3)]
        subscribe("TRAINING_STARTED", on_reordered)
        (one,) = get_router()._subscriptions
        other_log = Client(self.cluster.urls)
        self.addCleanup(other_log.close)
        another = UnifiedEventRouter(other_log, name="", retry_delays=FAST, breaker_failures=0)
        self.addCleanup(another.stop)
        another.subscribe("TRAINING_STARTED", on_reordered)
        (two,) = another._subscriptions
        for subscription, i in ((one, 2), (two, 2), (two, 0), (one, 1), (one, 0)):
            task = Task(from_log(self.log.get(offsets[i])))
            subscription._handle(task)
            self.assertEqual(task.done.result(), f"ValueError: {self.run_id}")
        letters = self.log.dead_letters(error=self.run_id)
        self.assertEqual(sorted(letter["offset"] for letter in letters), offsets)
        broken.clear()
        for letter in letters:
            self.assertTrue(get_dead_letter_queue().retry_event(letter["id"]))
        eventually("all are handled", lambda: len(handled) >= 3)
        eventually("no letter is left", lambda: not self.log.dead_letters(error=self.run_id))
        self.assertEqual(sorted(handled), [0, 1, 2])

    def test_a_live_handler_that_fails_on_a_spooled_event_leaves_a_letter(self) -> None:
        cluster = Cluster(1)
        self.addCleanup(cluster.close)
        with tempfile.TemporaryDirectory() as folder:
            log = Client(cluster.urls, spool=folder, spool_after=0.2)
            self.addCleanup(log.close)
            configure(log, source="test", retry_delays=FAST)
            broken, got = [True], list[Any]()

            def on_spooled(event: Any) -> None:
                if broken:
                    raise ValueError(self.run_id)
                got.append(event.payload)

            subscribe("HOST_ONLINE", on_spooled, critical=True)
            cluster.nodes[0].kill()
            publish("HOST_ONLINE", {"run": self.run_id})
            (subscription,) = get_router()._subscriptions
            eventually("the handler has failed", lambda: subscription.failed == 1)
            cluster.start(cluster.nodes[0])
            eventually("it is a dead letter", lambda: log.dead_letters(error=self.run_id))
            broken.clear()
            (letter,) = log.dead_letters(error=self.run_id)
            self.assertTrue(get_dead_letter_queue().retry_event(letter["id"]))
            eventually("it is handled", lambda: got == [{"run": self.run_id}])
            # It was reported once, when its letter was there.
            reported = list[Any]()

            def report() -> bool:
                reported[:] = log.tail("start", types=["HANDLER_FAILED"], until_end=True)
                return bool(reported)

            eventually("it is reported", report)
            said = [(event.payload["dead_letter"], event.payload["offset"]) for event in reported]
            self.assertEqual(said, [(True, letter["offset"])])

            # A process that ends before the log has the event makes no letter of it.
            broken.append(True)
            cluster.nodes[0].kill()
            publish("HOST_ONLINE", {"run": self.run_id, "second": 1})
            eventually("the handler has failed", lambda: subscription.failed == 2)
            with mock.patch("ringlog.compat._router.EXIT_TIMEOUT", 0.1):
                reset_router()
            cluster.start(cluster.nodes[0])
            self.assertTrue(log.drain(60))
            reported = log.tail("start", types=["HANDLER_FAILED"], until_end=True)
            self.assertEqual([event.payload["dead_letter"] for event in reported], [True, False])
            self.assertEqual(log.dead_letters(error=self.run_id), [])

    def test_a_failure_on_an_event_that_the_log_refuses_is_reported_at_once(self) -> None:
        def on_refused(event: Any) -> None:
            raise ValueError(self.run_id)

        subscribe("LEADER_ELECTED", on_refused)
        (subscription,) = get_router()._subscriptions
        with self.assertRaises(InvalidArgument):
            publish("LEADER_ELECTED", {"run": self.run_id})

        def reported() -> list[Any]:
            return list(self.log.tail("start", types=["HANDLER_FAILED"], keys=[subscription.name], until_end=True))

        eventually("it is reported", reported)
        self.assertEqual([event.payload["dead_letter"] for event in reported()], [False])

    def breaker_notices(self, handler: str) -> list[Any]:
        events = self.log.tail("start", types=["CIRCUIT_*"], keys=[handler], until_end=True)
        return [(event.type.removeprefix("CIRCUIT_BREAKER_"), event.payload) for event in events]

    def test_a_handler_that_fails_on_event_after_event_is_not_called_for_a_while(self) -> None:
        for name in ("", f"d{self.run_id}"):
            with self.subTest(durable=bool(name)):
                router = self.use(name, breaker_reset=2.0)
                calls: list[tuple[int, float]] = []

                def on_sick(event: Any, calls: list[tuple[int, float]] = calls) -> None:
                    calls.append((event.payload["i"], time.monotonic()))
                    if len(calls) <= 9:
                        raise ValueError(self.run_id)

                subscribe("NODE_UNHEALTHY", on_sick)
                (subscription,) = router._subscriptions
                for i in range(3):
                    self.other("NODE_UNHEALTHY", {"i": i, "name": name})
                # Attempts at one event count once: the third event opens it, with its first attempt.
                eventually("it is open", lambda r=router: r.get_stats()["breakers_open"])
                # Nobody waits for a handler that is not called.
                publish("NODE_UNHEALTHY", {"run": self.run_id, "i": 3, "name": name})
                self.assertEqual([i for i, _ in calls], [0, 0, 0, 0, 1, 1, 1, 1, 2])
                self.assertEqual(subscription.describe()["health"]["breaker"], "open")
                eventually("all are handled", lambda s=subscription: s.handled == 2)
                self.assertEqual([i for i, _ in calls[9:]], [2, 3])
                self.assertGreaterEqual(calls[9][1] - calls[8][1], 2.0)
                eventually("what failed is a dead letter", lambda: len(self.log.dead_letters(error=self.run_id)) == 2)
                for letter in self.log.dead_letters(error=self.run_id):
                    self.log.purge(letter["id"])
                handler = subscription.name
                eventually("it is reported", lambda h=handler: self.breaker_notices(h)[-1][0] == "CLOSED")
                kinds, payloads = zip(*self.breaker_notices(handler)[-4:], strict=True)
                self.assertEqual(kinds, ("THRESHOLD", "OPENED", "HALF_OPEN", "CLOSED"))
                error = f"ValueError: {self.run_id}"
                for payload, said in zip(
                    payloads,
                    (
                        {"state": "closed", "failures": 2, "threshold": 3, "error": error},
                        {"state": "open", "failures": 3, "previous": "closed", "half_open_after_seconds": 2.0},
                        {"state": "half-open", "failures": 0, "previous": "open"},
                        {"state": "closed", "failures": 0, "previous": "half-open"},
                    ),
                    strict=True,
                ):
                    self.assertEqual({**payload, **said, "handler": handler}, payload)
                reset_router()

    def test_a_breaker_is_half_open_in_time_though_no_event_waits(self) -> None:
        reports: list[tuple[str, str]] = []
        breaker = HandlerBreaker(1, 0.05, lambda kind, payload: reports.append((kind, payload["previous"])))
        breaker.enter()
        breaker.leave("KeyError: 'a'", first=True)
        eventually("it is reported", lambda: reports[1:])
        self.assertEqual(breaker.state, "half-open")
        breaker.enter()
        breaker.leave("", first=True)
        names = ["CIRCUIT_BREAKER_OPENED", "CIRCUIT_BREAKER_HALF_OPEN", "CIRCUIT_BREAKER_CLOSED"]
        self.assertEqual(reports, list(zip(names, ("closed", "open", "half-open"), strict=True)))

        # Once its subscription has ended it reports nothing.
        breaker.leave("KeyError: 'a'", first=True)
        timer = breaker._timer
        assert timer is not None
        breaker.close()
        timer.join(10)
        self.assertEqual(len(reports), 4)

    def test_what_waits_for_a_breaker_is_left_to_the_next_process(self) -> None:
        name = f"d{self.run_id}"
        router = self.use(name, breaker_failures=1)
        broken, got = [True], []

        def on_sick(event: Any) -> None:
            if broken:
                raise ValueError(self.run_id)
            got.append(event.payload["i"])

        subscribe("NODE_UNHEALTHY", on_sick)
        for i in range(3):
            self.other("NODE_UNHEALTHY", {"i": i})
        publish("NODE_UNHEALTHY", {"run": self.run_id, "i": 3})
        eventually("it is open", lambda: router.get_stats()["breakers_open"])
        began = time.monotonic()
        reset_router()
        self.assertLess(time.monotonic() - began, 60)  # and not the 300 s
        broken.clear()
        self.use(name)
        subscribe("NODE_UNHEALTHY", on_sick)
        eventually("all are handled", lambda: len(got) >= 4)
        self.assertEqual(got, [0, 1, 2, 3])
        self.assertEqual(self.log.dead_letters(error=self.run_id), [])

    def test_a_breaker_that_is_off_or_out_of_range(self) -> None:
        self.use(breaker_failures=0)
        calls: list[Any] = []

        def on_sick(event: Any) -> None:
            calls.append(event)
            raise ValueError(self.run_id)

        subscribe("NODE_UNHEALTHY", on_sick)
        (subscription,) = get_router()._subscriptions
        for i in range(5):
            self.other("NODE_UNHEALTHY", {"i": i})
        eventually("each has had its attempts", lambda: len(calls) == 20)
        self.assertEqual((self.breaker_notices(subscription.name), subscription.breaker.state), ([], "off"))
        for wrong in ({"breaker_failures": -1}, {"breaker_reset": 0}, {"breaker_reset": "5m"}):
            with self.subTest(wrong=wrong), self.assertRaises(InvalidArgument) as raised:
                UnifiedEventRouter(self.log, **wrong)  # type: ignore[arg-type]
            self.assertEqual([raised.exception.field], list(wrong))

    def test_a_handler_that_hangs_is_reported_and_holds_no_other_up(self) -> None:
        release, got, hanging, canceled = threading.Event(), [], [], []
        self.addCleanup(release.set)

        def on_hanging(event: Any) -> None:
            hanging.append(event)
            release.wait(60)

        async def on_waiting(event: Any) -> None:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                canceled.append(event)
                raise

        subscribe("NODE_UNHEALTHY", on_hanging, timeout=0.05)
        subscribe("NODE_UNHEALTHY", on_waiting, timeout=0.05)
        subscribe("NODE_UNHEALTHY", got.append)
        began = time.monotonic()
        publish("NODE_UNHEALTHY", {"run": self.run_id})
        self.assertEqual(len(got), 1)
        self.assertLess(time.monotonic() - began, 20)
        letters = get_dead_letter_queue()
        eventually("both are dead letters", lambda: len(
            [e for e in letters.get_pending_events() if e.payload.get("run") == self.run_id]) == 2)  # fmt: skip
        # One that does not return is not run beside itself; a coroutine is canceled, and run again.
        self.assertEqual(len(hanging), 1)
        self.assertTrue(1 <= len(canceled) <= 4, canceled)  # each attempt, unless the loop was busy all the time
        timeouts = [e for e in self.log.tail("start", types=["HANDLER_TIMEOUT"], until_end=True)
                    if e.payload["event"] == "NODE_UNHEALTHY"]  # fmt: skip
        self.assertEqual(sorted(e.payload["attempt"] for e in timeouts), [1, 1, 2, 2, 3, 3, 4, 4])
        self.assertEqual({e.payload["timeout_seconds"] for e in timeouts}, {0.05})

        # The cluster knows it by the next registration, which a change causes at once.
        subscribe("NODE_RECOVERED", print)

        def reported() -> dict[str, Any]:
            return {h["subscription"]: h for h in self.log.status()["handler_timeouts"]["handlers"]}

        names = [f"{handler}.node_unhealthy" for handler in ("on_hanging", "on_waiting")]
        eventually("both are reported", lambda: [reported().get(n, {}).get("failed_attempts") for n in names] == [4, 4])
        for handler in (reported()[name] for name in names):
            self.assertEqual((handler["timed_out"], handler["handler_timeout_seconds"]), (4, 0.05), handler)
            self.assertEqual(handler["last_error"], "TimeoutError: the handler has not returned within 0.05 s")
            self.assertLess(abs(time.time() - parse_time(handler["last_error_at"]).timestamp()), 60)

    def test_an_error_whose_text_cannot_be_sent_holds_nothing_up(self) -> None:
        self.use(f"d{self.run_id}", ())
        got: list[int] = []

        class Silent(Exception):
            def __str__(self) -> str:
                raise ValueError("no text")

        def on_import(event: Any) -> None:
            got.append(event.payload["i"])
            if event.payload["i"] == 0:
                raise OSError("cannot read /data/\udcff")
            if event.payload["i"] == 1:
                raise Silent

        subscribe("DATA_SYNC_FAILED", on_import)
        for i in range(3):
            self.other("DATA_SYNC_FAILED", {"i": i})
        cursor = f"d{self.run_id}.{handler_name(on_import)}.data_sync_failed"
        eventually("all is committed", lambda: got and self.log.get_cursor(cursor)["lag_events"] == 0, 20)
        self.assertEqual(got, [0, 1, 2])
        errors = [letter["error"] for letter in self.log.dead_letters(cursor=cursor)]
        self.assertEqual(errors, ["OSError: cannot read /data/?", "Silent"])

    def test_a_failure_that_cannot_be_kept_does_not_stop_the_subscription(self) -> None:
        got: list[int] = []

        def on_adjusted(event: Any) -> None:
            got.append(event.payload["i"])
            raise OSError("no route")

        router = self.use(retry_delays=())
        subscribe("QUALITY_FEEDBACK_ADJUSTED", on_adjusted)
        for method in ("_bury", "_attempt"):
            (subscription,) = router._subscriptions
            setattr(subscription, method, lambda *args: [][0])
            publish("QUALITY_FEEDBACK_ADJUSTED", {"run": self.run_id, "i": len(got), "method": method})
            eventually("it is done with", lambda s=subscription: not s._busy, 10)
            delattr(subscription, method)
        publish("QUALITY_FEEDBACK_ADJUSTED", {"run": self.run_id, "i": 1})
        self.assertEqual(got, [0, 1])

    def test_a_coroutine_that_is_slow_to_end_is_called_for_each_attempt(self) -> None:
        calls: list[Any] = []

        async def on_slow(event: Any) -> None:
            calls.append(event)
            try:
                await asyncio.sleep(60)
            finally:
                await asyncio.sleep(0.3)

        subscribe("HOST_OFFLINE", on_slow, timeout=0.1)
        publish("HOST_OFFLINE", {"run": self.run_id})
        eventually("it is a dead letter", lambda: get_router()._subscriptions[0].failed)
        self.assertEqual(len(calls), 4)

    def test_a_handler_of_one_event_is_called_again_where_it_fails(self) -> None:
        calls: list[Any] = []

        def on_once(event: Any) -> None:
            calls.append(event.payload["i"])
            if len(calls) < 3:
                raise OSError("no route")

        async def on_once_async(event: Any) -> None:
            on_once(event)

        for handler in (on_once, on_once_async):
            calls.clear()
            get_event_bus().subscribe("HOST_OFFLINE", handler, once=True)
            for i in range(2):
                publish("HOST_OFFLINE", {"run": self.run_id, "i": i, "by": handler.__name__})
            subscription = get_router()._subscriptions[-1]
            eventually("both are done", lambda s=subscription: s.handled >= 2)
            self.assertEqual(calls, [0, 0, 0])
            reset_router()
            self.use()

    def test_a_handler_that_fails_on_handler_events_does_not_feed_itself(self) -> None:
        def on_failed(event: Any) -> None:
            raise ValueError("again")

        subscribe("HANDLER_*", on_failed)
        offset = self.other("HANDLER_FAILED", {"handler": "x"})
        eventually("it is a dead letter", lambda: offset in [x["offset"] for x in self.log.dead_letters(limit=1000)])
        self.assertEqual([e for e in self.events("HANDLER_FAILED") if "on_failed" in e.key], [])

    def test_bad_input_is_refused_before_any_handler_is_called(self) -> None:
        got: list[Any] = []
        subscribe(None, got.append)
        for payload in ({"loss": float("nan")}, {"x": b"1"}, {"x": object()}):
            with self.assertRaises(InvalidArgument) as refused:
                publish("HOST_ONLINE", payload)
            self.assertTrue(refused.exception.field.startswith("payload"), refused.exception.field)
        for wrong in (None, "", 7):
            with self.assertRaises(ValueError):
                publish(wrong, {})
        with self.assertRaises(TypeError):
            subscribe("HOST_ONLINE", "no function")
        for decorate in (subscribe, get_event_bus().subscribe):
            with self.assertRaisesRegex(TypeError, r"write @subscribe\(TYPE\)"):
                decorate(finish)
        with self.assertRaisesRegex(TypeError, "nmae"):
            configure(self.log, nmae="elo")
        self.assertEqual(got, [])

    def test_a_type_that_the_log_refuses_raises_where_it_is_published(self) -> None:
        with self.assertRaises(InvalidArgument) as refused:
            publish("LEADER_ELECTED", {"run": self.run_id})
        self.assertEqual(refused.exception.code, "reserved")

        async def main() -> None:
            with self.assertRaises(InvalidArgument):
                await publish("LEADER_ELECTED", {"run": self.run_id})

        asyncio.run(main())


class Modules(CompatTest):
    def test_the_bus_of_topics(self) -> None:
        bus = get_event_bus()
        got: list[Any] = []
        mine = f"trainer-{self.run_id}"

        @bus.subscribe("training.completed")
        async def on_training_completed(event: Any) -> None:
            got.append(("topic", event.config_key))

        @bus.subscribe(EventFilter(topic_pattern="training.*", source=mine))
        def on_training(event: Any) -> None:
            got.append(("filter", event.metadata["config_key"]))

        @bus.subscribe("training.*", once=True)
        def on_first(event: Any) -> None:
            got.append(("once", event.topic))

        for i, source in enumerate((mine, "another")):
            bus.publish(Event(topic="training.completed", source=source, metadata={"config_key": i, "r": self.run_id}))
        expected = [("filter", 0), ("once", "training.completed"), ("topic", 0), ("topic", 1)]
        self.assertEqual(sorted(got), expected)
        self.assertIn("training_completed", bus.list_subscribers())
        self.assertNotIn("host_online", bus.list_subscribers())
        self.assertEqual([e.source for e in bus.get_history("TRAINING_COMPLETED", 2)], ["another", mine])
        replayed: list[Any] = []
        handled = asyncio.run(bus.replay(replayed.append, "training.completed"))
        self.assertEqual(handled, len(replayed))
        self.assertEqual([e.source for e in replayed if e.payload.get("r") == self.run_id], [mine, "another"])

    def test_stages(self) -> None:
        bus = get_stage_event_bus()
        got: list[Any] = []

        async def on_training(result: Any) -> None:
            got.append((result.iteration, result.success, result.config_key, result.model_path))

        bus.subscribe(StageEvent.TRAINING_COMPLETE, on_training, iteration=7, config_key="hex8_2p")
        for iteration in (6, 7):
            stage = StageEvent.TRAINING_COMPLETE
            bus.emit(StageCompletionResult(stage, iteration=iteration, board_type="hex8", model_path=self.run_id))
        self.assertEqual(got, [(7, True, "hex8_2p", self.run_id)])
        # Another process publishes the type itself, without what only this bus adds.
        self.other("TRAINING_COMPLETED", {"iteration": 7, "config_key": "hex8_2p"})
        eventually("it came from the log", lambda: len(got) == 2)
        self.assertEqual(got[1], (7, True, "hex8_2p", None))
        self.assertEqual(next_stages(StageEvent.TRAINING_COMPLETE), ["EVALUATION_STARTED"])
        self.assertEqual([r.iteration for r in bus.get_history(limit=3)][:3], [7, 7, 6])
        self.assertTrue(bus.unsubscribe(StageEvent.TRAINING_COMPLETE, on_training))
        self.assertEqual(bus.subscriber_count(StageEvent.TRAINING_COMPLETE), 0)

    def test_the_cross_process_queue(self) -> None:
        kind, mine = "ORPHAN_GAMES_DETECTED", f"p{self.run_id}"
        queue = get_cross_process_queue()
        ids = [publish_cross_process(kind, {"run": self.run_id, "i": i}, source="sync") for i in range(5)]

        def pending(limit: int = 100) -> list[int]:
            return [
                e.event_id for e in queue.get_pending_events(mine, [kind], limit) if e.payload["run"] == self.run_id
            ]

        self.assertEqual(pending(), ids)
        self.assertEqual(pending(2), ids[:2])
        queue.ack_event(ids[1], mine)
        self.assertEqual(pending(), [ids[0], *ids[2:]])
        queue.ack_events([ids[0], ids[2]], mine)
        self.assertEqual(pending(), ids[3:])

        # Events of other types, and acknowledged ones, hide none of those that are asked for.
        wanted = publish_cross_process("HOST_OFFLINE", {"run": self.run_id})
        mixed = queue.subscribe(f"m{self.run_id}", [kind, "HOST_OFFLINE"])
        self.assertEqual([e.event_id for e in queue.poll(mixed, ["HOST_OFFLINE"], 1, ids[0] - 1)], [wanted])
        self.assertEqual([e.event_id for e in queue.poll(mixed, None, 1, ids[3])], [ids[4]])
        queue.ack_event(ids[4], mixed)
        self.assertEqual([e.event_id for e in queue.poll(mixed, None, 1, ids[2])], [ids[3]])
        self.assertEqual([e.event_id for e in queue.poll(mixed, None, 2, ids[2])], [ids[3], wanted])

        # The same process after a restart, and another one, which has acknowledged nothing.
        self.use()
        queue._subscribers.clear()
        self.assertEqual(pending(), ids[3:])
        others = queue.get_pending_events(f"q{self.run_id}", [kind])
        self.assertEqual([e["event_id"] for e in others if e.payload["run"] == self.run_id], ids)

    def test_every_type_has_an_emitter_and_a_former_name_has_its_own(self) -> None:
        from ringlog.compat import event_emitters, event_router

        for kind in DataEventType.__members__:
            self.assertTrue(hasattr(event_emitters, f"emit_{kind.lower()}"), kind)
            self.assertTrue(hasattr(event_router, f"emit_{kind.lower()}"), kind)
        event = event_emitters.emit_training_complete(config_key=self.run_id, epochs_completed=50, beyond=1).event
        stored = self.log.get(event.offset)
        self.assertEqual(stored.type, "TRAINING_COMPLETED")
        self.assertEqual(stored.payload, {"config_key": self.run_id, "epochs_completed": 50, "beyond": 1})

    def test_emitters_cover_an_environment_without_a_cluster(self) -> None:
        configure(Client("http://127.0.0.1:9", timeout=0.1, delivery_timeout=0.1), name="", retry_delays=FAST)
        got: list[Any] = []
        attaching = mock.patch("ringlog.compat._router.ATTACH_TIMEOUT", 0.1)
        attaching.start()
        self.addCleanup(attaching.stop)
        subscribe("HOST_ONLINE", got.append)

        async def critical() -> None:
            naps: list[float] = []

            async def nap(seconds: float) -> None:
                naps.append(seconds)

            with self.assertRaises(Unavailable):
                await subscribe_with_retry("HOST_ONLINE", print, is_critical=True, sleep=nap)
            self.assertEqual(naps, [1, 2])
            self.assertFalse(await subscribe_with_retry("HOST_ONLINE", print, sleep=nap))

        asyncio.run(critical())
        with self.assertRaises(Unavailable):
            publish("HOST_ONLINE", {"run": self.run_id})
        self.assertEqual(len(got), 1)  # the handlers of this process got it all the same


# As the platform's documents have them, but for the module in the import line. A row is where it is from, what is
# imported in front of it, the snippet, and what it prints.
SNIPPETS = {
    "subscribe and emit": '''
from ringlog.compat.event_router import subscribe, DataEventType

def my_handler(event):
    payload = event.payload if hasattr(event, "payload") else event
    print(payload.get("config_key", "unknown"))

subscribe("TRAINING_COMPLETED", my_handler)
subscribe(DataEventType.MODEL_PROMOTED.value, my_handler)

from ringlog.compat.event_emitters import emit_training_complete, emit_data_sync_completed, emit_model_promoted

emit_training_complete(config_key="hex8_2p", model_path="models/canonical_hex8_2p.pth", epochs_completed=50)
emit_model_promoted(config_key="hex8_3p", model_id="m7")
''',
    "bus": '''
from ringlog.compat.data_events import DataEventType, DataEvent
from ringlog.compat.event_router import get_event_bus

bus = get_event_bus()
bus.subscribe(DataEventType.TRAINING_COMPLETED, lambda event: print(event.source, event.event_type.name))
event = DataEvent(
    event_type=DataEventType.TRAINING_COMPLETED,
    payload={"config_key": "square8_2p", "model_path": "..."},
    source="TrainingCoordinator",
)
bus.publish(event)

subscribers = bus.list_subscribers()
print([t.name for t in DataEventType if t.value in subscribers])
''',
    "decorator": '''
import asyncio
from ringlog.compat.event_bus import get_event_bus
from ringlog.compat.data_events import DataEvent

async def main():
    bus = get_event_bus()

    @bus.subscribe("training.completed")
    async def on_training_completed(event):
        print(f"Training completed: {event.payload}")

    event = DataEvent("TRAINING_COMPLETED", {"config": "d"}, "t")
    await bus.publish(event)

asyncio.run(main())
''',
    "router": '''
import asyncio
from ringlog.compat.event_router import get_router, publish, DataEventType

async def main():
    await publish(DataEventType.TRAINING_COMPLETED, payload={"config": "square8_2p"}, source="training_daemon")

asyncio.run(main())
router = get_router()
for event in router.get_recent_events(limit=100):
    print(f"{event.type} from {event.source}", event.timestamp > 0)
print(f"Recent events: {len(router._recent_events)}")
''',
    "coordinator": '''
from ringlog.compat.event_router import (
    UnifiedEventCoordinator,  # Alias for UnifiedEventRouter
    get_event_coordinator,    # Alias for get_router
    CoordinatorStats,         # Backwards-compat dataclass
    emit_training_started,    # Helper functions
    emit_training_completed,
)
print(isinstance(get_event_coordinator(), UnifiedEventCoordinator), CoordinatorStats().events_dropped)
''',
    "retry": '''
import asyncio
from ringlog.compat.event_router import subscribe

class Orchestrator:
    async def _subscribe_with_retry(self, event_name, handler, max_attempts=3, is_critical=False):
        for attempt in range(max_attempts):
            try:
                subscribe(event_name, handler)
                return True
            except Exception as e:
                delay = 2 ** attempt  # 1s, 2s, 4s
                await asyncio.sleep(delay)
        return False

print(asyncio.run(Orchestrator()._subscribe_with_retry("TASK_FAILED", print)))
''',
    "dead letters": '''
from ringlog.compat.dead_letter_queue import get_dead_letter_queue

dlq = get_dead_letter_queue()
failed = dlq.get_pending_events(limit=100)
event_id = failed[0].id
dlq.retry_event(event_id)
dlq.retry_all()
dlq.cleanup(older_than_hours=24)
print(f"Pending events: {dlq.get_pending_count()}")
print(f"Errors: {dlq.get_error_summary()}")

import asyncio

async def main():
    await dlq.retry_all()
    await dlq.retry_event(event_id)

asyncio.run(main())
''',
    "circuit breaker": '''
import asyncio
from ringlog.compat.data_pipeline_orchestrator import CircuitBreaker

cb = CircuitBreaker(failure_threshold=3, reset_timeout_seconds=300)

async def trigger_training():
    raise RuntimeError("no GPU")

async def main():
    for _ in range(5):
        if cb.can_execute():
            try:
                result = await trigger_training()
                cb.record_success("training")
            except Exception as e:
                cb.record_failure("training", str(e))
                # After 3 failures, circuit opens for 5 minutes

asyncio.run(main())
print(cb.state.name, cb.can_execute(), cb.get_status()["failure_count"])
''',
    "cross-process": '''
from ringlog.compat.cross_process_events import get_cross_process_queue, publish_cross_process

publish_cross_process("NEW_GAMES_AVAILABLE", {"config_key": "hex8_2p"})
queue = get_cross_process_queue()
events = queue.get_pending_events()
print([e.payload for e in events if e.event_type == "NEW_GAMES_AVAILABLE"])
''',
}  # fmt: skip

PRINTED = {
    "subscribe and emit": "hex8_2p\nhex8_3p\n",
    "bus": "TrainingCoordinator TRAINING_COMPLETED\n['TRAINING_COMPLETED']\n",
    "decorator": "Training completed: {'config': 'd'}\n",
    "router": "training_completed from training_daemon True\nRecent events: 1\n",
    "coordinator": "True 0\n",
    "retry": "True\n",
    "dead letters": None,
    "circuit breaker": "OPEN False 3\n",
    "cross-process": "[{'config_key': 'hex8_2p'}]\n",
}


class Snippets(ClusterTest):
    def test_the_documents_snippets_run(self) -> None:
        with Client(self.cluster.urls) as log, log.cursor("old", from_="start") as cursor:
            offset = log.publish("TASK_FAILED", {"task": 1}).offset
            cursor.dead_letter("out of memory on gpu 3", event=offset)
            for name, snippet in SNIPPETS.items():
                with self.subTest(name):
                    process = start(snippet, self.cluster.urls)
                    out, err = process.communicate(timeout=60)
                    self.assertEqual((process.returncode, without_warnings(err)), (0, ""), name)
                    if (printed := PRINTED[name]) is not None:
                        self.assertEqual(out, printed)
                    else:
                        self.assertRegex(out, r"^Pending events: 0\nErrors: \{.*\}\n$")


def without_warnings(err: str) -> str:
    """Return what a process has printed beside the warnings of nodes."""
    return "".join(line for line in err.splitlines(True) if not line.startswith("a node warns about payload"))


class Shims(unittest.TestCase):
    def test_the_old_import_lines_work_with_the_shims(self) -> None:
        lines = """
from app.coordination.event_router import get_router, publish, subscribe, DataEventType, emit_training_started
from app.coordination.event_emitters import emit_training_complete
from app.coordination.stage_events import StageEvent, get_event_bus
from app.coordination.cross_process_events import get_cross_process_queue, publish_cross_process
from app.coordination.dead_letter_queue import get_dead_letter_queue
from app.coordination.unified_event_coordinator import get_event_coordinator
from app.core.event_bus import get_event_bus, Event
from app.distributed.data_events import DataEventType, DataEvent, emit_model_promoted
from app.distributed.stage_events import StageEvent
from app.distributed.cross_process_events import publish_event
"""

        def run(*args: str) -> tuple[int, str]:
            env = {"PYTHONPATH": f"{PACKAGE}:{folder}"}
            done = subprocess.run([sys.executable, *args], env=env, capture_output=True, text=True)
            return done.returncode, done.stderr

        with tempfile.TemporaryDirectory() as folder:
            old = Path(folder) / "app" / "core" / "event_bus.py"
            old.parent.mkdir(parents=True)
            old.write_text("the platform's own")
            refused = f"ringlog: {old} is a module of the platform; --replace writes over it\n"
            self.assertEqual(run("-m", "ringlog.compat", folder), (1, refused))
            self.assertEqual(sorted(old.parent.parent.rglob("*.py")), [old])
            self.assertEqual(run("-m", "ringlog.compat", folder, "--replace"), (0, ""))
            self.assertEqual(run("-c", lines), (0, ""))
            self.assertEqual(run("-m", "ringlog.compat", folder), (0, ""))  # over its own
            self.assertEqual(run("-m", "ringlog.compat", "/dev/null")[0], 1)


class Breaker(unittest.TestCase):
    def test_its_states(self) -> None:
        now = [0.0]
        breaker = CircuitBreaker(3, 300, clock=lambda: now[0])
        for _ in range(2):
            breaker.record_failure("training", "boom")
        breaker.record_success("training")  # in a row
        for _ in range(2):
            breaker.record_failure("training", "boom")
        self.assertTrue(breaker.can_execute())
        breaker.record_failure("training", "boom")
        self.assertEqual((breaker.state, breaker.can_execute()), (CircuitBreakerState.OPEN, False))
        now[0] = 299.0
        self.assertEqual((breaker.can_execute(), breaker.open_for()), (False, 1.0))
        now[0] = 300.0
        self.assertEqual(breaker.state, CircuitBreakerState.HALF_OPEN)
        self.assertEqual([breaker.can_execute(), breaker.can_execute()], [True, False])
        breaker.record_failure("training", "boom")
        self.assertEqual((breaker.state, breaker.can_execute()), (CircuitBreakerState.OPEN, False))
        now[0] = 600.0
        self.assertTrue(breaker.can_execute())
        breaker.record_success("training")
        self.assertEqual((breaker.state, breaker.can_execute()), (CircuitBreakerState.CLOSED, True))
        with self.assertRaises(InvalidArgument):
            CircuitBreaker(failure_threshold=0)


DAEMON = """
import sys, signal, threading
from ringlog.compat import configure
from ringlog.compat.event_router import publish, subscribe
name, run, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
configure(name=f"{name}-{run}")
lock = threading.Lock()

def on_game(event):
    if event.payload["run"] == run:
        with lock:
            print(event.payload["by"], event.payload["i"], flush=True)

subscribe("NEW_GAMES_AVAILABLE", on_game, critical=True)
print("ready", flush=True)
sys.stdin.readline()
for i in range(count):
    publish("NEW_GAMES_AVAILABLE", {"run": run, "by": name, "i": i})
with lock:  # print writes a line in parts
    print("published", flush=True)
signal.pause()
"""


KILLED = """
import sys, threading
from ringlog.compat import configure
from ringlog.compat.event_router import publish, subscribe
router = configure(name=sys.argv[1])
handled = threading.Event()

def on_event(event):
    i = event.payload["i"]
    print("handle", i, flush=True)
    if i == 1 and sys.argv[2] == "hang":
        print("hang", flush=True)
        threading.Event().wait()
    if i == 2:
        handled.set()

subscribe("HOST_OFFLINE", on_event, critical=True)
if sys.argv[2] == "hang":
    for i in range(2):
        publish("HOST_OFFLINE", {"i": i})
handled.wait()
router.stop()
"""


class Processes(CompatTest):
    def test_what_a_killed_daemon_has_not_handled_is_handled_by_the_next(self) -> None:
        subscriber = f"killed-{self.run_id}"
        first = start(KILLED, self.cluster.urls, subscriber, "hang")
        self.addCleanup(first.__exit__, None, None, None)
        assert first.stdout is not None
        self.assertEqual([first.stdout.readline() for _ in range(3)], ["handle 0\n", "handle 1\n", "hang\n"])
        cursor = f"{subscriber}.on_event.host_offline"

        def is_between() -> bool:
            offsets = [e.offset for e in self.log.tail("start", types=["HOST_OFFLINE"], until_end=True)]
            return len(offsets) == 2 and offsets[0] <= self.log.get_cursor(cursor)["committed"] < offsets[1]

        eventually("the first is committed, and the second in the log", is_between)
        first.kill()
        first.wait()
        self.log.publish("HOST_OFFLINE", {"i": 2})
        second = start(KILLED, self.cluster.urls, subscriber, "work")
        out, err = second.communicate(timeout=60)
        self.assertEqual((second.returncode, without_warnings(err), out), (0, "", "handle 1\nhandle 2\n"))
        self.assertEqual(self.log.get_cursor(cursor)["lag_events"], 0)

    def test_two_daemons_get_each_event_once_while_the_leader_is_killed(self) -> None:
        count = 60
        daemons = {name: start_daemon(name, self.cluster.urls, self.run_id, str(count)) for name in ("a", "b")}
        lines: dict[str, list[str]] = {name: [] for name in daemons}
        for name, process in daemons.items():
            self.addCleanup(process.__exit__, None, None, None)
            self.addCleanup(process.kill)
            threading.Thread(target=collect, args=(process.stdout, lines[name]), daemon=True).start()
        for name in daemons:
            eventually(f"{name} is ready", lambda n=name: "ready" in lines[n])
        for process in daemons.values():
            process.stdin.write("\n")
            process.stdin.flush()
        eventually("some is published", lambda: len(lines["a"]) > 20)
        leader = self.cluster.leader()
        leader.kill()
        for name in daemons:
            eventually(f"{name} has published", lambda n=name: "published" in lines[n])
        self.cluster.start(leader)
        expected = sorted([f"{by} {i}" for by in daemons for i in range(count)])
        for name in daemons:
            eventually(f"{name} has handled all", lambda n=name: len(lines[n]) >= 2 * count + 2)
        eventually("all is committed", lambda: all(
            self.log.get_cursor(f"{name}-{self.run_id}.on_game.new_games_available")["lag_events"] == 0
            for name in daemons))  # fmt: skip
        for name in daemons:
            handled = sorted(line for line in lines[name] if " " in line)
            self.assertEqual(handled, expected, name)
        self.assertEqual(len(self.events("NEW_GAMES_AVAILABLE")), 2 * count)


def start_daemon(name: str, urls: str, *args: str) -> subprocess.Popen[str]:
    env = {**os.environ, "PYTHONPATH": str(PACKAGE), "RINGLOG_ENDPOINTS": urls}
    return subprocess.Popen(
        [sys.executable, "-c", DAEMON, name, *args], env=env, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def collect(stream: Any, to: list[str]) -> None:
    with contextlib.suppress(ValueError):
        for line in stream:
            to.append(line.strip())
