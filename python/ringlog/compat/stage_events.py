"""Completion of pipeline stages. In place of app.coordination.stage_events and app.distributed.stage_events."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from datetime import datetime, timezone
from enum import Enum
from typing import Any

from ringlog.compat._event import DataEvent, from_old, name_of, resolve
from ringlog.compat._process import get_router
from ringlog.compat._publication import Publication
from ringlog.compat._subscription import handler_name
from ringlog.compat.event_types import FLOWS, DataEventType
from ringlog.event import Json

StageCallback = Callable[["StageCompletionResult"], Any]


class StageEvent(Enum):
    """A stage that was completed. Stages that are types of the catalogue under another name are sent as those."""

    SELFPLAY_COMPLETE = "selfplay_complete"
    CANONICAL_SELFPLAY_COMPLETE = "canonical_selfplay_complete"
    GPU_SELFPLAY_COMPLETE = "gpu_selfplay_complete"
    SYNC_COMPLETE = "sync_complete"
    PARITY_VALIDATION_COMPLETE = "parity_validation_complete"
    NPZ_EXPORT_COMPLETE = "npz_export_complete"
    TRAINING_COMPLETE = "training_complete"
    TRAINING_STARTED = "training_started"
    TRAINING_FAILED = "training_failed"
    EVALUATION_COMPLETE = "evaluation_complete"
    SHADOW_TOURNAMENT_COMPLETE = "shadow_tournament_complete"
    ELO_CALIBRATION_COMPLETE = "elo_calibration_complete"
    CMAES_COMPLETE = "cmaes_complete"
    PBT_COMPLETE = "pbt_complete"
    NAS_COMPLETE = "nas_complete"
    PROMOTION_COMPLETE = "promotion_complete"
    TIER_GATING_COMPLETE = "tier_gating_complete"
    ITERATION_COMPLETE = "iteration_complete"
    CLUSTER_SYNC_COMPLETE = "cluster_sync_complete"
    MODEL_SYNC_COMPLETE = "model_sync_complete"


# Stages whose type has another name and is no alias of the catalogue.
_TYPES: dict[StageEvent, DataEventType] = {
    StageEvent.PARITY_VALIDATION_COMPLETE: DataEventType.PARITY_VALIDATION_COMPLETED,
    StageEvent.CMAES_COMPLETE: DataEventType.CMAES_COMPLETED,
    StageEvent.PBT_COMPLETE: DataEventType.PBT_COMPLETED,
    StageEvent.NAS_COMPLETE: DataEventType.NAS_COMPLETED,
    StageEvent.MODEL_SYNC_COMPLETE: DataEventType.P2P_MODEL_SYNCED,
}


def type_of(stage: StageEvent | Any) -> DataEventType | str:
    """Return the type under which a stage's completion is in the log. A type of the catalogue is one itself."""
    known = _TYPES.get(stage) if isinstance(stage, StageEvent) else None
    found = known or resolve(stage)
    return found if isinstance(found, DataEventType) else found.upper()


@dataclass
class StageCompletionResult:
    """What callbacks are given: how a stage ended. Fields beyond the old ones are in metadata."""

    event: StageEvent | DataEventType | str
    success: bool = True
    iteration: int = 0
    timestamp: str = field(default_factory=lambda: datetime.now(timezone.utc).isoformat())
    board_type: str = "square8"
    num_players: int = 2
    games_generated: int = 0
    model_path: str | None = None
    model_id: str | None = None
    train_loss: float | None = None
    val_loss: float | None = None
    win_rate: float | None = None
    elo_delta: float | None = None
    promoted: bool = False
    promotion_reason: str | None = None
    error: str | None = None
    error_details: str | None = None
    metadata: Json = field(default_factory=dict)

    @property
    def config_key(self) -> str:
        """The configuration, such as hex8_2p."""
        return str(self.metadata.get("config_key") or f"{self.board_type}_{self.num_players}p")

    def to_dict(self) -> Json:
        """Return the fields as JSON has them."""
        return {**self.__dict__, "event": str(getattr(self.event, "value", self.event)), "config_key": self.config_key}

    @classmethod
    def from_event(cls, stage: StageEvent | DataEventType | str, event: DataEvent) -> StageCompletionResult:
        """Return the result that an event reports. One of another publisher succeeded unless its type says FAILED."""
        known = {f.name for f in fields(cls)} - {"event", "metadata"}
        given = {name: value for name, value in event.payload.items() if name in known}
        given.setdefault("success", not name_of(event.event_type).endswith("_FAILED"))
        given.setdefault("timestamp", datetime.fromtimestamp(event.timestamp, timezone.utc).isoformat())
        board, _, players = str(event.payload.get("config_key", "")).rpartition("_")
        if board and players.removesuffix("p").isdigit():
            given.setdefault("board_type", board)
            given.setdefault("num_players", int(players.removesuffix("p")))
        metadata = {name: value for name, value in event.payload.items() if name not in known | {"event", "metadata"}}
        return cls(event=stage, metadata={**metadata, **(event.payload.get("metadata") or {})}, **given)


class StageEventBus:
    """Calls back when a stage is completed, in this process or another."""

    def __init__(self) -> None:
        self._handlers: dict[tuple[str, StageCallback], Callable[[DataEvent], Any]] = {}

    def subscribe(
        self,
        stage: StageEvent | Any,
        callback: StageCallback,
        *,
        iteration: int | None = None,
        config_key: str | None = None,
    ) -> None:
        """Call back on the completion of a stage, of one iteration or configuration alone if they are given."""
        kind = type_of(stage)
        if (str(kind), callback) in self._handlers:
            return

        def call(event: DataEvent) -> Any:
            result = StageCompletionResult.from_event(stage, from_old(event))
            if iteration not in (None, result.iteration) or config_key not in (None, result.config_key):
                return None
            return callback(result)

        async def call_async(event: DataEvent) -> None:
            result = call(event)
            if inspect.isawaitable(result):
                await result

        handler = call_async if inspect.iscoroutinefunction(callback) else call
        handler.__qualname__ = handler_name(callback)
        self._handlers[str(kind), callback] = handler
        get_router().subscribe(kind, handler)

    def unsubscribe(self, stage: StageEvent | Any, callback: StageCallback) -> bool:
        """End a subscription; False if there is none."""
        kind = type_of(stage)
        handler = self._handlers.pop((str(kind), callback), None)
        return handler is not None and get_router().unsubscribe(kind, handler)

    def emit(self, result: StageCompletionResult) -> Publication:
        """Publish a stage's completion. It may be awaited."""
        payload = {name: value for name, value in result.to_dict().items() if value is not None}
        source = str(result.metadata.get("source", ""))
        return get_router().publish(type_of(result.event), payload, source, key=result.config_key)

    def subscriber_count(self, stage: StageEvent | Any) -> int:
        """Return how many callbacks a stage has."""
        return sum(1 for kind, _ in self._handlers if kind == str(type_of(stage)))

    def get_history(self, stage: StageEvent | Any = None, limit: int = 50) -> list[StageCompletionResult]:
        """Return the last completions that went by here, the newest first."""
        kinds = {str(type_of(s)): s for s in ([stage] if stage is not None else StageEvent)}
        events = [e for e in get_router().get_recent_events(1000) if e.type in kinds]
        return [StageCompletionResult.from_event(kinds[e.type], e) for e in reversed(events)][:limit]


def next_stages(event_type: Any, flow: str = "training_pipeline") -> list[str]:
    """Return the types that follow a stage in a documented flow. Raises KeyError for a flow that there is not."""
    name = name_of(type_of(event_type))
    return [effect for cause, effect in FLOWS[flow] if cause == name]


_bus = StageEventBus()


def get_event_bus() -> StageEventBus:
    """Return the bus of stages of this process."""
    return _bus


get_stage_event_bus = get_event_bus

__all__ = [
    "StageCompletionResult",
    "StageEvent",
    "StageEventBus",
    "get_event_bus",
    "get_stage_event_bus",
    "next_stages",
    "type_of",
]
