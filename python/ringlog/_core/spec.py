"""What cursors and groups are made with, and how one that exists differs from what a caller asks for."""

from __future__ import annotations

import math
from collections.abc import Iterable

from ringlog._core.calls import LINEARIZABLE, Calls, path
from ringlog._core.checks import check_number, invalid, parse_duration
from ringlog.errors import Conflict, OutcomeUnknown
from ringlog.event import Json

MIN_ACK_WAIT, MAX_ACK_WAIT = 0.1, 86_400.0  # seconds
DEFAULT = ", or leave it out for the cluster's setting"


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
    found: Json = {}
    for name, values in given.items():
        entries = [values] if isinstance(values, str) else list(values) if isinstance(values, Iterable) else [values]
        for entry in entries:
            if not isinstance(entry, str):
                raise invalid(name, f"{entry!r:.40} is not a string", f"give {name} a string or a list of strings")
        if entries:
            found[name] = entries
    return found


def build_group(filter_: Json, from_: str, ack_wait: float | None, max_deliver: int | None) -> Json:
    """Return the schema GroupSpec; None is the cluster's setting."""
    settings: Json = {}
    if ack_wait is not None:
        check_number("ack_wait", ack_wait, MIN_ACK_WAIT, MAX_ACK_WAIT, 30, default=DEFAULT)
        settings["ack_wait"] = f"{ack_wait}s"
    if max_deliver is not None:
        check_number("max_deliver", max_deliver, 1, 1_000_000, 5, whole=True, default=DEFAULT)
        settings["max_deliver"] = max_deliver
    return {"from": from_, "filter": filter_, "group": settings}


async def create(calls: Calls, name: str, spec: Json) -> Json:
    """Create a cursor, or a group if spec has settings of one, and return it.

    One that exists is returned if it has what spec gives. Raises Conflict, which names each difference.
    """
    kind = "group" if "group" in spec else "cursor"
    try:
        return dict(await calls.call("PUT", path(kind + "s", name), spec))
    except (Conflict, OutcomeUnknown) as e:
        # Where an answer was lost, the one that exists may be the one that this call has made.
        refusal = e.__cause__ if isinstance(e, OutcomeUnknown) else e
        if not isinstance(refusal, Conflict) or refusal.code != "exists":
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
        if field == "ack_wait" and math.isclose(parse_duration(has), parse_duration(wants)):
            continue
        if has != wants:
            found.append((field, f"{has}", f"{wants}"))
    return found
