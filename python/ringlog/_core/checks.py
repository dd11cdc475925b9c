"""What a caller gives is checked before it is sent: each error names what is wrong, where, and what to give instead."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from ringlog.errors import InvalidArgument
from ringlog.event import EventFields

_FIELDS = frozenset(EventFields.__annotations__)
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9}


def parse_duration(text: str) -> float:
    """Return a duration of nodes, such as 1m30s, in seconds."""
    return sum(float(number) * _UNITS[unit] for number, unit in re.findall(r"(\d+(?:\.\d+)?)(h|ms|m|s|us|µs|ns)", text))


def invalid(field: str, message: str, remedy: str) -> InvalidArgument:
    """Return the error of an argument."""
    return InvalidArgument(message, code="invalid_argument", field=field, remedy=remedy)


def check_number(
    name: str, value: Any, least: float, most: float, example: float, *, whole: bool = False, default: str = ""
) -> None:
    """Refuse what is no number from least to most, in seconds unless it is whole. default says what omits it."""
    kinds = int if whole else (int, float)
    if isinstance(value, kinds) and not isinstance(value, bool) and least <= value <= most:
        return
    number = f"a whole number from {least} to {most}" if whole else f"a number of seconds from {least:g} to {most:g}"
    if isinstance(value, str):  # which may say what is meant
        meant = parse_duration(value) if value[-1:].isalpha() else float(value) if value.isdecimal() else 0.0
        if least <= meant <= most and (not whole or meant == int(meant)):
            example = meant
    raise invalid(
        name, f"{value!r:.40} is not {number}", f"give {name}={int(example) if whole else f'{example:g}'}{default}"
    )


def check_name(field: str, name: Any) -> None:
    """Refuse what cannot be the name of a cursor, group or role, by the rule of nodes, which alone know the longest."""
    if not isinstance(name, str) or not name:
        raise invalid(field, f"{name!r:.40} is not a name", f'name the {field}, such as "sync-workers"')
    # A lone surrogate has no UTF-8.
    if any(unicodedata.category(c) in ("Cc", "Cs") for c in name):
        raise invalid(field, f"{name!r:.80} has a control character or is not UTF-8", "use printable characters")


def check_role(name: Any) -> None:
    """Refuse what cannot be the name of a role, which headers carry."""
    check_name("role", name)
    if name != name.strip():
        raise invalid("role", f"{name!r:.80} begins or ends with a space", "leave the space out")


def check_fields(fields: Mapping[str, Any]) -> None:
    """Refuse fields of an event whose values are of another kind."""
    for name, value in fields.items():
        if name not in _FIELDS or value is None:
            continue
        if name == "dedup":
            if not isinstance(value, bool):
                raise invalid(name, f"{value!r:.40} is not a bool", "give True or False")
        elif name == "time":
            if not isinstance(value, str | datetime):
                remedy = "give datetime.fromtimestamp(seconds, timezone.utc), or RFC 3339 in a string"
                raise invalid(name, f"{value!r:.40} is not a time", remedy)
        elif not isinstance(value, str):
            raise invalid(name, f"{value!r:.40} is not a string", f"give {name}=str(...)")


def unknown_name(of: str, name: str, known: Iterable[str], place: str = "put it into the payload") -> str:
    """Return what is said of a name that something does not have, with the nearest of those that it has."""
    import difflib  # takes long to import, and is rarely needed

    known = list(known)
    near = difflib.get_close_matches(name, known, 1, 0.5)
    meant = f"did you mean {near[0]}?" if near else f"{place}, or use {', '.join(sorted(known))}"
    return f"{of} has no {name!r}: {meant}"
