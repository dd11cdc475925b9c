"""The parts that need no node: the HTTP parser, what a member reports, endpoints, tokens, positions."""

from __future__ import annotations

import copy
import os
import pickle
import tempfile
import unittest
from collections import deque
from dataclasses import fields
from datetime import datetime, timedelta, timezone
from typing import Any
from unittest import mock

from ringlog import EventType, payloads
from ringlog._core.config import find_endpoints, find_token
from ringlog._core.encode import format_position
from ringlog._core.http import ProtocolError, ResponseParser, encode_request
from ringlog._core.io import drive
from ringlog._core.member import MemberState, span, spans
from ringlog._core.nodes import Nodes
from ringlog._core.notices import Once
from ringlog._core.outcome import replies_to
from ringlog._core.reader import Reader, log_gap
from ringlog._definitions import FLOWS
from ringlog._memory.types import catalogue
from ringlog.errors import Fenced, InvalidArgument, Trimmed
from ringlog.testing import make_delivery, make_event
from tests.cluster import ROOT

PLAIN = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA:  b \r\n\r\nhello"
CHUNKED = (
    b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"2\r\nhe\r\n3;x=y\r\nllo\r\nC\r\n\r\n234567890\r\r\n0\r\nTrailer: t\r\n\r\n"
)


def parse(response: bytes, step: int) -> tuple[bytes, ResponseParser]:
    """Feed a response in pieces of step bytes."""
    parser, body = ResponseParser(), b""
    for at in range(0, len(response), step):
        body += parser.feed(response[at : at + step])
    return body, parser


class Http(unittest.TestCase):
    def test_responses_in_pieces_of_any_size(self) -> None:
        for step in range(1, len(CHUNKED) + 1):
            with self.subTest(step=step):
                body, parser = parse(PLAIN, step)
                self.assertEqual((body, parser.status, parser.headers["a"]), (b"hello", 200, "b"))
                self.assertTrue(parser.complete and parser.reusable)
                body, parser = parse(CHUNKED, step)
                self.assertEqual(body, b"hello\r\n234567890\r")
                self.assertTrue(parser.complete and parser.reusable)

    def test_a_cut_response_is_an_error(self) -> None:
        for response in (PLAIN, CHUNKED):
            for length in range(len(response)):
                with self.subTest(length=length), self.assertRaises(ProtocolError):
                    _, parser = parse(response[:length], 7)
                    parser.feed(b"")

    def test_a_body_without_a_length_ends_with_the_stream(self) -> None:
        body, parser = parse(b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello", 3)
        self.assertFalse(parser.complete)
        parser.feed(b"")
        self.assertEqual((body, parser.complete, parser.reusable), (b"hello", True, False))

    def test_what_is_no_response_is_an_error(self) -> None:
        for response in (
            b"SSH-2.0\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx\r\n",
            b"HTTP/1.1 200 OK\r\nA: " + b"x" * 70_000,
        ):
            with self.subTest(response=response[:40]), self.assertRaises(ProtocolError):
                parse(response, 1000)

    def test_a_request(self) -> None:
        request = encode_request("POST", "/a?b=c", {"Host": "h"}, b"{}")
        self.assertEqual(request, b"POST /a?b=c HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\n\r\n{}")


def delivered(*offsets: int) -> list[dict[str, Any]]:
    return [{"offset": offset} for offset in offsets]


def answer(session: int = 7, **fields: Any) -> dict[str, Any]:
    base: dict[str, Any] = {
        "events": [],
        "revoked": [],
        "refused": [],
        "gaps": [],
        "ack_wait_ms": 30_000,
        "session_timeout_ms": 10_000,
    }
    return {**base, "session": session, "committed": 0, **fields}


class Members(unittest.TestCase):
    def setUp(self) -> None:
        self.state = MemberState("m", 4, 0.0)
        _, sent = self.state.request(0.0, False)
        self.state.answered(answer(events=delivered(1, 2, 3)), sent, 0.0)

    def test_what_was_settled_is_reported_until_it_is_confirmed(self) -> None:
        for offset in (1, 2):
            self.assertEqual(self.state.take(1.0), {"offset": offset})
        self.assertTrue(self.state.settle(1, None, 1.0))
        self.assertTrue(self.state.settle(2, {"offset": 2, "error": "e"}, 1.0))
        self.assertFalse(self.state.settle(2, None, 1.0))
        for _ in range(2):  # the first answer is lost
            request, sent = self.state.request(1.0, False)
            self.assertEqual(request["acks"], [{"from": 1, "to": 1}])
            self.assertEqual(request["nacks"], [{"offset": 2, "error": "e"}])
            self.assertEqual((request["want"], request["wait_ms"]), (3, 0))
        self.state.answered(answer(), sent, 1.0)
        self.assertEqual(self.state.request(1.0, False)[0]["acks"], [])

    def test_a_lost_session_claims_what_is_held(self) -> None:
        self.state.take(1.0)
        self.state.request(1.0, False)
        self.state.failed()
        request, _ = self.state.request(1.0, False)
        self.assertEqual((request["session"], request["progress"]), (0, [{"from": 1, "to": 3}]))

    def test_what_was_revoked_is_not_handed_out(self) -> None:
        self.state.take(1.0)
        self.state.answered(answer(revoked=[{"from": 1, "to": 2}]), {}, 1.0)
        self.assertFalse(self.state.settle(1, None, 1.0))
        self.assertEqual(self.state.take(1.0), {"offset": 3})

    def test_without_contact_nothing_is_handed_out(self) -> None:
        self.assertIsNone(self.state.take(10.1))
        self.state.answered(answer(), {}, 10.2)
        self.assertEqual(self.state.take(10.3), {"offset": 1})

    def test_a_caller_that_does_nothing_releases_what_waits(self) -> None:
        self.state.take(1.0)
        self.assertEqual(self.state.request(30.0, False)[0]["progress"], [{"from": 1, "to": 3}])
        request, _ = self.state.request(31.1, False)
        self.assertEqual(request["nacks"], [{"offset": 2, "released": True}, {"offset": 3, "released": True}])
        self.assertEqual((request["progress"], request["want"], self.state.out), ([], 0, {1: 1.0}))
        self.state.answered(answer(), {2: None, 3: None}, 31.1)
        self.assertGreater(self.state.due_in(31.1, False), 3)
        self.assertIsNone(self.state.take(31.2))  # the caller is back
        self.assertEqual(self.state.request(31.2, False)[0]["want"], 4)

    def test_what_was_taken_back_is_late_only_where_it_took_long(self) -> None:
        self.state.take(0.0)
        self.state.answered(answer(revoked=[span(1)]), {}, 1.0)  # the group was moved
        self.assertEqual(self.state.late, [])
        self.state.take(1.0)
        self.state.answered(answer(revoked=[span(2)]), {}, 31.0)
        self.assertEqual(self.state.late, [2])

        # An ack that is refused is late where it came late, and was not taken in before.
        for settled, session, late in ((31.0, 7, [2]), (61.0, 8, [2]), (61.0, 8, [2, 4])):
            self.state.answered(answer(self.state.session, events=delivered(4)), {}, 31.0)
            self.state.ready = deque(delivered(4))
            self.state.take(31.0)
            self.assertTrue(self.state.settle(4, None, settled))
            _, sent = self.state.request(settled, False)
            self.state.answered(answer(session, refused=[span(4)]), sent, settled)
            self.assertEqual(self.state.late, late)

    def test_progress_is_reported_for_what_waits_and_where_asked_for_what_is_handled(self) -> None:
        self.state.take(1.0)
        self.state.request(1.0, False)
        self.assertEqual(self.state.request(1.0, False)[0]["progress"], [{"from": 2, "to": 3}])
        self.state.auto_progress = True
        self.assertEqual(self.state.request(1.0, False)[0]["progress"], [{"from": 1, "to": 3}])
        self.state.answered(answer(ack_wait_ms=600), {}, 1.0)
        self.assertAlmostEqual(self.state.due_in(1.0, False), 0.2)

    def test_an_idle_member_waits_for_events_and_one_with_acks_does_not(self) -> None:
        for offset in (1, 2, 3):
            self.state.take(1.0)
            self.state.settle(offset, None, 1.0)
        request, sent = self.state.request(1.0, False)
        self.assertEqual((request["acks"], request["wait_ms"]), ([{"from": 1, "to": 3}], 0))
        self.state.answered(answer(), sent, 1.0)
        self.assertEqual(self.state.due_in(1.0, False), 0.0)
        self.assertEqual(self.state.request(1.0, False)[0]["wait_ms"], 1000)

    def test_leaving_releases_what_waits(self) -> None:
        request, _ = self.state.request(1.0, True)
        self.assertTrue(request["leave"])
        self.assertEqual([nack["offset"] for nack in request["nacks"]], [1, 2, 3])

    def test_when_the_next_call_is_due(self) -> None:
        self.assertEqual(self.state.due_in(0.0, False), 10.0 / 3)  # enough waits: only to keep the session
        self.state.take(0.0)
        self.state.settle(1, None, 0.0)
        self.assertEqual(self.state.due_in(0.0, False), 0.0)

    def test_spans(self) -> None:
        self.assertEqual(spans([3, 1, 2, 7]), [{"from": 1, "to": 3}, {"from": 7, "to": 7}])


class Readers(unittest.TestCase):
    def read(self, code: str) -> Reader:
        """Return a reader that has received an event and, with it, the end of the stream by an error."""
        reader = Reader(mock.Mock(), "/v1/events", {"follow": "true"}, "", 0, log_gap)
        reader._answer = mock.Mock()
        reader._take(b'{"offset":7}\n{"end":{"reason":"error","error":{"code":"%s"}}}\n' % code.encode())
        return reader

    def test_an_error_ends_the_reading_after_what_was_received(self) -> None:
        reader = self.read("trimmed")
        event = drive(reader.next())
        self.assertEqual(event and event.offset, 7)
        for _ in range(2):
            with self.assertRaises(Trimmed):
                drive(reader.next())

    def test_a_fenced_reader_drops_what_was_received(self) -> None:
        reader = self.read("fenced")
        for _ in range(2):
            with self.assertRaises(Fenced):
                drive(reader.next())

    def test_what_was_seen_is_new_again_after_its_period(self) -> None:
        once = Once(60)
        with mock.patch("time.monotonic") as clock:
            news = []
            for clock.return_value in (0, 59, 60, 61, 120):
                news.append(once.is_new("a"))
        self.assertEqual(news, [True, False, True, False, True])


class Testing(unittest.TestCase):
    def test_an_event_is_as_a_reader_gets_it(self) -> None:
        at = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
        event = make_event("TRAINING_COMPLETED", {"at": at}, offset=3, key="k", time=at, dedup=False)
        self.assertEqual((event.offset, event.type, event.value), (3, "TRAINING_COMPLETED", "training_completed"))
        self.assertEqual((event.payload, event.key, event.time), ({"at": "2026-01-05T12:00:00Z"}, "k", at))
        self.assertIsNotNone(event.appended_at.tzinfo)
        typed = make_event(payloads.DataSyncCompleted(host="gpu-7"))
        self.assertEqual(typed.decode(payloads.DataSyncCompleted).host, "gpu-7")
        with self.assertRaises(InvalidArgument):
            make_event("TRAINING_COMPLETED", {"loss": float("nan")})

    def test_a_delivery_keeps_what_is_reported_first(self) -> None:
        for report, outcome in (
            (lambda d: d.ack(), ("acked", "", 0)),
            (lambda d: d.nack(delay=1.5, error=ValueError("e")), ("nacked", "ValueError: e", 1.5)),
            (lambda d: d.reject("e"), ("rejected", "e", 0)),
            (lambda d: d.release(), ("released", "", 0)),
        ):
            with self.subTest(outcome=outcome):
                delivery = make_delivery("DATA_SYNC_COMPLETED", {"host": "gpu-7"}, number=2)
                self.assertEqual((delivery.delivery, delivery.outcome), (2, ""))
                self.assertTrue(delivery.progress())
                self.assertTrue(report(delivery))
                self.assertFalse(delivery.ack() or delivery.progress())
                self.assertEqual((delivery.outcome, delivery.error, delivery.delay), outcome)

    def test_a_delay_that_is_none_is_refused(self) -> None:
        for delay in ("x" * 1000, -1, 86401, float("nan"), float("inf"), None):
            with self.subTest(delay=delay), self.assertRaises(InvalidArgument) as refused:
                make_delivery("DATA_SYNC_COMPLETED").nack(delay=delay)  # type: ignore[arg-type]
            self.assertEqual(refused.exception.field, "delay")
            self.assertLess(len(str(refused.exception)), 200)


class Configuration(unittest.TestCase):
    def test_endpoints(self) -> None:
        with mock.patch.dict(os.environ, {"RINGRIFT_COORDINATOR_URL": "a:1"}, clear=True):
            self.assertEqual([e.url for e in find_endpoints(None)], ["http://a:1"])
            os.environ["RINGLOG_ENDPOINTS"] = "https://b/base/, [::1]:8,"
            self.assertEqual([e.url for e in find_endpoints(None)], ["https://b:443/base", "http://[::1]:8"])
            self.assertEqual([e.url for e in find_endpoints(["c:2"])], ["http://c:2"])
        with mock.patch.dict(os.environ, {}, clear=True):
            self.assertEqual([e.url for e in find_endpoints(None)], ["http://127.0.0.1:8770"])
        for wrong in ("", "ftp://a", "http://a:port", "http://a?b", "http://u:p@a", ","):
            with self.subTest(wrong=wrong), self.assertRaises(InvalidArgument):
                find_endpoints(wrong)

    def test_tokens(self) -> None:
        with tempfile.NamedTemporaryFile("w", suffix=".token") as file, mock.patch.dict(os.environ, {}, clear=True):
            self.assertEqual(find_token(None, None), "")
            os.environ["RINGRIFT_CLUSTER_AUTH_TOKEN"] = " of-the-variable\n"
            self.assertEqual(find_token(None, None), "of-the-variable")
            os.environ["RINGLOG_TOKEN_FILE"] = file.name
            with self.assertRaises(InvalidArgument):
                find_token(None, None)  # empty
            file.write("of-the-file\n")
            file.flush()
            self.assertEqual(find_token(None, None), "of-the-file")
            self.assertEqual(find_token("given", None), "given")
            with self.assertRaises(InvalidArgument):
                find_token(None, "/no/such/file")
            with self.assertRaises(InvalidArgument):
                find_token("line\nbreak", None)

    def test_positions(self) -> None:
        at = datetime(2026, 1, 5, 12, tzinfo=timezone(timedelta(hours=2)))
        self.assertEqual([format_position(p, at) for p in ("start", 7, -3, "36h")], ["start", "7", "-3", "36h"])
        self.assertEqual(format_position(at, at), "@2026-01-05T10:00:00Z")
        self.assertEqual(format_position(timedelta(hours=1), at), "@2026-01-05T09:00:00Z")

    def test_the_leader_is_preferred_and_a_failed_node_comes_last(self) -> None:
        nodes = Nodes(find_endpoints("https://a,https://b,https://c"))
        a, b, c = nodes.all
        nodes.worked(a, "http://b:443")  # a plain address does not make the token travel in clear
        self.assertIs(nodes.pick([], False, False), b)
        nodes.failed(b)
        self.assertIs(nodes.pick([], False, False), a)
        self.assertIs(nodes.pick([a, c], False, False), b)
        self.assertIsNone(nodes.pick([a, c], True, False))
        self.assertEqual(len(nodes.all), 3)

    def test_the_leader_comes_last_for_what_others_serve(self) -> None:
        first = set()
        for _ in range(200):
            nodes = Nodes(find_endpoints("https://a,https://b,https://c"))
            a, b, c = nodes.all
            nodes.worked(a, "https://b:443")
            nodes.worked(b, "https://b:443")
            first.add([a, b, c].index(nodes.pick([], False, True) or b))
            self.assertIs(nodes.pick([a, c], False, True), b)
            nodes.worked(c, "https://c:443")
            nodes.worked(b, "https://c:443")
            self.assertIs(nodes.pick([a], False, True), b)
        self.assertEqual(first, {0, 2})


class Catalogue(unittest.TestCase):
    def test_types_are_their_names(self) -> None:
        self.assertEqual(f"{EventType.TRAINING_COMPLETED}", "TRAINING_COMPLETED")
        self.assertEqual(str(EventType.TRAINING_COMPLETED), "TRAINING_COMPLETED")
        self.assertEqual(EventType("TRAINING_COMPLETED"), "TRAINING_COMPLETED")

    def test_a_field_that_a_payload_has_not_is_refused_with_those_it_has(self) -> None:
        for given, text in (
            ("hostid", "HostOnline has no 'hostid': did you mean host_id?"),
            ("xyz", "HostOnline has no 'xyz': put it into extra={'xyz': ...}, or use host_id, ip"),
        ):
            with self.assertRaises(TypeError) as refused:
                payloads.HostOnline(**{given: "a"})
            self.assertEqual(str(refused.exception), text)
        known = payloads.HostOnline(host_id="a", extra={"host": "b"})
        self.assertEqual(pickle.loads(pickle.dumps(known)), copy.copy(known))

    def test_every_type_has_a_payload(self) -> None:
        kinds = {kind.EVENT_TYPE: kind for kind in payloads.Payload.__subclasses__()}
        self.assertEqual(set(kinds), set(EventType))
        for kind in kinds.values():
            raw = {field.name: 1 for field in fields(kind) if field.name != "extra"} | {"EVENT_TYPE": 2}
            self.assertEqual(kind.from_json(raw).to_json(), raw)
            self.assertEqual(kind().to_json(), {})


class Replies(unittest.TestCase):
    """call decides as event.RepliesTo in Go does."""

    def test_replies_of_the_catalogue_are_those_of_go(self) -> None:
        edges = [edge for flow in FLOWS.values() for edge in flow]
        lines = []
        for name, known in sorted(catalogue().types.items()):
            success, failure = replies_to(name, edges)
            if success and known.status != "cluster":
                lines.append(" ".join([name, "->", *success, "|", *failure]))
        golden = (ROOT / "event" / "testdata" / "replies.golden").read_text()
        self.assertEqual(golden.splitlines(), lines)

    def test_types_that_begin_each_other_have_no_outcome(self) -> None:
        edges = [("A_STARTED", "B_STARTED"), ("B_STARTED", "A_STARTED")]
        self.assertEqual(replies_to("a.started", edges), ([], []))
