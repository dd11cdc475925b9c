"""Flows: which types follow each other in a run. The built-in ones, and those that were registered."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from ringlog._definitions import FLOW_NOTES, FLOWS
from ringlog._memory import types
from ringlog._memory.values import Refusal, Settings, invalid
from ringlog.event import Json

MAX_FLOWS, MAX_EDGES, MAX_FIELDS = 64, 64, 8
MAX_NAME, MAX_TYPE = 256, 128  # bytes
KEYS = ("name", "status", "document", "edges", "edge_notes", "run_by")
NOTE_KEYS = ("edge", "condition", "to_state")


class Flows:
    """The flows of a log. It has the built-in ones without the documents that they come from."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._registered: dict[str, Json] = {}

    def all(self) -> list[Json]:
        """Return the flows: the built-in ones, then the registered ones by name. Each is the schema Flow."""
        found = []
        for name, edges in FLOWS.items():
            flow: Json = {"name": name, "status": "canonical", "edges": [list(edge) for edge in edges]}
            flow["edge_notes"] = FLOW_NOTES.get(name, [])
            if run_by := self._registered.get(name, {}).get("run_by"):
                flow["run_by"] = run_by
            found.append(flow)
        own = (self._registered[name] for name in sorted(self._registered) if name not in FLOWS)
        return [*found, *({**flow, "status": "registered"} for flow in own)]

    def get(self, name: str) -> Json:
        """Return a flow."""
        for flow in self.all():
            if flow["name"] == name:
                return flow
        raise Refusal("not_found", "name", f"there is no flow {name!r}", "Client.flows lists them")

    def register(self, body: bytes, dry_run: bool) -> Json:
        """Add the flows of a request, all or none: the schema FlowsRegistered."""
        flows = _parse(body)
        warnings: list[Json] = []
        for flow in flows:
            if flow["name"] in FLOWS and flow["edges"]:
                message = "the built-in flow has its own"
                raise invalid(f"{flow['name']}.edges", message, "choose another name, or send run_by alone",
                              reason="invalid_field")  # fmt: skip
            if flow["name"] not in FLOWS and not flow["edges"]:
                message = "missing, and there is no built-in flow of the name"
                raise invalid(f"{flow['name']}.edges", message, "send pairs of types", reason="invalid_field")
            warned = set()
            for i, edge in enumerate(flow["edges"]):
                for end, name in enumerate(edge):
                    found = types.catalogue().resolve(name)
                    edge[end] = found.name
                    if found.definition is None and found.name not in warned:
                        warned.add(found.name)
                        field, message = f"{flow['name']}.edges[{i}]", f"{found.name} is not in the catalogue"
                        warnings.append(types.warning("unknown_type", field, message))
            _check(flow, flow["name"])
        if warnings and self._settings.text("validation.strict") == "true":
            raise Refusal("unknown_type", warnings[0]["field"], warnings[0]["message"], "name known types")
        after = {**self._registered, **{flow["name"]: flow for flow in flows}}
        self._keep_deadlines(after)
        if not dry_run:
            if len(after) > MAX_FLOWS:
                message = f"there would be more than {MAX_FLOWS} registered flows"
                raise Refusal("overloaded", "flows", message, "remove some that nobody follows")
            self._registered = after
        done: Json = {"registered": [flow["name"] for flow in flows], "dry_run": dry_run}
        return {**done, **({"warnings": warnings} if warnings else {})}

    def _keep_deadlines(self, after: Mapping[str, Json]) -> None:
        """Refuse flows without an edge for which the setting chain.deadlines has a deadline."""
        for flow, cause, effect, text in _deadlines(self._settings):
            before = self._registered.get(flow)
            if before and [cause, effect] in before["edges"] and [cause, effect] not in after[flow]["edges"]:
                raise Refusal("conflict", "edges", f"the setting chain.deadlines has {text}", "change that first")

    def remove(self, name: str) -> Json:
        """Remove a registered flow and return it as it was. A built-in one stays, without the run_by it was given."""
        if name not in FLOWS and any(flow == name for flow, _, _, _ in _deadlines(self._settings)):
            message = f"the setting chain.deadlines has deadlines of the flow {name}"
            raise Refusal("conflict", "name", message, "change that first")
        if name not in self._registered:
            raise Refusal("not_found", "name", f"no flow {name!r} is registered", "Client.flows lists them")
        before = self.get(name)
        del self._registered[name]
        return before


def _deadlines(settings: Settings) -> list[tuple[str, str, str, str]]:
    """Return flow, cause and effect of each deadline of the settings, and its text."""
    found = []
    for text in filter(None, settings.text("chain.deadlines").split(",")):
        flow, _, edge = text.partition("=")[0].partition(":")
        cause, _, effect = edge.partition("->")
        resolve = types.catalogue().resolve
        found.append((flow, resolve(cause.strip()).name, resolve(effect.strip()).name, text))
    return found


def _parse(body: bytes) -> list[Json]:
    """Return the flows of a body: one object or an array of them."""
    if not body.strip():
        raise Refusal("invalid_json", "body", "the body is empty", "send a flow, or an array of them")
    try:
        sent: Any = json.loads(body, object_pairs_hook=types.unique)
    except ValueError as e:
        raise Refusal("invalid_json", "body", str(e), reason="invalid_json") from e
    types.check_unique(sent, "")
    listed = sent if isinstance(sent, list) else [sent]
    if not listed:
        raise Refusal("invalid_json", "body", "no flow", reason="empty")
    flows = []
    for i, one in enumerate(listed):
        try:
            flows.append(_parse_flow(one))
        except Refusal as e:
            if isinstance(sent, list):
                e.under(f"[{i}]")
            e.error.setdefault("field", "body")
            raise
    return flows


def _parse_flow(sent: Any) -> Json:
    if not isinstance(sent, dict):
        raise Refusal("invalid_json", "", "a flow object is expected", reason="invalid_json")
    _check_keys(sent, KEYS, "")
    for i, note in enumerate(_typed(sent, "edge_notes", list)):
        if not isinstance(note, dict):
            raise Refusal("invalid_json", f"edge_notes[{i}]", "a note object is expected", reason="invalid_json")
        _check_keys(note, NOTE_KEYS, f"edge_notes[{i}]")
    flow: Json = {name: _typed(sent, name, str) for name in ("name", "document") if sent.get(name)}
    flow.setdefault("name", "")
    edges = _typed(sent, "edges", list)
    for edge in edges:
        if not isinstance(edge, list) or not all(isinstance(end, str) for end in edge):
            raise invalid("edges", "an edge is two types", reason="invalid_field")
    flow["edge_notes"] = [
        {key: _typed(note, key, int if key == "edge" else str) for key in NOTE_KEYS if key in note}
        for note in _typed(sent, "edge_notes", list)
    ]
    run_by = _typed(sent, "run_by", list)
    if not all(isinstance(name, str) for name in run_by):
        raise invalid("run_by", "a list of strings is expected", reason="invalid_field")
    flow |= {"run_by": run_by} if run_by else {}
    for i, edge in enumerate(edges):
        if len(edge) != 2:
            message = f"an edge is two types, its cause and its effect, not {len(edge)}"
            raise invalid(f"edges[{i}]", message, reason="invalid_field")
    flow["edges"] = [[types.fold(end) for end in edge] for edge in edges]
    _check(flow, flow["name"])
    return flow


def _check_keys(value: Json, known: tuple[str, ...], at: str) -> None:
    for key in value:
        if key not in known:
            path = f"{at}.{key}".removeprefix(".")
            raise Refusal("invalid_json", path, "no such key", f"known keys: {', '.join(known)}", reason="unknown_key")


def _typed(value: Json, key: str, kind: type) -> Any:
    """Return a value of a kind, the zero one if it is not there."""
    found = value.get(key)
    if found is None:
        return kind()
    if not isinstance(found, kind) or isinstance(found, bool):
        raise invalid(key, f"{kind.__name__} is expected", reason="invalid_field")
    return found


def _check(flow: Json, under: str) -> None:
    """Check a flow without regard to the catalogue."""
    try:
        _check_parts(flow)
        _check_edges(flow["edges"])
    except Refusal as e:
        raise e.under(under or '""') from None


def _check_parts(flow: Json) -> None:
    if not re.fullmatch(r"[a-z][a-z0-9_-]{0,63}", flow["name"]):
        raise invalid("name", "a flow's name is 1 to 64 of a-z, 0-9, _ and -, a letter first", reason="invalid_field")
    types.check_name("document", flow.get("document", ""), MAX_NAME, reason=True)
    edges, notes, run_by = flow["edges"], flow["edge_notes"], flow.get("run_by", [])
    if len(edges) > MAX_EDGES:
        raise _too_many("edges", f"{len(edges)} edges, the limit is {MAX_EDGES}")
    if len(run_by) > MAX_FIELDS:
        raise _too_many("run_by", f"{len(run_by)} fields, the limit is {MAX_FIELDS}")
    if not edges and not run_by:
        raise invalid("edges", "missing", reason="invalid_field")
    if len(notes) > len(edges):
        raise _too_many("edge_notes", f"{len(notes)} notes on {len(edges)} edges")
    for i, name in enumerate(run_by):
        types.check_name(f"run_by[{i}]", name, MAX_NAME, reason=True)
        if not name or "," in name or "=" in name or name in run_by[:i]:
            message = "it has to be the name of a payload field, each once, without , and ="
            raise invalid(f"run_by[{i}]", message, reason="invalid_field")
    for i, note in enumerate(notes):
        if not 0 <= note.get("edge", 0) < len(edges):
            raise invalid(f"edge_notes[{i}].edge", f"there is no edge {note.get('edge', 0)}", reason="invalid_field")
        for key in ("condition", "to_state"):
            types.check_name(f"edge_notes[{i}].{key}", note.get(key, ""), MAX_NAME, reason=True)


def _too_many(field: str, message: str) -> Refusal:
    return Refusal("too_large", field, message, reason="too_large")


def _check_edges(edges: list[list[str]]) -> None:
    """Check that each edge leads from one stage to another, and each stage back to a first one."""
    effects = {effect for _, effect in edges}
    for i, edge in enumerate(edges):
        path = f"edges[{i}]"
        for name in edge:
            if not re.fullmatch(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)*", name) or len(name) > MAX_TYPE:
                raise invalid(path, f"{name!r:.80} is not a type's name", reason="invalid_type")
            if name == "CHAIN_OVERDUE":
                message = "CHAIN_OVERDUE cannot be a stage: the cluster reports runs by it"
                raise Refusal("reserved", path, message, reason="reserved_type")
        if edge[0] == edge[1]:
            raise invalid(path, f"{edge[0]} leads to itself", reason="invalid_field")
        if edge in edges[:i]:
            raise invalid(path, f"{edge[0]}->{edge[1]} is listed twice", reason="invalid_field")
    reached: set[str] = set()
    for _ in edges:
        reached |= {effect for cause, effect in edges if cause not in effects or cause in reached}
    for i, (cause, _) in enumerate(edges):
        if cause in effects and cause not in reached:
            message = f"{cause} is on a cycle, or after one, to which no first stage leads"
            raise invalid(f"edges[{i}]", message, "add an edge from a first stage", reason="invalid_field")
