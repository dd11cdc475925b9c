"""One suite for both clients, each on a memory log, on one node and on a cluster of three: they differ in nothing."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import json
import os
import re
import tempfile
import threading
import time
import unittest
import uuid
from collections.abc import AsyncIterator, Callable
from collections.abc import Awaitable as Awaitable_
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest import mock

from ringlog import AsyncClient, Client, EventType, caused_by
from ringlog._core.io import drive
from ringlog.errors import (
    AllocationLost,
    Closed,
    Conflict,
    Fenced,
    InvalidArgument,
    NoReply,
    NotFound,
    NotGranted,
    PastTail,
    RinglogError,
    RoleHeld,
    RoleLost,
    TooLarge,
    Trimmed,
    Unavailable,
)
from ringlog.event import Event, Gap, parse_time
from ringlog.payloads import ModelPromoted, TrainingCompleted
from ringlog.testing import MemoryLog, kill
from tests.cluster import ROOT, shared

LEASES = ("acquire_role", "allocate")


class Awaitable:
    """A blocking object with awaitable methods, so that a test can be written once."""

    def __init__(self, blocking: Any) -> None:
        self._blocking = blocking

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._blocking, name)
        if not callable(value) or name in ("check", "on_lost"):
            return value
        if name in ("tail", "cursor", "group", "view", "watch"):
            return lambda *args, **options: Awaitable(value(*args, **options))

        async def call(*args: Any, **options: Any) -> Any:
            # In a thread, since others make it end where a role or an allocation is waited for.
            result = await asyncio.to_thread(value, *args, **options) if name in LEASES else value(*args, **options)
            wrap = {"publish_soon": Awaited, **dict.fromkeys(LEASES, Awaitable)}.get(name)
            return result if wrap is None else wrap(result)

        return call

    async def __aenter__(self) -> Awaitable:
        self._blocking.__enter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        self._blocking.__exit__(*error)

    async def __aiter__(self) -> AsyncIterator[Any]:
        for item in self._blocking:
            yield item


class Awaited:
    """A future of concurrent.futures that can be awaited."""

    def __init__(self, future: Any) -> None:
        self._future = future

    def __await__(self) -> Any:
        yield from ()
        return self._future.result(30)


class Contract:
    """The suite. log is the client, run a text that no other test uses."""

    urls: str
    patience = 60.0  # seconds for what comes with time
    log: Any
    run_id: str

    def place(self) -> None:
        """Set urls."""
        raise NotImplementedError

    async def elapse(self, seconds: float) -> None:
        """Let time pass."""
        raise NotImplementedError

    def now(self) -> float:
        """Return seconds of the time by which delays are measured."""
        raise NotImplementedError

    async def send(self, *args: Any, **options: Any) -> Any:
        """Send a request as Calls.open does, such as one with headers."""
        raise NotImplementedError

    async def eventually(self, check: Callable[[], Any]) -> Any:
        """Return what check returns once that is true, which in memory it is soon."""
        until = time.monotonic() + self.patience
        while not (found := await check()):
            self.assertLess(time.monotonic(), until, "the condition does not come true")
            await asyncio.sleep(0.02)
        return found

    async def next_of(self, *members: Any) -> Any:
        """Return the next delivery of any of the members, None if none has one now."""
        for member in members:
            if (delivery := await member.next(timeout=0.02)) is not None:
                return delivery
        return None

    async def setting(self, key: str, value: str) -> None:
        """Change a setting for this test."""
        await self.log.set_setting(key, value)
        self.addAsyncCleanup(self.log.set_setting, key, "")

    async def refused(self, kind: type[RinglogError], code: str, field: str, call: Awaitable_[Any]) -> RinglogError:
        """Check what a call is refused with, and return it."""
        with self.assertRaises(kind) as refused:
            await call
        error = refused.exception
        self.assertEqual((type(error), error.code, error.field), (kind, code, field))
        self.assertTrue(error.remedy)
        return error

    async def asyncSetUp(self) -> None:
        self.run_id = uuid.uuid4().hex
        self.place()
        self.log = self.client()
        self.addAsyncCleanup(self.log.close)

    def client(self, **options: Any) -> Any:
        """Return another client."""
        raise NotImplementedError

    def event(self, i: int = 0) -> dict[str, Any]:
        return {"run": self.run_id, "i": i}

    async def test_the_history_of_a_cluster_without_an_outage(self) -> None:
        await self.log.publish("TRAINING_COMPLETED", self.event())
        history, cluster = await self.log.history(), await self.log.cluster()
        self.assertEqual({"history", "first_offset", "leader_id", "term", "outage"}, set(history))
        self.assertFalse(history["outage"])
        self.assertEqual((history["leader_id"], history["term"]), (cluster["leader_id"], cluster["term"]))
        self.assertEqual(history["first_offset"], cluster["first_offset"])
        path = "/v1/cluster/history"
        newest = await self.log.request("GET", path, None, {"from": "end", "limit": "1"})
        self.assertEqual(newest["history"], [])
        for field, value in (("limit", "10001"), ("limit", "x"), ("from", "soon"), ("since", "1")):
            code = "invalid_argument"
            await self.refused(InvalidArgument, code, field, self.log.request("GET", path, None, {field: value}))

    async def read(self, **options: Any) -> list[Event]:
        options.setdefault("from_", "start")
        options.setdefault("keys", [self.run_id])
        return [event async for event in self.log.tail(until_end=True, **options)]

    async def publish(self, n: int, type: str = "DATA_SYNC_COMPLETED") -> list[int]:
        events = [{"type": type, "payload": self.event(i), "key": self.run_id} for i in range(n)]
        return [result.offset for result in await self.log.publish_many(events)]

    # Publishing.

    async def test_an_event_comes_back_as_it_was_published(self) -> None:
        at = datetime(2026, 1, 5, 10, 0, 0, 250000, timezone.utc)
        payload = {"config_key": "hex8_2p", "ü": ["\u2028", 1.5, None, True, {"deep": [1]}], "run": self.run_id}
        result = await self.log.publish(
            "TRAINING_COMPLETED", payload, key="k", source="s", correlation_id="run", causation_id="why",
            dedup_id=self.run_id, time=at,
        )  # fmt: skip
        event = await self.log.get(result.offset)
        self.assertEqual(event.payload, payload)
        self.assertEqual(
            (event.type, event.value, event.key, event.source, event.correlation_id, event.causation_id),
            ("TRAINING_COMPLETED", "training_completed", "k", "s", "run", "why"),
        )
        self.assertEqual((event.dedup_id, event.time, event.hash), (self.run_id, at, result.hash))
        self.assertLess(abs(event.appended_at - datetime.now(timezone.utc)), timedelta(minutes=1))

    async def test_the_same_content_is_a_duplicate_unless_dedup_is_off(self) -> None:
        first = await self.log.publish("DATA_SYNC_COMPLETED", self.event())
        again = await self.log.publish("DATA_SYNC_COMPLETED", self.event())
        third = await self.log.publish("DATA_SYNC_COMPLETED", self.event(), dedup=False)
        self.assertEqual((first.duplicate, again.duplicate, again.offset), (False, True, first.offset))
        self.assertEqual((third.duplicate, third.offset > first.offset), (False, True))

    async def test_the_hash_is_that_of_the_canonical_content(self) -> None:
        for value in (
            {"b": 1, "a": {"d": [], "c": {}}},
            [1.0, 2.50, 1e22, 1e-7, -0.0, 10**30],
            'ü\u2028"\\\x7f\b',
            None,
        ):
            payload = {"value": value, "run": self.run_id}
            canonical = "sync_completed:" + json.dumps(payload, sort_keys=True)
            result = await self.log.publish("DATA_SYNC_COMPLETED", payload, source="no part of it")
            self.assertEqual(result.hash, hashlib.sha256(canonical.encode()).hexdigest())
            self.assertEqual((await self.log.get(result.offset)).payload, payload)

    async def test_the_dedup_window_passes(self) -> None:
        by_id = await self.log.publish("DATA_SYNC_COMPLETED", self.event(1), dedup_id=self.run_id)
        first = await self.log.publish("DATA_SYNC_COMPLETED", self.event())
        again = await self.log.publish("DATA_SYNC_COMPLETED", self.event(), source="again")
        self.assertEqual((again.offset, again.appended_at), (first.offset, first.appended_at))
        found = await self.log.explain_dedup(first.offset)
        self.assertEqual((found["suppressed"], found["sources"]), (1, [{"source": "again", "count": 1}]))
        conflict = await self.refused(
            Conflict, "conflict", "dedup_id", self.log.publish("DATA_SYNC_COMPLETED", {}, dedup_id=self.run_id)
        )
        self.assertEqual(conflict.offset, by_id.offset)
        await self.setting("dedup.window", "1s")
        await self.elapse(1.0)

        async def is_new() -> bool:
            return not (await self.log.publish("DATA_SYNC_COMPLETED", self.event())).duplicate

        await self.eventually(is_new)
        self.assertFalse((await self.log.publish("DATA_SYNC_COMPLETED", {}, dedup_id=self.run_id)).duplicate)

    async def test_a_batch_is_deduplicated_within_itself(self) -> None:
        event = {"type": "DATA_SYNC_COMPLETED", "payload": self.event()}
        one, two, three = await self.log.publish_many([event, event, {**event, "dedup": False}])
        self.assertEqual((one.duplicate, two.duplicate, three.duplicate), (False, True, False))
        self.assertEqual((two.offset, three.offset), (one.offset, one.offset + 1))
        named = [{**event, "dedup_id": self.run_id, "payload": self.event(i), "key": self.run_id} for i in (1, 2)]
        refused = await self.refused(Conflict, "conflict", "events[1].dedup_id", self.log.publish_many(named))
        self.assertEqual(refused.offset, three.offset + 1)
        self.assertEqual(await self.read(), [])  # none of the batch was appended
        self.assertFalse((await self.log.publish_many(named[:1]))[0].duplicate)

    async def test_a_request_of_a_producer_is_carried_out_once(self) -> None:
        async def send(number: int, i: int) -> Any:
            body = json.dumps({"type": "DATA_SYNC_COMPLETED", "payload": self.event(i), "dedup": False}).encode()
            headers = {"Ringlog-Producer": self.run_id, "Ringlog-Sequence": str(number)}
            return json.loads((await self.send("POST", "/v1/events", body, headers=headers))[1])

        first = await send(1, 0)
        self.assertEqual(await send(1, 0), {**first, "replayed": True})
        self.assertEqual((await send(2, 0))["results"][0]["offset"], first["results"][0]["offset"] + 1)
        await self.refused(Conflict, "conflict", "sequence", send(2, 1))
        expected = await self.refused(Conflict, "out_of_sequence", "sequence", send(4, 1))
        self.assertEqual(expected.offset, 3)

    async def test_what_no_node_takes(self) -> None:
        log, long = self.log, "x" * 300
        for kind, code, field, call in (
            (InvalidArgument, "reserved", "type", log.publish("LEADER_ELECTED", {})),
            (InvalidArgument, "reserved", "type", log.publish("quorum.lost", {})),
            (InvalidArgument, "invalid_argument", "type", log.publish("A TYPE", {})),
            (TooLarge, "too_large", "type", log.publish(long, {})),
            (TooLarge, "too_large", "key", log.publish("TRAINING_STARTED", {}, key=long)),
            (InvalidArgument, "invalid_argument", "source", log.publish("TRAINING_STARTED", {}, source="a\nb")),
            (InvalidArgument, "invalid_argument", "payload", log.publish("TRAINING_STARTED", [1])),
            (InvalidArgument, "invalid_argument", "time", log.publish("TRAINING_STARTED", {}, time="yesterday")),
            (InvalidArgument, "invalid_json", "events[0].typo", log.publish_many([{"type": "A", "typo": 1}])),
            (InvalidArgument, "invalid_json", "payload.1", log.publish("TRAINING_STARTED", {1: 1, "1": 2})),
            (TooLarge, "too_large", "body", log.publish("TRAINING_STARTED", {"blob": "x" * 5_000_000})),
            (NotFound, "not_found", "cursor", log.get_cursor("none")),
            (NotFound, "not_found", "cursor", log.seek_cursor("none", "end")),
            (NotFound, "not_found", "cursor", log.explain("none", 1)),
            (NotFound, "not_found", "cursor", log.wait(1, ["none"])),
            (NotFound, "not_found", "group", log.group_members("none")),
            (NotFound, "not_found", "group", log.delete_group("none")),
            (NotFound, "not_found", "id", log.dead_letter(10**9)),
            (NotFound, "not_found", "ids", log.redrive(10**9)),
            (InvalidArgument, "invalid_argument", "ids", log.purge()),
            (InvalidArgument, "invalid_argument", "ids", log.redrive(1, cursor="c")),
            (TooLarge, "too_large", "cursor", log.create_cursor(long)),
            (InvalidArgument, "invalid_argument", "cursor", log.create_cursor("a\nb")),
            (InvalidArgument, "invalid_argument", "from", log.create_cursor(self.run_id, from_="soon")),
            (PastTail, "past_tail", "from", log.create_cursor(self.run_id, from_=10**12)),
            (InvalidArgument, "invalid_argument", "types[0]", log.create_cursor(self.run_id, types=["a b"])),
            (InvalidArgument, "invalid_argument", "ack_wait", log.create_group(self.run_id, ack_wait=0.01)),
            (InvalidArgument, "invalid_argument", "categories[0]", self.read(categories=["none"])),
            (InvalidArgument, "invalid_argument", "value", log.set_setting("dedup.window", "soon")),
            (InvalidArgument, "invalid_argument", "value", log.set_setting("dedup.window", "1ms")),
        ):
            with self.subTest(field=field, code=code):
                await self.refused(kind, code, field, call)
        self.assertNotIn(self.run_id, [cursor["name"] for cursor in await log.cursors()])

    async def test_strict_validation(self) -> None:
        self.assertEqual(
            [w["reason"] for w in (await self.log.publish("MY_TYPE", self.event())).warnings], ["unknown_type"]
        )
        await self.setting("validation.strict", "true")
        await self.refused(InvalidArgument, "unknown_type", "type", self.log.publish("MY_TYPE", self.event(1)))

    async def test_a_type_is_stored_by_its_name(self) -> None:
        for spelt, name in (
            ("training.completed", "TRAINING_COMPLETED"),
            ("sync_completed", "DATA_SYNC_COMPLETED"),
            ("TRAINING_COMPLETE", "TRAINING_COMPLETED"),
            ("my-own.type", "MY_OWN_TYPE"),
        ):
            event = await self.log.get((await self.log.publish(spelt, self.event(), dedup=False)).offset)
            self.assertEqual(event.type, name)
        result = await self.log.publish("PROMOTION_COMPLETE", self.event())
        self.assertIn("renamed_type", [warning["reason"] for warning in result.warnings])
        self.assertEqual((await self.log.get(result.offset)).type, "MODEL_PROMOTED")

    async def test_a_payload_that_differs_from_the_catalogue_is_warned_about(self) -> None:
        payload = {"config_key": 1, "unlisted": True, "epochs_completed": "x", "correlation_id": self.run_id}
        payload["many"] = 10**400
        result = await self.log.publish("TRAINING_COMPLETED", payload)
        fields = [warning["field"] for warning in result.warnings]
        self.assertEqual(fields[-1], "payload")
        self.assertEqual({warning["reason"] for warning in result.warnings}, {"payload_field"})
        self.assertEqual((await self.log.get(result.offset)).correlation_id, self.run_id)

    async def test_typed_payloads(self) -> None:
        sent = TrainingCompleted(config_key="hex8_2p", epochs_completed=3, extra={"run": self.run_id})
        result = await self.log.publish(sent, key=self.run_id)
        event = await self.log.get(result.offset)
        self.assertEqual(event.type, EventType.TRAINING_COMPLETED)
        self.assertEqual(event.payload, {"config_key": "hex8_2p", "epochs_completed": 3, "run": self.run_id})
        self.assertEqual(event.decode(TrainingCompleted), sent)
        with self.assertRaises(InvalidArgument):
            event.decode(ModelPromoted)

    async def test_of_a_batch_all_or_none_is_appended(self) -> None:
        events = [{"type": "DATA_SYNC_COMPLETED", "payload": self.event(i), "key": self.run_id} for i in range(3)]
        with self.assertRaises(InvalidArgument) as refused:
            await self.log.publish_many([*events, {"type": "LEADER_ELECTED", "payload": {}}])
        self.assertEqual((refused.exception.code, refused.exception.field), ("reserved", "events[3].type"))
        self.assertTrue(refused.exception.remedy)
        self.assertFalse(refused.exception.retryable)
        self.assertEqual(await self.read(), [])
        results = await self.log.publish_many(events)
        self.assertEqual([event.offset for event in await self.read()], [result.offset for result in results])
        self.assertEqual(await self.log.publish_many([]), [])

    async def test_what_is_published_in_a_block_inherits_from_its_cause(self) -> None:
        cause = await self.log.get(
            (await self.log.publish("TRAINING_COMPLETED", self.event(), correlation_id="r")).offset
        )
        given = {"correlation_id": "mine", "causation_id": "other"}
        with caused_by(cause):
            offsets = [
                (await self.log.publish("DATA_SYNC_COMPLETED", self.event(1))).offset,
                (await self.log.publish_many([{"type": "DATA_SYNC_COMPLETED", "payload": self.event(2)}]))[0].offset,
                (await self.log.publish("DATA_SYNC_COMPLETED", self.event(3), **given)).offset,
                (await self.log.publish("DATA_SYNC_COMPLETED", {**self.event(4), "correlation_id": "payload"})).offset,
            ]
        offsets.append((await self.log.publish("DATA_SYNC_COMPLETED", self.event(5))).offset)
        events = [await self.log.get(offset) for offset in offsets]
        ours = str(cause.offset)
        self.assertEqual(
            [(event.correlation_id, event.causation_id) for event in events],
            [("r", ours), ("r", ours), ("mine", "other"), ("payload", ours), ("", "")],
        )

    async def test_an_event_keeps_the_trace_it_was_first_published_in(self) -> None:
        def traced(span: int) -> str:
            return f"00-4bf92f3577b34da6a3ce929d0e0e4736-{span:016x}-01"

        first = await self.log.publish("DATA_SYNC_COMPLETED", self.event(), traceparent=traced(1))
        again = await self.log.publish("DATA_SYNC_COMPLETED", self.event(), traceparent=traced(2))
        self.assertTrue(again.duplicate)
        cause = await self.log.get(first.offset)
        self.assertEqual(cause.traceparent, traced(1))
        with caused_by(cause):
            offsets = [
                (await self.log.publish("DATA_SYNC_COMPLETED", self.event(1))).offset,
                (await self.log.publish_many([{"type": "DATA_SYNC_COMPLETED", "payload": self.event(2)}]))[0].offset,
                (await self.log.publish("DATA_SYNC_COMPLETED", self.event(3), traceparent=traced(3))).offset,
            ]
        offsets.append((await self.log.publish("DATA_SYNC_COMPLETED", self.event(4))).offset)
        events = [await self.log.get(offset) for offset in offsets]
        self.assertEqual([event.traceparent for event in events], [traced(1), traced(1), traced(3), ""])
        for bad in ("x", traced(0), traced(1).upper(), "01" + traced(1)[2:]):
            with self.assertRaises(InvalidArgument) as refused:
                await self.log.publish("DATA_SYNC_COMPLETED", self.event(5), traceparent=bad)
            self.assertEqual(refused.exception.field, "traceparent")
            self.assertTrue(refused.exception.remedy)

    async def test_events_in_the_background_keep_their_order(self) -> None:
        futures = [
            await self.log.publish_soon("DATA_SYNC_COMPLETED", self.event(i), key=self.run_id) for i in range(3000)
        ]
        self.assertTrue(await self.log.flush(30))
        offsets = [(await future).offset for future in futures]
        self.assertEqual(offsets, sorted(set(offsets)))
        self.assertEqual([event.payload["i"] for event in await self.read()], list(range(3000)))

    async def test_an_event_that_is_refused_takes_no_other_with_it(self) -> None:
        futures = []
        for i in range(300):
            name = "LEADER_ELECTED" if i % 100 == 50 else "DATA_SYNC_COMPLETED"
            futures.append(await self.log.publish_soon(name, self.event(i), key=self.run_id))
        with self.assertRaises(InvalidArgument):
            await self.log.flush(30)
        self.assertTrue(await self.log.flush(30))  # the failure is reported once
        refused = []
        for i, future in enumerate(futures):
            try:
                await future
            except InvalidArgument as e:
                self.assertEqual((e.code, e.field), ("reserved", "type"))
                refused.append(i)
        self.assertEqual(refused, [50, 150, 250])
        self.assertEqual(len(await self.read()), 297)

    async def test_values_without_json_are_refused_with_their_place(self) -> None:
        circular: dict[str, Any] = {"list": []}
        circular["list"].append(circular)
        for payload, field in (
            ({"losses": [1.0, float("nan")]}, "payload.losses[1]"),
            ({"a": {"b": float("-inf")}}, "payload.a.b"),
            ({"model": b"\x00"}, "payload.model"),
            (circular, "payload.list[0]"),
            ({"when": timedelta(1)}, "payload.when"),
            ({"set": {1}}, "payload.set"),
            ({"half": "\ud800"}, "payload.half"),
            ({("a", 1): 1}, "payload"),
        ):
            with self.subTest(field=field):
                with self.assertRaises(InvalidArgument) as refused:
                    await self.log.publish("DATA_SYNC_COMPLETED", payload)
                self.assertEqual(refused.exception.field, field)
                self.assertIn(f"invalid_argument: {field}: ", str(refused.exception))
                self.assertTrue(refused.exception.remedy)
                with self.assertRaises(InvalidArgument):
                    await self.log.publish_soon("DATA_SYNC_COMPLETED", payload)
        self.assertTrue(await self.log.flush(30))

    async def test_a_value_that_is_nested_too_deeply_is_refused(self) -> None:
        # By the interpreter or by the node, whichever has the lower limit.
        deep: list[Any] = []
        for _ in range(5000):
            deep = [deep]
        with self.assertRaises(InvalidArgument) as refused:
            await self.log.publish("DATA_SYNC_COMPLETED", {"deep": deep})
        self.assertTrue(refused.exception.field.startswith("payload.deep[0]"))

    async def test_a_payload_of_two_megabytes_is_refused(self) -> None:
        with self.assertRaises(TooLarge) as refused:
            await self.log.publish("DATA_SYNC_COMPLETED", {"blob": "x" * 2_000_000})
        self.assertIn("1048576", str(refused.exception))
        future = await self.log.publish_soon("DATA_SYNC_COMPLETED", {"blob": "x" * 2_000_000})
        with self.assertRaises(TooLarge):
            await self.log.flush(30)
        with self.assertRaises(TooLarge):
            await future
        self.assertGreater((await self.log.publish("DATA_SYNC_COMPLETED", self.event())).offset, 0)

    async def test_a_misspelled_field_is_a_type_error(self) -> None:
        with self.assertRaises(TypeError):
            await self.log.publish("DATA_SYNC_COMPLETED", {}, corelation_id="x")

    async def test_errors_name_what_is_wrong_and_where_and_what_to_do(self) -> None:
        log, a, now = self.log, "DATA_SYNC_COMPLETED", datetime.now()
        elsewhere = self.client(url=self.urls.split(",")[0] + "/v1")
        self.addAsyncCleanup(elsewhere.close)
        calls: list[tuple[Callable[[], Any], type[Exception], str, str, str]] = [
            (lambda: log.publish(None, {}), InvalidArgument, "type", "None", "payload of ringlog.payloads"),
            (lambda: log.publish_soon(None, {}), InvalidArgument, "type", "None", "payload of ringlog.payloads"),
            (lambda: log.publish_many([{"type": a}, (a, {})]), InvalidArgument, "events[1]", a, "give dicts"),
            (lambda: log.publish_many([{"type": a, "key": 7}]), InvalidArgument, "events[0].key", "7", "key=str("),
            (lambda: log.request("POST", "/v1/dlq/purge", {"ids": {1}}), InvalidArgument, "ids", "set", "lists"),
            (lambda: log.publish(a, {}, key=7), InvalidArgument, "key", "7 is not a string", "key=str("),
            (lambda: log.publish(a, {}, dedup="no"), InvalidArgument, "dedup", "'no'", "True or False"),
            (lambda: log.publish(a, {}, time=7), InvalidArgument, "time", "7 is not a time", "fromtimestamp"),
            (lambda: log.publish(a, {}, time=now), InvalidArgument, "time", "no time zone", "timezone.utc"),
            (lambda: log.publish(a, {"x": [now]}), InvalidArgument, "payload.x[0]", "no time zone", "timezone.utc"),
            (lambda: log.publish(a, {}, keys="k"), TypeError, "", "'keys'", "did you mean key?"),
            (lambda: log.publish(a, {}, host="k"), TypeError, "", "'host'", "put it into the payload, or use"),
            (lambda: log.tail(types=[7]), InvalidArgument, "types", "7 is not a string", "a list of strings"),
            (lambda: log.tail(keys=7), InvalidArgument, "keys", "7 is not a string", "a list of strings"),
            (lambda: log.tail(where=7), InvalidArgument, "where", "7 is not a string", "payload.loss > 3"),
            (lambda: log.tail(limit="5"), InvalidArgument, "limit", "'5' is not a whole", "limit=5"),
            (lambda: log.cursor(""), InvalidArgument, "cursor", "'' is not a name", "name the cursor"),
            (lambda: log.group(None), InvalidArgument, "group", "None is not a name", "name the group"),
            (lambda: log.group("g", ack_wait="10s"), InvalidArgument, "ack_wait", "'10s'", "give ack_wait=10,"),
            (lambda: log.group("g", ack_wait=0), InvalidArgument, "ack_wait", "0 is not", "leave it out"),
            (lambda: log.group("g", max_deliver=0), InvalidArgument, "max_deliver", "0 is not", "leave it out"),
            (lambda: log.group("g", prefetch=0), InvalidArgument, "prefetch", "0 is not a whole", "prefetch=64"),
            (lambda: log.create_group("g", ack_wait=True), InvalidArgument, "ack_wait", "True", "ack_wait=30"),
            (lambda: log.delete_cursor(self.run_id), NotFound, "cursor", self.run_id, "nothing was removed"),
            (lambda: log.delete_group(self.run_id), NotFound, "group", self.run_id, "nothing was removed"),
            (lambda: self.client(timeout="3"), InvalidArgument, "timeout", "'3' is not a number", "timeout=3"),
            (lambda: self.client(attempt_timeout=0), InvalidArgument, "attempt_timeout", "0 is not", "attempt"),
            (lambda: self.client(spool_bytes=1), InvalidArgument, "spool_bytes", "1 is not", "268435456"),
            (lambda: self.client(url="http:/host:1"), InvalidArgument, "endpoints", "http:/host:1", "URLs of nodes"),
            (
                lambda: elsewhere.status(),
                NotFound,
                "endpoints",
                "/v1/status",
                "leave /v1 out of the endpoint",
            ),
        ]
        for call, kind, field, what, remedy in calls:
            with self.subTest(field=field, what=what), self.assertRaises(kind) as refused:
                made = call()
                await made
            error = refused.exception
            if isinstance(error, RinglogError):
                self.assertEqual(error.field, field)
                self.assertIn(what, error.message)
                self.assertIn(remedy, error.remedy)
            else:
                self.assertIn(what, str(error))
                self.assertIn(remedy, str(error))

    async def test_a_name_that_no_cursor_can_have_is_refused_before_a_request(self) -> None:
        nowhere = self.client(url="http://127.0.0.1:1", timeout=0.1)
        self.addAsyncCleanup(nowhere.close)
        for name, what in (
            ("", "'' is not a name"),
            (7, "7 is not a name"),
            ("a\nb", "has a control character"),
            ("a\x85b", "has a control character"),
            ("a\ud800b", "is not UTF-8"),
        ):
            for of, calls in (
                (
                    "cursor",
                    (
                        nowhere.cursor,
                        nowhere.create_cursor,
                        nowhere.get_cursor,
                        lambda name: nowhere.seek_cursor(name, "start"),
                        nowhere.delete_cursor,
                        lambda name: nowhere.explain(name, 1),
                        lambda name: nowhere.wait(1, [name]),
                    ),
                ),
                ("group", (nowhere.group, nowhere.create_group, nowhere.group_members, nowhere.delete_group)),
            ):
                for call in calls:
                    with self.subTest(name=name, of=of), self.assertRaises(InvalidArgument) as refused:
                        made = call(name)
                        await made
                    self.assertEqual(refused.exception.field, of)
                    self.assertIn(what, refused.exception.message)

    async def test_a_warning_about_an_event_names_what_the_catalogue_has(self) -> None:
        warnings: list[dict[str, Any]] = []
        async with self.client(on_warning=warnings.append) as log:
            await log.publish_many(
                [{"type": "TRAINING_STARTED"}, {"type": "training.complted", "payload": self.event()}]
            )
            await log.publish("TRAINING_PROGRESS", {"epohc": 1, "run": self.run_id})
        texts = [warning["message"] for warning in warnings]
        self.assertIn("TRAINING_COMPLTED is not in the catalogue; nearest known types: TRAINING_COMPLETED", texts[0])
        self.assertRegex(texts[1], "fields of TRAINING_PROGRESS: epohc, run; it has .*epoch")

    async def test_what_matches_nothing_is_warned_about_once(self) -> None:
        warnings: list[dict[str, Any]] = []
        async with self.client(on_warning=warnings.append) as log:
            for i in range(2):
                self.assertTrue((await log.publish("TRAINNING_COMPLETED", self.event(i))).warnings)
                async with log.tail("start", types=["TRAINNING_STARTED"]):
                    pass
                async with log.cursor(f"{self.run_id}-cursor", types=["trainning.*"]):
                    pass
                async with log.group(f"{self.run_id}-group", types=["TRAINNING_FAILED"]):
                    pass
        types = [warning for warning in warnings if warning["reason"] == "unknown_type"]
        self.assertEqual(len(types), len(warnings))
        for warning, named in zip(types, ("_COMPLETED", "_STARTED", ".*", "_FAILED"), strict=True):
            self.assertIn(named, warning["message"])
        async with self.client() as log:
            with self.assertLogs("ringlog", "WARNING") as logged:
                await log.publish_soon("TRAINNING_COMPLETED", self.event(), dedup=False)
                await log.flush()
            self.assertIn("TRAINNING_COMPLETED is not in the catalogue", logged.output[0])

    # Reading.

    async def test_a_tail_filters_and_ends(self) -> None:
        await self.publish(5)
        await self.publish(2, "TRAINING_STARTED")
        self.assertEqual(len(await self.read()), 7)
        self.assertEqual(len(await self.read(types=["data.sync.*"])), 5)
        self.assertEqual(len(await self.read(types="TRAINING_STARTED")), 2)
        self.assertEqual(len(await self.read(limit=3)), 3)
        self.assertEqual(len(await self.read(from_=timedelta(minutes=5))), 7)
        self.assertEqual(len(await self.read(from_=datetime.now(timezone.utc) + timedelta(hours=1))), 0)
        with self.assertRaises(InvalidArgument):
            await self.read(from_="yesterday")
        with self.assertRaises(InvalidArgument):
            await self.read(from_=datetime(2026, 1, 1))

    async def test_where_a_tail_begins(self) -> None:
        offsets = await self.publish(3)
        at = (await self.log.get(offsets[0])).appended_at
        for position, n in (
            (offsets[1], 2), (str(offsets[2]), 1), (-1, 1), (-2, 2), (-(10**9), 3), ("end", 0), (at, 3),
            (f"@{at.timestamp() - 0.01:.3f}", 3), ("1h", 3), (timedelta(0), 0), ("2020-01-01", 3),
            ("@2999-01-01T00:00:00Z", 0), (timedelta(hours=1), 3),
        ):  # fmt: skip
            if position == timedelta(0):
                await self.elapse(1.0)
                await asyncio.sleep(0.01)
            with self.subTest(position=position):
                self.assertEqual(len(await self.read(from_=position)), n)
        for position in (0, "-0", "soon", "@soon"):
            with self.subTest(position=position):
                await self.refused(InvalidArgument, "invalid_argument", "from", self.read(from_=position))
        await self.refused(PastTail, "past_tail", "from", self.read(from_=offsets[-1] + 1000))

    async def test_filters(self) -> None:
        await self.log.publish_many([
            {"type": "DATA_SYNC_COMPLETED", "key": self.run_id, "source": "s", "payload": self.event(1)},
            {"type": "TRAINING_STARTED", "key": self.run_id, "correlation_id": "r", "payload": self.event(2)},
            {"type": "MY_OWN", "key": self.run_id, "payload": self.event(3)},
        ])  # fmt: skip
        for chosen, found in (
            ({"types": "sync_*"}, [1]), ({"types": ["TRAINING_START?D", "my.own"]}, [2, 3]),
            ({"categories": "Training"}, [2]), ({"sources": "s"}, [1]), ({"correlation_ids": ["r", "q"]}, [2]),
            ({"types": "MY_*", "sources": "s"}, []), ({"types": "*"}, [1, 2, 3]), ({"keys": ["other"]}, []),
        ):  # fmt: skip
            with self.subTest(chosen=chosen):
                self.assertEqual([event.payload["i"] for event in await self.read(**chosen)], found)

    async def test_a_tail_from_the_end_has_what_is_published_after_its_beginning(self) -> None:
        await self.publish(2)
        async with self.log.tail(keys=[self.run_id], limit=3) as tail:
            await self.publish(3, "TRAINING_STARTED")
            self.assertEqual([event.type async for event in tail], ["TRAINING_STARTED"] * 3)

    async def test_a_tail_from_past_the_end_waits_for_its_offset(self) -> None:
        begins = (await self.publish(1))[-1] + 3
        async with self.log.tail(begins, keys=[self.run_id], limit=1) as tail:
            offsets = await self.publish(3, "TRAINING_STARTED")
            found = [event.offset async for event in tail]
        self.assertEqual(found, [offset for offset in offsets if offset >= begins][:1])

    async def test_what_was_trimmed_is_reported_as_a_gap(self) -> None:
        # A block is trimmed as a whole, and never the newest.
        offsets = await self.publish(3)
        last = (await self.publish(2, "TRAINING_STARTED"))[-1]
        await self.log.request("POST", "/v1/compact", {"before": offsets[-1] + 1, "force": True})
        gaps: list[Gap] = []
        events = await self.read(from_=offsets[0], on_gap=gaps.append)
        self.assertEqual([event.type for event in events], ["TRAINING_STARTED"] * 2)
        self.assertEqual([(gap.first, gap.last) for gap in gaps], [(offsets[0], offsets[-1])])
        with self.assertRaises(Trimmed):
            await self.log.get(offsets[0])
        with self.assertRaises(PastTail):
            await self.log.get(last + 1000)

    async def test_a_cursor_resumes_after_its_commit(self) -> None:
        offsets = await self.publish(4)
        async with self.log.cursor(self.run_id, keys=[self.run_id], until_end=True) as cursor:
            handled = 0
            async for event in cursor:
                self.assertEqual(event.offset, offsets[handled])
                handled += 1
                if handled == 2:
                    await cursor.commit()
                    break
        async with self.log.cursor(self.run_id, until_end=True) as cursor:
            self.assertEqual([event.offset async for event in cursor], offsets[2:])
            await cursor.commit(offsets[3])
            self.assertEqual(cursor.committed, offsets[3])
        self.assertEqual((await self.log.get_cursor(self.run_id))["committed"], offsets[3])
        self.assertIn(self.run_id, [cursor["name"] for cursor in await self.log.cursors()])
        self.assertTrue(await self.log.wait(offsets[3], [self.run_id], timeout=5))
        self.assertEqual((await self.log.explain(self.run_id, offsets[0]))["fate"], "committed")
        await self.log.seek_cursor(self.run_id, offsets[1])
        self.assertFalse(await self.log.wait(offsets[3], self.run_id, timeout=0.1))
        await self.log.delete_cursor(self.run_id)
        with self.assertRaises(NotFound):
            await self.log.get_cursor(self.run_id)

    async def test_the_fates_of_an_event(self) -> None:
        offsets = await self.publish(4)
        other = (await self.publish(1, "TRAINING_STARTED"))[0]
        fates = []

        async def note(offset: int) -> None:
            fates.append((await self.log.explain(self.run_id, offset))["fate"])

        await self.log.create_cursor(self.run_id, types=["DATA_SYNC_COMPLETED"], from_=offsets[1])
        await note(offsets[1])
        async with self.log.cursor(self.run_id) as cursor:
            await note(offsets[0])
            await cursor.commit(offsets[1])
            await note(offsets[1])
            await cursor.dead_letter("no", event=offsets[2])
            await note(offsets[2])
            await note(other)
            await self.log.redrive(cursor=self.run_id)
            await note(offsets[2])
            await note(offsets[3])
            await self.refused(PastTail, "past_tail", "offset", cursor.commit(other + 1000))
        await self.log.seek_cursor(self.run_id, "end")
        await note(offsets[3])
        expected = "pending before-cursor committed dead filtered redriven pending skipped"
        self.assertEqual(fates, expected.split())
        self.assertEqual((await self.log.get_cursor(self.run_id))["lag_events"], 0)
        self.assertEqual((await self.log.purge(cursor=self.run_id))["done"], 1)  # the seek has passed its copy
        await self.log.delete_cursor(self.run_id)

    async def test_a_cursor_gets_a_gap_for_what_was_trimmed(self) -> None:
        offsets = await self.publish(3)
        await self.log.create_cursor(self.run_id, from_=offsets[0])
        last = (await self.publish(1, "TRAINING_STARTED"))[0]
        kept = await self.log.request("POST", "/v1/compact", {"before": last})
        self.assertLessEqual(kept["first"], offsets[0])  # a cursor holds them
        await self.log.request("POST", "/v1/compact", {"before": last, "force": True})
        gaps: list[Gap] = []
        async with self.log.cursor(self.run_id, until_end=True, on_gap=gaps.append) as cursor:
            self.assertEqual([event.offset async for event in cursor], [last])
            self.assertEqual(gaps, [Gap(offsets[0], offsets[-1], "forced")])
            await self.refused(Trimmed, "trimmed", "offset", cursor.dead_letter("gone", event=offsets[0]))
        self.assertEqual((await self.log.explain(self.run_id, offsets[0]))["fate"], "trimmed")
        await self.log.delete_cursor(self.run_id)

    async def test_a_cursor_changes_its_filter_from_its_commit_on(self) -> None:
        offsets = await self.publish(2)
        other = (await self.publish(1, "TRAINING_STARTED"))[0]
        async with self.log.cursor(self.run_id, keys=[self.run_id], types=["data.sync.*"]) as old:
            await old.commit(offsets[0])
            changed = {"filter": {"keys": [self.run_id], "types": ["TRAINING_STARTED"]}}
            await self.log.request("PUT", f"/v1/cursors/{self.run_id}/filter", changed)
            await self.refused(Fenced, "fenced", "generation", old.commit(offsets[1]))
        async with self.log.cursor(self.run_id, until_end=True) as new:
            self.assertEqual([event.offset async for event in new], [other])
        await self.log.delete_cursor(self.run_id)

    async def test_retention_removes_what_no_cursor_holds(self) -> None:
        for cursor in await self.log.cursors():
            await self.log.delete_cursor(cursor["name"])
        offsets = [(await self.publish(1, f"MY_{i}"))[0] for i in range(3)]
        await self.log.create_cursor(self.run_id, from_=offsets[1])
        await self.setting("retention.events", "1")

        async def trimmed(offset: int) -> bool:
            await self.publish(1, "DATA_SYNC_STARTED")  # retention is applied as events are appended
            try:
                await self.log.get(offset)
            except Trimmed:
                return True
            return False

        await self.eventually(lambda: trimmed(offsets[0]))
        self.assertEqual((await self.log.get(offsets[1])).offset, offsets[1])
        await self.log.delete_cursor(self.run_id)
        await self.eventually(lambda: trimmed(offsets[2]))

    async def test_a_cursor_that_another_process_opens_is_fenced(self) -> None:
        await self.publish(20)
        async with self.log.cursor(self.run_id, keys=[self.run_id]) as old:
            async for event in old:
                async with self.log.cursor(self.run_id) as new:
                    with self.assertRaises(Fenced) as fenced:
                        await old.commit(event)
                    self.assertEqual(fenced.exception.offset, new.generation)
                break
            for _ in range(2):
                with self.assertRaises(Fenced):
                    async for event in old:
                        self.fail(f"{event} was received before, and is now another's")
        with self.assertRaises(Conflict):
            async with self.log.cursor(self.run_id, types=["TRAINING_STARTED"]):
                pass

    async def test_a_reader_that_only_reads_is_fenced_as_well(self) -> None:
        [offset] = await self.publish(1)
        async with self.log.cursor(self.run_id, keys=[self.run_id]) as old:
            async for event in old:
                self.assertEqual(event.offset, offset)
                async with self.log.cursor(self.run_id) as new:
                    await new.commit(offset)
                break
            await self.publish(1, "TRAINING_STARTED")
            with self.assertRaises(Fenced):
                async for event in old:
                    self.fail(f"{event} is another's")
        await self.log.delete_cursor(self.run_id)

    async def test_a_dead_letter_is_redriven_to_its_cursor(self) -> None:
        offsets = await self.publish(2)
        async with self.log.cursor(self.run_id, keys=[self.run_id]) as cursor:
            async for event in cursor:
                if event.redrive is not None:
                    self.assertEqual(event.payload["i"], 0)
                    break
                if event.offset == offsets[0]:
                    with self.assertLogs("ringlog", "WARNING") as logged:
                        letter = await cursor.dead_letter(ValueError("no such config"), attempts=3)
                    self.assertIn("was made a dead letter: ValueError: no such config", logged.output[0])
                    self.assertEqual(letter["error"], "ValueError: no such config")
                    self.assertEqual(letter["attempts"], 3)
                else:
                    await cursor.commit()
                    listed = await self.log.dead_letters(cursor=self.run_id)
                    self.assertEqual([entry["id"] for entry in listed], [letter["id"]])
                    self.assertEqual((await self.log.dead_letter(letter["id"]))["event"]["offset"], offsets[0])
                    self.assertEqual((await self.log.dead_letter_summary())["by_cursor"][self.run_id], 1)
                    self.assertEqual((await self.log.dead_letter_errors(cursor=self.run_id))[0]["count"], 1)
                    self.assertEqual((await self.log.redrive(letter["id"]))["done"], 1)
            await cursor.dead_letter("again", event=event)
        async with self.log.cursor(f"{self.run_id}-other", keys=[self.run_id], until_end=True) as other:
            self.assertEqual([event.offset async for event in other], offsets)
        self.assertEqual(len(await self.read()), 2)
        await self.log.delete_cursor(f"{self.run_id}-other")
        self.assertEqual((await self.log.purge(cursor=self.run_id))["done"], 1)
        self.assertEqual(await self.log.dead_letters(cursor=self.run_id), [])

    async def test_letters_are_chosen_by_conditions(self) -> None:
        offsets = await self.publish(2)
        offsets += await self.publish(1, "TRAINING_STARTED")
        other = f"{self.run_id}-other"
        await self.log.create_cursor(other, from_="end")
        async with self.log.cursor(self.run_id, keys=[self.run_id]) as cursor:
            letters = [(await cursor.dead_letter(f"{self.run_id} {i}", event=offsets[i]))["id"] for i in range(3)]
            for chosen, found in (
                ({"cursor": self.run_id}, [0, 1, 2]), ({"error": f"{self.run_id} 1"}, [1]), ({"cursor": other}, []),
                ({"type": "training.*", "error": self.run_id}, [2]), ({"cursor": self.run_id, "limit": 1}, [0]),
                ({"cursor": self.run_id, "after": letters[0]}, [1, 2]),
            ):  # fmt: skip
                with self.subTest(chosen=chosen):
                    listed = [letter["id"] for letter in await self.log.dead_letters(**chosen)]
                    self.assertEqual(listed, [letters[i] for i in found])
            errors = await self.log.dead_letter_errors(cursor=self.run_id)
            self.assertEqual([(group["count"], group["letters"]) for group in errors], [(3, letters)])

            # Appended again for another cursor, one letter is dead again where that is moved past its copy.
            moved = await self.log.redrive(*letters[:2], 10**9, to=other)
            self.assertEqual((moved["done"], moved["missing"]), (2, [10**9]))
            self.assertEqual((await self.log.redrive(letters[0]))["skipped"], 1)
            for state, ids in (("redriven", letters[:2]), ("dead", letters[2:]), ("", letters)):
                of_state = await self.log.dead_letters(error=self.run_id, state=state)
                self.assertEqual([letter["id"] for letter in of_state], ids)
            await self.refused(InvalidArgument, "invalid_argument", "state", self.log.dead_letters(state="gone"))
            async with self.log.cursor(other, until_end=True) as heir:
                copies = [event async for event in heir if event.redrive]
                self.assertEqual([event.redrive for event in copies], letters[:2])
                await heir.dead_letter("again", event=copies[0], attempts=2)
            letter = await self.log.dead_letter(letters[0])
            self.assertEqual((letter["attempts"], letter["lineage"]), (3, [offsets[0], copies[0].offset]))
            await self.log.seek_cursor(other, "end")
            states = [letter["state"] for letter in await self.log.dead_letters(cursor=other)]
            self.assertEqual(states, ["dead", "dead"])
        self.assertEqual((await self.log.purge(error=self.run_id))["done"], 2)
        self.assertEqual((await self.log.purge(*letters))["done"], 1)
        await self.log.delete_cursor(other)
        await self.log.delete_cursor(self.run_id)

    # Groups.

    async def test_the_events_of_a_key_wait_for_the_first(self) -> None:
        events = [
            {"type": "DATA_SYNC_COMPLETED", "payload": self.event(i), "key": f"{self.run_id}{'ab'[i % 2]}"}
            for i in range(4)
        ]
        await self.log.publish_many(events)
        keys = [f"{self.run_id}a", f"{self.run_id}b"]
        async with self.log.group(self.run_id, keys=keys) as one, self.log.group(self.run_id) as two:
            first = await one.next(timeout=10)
            self.assertEqual((first.payload["i"], first.delivery), (0, 1))
            nacked = self.now()
            first.nack(delay=0.5)
            self.assertTrue(await one.flush())
            order = [0]
            while len(order) < 5:
                delivery = await self.eventually(lambda: self.next_of(one, two))
                order.append(delivery.payload["i"])
                if delivery.delivery == 2:
                    self.assertGreaterEqual(self.now() - nacked, 0.5)
                delivery.ack()
                self.assertTrue(await one.flush() and await two.flush())
                if order == [0, 1, 3]:
                    self.assertIsNone(await self.next_of(one, two) if self.now() - nacked < 0.4 else None)
                    await self.elapse(0.5)
            self.assertEqual(sorted(order), [0, 0, 1, 2, 3])
            self.assertEqual([i for i in order if i % 2 == 0], [0, 0, 2])
            self.assertEqual([i for i in order if i % 2 == 1], [1, 3])
        self.assertEqual(await self.log.dead_letters(cursor=self.run_id), [])
        await self.log.delete_group(self.run_id)

    async def test_an_event_that_takes_too_long_goes_to_others_and_then_to_the_letters(self) -> None:
        await self.publish(2)
        await self.log.publish("DATA_SYNC_COMPLETED", self.event(2), key=f"{self.run_id}b")
        keys = [self.run_id, f"{self.run_id}b"]

        async def get(i: int, *members: Any) -> Any:
            """Return the next delivery of an event, and ack all others."""
            while (delivery := await self.eventually(lambda: self.next_of(*members))).payload["i"] != i:
                self.assertTrue(delivery.ack())
            return delivery

        # The slow member asks for no more while the event of the other key waits for it.
        async with self.log.group(self.run_id, keys=keys, ack_wait=0.4, max_deliver=2, prefetch=1) as slow:
            late = await slow.next(timeout=10)
            self.assertEqual((late.payload["i"], late.delivery), (0, 1))

            async def holds_both() -> bool:
                return bool((await self.log.group_members(self.run_id))[0]["pending"] == 2)

            await self.eventually(holds_both)
            async with self.log.group(self.run_id) as other:
                await self.elapse(0.4)
                self.assertEqual((await get(0, other)).delivery, 2)

                async def is_lost() -> bool:
                    return not late.progress()

                await self.eventually(is_lost)
                self.assertFalse(late.ack())
                await self.elapse(0.4)
                self.assertTrue((await get(1, slow, other)).ack())
                self.assertTrue(await other.flush() and await slow.flush())
        [letter] = await self.log.dead_letters(cursor=self.run_id)
        self.assertEqual(letter["error"], f"not acknowledged within 400ms by {other.name}")
        self.assertEqual((letter["attempts"], letter["handler"]), (2, other.name))
        await self.log.purge(cursor=self.run_id)
        await self.log.delete_group(self.run_id)

    async def test_progress_begins_the_ack_wait_again(self) -> None:
        await self.publish(2)
        async with self.log.group(self.run_id, keys=[self.run_id], ack_wait=2) as member:
            delivery = await member.next(timeout=10)
            for _ in range(3):
                await self.elapse(1.5)
                self.assertTrue(delivery.progress())
            self.assertTrue(delivery.ack())
            self.assertTrue(await member.flush())
            delivery = await member.next(timeout=10)
            self.assertEqual((delivery.payload["i"], delivery.delivery), (1, 1))
        await self.log.delete_group(self.run_id)

    async def test_a_group_commits_past_what_is_not_for_it(self) -> None:
        await self.publish(1)
        async with self.log.group(self.run_id, keys=[self.run_id], types=["DATA_SYNC_COMPLETED"]) as member:
            delivery = await member.next(timeout=10)
            other = (await self.publish(1, "TRAINING_STARTED"))[0]
            self.assertFalse(await self.log.wait(delivery.offset, [self.run_id], timeout=0.1))
            delivery.ack()
            self.assertTrue(await self.log.wait(delivery.offset, [self.run_id], timeout=30))
            self.assertEqual((await self.log.get_cursor(self.run_id))["lag_events"], 0)
            self.assertTrue(await self.log.wait(other, [self.run_id], timeout=30))
        await self.log.delete_group(self.run_id)

    async def test_a_group_is_moved_and_removed(self) -> None:
        offsets = await self.publish(3)
        async with self.log.group(self.run_id, keys=[self.run_id]) as member:
            for i in range(3):
                delivery = await member.next(timeout=10)
                self.assertEqual(delivery.payload["i"], i)
                delivery.ack()
            self.assertTrue(await member.flush())
            await self.log.seek_cursor(self.run_id, offsets[2])
            delivery = await member.next(timeout=30)
            self.assertEqual((delivery.offset, delivery.delivery), (offsets[2], 1))
            for call, field in (
                (self.log.create_group(self.run_id, types=["TRAINING_STARTED"]), "types"),
                (self.log.create_cursor(self.run_id), "cursor"),
                (self.log.create_group(self.run_id, ack_wait=40), "ack_wait"),
            ):
                await self.refused(Conflict, "exists", field, call)
            opening = self.log.cursor(self.run_id).__aenter__()
            await self.refused(InvalidArgument, "invalid_argument", "cursor", opening)
            await self.log.delete_group(self.run_id)
            with self.assertRaises(NotFound):
                while await member.next(timeout=30):
                    pass

    async def test_what_exists_is_compared_with_what_is_given_alone(self) -> None:
        types, keys = ["DATA_SYNC_*", "TRAINING_STARTED"], [self.run_id]
        async with self.log.group(self.run_id, types=types, keys=keys, ack_wait=90, max_deliver=3):
            pass
        given: dict[str, Any]
        for given in (
            {"types": types},
            {"types": types[::-1]},
            {"keys": self.run_id},
            {"ack_wait": 90.0},
            {"max_deliver": 3},
        ):
            async with self.log.group(self.run_id, **given):
                pass
        for given, difference in (
            ({"types": "TRAINING_*"}, "types is ['DATA_SYNC_*', 'TRAINING_STARTED'], not ['TRAINING_*']"),
            ({"sources": "s"}, "sources is not set, not ['s']"),
            (
                {"types": types, "ack_wait": 40, "max_deliver": 5},
                "ack_wait is 1m30s, not 40s; max_deliver is 3, not 5",
            ),
        ):
            joining = self.log.group(self.run_id, **given).__aenter__()
            field = difference.partition(" ")[0]
            error = await self.refused(Conflict, "exists", field, joining)
            self.assertEqual(error.message, f"the group '{self.run_id}' exists with other settings: {difference}")
            self.assertIn("delete_group", error.remedy)
        self.assertEqual((await self.log.create_group(self.run_id, types=types))["group"]["max_deliver"], 3)
        await self.log.delete_group(self.run_id)

        await self.log.create_cursor(self.run_id, types=types)
        self.assertEqual((await self.log.create_cursor(self.run_id))["filter"], {"types": types})
        async with self.log.cursor(self.run_id, types=types[::-1], until_end=True):
            pass
        await self.refused(Conflict, "exists", "keys", self.log.cursor(self.run_id, keys="k").__aenter__())
        await self.log.delete_cursor(self.run_id)

    async def test_a_group_gets_a_gap_for_what_was_trimmed(self) -> None:
        offsets = await self.publish(2)
        await self.log.request(
            "PUT", f"/v1/groups/{self.run_id}", {"from": offsets[0], "filter": {"keys": [self.run_id]}}
        )
        last = (await self.publish(1, "TRAINING_STARTED"))[0]
        await self.log.request("POST", "/v1/compact", {"before": last, "force": True})
        gaps: list[Gap] = []
        async with self.log.group(self.run_id, on_gap=gaps.append) as member:
            delivery = await member.next(timeout=30)
            self.assertEqual(delivery.offset, last)
            self.assertEqual({(gap.first, gap.last) for gap in gaps}, {(offsets[0], offsets[-1])})
            delivery.ack()
        await self.log.delete_group(self.run_id)

    async def test_members_share_the_events_of_a_group(self) -> None:
        events = [
            {"type": "DATA_SYNC_COMPLETED", "payload": self.event(i), "key": f"{self.run_id}{i % 8}"}
            for i in range(400)
        ]
        await self.log.publish_many(events)
        keys = [f"{self.run_id}{i}" for i in range(8)]
        handled: list[int] = []
        async with (
            self.log.group(self.run_id, keys=keys, prefetch=4) as one,
            self.log.group(self.run_id, prefetch=4) as two,
        ):
            self.assertEqual({m["member"] for m in await self.log.group_members(self.run_id)}, {one.name, two.name})
            for _ in range(2000):
                for member in (one, two):
                    delivery = await member.next(timeout=0.05) if len(handled) < 400 else None
                    if delivery is not None:
                        handled.append(delivery.payload["i"])
                        self.assertTrue(delivery.ack())
            self.assertTrue(await one.flush() and await two.flush())
        self.assertEqual(sorted(handled), list(range(400)))
        for key in range(8):
            of_key = [i for i in handled if i % 8 == key]
            self.assertEqual(of_key, sorted(of_key))
        self.assertEqual((await self.log.get_cursor(self.run_id))["lag_events"], 0)

    async def test_failures_are_redelivered_and_then_dead_letters(self) -> None:
        await self.publish(3)
        tries: dict[int, list[int]] = {}
        await self.log.create_group(self.run_id, types=["DATA_SYNC_COMPLETED"], max_deliver=3, ack_wait=20)
        async with self.log.group(self.run_id) as member:
            async for delivery in member:
                if delivery.key != self.run_id:
                    delivery.ack()
                    continue
                i = delivery.payload["i"]
                tries.setdefault(i, []).append(delivery.delivery)
                if i == 0:
                    delivery.nack(error=ValueError("always"))
                elif i == 1 and len(tries[1]) == 1:
                    delivery.release()
                elif i == 1:
                    self.assertTrue(delivery.progress())
                    delivery.reject("never")
                    self.assertFalse(delivery.ack())
                else:
                    delivery.ack()
                    break
            self.assertTrue(await member.flush())
        self.assertEqual(tries, {0: [1, 2, 3], 1: [1, 1], 2: [1]})
        letters = await self.log.dead_letters(cursor=self.run_id)
        self.assertEqual([letter["error"] for letter in letters], ["ValueError: always", "never"])
        await self.log.delete_group(self.run_id)

    async def test_a_handler_that_fails_is_logged_once_for_each_error(self) -> None:
        await self.publish(20)
        async with self.log.group(self.run_id, keys=[self.run_id], max_deliver=1) as member:
            with self.assertLogs("ringlog", "WARNING") as logged:
                for i in range(20):
                    delivery = await member.next(timeout=5)
                    try:
                        delivery.nack(error=delivery.event)
                    except AttributeError as error:
                        self.assertTrue(delivery.reject(error) if i == 7 else delivery.nack(error=error))
            self.assertTrue(await member.flush())
        nacked, rejected = logged.output
        self.assertIn("(DATA_SYNC_COMPLETED) was nacked: AttributeError: 'Delivery' object has no attribute", nacked)
        self.assertIn("delivery.event", nacked)  # the line of the traceback
        self.assertIn("was rejected: ", rejected)

    async def test_a_delivery_may_wait_for_a_day(self) -> None:
        await self.publish(1)
        async with self.log.group(self.run_id, keys=[self.run_id]) as member:
            delivery = await member.next(timeout=10)
            with self.assertRaises(InvalidArgument):
                delivery.nack(delay=86_400.001)
            self.assertTrue(delivery.nack(delay=86_400))
            self.assertTrue(await member.flush())
            self.assertIsNone(await member.next(timeout=0.05))
            self.assertEqual((await self.log.get_cursor(self.run_id))["group"]["redelivering"], 1)
        await self.log.delete_group(self.run_id)

    async def test_what_a_member_has_not_handled_goes_to_others_when_it_leaves(self) -> None:
        await self.publish(1)
        async with self.log.group(self.run_id, keys=[self.run_id]) as member:
            async for delivery in member:
                self.assertEqual(delivery.delivery, 1)
                break
        async with self.log.group(self.run_id) as member:
            delivery = await member.next(timeout=5)
            self.assertEqual(delivery.payload["i"], 0)
            delivery.ack()
        with self.assertRaises(Closed):
            await member.next()
        self.assertEqual([delivery async for delivery in member], [])

    async def test_what_a_killed_member_held_goes_to_others_after_the_session_timeout(self) -> None:
        await self.setting("group.session_timeout", "1s")
        await self.publish(2)
        async with self.log.group(self.run_id, keys=[self.run_id], max_deliver=2) as member:
            held = await member.next(timeout=20)
            kill(getattr(member, "_blocking", member))
            with self.assertRaises(Closed):
                await member.next()
        async with self.log.group(self.run_id) as other:
            self.assertEqual(len(await self.log.group_members(self.run_id)), 2)
            self.assertIsNone(await other.next(timeout=0.05))
            await self.elapse(1)
            again = await other.next(timeout=20)
            self.assertEqual((again.offset, again.delivery), (held.offset, 2))
            again.nack(error="busy")
            self.assertTrue((await other.next(timeout=20)).ack())
            self.assertTrue(await other.flush())
        [letter] = await self.log.dead_letters(cursor=self.run_id)
        self.assertEqual((letter["error"], letter["attempts"]), ("busy", 2))
        await self.log.purge(cursor=self.run_id)
        await self.log.delete_group(self.run_id)

    async def test_a_handler_that_takes_longer_than_the_ack_wait_is_warned_about_once(self) -> None:
        await self.publish(1)
        async with self.log.group(self.run_id, keys=[self.run_id], ack_wait=1) as member:
            with self.assertLogs("ringlog", "WARNING") as logged:
                for number in (1, 2):
                    delivery = await member.next(timeout=20)
                    self.assertEqual(delivery.delivery, number)
                    await self.elapse(1.1)
                (await member.next(timeout=20)).ack()
        [warned] = logged.output
        self.assertIn(f"group {self.run_id}: event {delivery.offset} was handled for longer than the ack_wait", warned)
        self.assertIn("auto_progress=True", warned)
        await self.log.delete_group(self.run_id)

    async def test_a_member_reports_progress_by_itself_where_it_is_asked_to(self) -> None:
        await self.publish(1)
        async with self.log.group(self.run_id, keys=[self.run_id], ack_wait=1, auto_progress=True) as member:
            delivery = await member.next(timeout=20)
            for _ in range(3):
                await self.elapse(1.1)
            self.assertEqual((await self.log.group_members(self.run_id))[0]["expired"], 0)
            self.assertTrue(delivery.ack())
            self.assertTrue(await member.flush())
        self.assertEqual(await self.log.dead_letters(cursor=self.run_id), [])
        await self.log.delete_group(self.run_id)

    # The cluster.

    async def test_a_reader_that_lags_is_reported_once_until_it_has_caught_up_or_is_removed(self) -> None:
        name, limits = self.run_id, {"activate_at": 3, "release_at": 1}
        await self.log.create_cursor(name, types=["TRAINING_COMPLETED"], from_="end")
        await self.setting("backpressure.lag", f"other=3/1, {name[:20]}*=3/1")
        self.assertEqual((await self.log.get_cursor(name))["backpressure"], limits)

        async def reports(n: int) -> list[Any]:
            found = [event async for event in self.log.tail("start", types=["BACKPRESSURE_*"], until_end=True)]
            found = [event for event in found if event.payload.get("cursor") == name]
            return found if len(found) == n else []

        async def check(n: int, lag: int, **more: Any) -> None:
            event = (await self.eventually(lambda: reports(n)))[-1]
            self.assertEqual(event.type, "BACKPRESSURE_RELEASED" if more else "BACKPRESSURE_ACTIVATED")
            self.assertEqual("active_ms" in event.payload, bool(more))
            about = {"cursor": name, "group": False, "lag_events": lag, "queue_depth": lag, **limits, **more}
            self.assertEqual({k: v for k, v in event.payload.items() if k != "active_ms"}, about)

        events = [{"type": "TRAINING_COMPLETED", "payload": self.event(i)} for i in range(7)]
        *_, last = await self.log.publish_many(events[:4])
        await check(1, 4)
        self.assertIn("since", (await self.log.get_cursor(name))["backpressure"])
        await self.log.seek_cursor(name, last.offset)
        await check(2, 1, reason="lag")
        self.assertNotIn("since", (await self.log.get_cursor(name))["backpressure"])
        await self.log.publish_many(events[4:])
        await check(3, 4)
        await self.log.delete_cursor(name)
        await check(4, 0, reason="removed")

    async def test_settings_and_views(self) -> None:
        self.assertEqual((await self.log.settings())["dedup.window"], "60s")
        await self.log.set_setting("group.ack_wait", "31s")
        self.assertEqual((await self.log.settings())["group.ack_wait"], "31s")
        await self.log.set_setting("group.ack_wait", "")
        with self.assertRaises(NotFound):
            await self.log.set_setting("no.such", 1)
        self.assertEqual((await self.log.status())["cluster_id"], (await self.log.cluster())["cluster_id"])
        self.assertIn("TRAINING_COMPLETED", [entry["name"] for entry in await self.log.catalogue()])
        offset = (await self.log.publish("TRAINING_STARTED", self.event())).offset
        self.assertEqual((await self.log.explain_dedup(offset))["kind"], "content")
        with self.assertRaises(NotFound):
            await self.log.request("GET", "/v1/nowhere")

    async def test_a_dedup_policy_goes_by_fields(self) -> None:
        policy = await self.log.set_dedup_policy("REGISTRY_UPDATED", "fields", ["run"], "5m")
        self.assertEqual((policy["fields"], policy["window"], policy["origin"]), (["run"], "5m0s", "cluster"))
        self.assertIn("REGISTRY_UPDATED", [p["type"] for p in await self.log.dedup_policies()])
        run = {"run": self.run_id}
        first = await self.log.publish("REGISTRY_UPDATED", {**run, "at": 1})
        again = await self.log.publish("REGISTRY_UPDATED", {**run, "at": 2})
        self.assertEqual((again.duplicate, again.offset), (True, first.offset))
        self.assertEqual((await self.log.explain_dedup(first.offset))["decided_by"], "policy")
        self.assertFalse((await self.log.publish("REGISTRY_UPDATED", {**run, "at": 2}, dedup=False)).duplicate)
        self.assertEqual((await self.log.remove_dedup_policy("REGISTRY_UPDATED"))["origin"], "default")
        with self.assertRaises(NotFound):
            await self.log.remove_dedup_policy("REGISTRY_UPDATED")

    # Scheduled events.

    async def published(self, id_: str) -> Any:
        """Return what is scheduled under an id, once that was published."""

        async def look() -> Any:
            found = await self.log.scheduled_event(id_)
            return found if found["state"] == "published" else None

        return await self.eventually(look)

    async def test_an_event_is_published_at_its_time_and_once(self) -> None:
        log, at = self.log, datetime.fromtimestamp(self.now_utc() + 1.5, timezone.utc)
        made = await log.publish_at(at, "DATA_SYNC_STARTED", self.event(), key=self.run_id, id=self.run_id)
        self.assertEqual(
            (made["id"], made["state"], made["type"], made["key"], parse_time(made["at"])),
            (self.run_id, "waiting", "DATA_SYNC_STARTED", self.run_id, at),
        )
        self.assertNotIn("existing", made)
        waits = await log.scheduled_event(self.run_id)
        self.assertEqual((waits["state"], waits["event"]["payload"]), ("waiting", self.event()))
        self.assertEqual(await self.read(), [])
        await self.elapse(1.5)
        found = await self.published(self.run_id)
        [event] = await self.read()
        self.assertEqual((found["offset"], event.payload), (event.offset, self.event()))
        self.assertGreaterEqual(event.appended_at, at)

        # The same call changes nothing; another event or time is refused.
        again = await log.publish_at(at.timestamp(), "DATA_SYNC_STARTED", self.event(), key=self.run_id, id=self.run_id)
        self.assertEqual((again["existing"], again["offset"]), (True, event.offset))
        for when, i in ((at, 1), (at + timedelta(seconds=1), 0)):
            other = log.publish_at(when, "DATA_SYNC_STARTED", self.event(i), key=self.run_id, id=self.run_id)
            await self.refused(Conflict, "exists", "id", other)
        over = await self.refused(Conflict, "conflict", "id", log.unschedule(self.run_id))
        self.assertEqual(over.offset, event.offset)
        self.assertEqual(len(await self.read()), 1)

    def now_utc(self) -> float:
        """Return the time of the log in seconds since 1970."""
        return time.time()

    async def test_a_scheduled_event_is_deduplicated_at_its_time(self) -> None:
        log = self.log
        made = await log.publish_at(self.now_utc() + 1, ModelPromoted(extra=self.event()), key=self.run_id)
        self.assertEqual((made["type"], made["state"]), ("MODEL_PROMOTED", "waiting"))
        first = await log.publish(ModelPromoted(extra=self.event()), key=self.run_id)
        self.assertFalse(first.duplicate)
        await self.elapse(1)
        found = await self.published(made["id"])
        self.assertEqual((found["offset"], found["duplicate"]), (first.offset, True))
        # A time that has passed is now, and dedup is the caller's.
        passed = await log.publish_at(0, "MODEL_PROMOTED", self.event(), key=self.run_id, dedup=False)
        found = await self.published(passed["id"])
        await self.elapse(60)  # nothing is published once more
        self.assertEqual([event.offset for event in await self.read()], [first.offset, found["offset"]])

    async def test_a_scheduled_event_that_cannot_be_published_is_a_dead_letter(self) -> None:
        log = self.log
        at, id_ = self.now_utc() + 1, f"{self.run_id}/1"
        await log.publish_at(at, "MODEL_PROMOTED", self.event(), key=self.run_id, dedup_id=self.run_id, id=id_)
        first = await log.publish("MODEL_PROMOTED", self.event(2), key=self.run_id, dedup_id=self.run_id)
        await self.elapse(1)

        async def gone() -> Any:
            return id_ not in [one["id"] for one in await log.scheduled()]

        await self.eventually(gone)
        await self.refused(NotFound, "not_found", "id", log.scheduled_event(id_))
        [letter] = [one for one in await log.dead_letters(cursor="schedule") if one.get("key") == self.run_id]
        self.assertEqual(
            (letter["handler"], letter["type"], letter["attempts"], letter["origin"], letter.get("offset")),
            ("schedule", "MODEL_PROMOTED", 1, id_, None),
        )
        self.assertIn("dedup_id", letter["error"])
        whole = await log.dead_letter(letter["id"])
        self.assertEqual((whole["event"]["payload"], whole["event"]["dedup_id"]), (self.event(), self.run_id))
        [stored] = [
            event.payload for event in await self.read(keys=(), types=["DLQ_EVENTS_STORED"])
            if event.payload.get("letter_id") == letter["id"]
        ]  # fmt: skip
        self.assertEqual((stored["event"], stored["handler"]), ("MODEL_PROMOTED", "schedule"))
        self.assertEqual([event.offset for event in await self.read()], [first.offset])
        self.assertEqual((await log.purge(letter["id"]))["done"], 1)

    async def test_what_is_scheduled_is_listed_and_removed(self) -> None:
        log, at = self.log, datetime(2099, 1, 1, tzinfo=timezone.utc)
        ids = [f"{self.run_id} {i:03}" for i in range(101)]  # more than a page has
        for id_ in ids:
            await log.publish_at(at, "MODEL_PROMOTED", self.event(), id=id_)
        listed = [one for one in await log.scheduled() if one["id"].startswith(self.run_id)]
        self.assertEqual([one["id"] for one in listed], ids)
        self.assertEqual({(one["state"], one["at"]) for one in listed}, {("waiting", "2099-01-01T00:00:00Z")})
        for id_ in ids:
            self.assertEqual((await log.unschedule(id_))["id"], id_)
        await self.refused(NotFound, "not_found", "id", log.unschedule(ids[0]))
        await self.setting("schedule.max", "1")
        await log.publish_at(at, "MODEL_PROMOTED", self.event(), id=ids[0])
        full = self.client(timeout=0.1)
        self.addAsyncCleanup(full.close)
        await self.refused(Unavailable, "overloaded", "id", full.publish_at(at, "MODEL_PROMOTED", self.event()))
        await log.unschedule(ids[0])

    async def test_what_cannot_be_scheduled_is_refused(self) -> None:
        log, at = self.log, datetime(2099, 1, 1, tzinfo=timezone.utc)
        naive = await self.refused(
            InvalidArgument, "invalid_argument", "at", log.publish_at(datetime(2099, 1, 1), "MODEL_PROMOTED")
        )
        self.assertIn("zone", naive.remedy)
        for wrong in ("2099-01-01", None, True, float("nan"), 1e300, 9.1e9):
            with self.subTest(at=wrong):
                call = log.publish_at(wrong, "MODEL_PROMOTED", {})
                await self.refused(InvalidArgument, "invalid_argument", "at", call)
        for id_ in (7, "a\nb"):
            call = log.publish_at(at, "MODEL_PROMOTED", {}, id=id_)
            await self.refused(InvalidArgument, "invalid_argument", "id", call)
        await self.refused(InvalidArgument, "invalid_argument", "event.type", log.publish_at(at, "A B", {}))
        await self.refused(InvalidArgument, "reserved", "event.type", log.publish_at(at, "LEADER_ELECTED", {}))
        warned = await log.publish_at(at, "MODEL_PROMOTD", self.event(), id=self.run_id)
        self.assertEqual(warned["warnings"][0]["reason"], "unknown_type")
        await log.unschedule(self.run_id)

    async def test_what_is_scheduled_is_not_spooled(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            away = self.client(url="http://127.0.0.1:1", spool=folder, timeout=0.1)
            try:
                with self.assertRaises(Unavailable) as refused:
                    await away.publish_at(0, "MODEL_PROMOTED", self.event())
                self.assertIn("not spooled", refused.exception.remedy)
                spooled = away.spooled_bytes
                self.assertEqual(await spooled() if callable(spooled) else spooled, 0)
            finally:
                await away.close()

    # Roles.

    async def test_a_role_passes_on_in_the_order_of_arrival(self) -> None:
        log = self.log
        async with await log.acquire_role(self.run_id, holder="a") as first:
            self.assertEqual((first.name, first.holder, first.held), (self.run_id, "a", True))
            waiting = []
            for n, holder in enumerate(("b", "c"), 1):
                waiting.append(asyncio.ensure_future(self.acquire(holder)))
                await self.eventually(lambda n=n: self.waits(n))
            info = await log.role(self.run_id)
            self.assertEqual((info["holder"], info["fence"], info["ttl"]), ("a", first.fence, "15s"))
            self.assertEqual([claim["holder"] for claim in info["queue"]], ["b", "c"])
            self.assertIn(info["role"], [role["role"] for role in await log.roles()])
            first.check()
            result = await first.publish("MODEL_PROMOTED", self.event(), key=self.run_id)
            self.assertGreater(result.offset, first.fence)
            self.assertEqual(len(await first.publish_many([{"type": "MODEL_PROMOTED", "payload": self.event(i)}
                                                           for i in (1, 2)])), 2)  # fmt: skip
            self.assertEqual(await first.publish_many([]), [])
        # What is released is neither held nor lost.
        self.assertEqual((first.held, first.lost.is_set()), (False, False))
        for use in (first.check, lambda: first.publish("MODEL_PROMOTED", self.event(3)), lambda: first.__aenter__()):
            with self.assertRaises(RoleLost) as over:
                used = use()
                await used
            self.assertIn("released", over.exception.message)
        second = await waiting[0]
        self.assertGreater(second.fence, first.fence)
        self.assertEqual(second.holder, "b")
        self.assertTrue(await second.release())
        third = await waiting[1]
        self.assertTrue(await third.release())
        self.assertTrue(await third.release())
        self.assertEqual(await log.role(self.run_id), {"role": self.run_id, "waiting": 0})
        reported = [(e.type, e.payload["holder"], e.payload["fence"]) for e in await self.read(types=["ROLE_*"])]
        self.assertEqual(
            reported,
            [(f"ROLE_{what}", role.holder, role.fence) for role in (first, second, third)
             for what in ("ACQUIRED", "RELEASED")],
        )  # fmt: skip

    async def acquire(self, holder: str, **options: Any) -> Any:
        """Acquire the role of this test by another client."""
        log = self.client()
        self.addAsyncCleanup(log.close)
        return await log.acquire_role(self.run_id, holder=holder, **options)

    async def waits(self, n: int) -> bool:
        return (await self.log.role(self.run_id))["waiting"] == n

    async def test_a_role_that_another_process_holds(self) -> None:
        role = await self.acquire("a")
        for wait in (False, 0, 0.2):
            with self.subTest(wait=wait):
                held = await self.refused(RoleHeld, "held", "role", self.log.acquire_role(self.run_id, wait=wait))
                self.assertEqual((held.offset, held.retryable), (role.fence, True))
                self.assertIn("a holds", held.message)
        # Who has stopped waiting has left the queue.
        self.assertTrue(await self.waits(0))

    async def test_what_is_done_under_a_role_that_was_revoked_is_refused(self) -> None:
        role = await self.acquire("a", ttl=60)
        await self.publish(2)
        called: list[str] = []
        role.on_lost(lambda: called.append("first") or 1 / 0)
        role.on_lost(lambda: called.append("second"))
        async with self.log.cursor(self.run_id, keys=[self.run_id], types=["DATA_SYNC_COMPLETED"], role=role) as cursor:
            async for event in cursor:
                await cursor.commit(event)
                break
            self.assertEqual(
                (await self.log.revoke_role(self.run_id, role.fence)),
                {"role": self.run_id, "waiting": 0, "released": True},
            )
            other = await self.acquire("b")
            with self.assertLogs("ringlog", "WARNING") as logged:
                # The holder has not noticed yet, as a process that was stopped has not. The cluster knows.
                lost = await self.refused(RoleLost, "fenced", "fence", cursor.commit(event.offset + 1))
            self.assertEqual(lost.offset, other.fence)
            self.assertIn(f"role {self.run_id} is lost", logged.output[0])
            self.assertIn("ZeroDivisionError", logged.output[1])
            self.assertEqual((role.held, role.lost.is_set(), called), (False, True, ["first", "second"]))
            role.on_lost(lambda: called.append("third"))
            self.assertEqual(called[2:], ["third"])
            with self.assertRaises(RoleLost):
                async for event in cursor:
                    self.fail(f"{event} is handed out without the role")
            await self.refused(RoleLost, "fenced", "fence", cursor.dead_letter("x", event=event))
        self.assertEqual((await self.log.get_cursor(self.run_id))["committed"], event.offset)
        with self.assertRaises(RoleLost):
            async with self.log.cursor(self.run_id, role=role):
                pass
        await self.refused(RoleLost, "fenced", "fence", self.log.revoke_role(self.run_id, role.fence))
        self.assertEqual((await self.log.revoke_role(self.run_id))["waiting"], 0)
        with self.assertLogs("ringlog", "WARNING"):
            await self.refused(RoleLost, "fenced", "fence", other.publish("MODEL_PROMOTED", self.event(1)))
        await self.refused(NotFound, "not_found", "role", self.log.revoke_role(self.run_id))
        await self.log.delete_cursor(self.run_id)

    async def test_what_a_member_settles_under_a_role_is_refused_once_that_is_lost(self) -> None:
        role = await self.acquire("a")
        await self.publish(3)
        types = ["DATA_SYNC_COMPLETED"]
        async with self.log.group(self.run_id, keys=[self.run_id], types=types, role=role, prefetch=1) as member:
            first = await member.next(timeout=10)
            self.assertTrue(first.ack())
            self.assertTrue(await member.flush())
            second = await member.next(timeout=10)
            with self.assertLogs("ringlog", "WARNING"):
                await self.log.revoke_role(self.run_id, role.fence)
                other = await self.acquire("b")
                second.ack()
                await self.refused(RoleLost, "fenced", "fence", member.flush())
            self.assertEqual((role.held, role.lost.is_set()), (False, True))
            await self.refused(RoleLost, "fenced", "fence", member.next(timeout=10))
        with self.assertRaises(RoleLost):
            async with self.log.group(self.run_id, role=role):
                pass
        async with self.log.group(self.run_id, role=other) as member:
            for i in (1, 2):
                delivery = await member.next(timeout=10)
                self.assertEqual((delivery.payload["i"], delivery.delivery), (i, 1))
                delivery.reject("no") if i == 2 else delivery.ack()
        [letter] = await self.log.dead_letters(cursor=self.run_id)
        self.assertEqual(letter["offset"], delivery.offset)
        self.assertEqual((await self.log.get_cursor(self.run_id))["lag_events"], 0)
        self.assertTrue(await other.release())
        await self.log.delete_group(self.run_id)

    async def test_a_role_that_another_process_holds_is_given_by_name_and_fence(self) -> None:
        role = await self.acquire("a", ttl=60)
        lease, types = (self.run_id, role.fence), ["DATA_SYNC_COMPLETED"]
        await self.publish(3)
        async with self.log.cursor(self.run_id, keys=[self.run_id], types=types, role=lease) as cursor:
            async for event in cursor:
                await cursor.commit(event)
                break
            with self.assertLogs("ringlog", "WARNING"):  # of the holder
                await self.log.revoke_role(self.run_id, role.fence)
                other = await self.acquire("b")
                lost = await self.refused(RoleLost, "fenced", "fence", cursor.commit(event.offset + 1))
                self.assertEqual(lost.offset, other.fence)
                await self.refused(RoleLost, "fenced", "fence", role.publish("MODEL_PROMOTED", self.event(1)))
            with self.assertRaises(RoleLost):
                async for event in cursor:
                    self.fail(f"{event} is handed out without the role")
        self.assertEqual((await self.log.get_cursor(self.run_id))["committed"], event.offset)
        await self.log.delete_cursor(self.run_id)
        with self.assertRaises(RoleLost):
            async with self.log.group(self.run_id, keys=[self.run_id], types=types, role=lease):
                pass
        lease = (self.run_id, other.fence)
        async with self.log.group(self.run_id, keys=[self.run_id], types=types, role=lease) as member:
            (await member.next(timeout=10)).ack()
            self.assertTrue(await member.flush())
        for wrong in (self.run_id, (self.run_id,), 7, ("", 7), (self.run_id, 0)):
            with self.subTest(wrong=wrong), self.assertRaises(InvalidArgument):
                self.log.cursor(self.run_id, role=wrong)
        self.assertTrue(await other.release())
        await self.log.delete_group(self.run_id)

    async def test_a_dead_letter_under_a_role_is_refused_once_that_is_lost(self) -> None:
        role = await self.acquire("a")
        await self.publish(2)
        types = ["DATA_SYNC_COMPLETED"]
        async with self.log.cursor(self.run_id, keys=[self.run_id], types=types, role=role) as cursor:
            async for event in cursor:
                if event.payload["i"] == 1:
                    break
                await cursor.dead_letter("no", event=event)
            await self.log.revoke_role(self.run_id, role.fence)
            with self.assertLogs("ringlog", "WARNING"):
                await self.refused(RoleLost, "fenced", "fence", cursor.dead_letter("no", event=event))
        self.assertEqual(len(await self.log.dead_letters(cursor=self.run_id)), 1)
        await self.log.delete_cursor(self.run_id)

    async def test_a_holder_finds_with_a_renewal_that_its_role_was_revoked(self) -> None:
        role = await self.acquire("a", ttl=2)
        async with self.log.cursor(self.run_id, types=["MODEL_PROMOTED"], keys=[self.run_id], role=role) as cursor:
            await self.log.revoke_role(self.run_id)
            with self.assertLogs("ringlog", "WARNING"), self.assertRaises(RoleLost):
                async for event in cursor:
                    self.fail(f"{event} is not there")
        self.assertEqual((role.held, role.lost.is_set()), (False, True))
        await self.log.delete_cursor(self.run_id)

    async def test_a_role_is_renewed(self) -> None:
        role = await self.acquire("a", ttl=2)
        before = (await self.log.role(self.run_id))["renewed_at"]
        await self.elapse(100)  # in memory more than the ttl: who lives renews

        async def is_renewed() -> bool:
            return (await self.log.role(self.run_id))["renewed_at"] > before

        await self.eventually(is_renewed)
        role.check()
        self.assertTrue((await role.publish("MODEL_PROMOTED", self.event())).offset)
        self.assertTrue(await role.release())

    async def test_the_role_of_a_killed_process_goes_to_the_next_after_its_ttl(self) -> None:
        role = await self.acquire("a", ttl=2)
        waiting = asyncio.ensure_future(self.acquire("b"))
        await self.eventually(lambda: self.waits(1))
        kill(role._blocking if isinstance(role, Awaitable) else role)
        self.assertEqual((role.held, role.lost.is_set()), (False, False))
        await self.elapse(2)
        next_ = await waiting
        [_, lost, acquired] = await self.read(types=["ROLE_*"])
        self.assertEqual((lost.type, lost.payload["cause"]), ("ROLE_LOST", "expired"))
        self.assertEqual((acquired.offset, acquired.payload["previous"]), (next_.fence, "a"))
        self.assertTrue(await next_.release())

    async def test_a_closed_client_releases_its_roles(self) -> None:
        log = self.client()
        role = await log.acquire_role(self.run_id)
        await log.close()
        self.assertEqual((role.held, role.lost.is_set()), (False, False))
        self.assertNotIn("holder", await self.log.role(self.run_id))
        with self.assertRaises(Closed):
            await role.publish("MODEL_PROMOTED", self.event())
        with self.assertRaises(Closed):
            await log.acquire_role(self.run_id)

    async def test_closing_the_client_ends_a_wait_for_a_role(self) -> None:
        role, log = await self.acquire("a"), self.client()
        waiting = asyncio.ensure_future(log.acquire_role(self.run_id, ttl=2))
        await self.eventually(lambda: self.waits(1))
        await log.close()
        with self.assertRaises(Closed):
            await waiting
        self.assertTrue(await self.waits(0))
        self.assertTrue(await role.release())

    async def test_a_role_may_have_any_name_that_nodes_take(self) -> None:
        name = f"Führung/€ {self.run_id} à"
        async with await self.log.acquire_role(name) as role:
            self.assertTrue((await role.publish("MODEL_PROMOTED", self.event())).offset)
            self.assertEqual((await self.log.role(name))["fence"], role.fence)

    async def test_what_is_refused_of_a_role(self) -> None:
        acquire, name = self.log.acquire_role, self.run_id

        async def refuse(field: str, *args: Any, **options: Any) -> None:
            with self.subTest(args=args, **options), self.assertRaises(InvalidArgument) as refused:
                await acquire(*args, **options)
            self.assertEqual(refused.exception.field, field)
            self.assertTrue(refused.exception.remedy)

        for wrong in ("", 7, "a\nb", " a", "x" * 300):
            await refuse("role", wrong)
        for ttl in (1, 3601, "15s", None, True):
            await refuse("ttl", name, ttl=ttl)
        for wait in (-1, "5s", None):
            await refuse("wait", name, wait=wait)
        for holder in ("", 7, "a\nb", "x" * 300):
            await refuse("holder", name, holder=holder)
        async with await acquire(name) as role:
            for callback in (None, "stop", asyncio.sleep):
                with self.assertRaises(InvalidArgument):
                    role.on_lost(callback)
            for field, call in (
                ("payload", role.publish("MODEL_PROMOTED", [1])),
                ("events[0]", role.publish_many([7])),
                ("type", role.publish("LEADER_ELECTED")),
                ("type", role.publish("ROLE_LOST")),
                ("role", self.log.publish_under(" a", 1, [])),
                ("fence", self.log.publish_under(name, 0, [])),
            ):
                with self.subTest(field=field), self.assertRaises(InvalidArgument) as refused:
                    await call
                self.assertEqual(refused.exception.field, field)
            self.assertTrue((await role.publish("MODEL_PROMOTED", self.event())).offset)
        await self.refused(InvalidArgument, "invalid_argument", "role", self.log.role(""))
        await self.refused(InvalidArgument, "invalid_argument", "role", self.log.revoke_role("a\nb"))

    # Allocations.

    async def allocate(self, amounts: dict[str, int], **options: Any) -> Any:
        """Allocate by another client."""
        log = self.client()
        self.addAsyncCleanup(log.close)
        return await log.allocate(amounts, **options)

    async def queue(self, waiting: int, amounts: dict[str, int], **options: Any) -> asyncio.Future[Any]:
        """Allocate in the background, as the one that makes it so many that wait for the resource of this test."""
        started = asyncio.ensure_future(self.allocate(amounts, **options))

        async def it_waits() -> bool:
            return (await self.log.resource(self.run_id))["waiting"] == waiting

        await self.eventually(it_waits)
        return started

    async def test_who_waits_for_an_allocation_gets_it_by_priority_then_by_arrival(self) -> None:
        log, net = self.log, self.run_id
        self.assertEqual(
            await log.set_resource(net, 100, unit="Mbit/s"),
            {"resource": net, "capacity": 100, "unit": "Mbit/s", "preemptible": False, "granted": 0,
             "allocations": 0, "waiting": 0},
        )  # fmt: skip
        async with await log.allocate({net: 60}, holder="a", ttl=30) as first:
            self.assertEqual((first.holder, first.amounts, first.held), ("a", {net: 60}, True))
            first.check()
            normal = await self.queue(1, {net: 50}, holder="b")
            # What would fit does not overtake what waits before it.
            late = await self.queue(2, {net: 10}, holder="c")
            high = await self.queue(3, {net: 90}, holder="d", priority="high")
            info = await log.allocation(first.id)
            self.assertEqual((info["fence"], info["ttl"], info["granted"]), (first.fence, "30s", True))
            waiting = [(x["holder"], x["priority"]) for x in await log.allocations()
                       if net in x["amounts"] and not x["granted"]]  # fmt: skip
            self.assertEqual(sorted(waiting), [("b", "NORMAL"), ("c", "NORMAL"), ("d", "HIGH")])
            resource = await log.resource(net)
            self.assertEqual((resource["granted"], resource["allocations"]), (60, 1))
            self.assertIn(resource, await log.resources())
            await self.refused(Conflict, "conflict", "resource", log.remove_resource(net))
        # What is released is neither held nor lost.
        self.assertEqual((first.held, first.lost.is_set()), (False, False))
        for use in (first.check, lambda: first.__aenter__()):
            with self.assertRaises(AllocationLost) as over:
                used = use()
                await used
            self.assertIn("released", over.exception.message)
        second = await high
        self.assertFalse(normal.done() or late.done())
        self.assertTrue(await second.release())
        third, fourth = await normal, await late
        for one in (third, fourth):
            self.assertTrue(await one.release())
            self.assertTrue(await one.release())
        granted = await self.read_of(first, second, third, fourth, types=["ALLOCATION_GRANTED"])
        self.assertEqual([event.payload["holder"] for event in granted], ["a", "d", "b", "c"])
        self.assertEqual([event.offset for event in granted], [one.fence for one in (first, second, third, fourth)])
        self.assertEqual((await log.remove_resource(net))["granted"], 0)
        await self.refused(NotFound, "not_found", "resource", log.resource(net))

    async def read_of(self, *allocations: Any, types: list[str]) -> list[Event]:
        """Return the events about allocations."""
        keys = [one.id for one in allocations]
        return [event async for event in self.log.tail("start", types=types, keys=keys, until_end=True)]

    async def test_an_allocation_is_all_or_nothing(self) -> None:
        net, disk = self.run_id, self.run_id + "-disk"
        await self.log.set_resource(net, 100)
        await self.log.set_resource(disk, 1)
        first = await self.allocate({disk: 1})
        both = await self.queue(1, {net: 100, disk: 1})
        # It reserves nothing while it waits, and does not give up its place for anything.
        for wait in (False, 0, 0.2):
            with self.subTest(wait=wait):
                error = await self.refused(NotGranted, "not_granted", "amounts", self.log.allocate({net: 1}, wait=wait))
                self.assertTrue(error.retryable)
        self.assertEqual((await self.log.resource(net))["granted"], 0)
        self.assertEqual((await self.log.resource(net))["waiting"], 1)
        await first.release()
        second = await both
        self.assertEqual((await self.log.resource(net))["granted"], 100)
        await second.release()
        for name in (net, disk):
            await self.log.remove_resource(name)

    async def test_a_holder_finds_with_a_renewal_that_it_was_preempted(self) -> None:
        net = self.run_id
        await self.log.set_resource(net, 100, preemptible=True)
        low = await self.allocate({net: 80}, priority="LOW", ttl=2)
        called: list[str] = []
        low.on_lost(lambda: called.append("lost"))
        critical = await self.allocate({net: 90}, priority="CRITICAL", holder="urgent")

        async def is_reported() -> bool:
            return bool(called)

        with self.assertLogs("ringlog", "WARNING") as logged:
            await self.eventually(is_reported)
        self.assertIn(f"allocation {low.id} is lost: {net}=80 with the fence {low.fence}", logged.output[0])
        self.assertEqual((low.held, low.lost.is_set(), called), (False, True, ["lost"]))
        with self.assertRaises(AllocationLost):
            low.check()
        [event] = await self.read_of(low, types=["JOB_PREEMPTED"])
        evidence = {name: event.payload[name] for name in ("resource", "capacity", "granted", "wanted", "by")}
        self.assertEqual(evidence, {"resource": net, "capacity": 100, "granted": 80, "wanted": 90, "by": critical.id})
        self.assertTrue(await critical.release())
        await self.log.remove_resource(net)

    async def test_an_allocation_is_renewed(self) -> None:
        net = self.run_id
        await self.log.set_resource(net, 1)
        one = await self.allocate({net: 1}, ttl=2)
        before = (await self.log.allocation(one.id))["renewed_at"]
        await self.elapse(100)  # in memory more than the ttl: who lives renews

        async def is_renewed() -> bool:
            return (await self.log.allocation(one.id))["renewed_at"] > before

        await self.eventually(is_renewed)
        one.check()
        self.assertTrue(await one.release())
        await self.log.remove_resource(net)

    async def test_the_allocation_of_a_killed_process_is_free_after_its_ttl(self) -> None:
        net = self.run_id
        await self.log.set_resource(net, 1)
        one = await self.allocate({net: 1}, ttl=2)
        waiting = await self.queue(1, {net: 1})
        kill(one._blocking if isinstance(one, Awaitable) else one)
        self.assertEqual((one.held, one.lost.is_set()), (False, False))
        await self.elapse(2)
        next_ = await waiting
        [lost] = await self.read_of(one, types=["ALLOCATION_LOST"])
        self.assertEqual((lost.payload["cause"], lost.payload["fence"]), ("expired", one.fence))
        self.assertTrue(await next_.release())
        await self.log.remove_resource(net)

    async def test_closing_the_client_releases_its_allocations_and_ends_its_waits(self) -> None:
        net, log = self.run_id, self.client()
        await self.log.set_resource(net, 2)
        one = await log.allocate({net: 1})
        waiting = asyncio.ensure_future(log.allocate({net: 2}, ttl=2))

        async def it_waits() -> bool:
            return (await self.log.resource(net))["waiting"] == 1

        await self.eventually(it_waits)
        await log.close()
        with self.assertRaises(Closed):
            await waiting
        self.assertEqual((one.held, one.lost.is_set()), (False, False))
        with self.assertRaises(Closed):
            await log.allocate({net: 1})
        self.assertEqual((await self.log.remove_resource(net))["waiting"], 0)

    async def test_a_request_that_is_released_or_does_not_fit_any_more_waits_no_longer(self) -> None:
        net = self.run_id
        await self.log.set_resource(net, 10)
        one = await self.allocate({net: 1})
        released = await self.queue(1, {net: 10}, ttl=2)
        [waits] = [x for x in await self.log.allocations() if net in x["amounts"] and not x["granted"]]
        await self.log.release_allocation(waits["allocation"])
        await self.log.release_allocation(waits["allocation"])
        with self.assertRaises(AllocationLost) as over:
            await released
        self.assertIn("released", over.exception.message)
        large = await self.queue(1, {net: 10}, ttl=2)
        await self.log.set_resource(net, 9)
        with self.assertRaises(Conflict) as refused:
            await large
        self.assertEqual((refused.exception.field, refused.exception.reason), ("amounts", "over_capacity"))
        # An operator takes away what was granted.
        await self.log.release_allocation(one.id)
        await self.refused(NotFound, "not_found", "allocation", self.log.allocation(one.id))
        self.assertEqual((await self.log.remove_resource(net))["granted"], 0)

    async def test_what_is_refused_of_an_allocation(self) -> None:
        net = self.run_id
        await self.log.set_resource(net, 10)

        async def refuse(kind: type[RinglogError], field: str, amounts: Any, **options: Any) -> None:
            with self.subTest(amounts=amounts, **options), self.assertRaises(kind) as refused:
                await self.log.allocate(amounts, **options)
            self.assertEqual(refused.exception.field, field)
            self.assertTrue(refused.exception.remedy)

        for wrong in (None, "net", [net], {}, {net: 0}, {f"{net}-{i}": 1 for i in range(17)}):
            await refuse(InvalidArgument, "amounts", wrong)
        for amount in (-1, 1.5, "1", True, None):
            with self.subTest(amount=amount), self.assertRaises(InvalidArgument):
                await self.log.allocate({net: amount})
        await refuse(NotFound, "amounts", {net: 1, "none": 1})
        await refuse(Conflict, "amounts", {net: 11})
        for ttl in (1, 86401, "15s", None, True):
            await refuse(InvalidArgument, "ttl", {net: 1}, ttl=ttl)
        for wait in (-1, "5s", None):
            await refuse(InvalidArgument, "wait", {net: 1}, wait=wait)
        for holder in ("", 7, "a\nb", "x" * 300):
            await refuse(InvalidArgument, "holder", {net: 1}, holder=holder)
        for priority in ("URGENT", 7):
            await refuse(InvalidArgument, "priority", {net: 1}, priority=priority)
        async with await self.log.allocate({net: 1}, priority="") as one:
            self.assertEqual((await self.log.allocation(one.id))["priority"], "NORMAL")
        for field, call in (
            ("resource", self.log.resource("")),
            ("resource", self.log.set_resource("a\nb", 1)),
            ("capacity", self.log.set_resource(net, -1)),
            ("capacity", self.log.set_resource(net, (1 << 53) + 1)),
            ("capacity", self.log.set_resource(net, None)),
            ("unit", self.log.set_resource(net, 1, unit="u" * 65)),
            ("allocation", self.log.allocation("")),
            ("allocation", self.log.release_allocation(7)),
        ):
            await self.refused(InvalidArgument, "invalid_argument", field, call)
        self.assertEqual((await self.log.remove_resource(net))["capacity"], 10)
        await self.refused(NotFound, "not_found", "resource", self.log.remove_resource(net))

    async def test_a_closed_client_says_so(self) -> None:
        await self.log.publish_soon("DATA_SYNC_COMPLETED", self.event(), key=self.run_id)
        await self.log.close()
        with self.assertRaises(Closed):
            await self.log.publish("DATA_SYNC_COMPLETED", {})
        with self.assertRaises(Closed):
            await self.log.publish_soon("DATA_SYNC_COMPLETED", {})
        with self.assertRaises(Closed):
            self.log.tail()
        await self.log.close()
        with Client(self.urls) as other:
            self.assertEqual(len(list(other.tail("start", keys=[self.run_id], until_end=True))), 1)

    # Calls.

    def answer(self, kind: str, payload: dict[str, Any], run: str, to: str = "TRAINING_STARTED") -> None:
        """Have another client publish a reply to the next event of a type and run."""

        def work() -> None:
            with Client(self.urls) as other, other.tail("start", types=[to]) as tail:
                for event in tail:
                    if event.correlation_id == run:
                        other.publish(kind, payload, correlation_id="another run", dedup=False)
                        other.publish("HANDLER_FAILED", {"offset": event.offset}, correlation_id=run, dedup=False)
                        other.publish(kind, {"offset": event.offset, **payload}, correlation_id=run, dedup=False)
                        return

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 30)

    async def test_a_run_is_followed_by_its_correlation_id(self) -> None:
        for kind in ("TRAINING_STARTED", "TRAINING_COMPLETED"):
            await self.log.publish(kind, self.event(), correlation_id=self.run_id)
        chain = await self.log.chain(self.run_id)
        self.assertEqual([link["type"] for link in chain["events"]], ["TRAINING_STARTED", "TRAINING_COMPLETED"])
        (run,) = chain["flows"]
        self.assertEqual((run["flow"], run["edges"][0]["state"]), ("training_pipeline", "taken"))
        self.assertEqual([missing["to"] for missing in run["next"]], ["EVALUATION_STARTED"])
        await self.refused(NotFound, "not_found", "correlation_id", self.log.chain(self.run_id + "-other"))
        wrong = self.log.chain(self.run_id, flow="none")
        await self.refused(InvalidArgument, "invalid_argument", "flow", wrong)

    async def test_a_flow_is_registered_and_followed_by_a_payload_field(self) -> None:
        flow = {"name": "contract", "edges": [["CONTRACT_MADE", "CONTRACT_MET"]], "run_by": ["clause"]}
        self.assertIn("CONTRACT_MADE is not in the catalogue", (await self.log.register_flow(flow))[0]["message"])
        flows = await self.log.flows()
        self.assertEqual([one["edges"] for one in flows if one["name"] == "contract"], [flow["edges"]])
        self.assertEqual([one["name"] for one in flows][:2], ["training_pipeline", "health_recovery"])
        await self.log.publish("CONTRACT_MADE", {"clause": self.run_id})
        chain = await self.log.chain(f"clause={self.run_id}", flow="contract")
        self.assertEqual("CONTRACT_MET", chain["flows"][0]["next"][0]["to"])
        # A call goes by it, too.
        self.answer("CONTRACT_MET", {}, self.run_id, to="CONTRACT_MADE")
        called = await self.log.call(
            "CONTRACT_MADE", self.event(), correlation_id=self.run_id, timeout=self.patience, dedup=False
        )
        self.assertEqual((called.success, called.reply.type), (True, "CONTRACT_MET"))
        await self.log.remove_flow("contract")
        await self.refused(NotFound, "not_found", "name", self.log.remove_flow("contract"))

    async def test_a_call_returns_the_outcome_of_its_run(self) -> None:
        for i, (kind, payload, options, success, error) in enumerate(
            (
                ("TRAINING_COMPLETED", {"loss": 0.5}, {}, True, ""),
                ("TRAINING_FAILED", {"error": "no gpu"}, {}, False, "no gpu"),
                ("TRAINING_FAILED", {"error": 7}, {}, False, "TRAINING_FAILED"),
                ("TRAINING_COMPLETED", {"success": False, "reason": "nan"}, {}, False, "nan"),
                ("HANDLER_FAILED", {"answer": True, "error": "exit status 3"}, {}, False, "exit status 3"),
                ("CALL_DONE", {}, {"reply": "call.done"}, True, ""),
                ("TRAINING_FAILED", {}, {"reply": ["TRAINING_FAILED"]}, True, ""),
                ("CALL_OFF", {}, {"failure": ["CALL_OFF"]}, False, "CALL_OFF"),
            )
        ):
            run = f"{self.run_id}-{i}"
            with self.subTest(kind, **payload):
                await self.log.publish(kind, {"offset": 0, **payload}, correlation_id=run, dedup=False)  # before it
                self.answer(kind, payload, run)
                result = await self.log.call(
                    "training.started", self.event(), correlation_id=run, dedup=False, timeout=self.patience, **options
                )
                self.assertEqual((result.success, result.error, result.reply.type), (success, error, kind))
                self.assertEqual((result.correlation_id, result.duplicate), (run, False))
                self.assertEqual(result.reply.payload["offset"], result.offset)
                self.assertGreaterEqual(result.duration_seconds, 0.0)

    async def test_a_call_follows_a_run_by_payload_fields(self) -> None:
        # As the platform sends them: without correlation ids.
        await self.log.register_flow({"name": "training_pipeline", "run_by": ["config_key", "iteration"]})
        self.addAsyncCleanup(self.log.remove_flow, "training_pipeline")
        for i, (kind, named, fields, success) in enumerate(
            (
                ("TRAINING_COMPLETED", {"iteration": 7}, {}, True),
                ("TRAINING_FAILED", {"iteration": "7"}, {}, False),
                ("TRAINING_COMPLETED", {"iteration": 7}, {"correlation_id": "another"}, True),
                ("TRAINING_COMPLETED", {}, {"correlation_id": "{run}"}, True),
                ("TRAINING_COMPLETED", {}, {"causation_id": "{offset}"}, True),
            )
        ):
            with self.subTest(kind, named=named, fields=fields):
                key = {"config_key": f"{self.run_id}-{i}"}
                # The last one alone is of the run.
                self.reply_to(
                    key["config_key"],
                    (kind, {**key, "iteration": 8}, {}),
                    (kind, {**key, "iteration": 6}, {"correlation_id": "{run}"}),
                    (kind, key, {}),
                    (kind, {**key, **named, "last": True}, fields),
                )
                started = {**key, "iteration": 7}
                result = await self.log.call("TRAINING_STARTED", started, timeout=self.patience, dedup=False)
                self.assertEqual((result.success, result.reply.payload.get("last")), (success, True))

        # The outcome of an event that was published without a correlation id, and the error without an outcome.
        started = {"config_key": self.run_id, "iteration": 1}
        first = await self.log.publish("TRAINING_STARTED", started)
        reply_at = await self.log.publish("TRAINING_COMPLETED", started)
        result = await self.log.call("TRAINING_STARTED", started, timeout=self.patience)
        self.assertEqual((result.duplicate, result.correlation_id), (True, ""))
        self.assertEqual((result.offset, result.reply.offset), (first.offset, reply_at.offset))
        with self.assertRaises(NoReply) as refused:
            await self.log.call("TRAINING_STARTED", {**started, "iteration": 2}, timeout=0.3)
        self.assertIn(f"run config_key={self.run_id},iteration=2 or ", str(refused.exception))

    def reply_to(self, config_key: str, *replies: tuple[str, dict[str, Any], dict[str, str]]) -> None:
        """Have another client publish replies to the next TRAINING_STARTED with a config_key."""

        def work() -> None:
            with Client(self.urls) as other, other.tail("start", types=["TRAINING_STARTED"]) as tail:
                started = next(event for event in tail if event.payload.get("config_key") == config_key)
                names = {"run": started.correlation_id, "offset": started.offset}
                for kind, payload, fields in replies:
                    other.publish(kind, payload, dedup=False, **{k: v.format(**names) for k, v in fields.items()})

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        self.addCleanup(thread.join, 30)

    async def test_a_duplicate_call_returns_the_outcome_of_the_original(self) -> None:
        first = await self.log.publish("TRAINING_STARTED", {**self.event(), "correlation_id": self.run_id})
        reply = await self.log.publish("TRAINING_COMPLETED", self.event(), correlation_id=self.run_id)
        result = await self.log.call("TRAINING_STARTED", {**self.event(), "correlation_id": self.run_id})
        self.assertTrue(result.success and result.duplicate)
        self.assertEqual((result.offset, result.reply.offset), (first.offset, reply.offset))
        self.assertEqual(result.correlation_id, self.run_id)
        await self.log.publish("TRAINING_STARTED", self.event())
        error = await self.refused(
            InvalidArgument, "invalid_argument", "correlation_id", self.log.call("TRAINING_STARTED", self.event())
        )
        self.assertIn("dedup=False", error.remedy)

    async def test_a_call_without_an_outcome(self) -> None:
        began = time.monotonic()
        with self.assertRaises(NoReply) as refused:
            await self.log.call("TRAINING_STARTED", self.event(), timeout=0.3, dedup=False)
        self.assertLess(time.monotonic() - began, 5.0)
        self.assertIsInstance(refused.exception, TimeoutError)
        self.assertIn("TRAINING_COMPLETED, TRAINING_FAILED", str(refused.exception))
        started = await self.log.get(refused.exception.offset)
        self.assertEqual(started.payload, self.event())
        self.assertIn(started.correlation_id, str(refused.exception))
        for field, options in (
            ("reply", {}),
            ("reply", {"reply": "CALL_*"}),
            ("failure", {"reply": "CALL_DONE", "failure": ["call.done"]}),
        ):
            call = self.log.call
            with self.subTest(**options), self.assertRaises(InvalidArgument) as wrong:
                await call("CALL_ASKED", self.event(), **options)
            self.assertEqual(wrong.exception.field, field)
            self.assertTrue(wrong.exception.remedy)


def setUpModule() -> None:
    # A member that is closed waits for the answer to its last call, which takes that long where there is no event.
    patch = mock.patch("ringlog._core.member.LONG_POLL", 0.1)
    patch.start()
    unittest.addModuleCleanup(patch.stop)


class OnNodes(Contract):
    """A cluster of real nodes."""

    voters: int

    def place(self) -> None:
        self.urls = shared(self.voters).urls

    async def elapse(self, seconds: float) -> None:
        """Let real time pass where something waits for it: tests wait for what it changes."""

    def now(self) -> float:
        return time.monotonic()

    # What only nodes have: documents and members.

    async def test_views_of_the_cluster(self) -> None:
        self.assertTrue(await self.log.audit())
        self.assertTrue((await self.log.audit(live=True))["live"])
        self.assertEqual((await self.log.audit_coordinator("UnifiedHealthManager"))["name"], "health_manager")

    async def test_a_tail_has_what_meets_its_condition(self) -> None:
        offsets = await self.publish(5)
        async with self.log.tail("start", keys=[self.run_id], where="payload.i > 1", limit=2) as tail:
            self.assertEqual([event.payload["i"] async for event in tail], [2, 3])
        self.assertEqual([event.payload["i"] for event in await self.read(where="payload.i != 3")], [0, 1, 2, 4])
        with self.assertLogs("ringlog", "WARNING") as logged:
            self.assertEqual(await self.read(where="payload.m > 1"), [])
        self.assertEqual(len(logged.output), 1)
        self.assertIn(f"where could not be evaluated for event {offsets[0]}", logged.output[0])
        with self.assertRaises(InvalidArgument) as wrong:
            await self.read(where="payload.i >")
        self.assertEqual((wrong.exception.code, wrong.exception.field), ("invalid_argument", "where"))
        self.assertIn("line 1, column", str(wrong.exception))

    async def test_transfers_and_copies(self) -> None:
        name, host = f"games/{os.urandom(4).hex()} a.db", os.urandom(4).hex()
        about = {"sync_id": name, "dataset": name, "source_node": "nas"}
        await self.log.publish("DATA_SYNC_STARTED", {**about, "targets": [host, f"{host}-2"]})
        await self.log.publish("DATA_SYNC_COMPLETED", {**about, "host": host, "bytes": 5, "version": 2})
        (sent,) = await self.log.transfers(host=host)
        self.assertEqual((sent["state"], sent["from"], sent["bytes"]), ("completed", "nas", 5))
        self.assertEqual(await self.log.transfers(host=host, state="running"), [])
        (running,) = await self.log.transfers(host=f"{host}-2", state="running")
        self.assertNotIn("ended", running)
        self.assertNotIn(running, await self.log.transfers(overdue=True))
        (copy,) = await self.log.where(name)
        self.assertEqual([copy], await self.log.held(host))
        self.assertEqual((copy["host"], copy["version"], copy["transfer"]), (host, "2", sent["transfer"]))
        with self.assertRaises(InvalidArgument):
            await self.log.transfers(state="done")

    async def test_views_have_rows(self) -> None:
        view = self.log.view(f"v-{os.urandom(4).hex()}")
        fields = {"last": {"kind": "last", "of": "payload.n"}, "n": {"kind": "count"}}
        declared = {"types": ["DATA_SYNC_COMPLETED"], "sources": [self.run_id], "fields": fields}
        defined = await view.define(declared)
        self.assertEqual((defined["name"], defined["rows"]), (view.name, 0))
        self.assertTrue((await view.define(declared))["existing"])
        self.assertIn(view.name, [one["name"] for one in await self.log.views()])
        offsets = [
            (await self.log.publish("DATA_SYNC_COMPLETED", {"n": n}, key=key, source=self.run_id, dedup=False)).offset
            for n, key in enumerate(["a b", "c", "a b"])
        ]
        row = await view.get("a b")
        self.assertEqual((row["fields"], row["offset"]), ({"last": 2, "n": 2}, offsets[2]))
        self.assertEqual((await view.get("a b", at=offsets[1]))["fields"], {"last": 0, "n": 1})
        self.assertEqual([row["key"] for row in await view.rows()], ["a b", "c"])
        self.assertEqual([row["fields"]["n"] for row in await view.rows(at=offsets[0])], [1])
        with self.assertRaises(NotFound):
            await view.get("nobody")
        with self.assertRaises(InvalidArgument) as wrong:
            await view.define({**declared, "key": "payload.matches(source)"})
        self.assertIn("column", str(wrong.exception))
        info = await view.info()
        self.assertEqual((info["rows"], info["digests"][-1]["offset"]), (2, info["at"]))
        async with view.watch("a b") as rows:
            changes = rows.__aiter__()
            self.assertEqual((await changes.__anext__())["row"]["fields"]["n"], 2)
            await self.log.publish("DATA_SYNC_COMPLETED", {"n": 9}, key="c", source=self.run_id, dedup=False)
            await self.log.publish("DATA_SYNC_COMPLETED", {"n": 9}, key="a b", source=self.run_id, dedup=False)
            change = await changes.__anext__()
            self.assertEqual((change["row"]["key"], change["row"]["fields"]["last"]), ("a b", 9))
            self.assertGreater(change["at"], offsets[2])
            await view.remove()
            with self.assertRaises(NotFound):
                await changes.__anext__()
        with self.assertRaises(NotFound):
            await view.info()


class OnMemory(Contract):
    """A memory log for each test."""

    patience = 5.0

    def place(self) -> None:
        self.memory = MemoryLog()
        self.urls = self.memory.url

    async def elapse(self, seconds: float) -> None:
        self.memory.clock.advance(seconds)

    def now(self) -> float:
        return self.memory.clock.now().timestamp()

    def now_utc(self) -> float:
        return self.now()

    async def test_a_tail_has_what_meets_its_condition(self) -> None:
        with self.assertRaises(RinglogError) as refused:
            await self.read(where="payload.i > 1")
        self.assertEqual((refused.exception.code, refused.exception.field), ("not_implemented", "where"))
        self.assertIn("ringlog dev", refused.exception.remedy)

    async def test_views_of_the_cluster(self) -> None:
        for view in (
            self.log.audit,
            lambda: self.log.audit_coordinator("health_manager"),
            self.log.transfers,
            lambda: self.log.where("hex8_2p"),
            lambda: self.log.held("gpu-7"),
            self.log.views,
            lambda: self.log.view("v").get("k"),
        ):
            with self.assertRaises(RinglogError) as refused:
                await view()
            self.assertEqual(refused.exception.code, "not_implemented")
            self.assertIn("ringlog dev", refused.exception.remedy)


class Blocking(Contract):
    def client(self, **options: Any) -> Any:
        return Awaitable(Client(options.pop("url", self.urls), **options))

    async def send(self, *args: Any, **options: Any) -> Any:
        return drive(self.log._blocking._operations._calls.open(*args, **options))


class Asyncio(Contract):
    def client(self, **options: Any) -> Any:
        return AsyncClient(options.pop("url", self.urls), **options)

    async def send(self, *args: Any, **options: Any) -> Any:
        return await self.log._calls.open(*args, **options)

    async def test_many_tasks_publish_at_a_time(self) -> None:
        results = await asyncio.gather(
            *(self.log.publish("DATA_SYNC_COMPLETED", self.event(i), key=self.run_id) for i in range(200))
        )
        self.assertEqual(len({result.offset for result in results}), 200)

    async def test_a_canceled_read_leaves_the_client_usable(self) -> None:
        async with self.log.tail(keys=[self.run_id]) as tail:
            with self.assertRaises(asyncio.TimeoutError):
                await asyncio.wait_for(tail.__anext__(), 0.1)
        self.assertEqual(len(await self.publish(1)), 1)

    async def test_a_canceled_wait_for_a_role_leaves_the_queue(self) -> None:
        async with self.log.acquire_role(self.run_id) as role:
            waiting = asyncio.ensure_future(self.acquire("b"))
            await self.eventually(lambda: self.waits(1))
            waiting.cancel()
            with self.assertRaises(asyncio.CancelledError):
                await waiting
            self.assertTrue(await self.waits(0))
        async with role._operations.acquire_role(self.run_id, wait=False) as role:
            self.assertTrue(role.held)

    async def test_a_member_has_left_when_its_block_ends_also_where_a_task_closes_it(self) -> None:
        async with self.log.group(self.run_id, keys=[self.run_id]) as member:
            closing = asyncio.ensure_future(member.close())
            async for _ in member:
                pass
        self.assertEqual(await self.log.group_members(self.run_id), [])
        await closing
        await self.log.delete_group(self.run_id)


class BlockingOnMemory(Blocking, OnMemory, unittest.IsolatedAsyncioTestCase):
    pass


class AsyncioOnMemory(Asyncio, OnMemory, unittest.IsolatedAsyncioTestCase):
    async def elapse(self, seconds: float) -> None:
        await self.memory.clock.advance_async(seconds)


class BlockingOnANode(Blocking, OnNodes, unittest.IsolatedAsyncioTestCase):
    voters = 1


class AsyncioOnANode(Asyncio, OnNodes, unittest.IsolatedAsyncioTestCase):
    voters = 1


class BlockingOnACluster(Blocking, OnNodes, unittest.IsolatedAsyncioTestCase):
    voters = 3


class AsyncioOnACluster(Asyncio, OnNodes, unittest.IsolatedAsyncioTestCase):
    voters = 3


class Interfaces(unittest.TestCase):
    def test_both_clients_have_the_same_methods_and_documents(self) -> None:
        from ringlog import aio, client

        pairs = [
            (client.Client, aio.AsyncClient),
            (client.Tail, aio.AsyncTail),
            (client.Cursor, aio.AsyncCursor),
            (client.Member, aio.AsyncMember),
            (client.Role, aio.AsyncRole),
            (client.Allocation, aio.AsyncAllocation),
            (client.View, aio.AsyncView),
            (client.RowWatch, aio.AsyncRowWatch),
        ]
        for blocking, asynchronous in pairs:
            names = {name for name in dir(blocking) if not name.startswith("_")}
            self.assertEqual(names, {name for name in dir(asynchronous) if not name.startswith("_")})
            for name in names:
                one, other = getattr(blocking, name), getattr(asynchronous, name)
                self.assertEqual(one.__doc__, other.__doc__, name)
                if callable(one):
                    self.assertEqual(
                        str(inspect.signature(one)).partition(" -> ")[0],
                        str(inspect.signature(other)).partition(" -> ")[0],
                    )

    def test_documents_name_schemas_that_exist(self) -> None:
        document = json.loads((ROOT / "internal" / "server" / "openapi.json").read_text(encoding="utf-8"))
        package = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "python" / "ringlog").rglob("*.py"))
        named = set(re.findall(r"the schema (\w+)", package))
        self.assertGreater(len(named), 10)
        self.assertEqual(named - set(document["components"]["schemas"]), set())

    def test_the_shapes_of_answers_are_those_of_their_schemas(self) -> None:
        from ringlog import answers

        document = json.loads((ROOT / "internal" / "server" / "openapi.json").read_text(encoding="utf-8"))
        for shape, name in (
            (answers.CursorInfo, "Cursor"),
            (answers.GroupInfo, "GroupInfo"),
            (answers.MemberInfo, "GroupMember"),
            (answers.Letter, "Letter"),
            (answers.LettersResult, "LettersResult"),
            (answers.Scheduled, "Scheduled"),
            (answers.ResourceInfo, "Resource"),
            (answers.AllocationInfo, "Allocation"),
            (answers.Transfer, "Transfer"),
            (answers.TransferStep, "TransferStep"),
            (answers.Copy, "Copy"),
            (answers.ViewInfo, "View"),
            (answers.ViewDigest, "ViewDigest"),
            (answers.ViewRow, "ViewRow"),
            (answers.RoleInfo, "Role"),
            (answers.RoleClaim, "RoleClaim"),
        ):
            schema = document["components"]["schemas"][name]
            self.assertEqual(shape.__required_keys__, set(schema["required"]), name)
            self.assertEqual(shape.__required_keys__ | shape.__optional_keys__, set(schema["properties"]), name)

    def test_the_package_lists_what_it_exports(self) -> None:
        import ringlog

        self.assertEqual(set(dir(ringlog)), {"__version__", *ringlog.__all__})
        self.assertIn("AsyncClient", dir(ringlog))
        for name in dir(ringlog):
            self.assertTrue(hasattr(ringlog, name), name)

    def test_errors_survive_pickling(self) -> None:
        import pickle

        error = pickle.loads(pickle.dumps(Fenced("m", code="fenced", field="f", remedy="r", offset=4)))
        self.assertEqual((type(error), str(error), error.offset, error.field), (Fenced, "fenced: f: m; r", 4, "f"))
        self.assertIsInstance(error, RinglogError)
