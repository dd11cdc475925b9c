"""The modules of the platform's old buses, on the log.

    from ringlog.compat.event_router import get_event_bus, publish, subscribe

Each module has the names of the old module: event_router, data_events, event_emitters, event_bus,
stage_events, cross_process_events, dead_letter_queue, data_pipeline_orchestrator (its CircuitBreaker
alone). configure gives the router of the process a client, and a name for durable subscriptions.
"""

from __future__ import annotations

from ringlog.compat._process import configure, get_router, reset_router

__all__ = ["configure", "get_router", "reset_router"]
