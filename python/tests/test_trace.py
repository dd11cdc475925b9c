"""Spans of OpenTelemetry from publish to handler; without its package the tests are skipped."""

from __future__ import annotations

import contextlib
import unittest
from typing import Any

from ringlog import Client, caused_by
from ringlog.errors import InvalidArgument
from ringlog.testing import MemoryLog

trace: Any = None
EXPORTER: Any = None
with contextlib.suppress(ImportError):
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    EXPORTER = InMemorySpanExporter()
    PROVIDER = TracerProvider()
    PROVIDER.add_span_processor(SimpleSpanProcessor(EXPORTER))
    trace.set_tracer_provider(PROVIDER)


def traceparent(span: Any) -> str:
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


@unittest.skipIf(trace is None, "opentelemetry-sdk is not installed")
class TraceTest(unittest.TestCase):
    def setUp(self) -> None:
        EXPORTER.clear()
        self.memory = MemoryLog()  # lives as long as something refers to it
        self.log = Client(self.memory.url)
        self.addCleanup(self.log.close)

    def test_from_publish_to_handler(self) -> None:
        with trace.get_tracer("test").start_as_current_span("caller") as caller:
            first = self.log.publish("DATA_SYNC_COMPLETED", {"n": 1})
        event = self.log.get(first.offset)
        with caused_by(event):
            child = self.log.publish("TRAINING_STARTED", {"n": 2})
        spans = {span.name: span for span in EXPORTER.get_finished_spans()}
        send, process = spans["send DATA_SYNC_COMPLETED"], spans["process DATA_SYNC_COMPLETED"]
        self.assertEqual(event.traceparent, traceparent(send))
        self.assertEqual(send.kind, trace.SpanKind.PRODUCER)
        self.assertEqual(send.parent.span_id, caller.get_span_context().span_id)
        self.assertEqual(send.attributes["messaging.message.id"], str(first.offset))
        self.assertEqual(process.kind, trace.SpanKind.CONSUMER)
        self.assertEqual(process.parent.span_id, send.get_span_context().span_id)
        self.assertTrue(process.parent.is_remote)
        self.assertEqual([link.context.span_id for link in process.links], [send.get_span_context().span_id])
        self.assertEqual(spans["send TRAINING_STARTED"].parent.span_id, process.get_span_context().span_id)
        self.assertEqual(self.log.get(child.offset).traceparent, traceparent(spans["send TRAINING_STARTED"]))

    def test_a_batch_is_one_span(self) -> None:
        results = self.log.publish_many([{"type": "TRAINING_STARTED", "payload": {"n": i}} for i in range(3)])
        (span,) = EXPORTER.get_finished_spans()
        self.assertEqual(span.attributes["messaging.batch.message_count"], 3)
        self.assertEqual({self.log.get(r.offset).traceparent for r in results}, {traceparent(span)})

    def test_errors_are_those_of_the_spans(self) -> None:
        with self.assertRaises(InvalidArgument):
            self.log.publish("no type", {})
        event = self.log.get(self.log.publish("TRAINING_STARTED", {}).offset)
        with self.assertRaises(ZeroDivisionError), caused_by(event):
            raise ZeroDivisionError
        failed = [span.name for span in EXPORTER.get_finished_spans() if not span.status.is_ok]
        self.assertEqual(failed, ["send no type", "process TRAINING_STARTED"])


if __name__ == "__main__":
    unittest.main()
