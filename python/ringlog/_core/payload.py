"""Payload: what the generated classes of ringlog.payloads have in common."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar

from ringlog._core.checks import unknown_name
from ringlog.errors import InvalidArgument

if TYPE_CHECKING:
    from typing_extensions import Self

    from ringlog.catalogue import EventType
    from ringlog.event import Event, Json

Timestamp = float | str
"""Seconds since 1970, as of time.time(), or RFC 3339."""


@dataclass(kw_only=True)
class Payload:
    """A payload whose known fields are attributes; extra has all others."""

    EVENT_TYPE: ClassVar[EventType]
    extra: dict[str, Any] = field(default_factory=dict)

    if not TYPE_CHECKING:  # a checker knows the fields from the generated classes

        def __new__(cls, *args, **given):
            """Name what the type has, where the constructor names only what it has not."""
            if unknown := sorted(given.keys() - cls.__dataclass_fields__.keys()):
                name, known = unknown[0], {each.name for each in fields(cls)} - {"extra"}
                raise TypeError(unknown_name(cls.__name__, name, known, f"put it into extra={{{name!r}: ...}}"))
            return super().__new__(cls)

    def to_json(self) -> Json:
        """Return the JSON object that is sent: the fields that are not None, and extra."""
        known = {name: value for name, value in self.__dict__.items() if value is not None and name != "extra"}
        return {**known, **self.extra}

    @classmethod
    def from_json(cls, payload: Json) -> Self:
        """Return the payload of a JSON object. Values are as they were sent, also if of another type."""
        names = {field.name for field in fields(cls)} - {"extra"}
        known = {name: value for name, value in payload.items() if name in names}
        return cls(**known, extra={name: value for name, value in payload.items() if name not in names})

    @classmethod
    def from_event(cls, event: Event) -> Self:
        """Return the payload of an event. Raises InvalidArgument if it is of another type."""
        if event.type != cls.EVENT_TYPE:
            raise InvalidArgument(
                f"event {event.offset} is of type {event.type}, not {cls.EVENT_TYPE}",
                code="invalid_argument",
                field="type",
            )
        return cls.from_json(event.payload)
