"""What cursors and groups are made with, and how one that exists differs from what a caller asks for."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ringlog._core.calls import LINEARIZABLE, Calls, path
from ringlog._core.encode import parse_duration
from ringlog.errors import Conflict, InvalidArgument
from ringlog.event import Json

MIN_ACK_WAIT, MAX_ACK_WAIT = 0.1, 86_400.0  # seconds


def check_number(name: str, value: Any, least: float, most: float, meaning: str = "", whole: bool = False) -> None:
    """Refuse what is no number from least to most. meaning says of what."""
    kinds = int if whole else (int, float)
    if not isinstance(value, kinds) or isinstance(value, bool) or not least <= value <= most:
        number = (
            f"a whole number from {least:,} to {most:,}" if whole else f"a number of seconds, {least:g} to {most:g}"
        )
        raise InvalidArgument(
            f"{value!r:.40} is not {number}",
            code="invalid_argument",
            field=name,
            remedy=f"give {name}={_example(value, least, most, whole)}{meaning}",
        )


def _example(value: object, least: float, most: float, whole: bool) -> str:
    """Return the number that a caller may mean."""
    if isinstance(value, str):
        try:
            meant = parse_duration(value) if value[-1:].isalpha() else float(value)
        except ValueError:
            meant = least - 1
        if least <= meant <= most and (not whole or meant == int(meant)):
            return f"{meant:g}"
    return f"{max(least, min(most, 30)):g}"


def build_filter(
    types: Iterable[str] = (),
    categories: Iterable[str] = (),
    sources: Iterable[str] = (),
    keys: Iterable[str] = (),
    correlation_ids: Iterable[str] = (),
) -> Json:
    """Return the schema Filter, without the lists that are empty. A string is a list of one."""
    given = {
        "types": types,
        "categories": categories,
        "sources": sources,
        "keys": keys,
        "correlation_ids": correlation_ids,
    }
    lists = {name: [values] if isinstance(values, str) else list(values) for name, values in given.items()}
    return {name: values for name, values in lists.items() if values}


def build_group(filter_: Json, from_: str, ack_wait: float | None, max_deliver: int | None) -> Json:
    """Return the schema GroupSpec; None is the cluster's setting."""
    settings: Json = {}
    if ack_wait is not None:
        check_number("ack_wait", ack_wait, MIN_ACK_WAIT, MAX_ACK_WAIT, ", or leave it out for the cluster's setting")
        settings["ack_wait"] = f"{ack_wait}s"
    if max_deliver is not None:
        meaning = ", or leave it out for the cluster's setting"
        check_number("max_deliver", max_deliver, 1, 1_000_000, meaning, whole=True)
        settings["max_deliver"] = max_deliver
    return {"from": from_, "filter": filter_, "group": settings}


async def create(calls: Calls, name: str, spec: Json) -> Json:
    """Create a cursor, or a group if spec has settings of one, and return it.

    One that exists is returned if it has what spec gives. Raises Conflict, which names each difference.
    """
    kind = "group" if "group" in spec else "cursor"
    try:
        return dict(await calls.call("PUT", path(kind + "s", name), spec))
    except Conflict as e:
        if e.code != "exists":
            raise
        have: Json = await calls.call("GET", path("cursors", name), None, LINEARIZABLE)
        if ("group" in have) != ("group" in spec):
            raise
        differences = _differences(have, spec)
        if not differences:
            return have
        raise Conflict(
            f"the {kind} {name!r} exists with other settings: "
            + "; ".join(f"{field} is {has}, not {wants}" for field, has, wants in differences),
            code="exists",
            field=differences[0][0],
            remedy=f"give the {kind} what it has, or leave it out; or use another name; or remove it first, with what "
            f"it has committed: delete_{kind}({name!r})",
        ) from e


def _differences(have: Json, spec: Json) -> list[tuple[str, str, str]]:
    """Return each setting that a cursor or group has otherwise than spec gives it, with both values."""
    found = []
    for field, wants in spec["filter"].items():
        has = have["filter"].get(field) or []
        if set(has) != set(wants):
            found.append((field, f"{has}" if has else "not set", f"{wants}"))
    for field, wants in spec.get("group", {}).items():
        has = have["group"][field]
        if has != wants and not (field == "ack_wait" and parse_duration(has) == parse_duration(wants)):
            found.append((field, f"{has}", f"{wants}"))
    return found
