"""A memory log and a node are asked the same, request by request, and answer the same."""

from __future__ import annotations

import json
import random
import re
import unittest
from typing import Any

from ringlog import Client
from ringlog._core.io import drive
from ringlog._definitions import FLOWS
from ringlog.errors import RinglogError
from ringlog.testing import MemoryLog
from tests.cluster import ROOT, Cluster

# What differs between any two logs: times, ids of clusters and nodes, sizes on disk, and text for people.
VOLATILE = {
    "appended_at", "at", "cluster_id", "coordinator", "created", "first_failed", "last_failed", "last_seen",
    "dead_lettered_at", "moved", "oldest", "oldest_pending_ms", "oldest_seconds", "since", "touched", "until",
    "registered_at", "seen_at", "expires_at", "renewed_at", "made_at", "published_at",
    "waited_ms", "held_ms",
    "first_suppressed", "last_suppressed", "bytes", "lag_seconds", "message", "remedy", "doc", "term",
    # How far a leader has looked ahead of a commit, which happens beside the requests.
    "scanned", "found", "lag_at_least",
    # How long a run takes, and the documents of a flow.
    "now", "seconds", "after_seconds", "waiting_seconds", "document", "component_edges",
}  # fmt: skip
OFFSETS = {
    "offset",
    "from",
    "to",
    "before",
    "fence",
}  # of requests: those of a transcript are relative to its beginning


class Side:
    """One of the two logs, for one transcript, whose offsets begin after base."""

    def __init__(self, urls: str, title: str) -> None:
        self.log = Client(urls)
        self.title = title.encode()
        self.base = self.log.publish("DATA_SYNC_STARTED", {"begins": title}).offset
        self.sessions: list[int] = []  # of members: a node begins with a number of its own

    def ask(self, method: str, path: str, body: Any, query: Any, headers: Any) -> Any:
        """Return the answer, or the error, without what differs between any two logs."""
        calls = self.log._operations._calls
        data = (
            None if body is None else body.encode() if isinstance(body, str) else json.dumps(self.place(body)).encode()
        )
        if data is not None:  # no event is a duplicate of one of another transcript
            data = data.replace(b'"gpu-7"', b'"%s"' % self.title).replace(b'{"n": ', b'{"in": "%s", "n": ' % self.title)
        query = {name: self.name_offsets(str(self.place(value, name))) for name, value in (query or {}).items()}
        path = self.name_offsets(path)
        headers = {name: self.name_offsets(value) for name, value in (headers or {}).items()}
        try:
            answer, content = drive(calls.open(method, path, data, query, headers=headers))
        except RinglogError as e:
            return self.strip({"error": type(e).__name__, "code": e.code, "field": e.field, "offset": e.offset,
                               "why": e.reason, "helps": bool(e.remedy)})  # fmt: skip
        lines = [json.loads(line) for line in content.decode().split("\n") if line]
        warned = json.loads(answer.header("ringlog-warnings") or "[]")
        return self.strip([*lines, *warned])

    def place(self, value: Any, name: str = "") -> Any:
        """Return a request of this log: offsets from its base on."""
        if isinstance(value, dict):
            return {key: self.place(part, key) for key, part in value.items()}
        if isinstance(value, list):
            return [self.place(part, name) for part in value]
        if name in OFFSETS and type(value) is int and value > 0:
            return value + self.base
        if name == "session" and type(value) is int and 0 < value <= len(self.sessions):
            return self.sessions[value - 1]
        return value

    def name_offsets(self, text: str) -> str:
        """Return a part of a URL of this log: {1} is the first offset after its base."""
        return re.sub(r"\{(\d+)\}", lambda number: str(self.base + int(number[1])), text)

    def strip(self, value: Any, name: str = "") -> Any:
        """Return an answer without what differs."""
        if isinstance(value, dict):
            text = {"reason"} if "fate" in value else {"hash"} if "allocation" in value.get("payload", ()) else set()
            left = {key: self.strip(part, key) for key, part in value.items() if key not in VOLATILE | text}
            return {key: part for key, part in left.items() if part not in (None, "", {}, [])}
        if isinstance(value, list):
            return [self.strip(part) for part in value]
        if name == "session":
            self.sessions += [] if value in self.sessions else [value]
            return self.sessions.index(value) + 1
        return value


def event(type_: Any = "DATA_SYNC_COMPLETED", payload: Any = None, **fields: Any) -> dict[str, Any]:
    return {"type": type_, "payload": {"host": "gpu-7"} if payload is None else payload, **fields}


def updated(payload: Any, **fields: Any) -> dict[str, Any]:
    return event("REGISTRY_UPDATED", payload, **fields)


Step = tuple[Any, ...]  # method, path, body, query, headers


def publish(*events: Any, **headers: Any) -> Step:
    return "POST", "/v1/events", list(events) if len(events) != 1 else events[0], None, headers


def numbered(producer: str, number: Any, *events: Any) -> Step:
    return (*publish(*events)[:4], {"Ringlog-Producer": producer, "Ringlog-Sequence": str(number)})


def under(role: str, fence: Any, step: Step) -> Step:
    method, path, body, query, headers = (*step, None, None)[:5]
    return method, path, body, query, {"Ringlog-Role": role, "Ringlog-Fence": str(fence), **(headers or {})}


def acquire(role: str, session: Any, **more: Any) -> Step:
    return put(f"/v1/roles/{role}", {"holder": f"holder-{session}", "session": session, **more})


def allocate(id_: str, *, holder: str = "h", wait: str = "", ttl: str = "", priority: str = "", **amounts: int) -> Step:
    more = {"wait": wait, "ttl": ttl, "priority": priority}
    given = {name: text for name, text in more.items() if text}
    return put(f"/v1/allocations/{id_}", {"holder": holder, "amounts": amounts, **given})


SCHEDULED = "/v1/scheduled/"


def schedule(id_: str, what: Any, at: str = "2099-01-01T02:00:00Z") -> Step:
    return put(SCHEDULED + id_, {"at": at, "event": what})


def delete(path: str, **query: Any) -> Step:
    return "DELETE", path, None, query


def get(path: str, **query: Any) -> Step:
    return "GET", path, None, {name.rstrip("_"): value for name, value in query.items()}


def put(path: str, body: Any = None) -> Step:
    return "PUT", path, {} if body is None else body


def post(path: str, body: Any = None) -> Step:
    return "POST", path, {} if body is None else body


def exchange(group: str, member: str, session: int = 0, **more: Any) -> Step:
    return post(f"/v1/groups/{group}/exchange", {"member": member, "session": session, **more})


def span(first: int, last: int) -> dict[str, int]:
    return {"from": first, "to": last}


def nack(offset: int, **more: Any) -> dict[str, Any]:
    return {"offset": offset, **more}


LONG, CONTROL = "x" * 300, "a\nb"
POLICIES = "/v1/dedup/policies/"


def flow(name: Any, *edges: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "edges": [list(edge) for edge in edges], **more}


def chains() -> list[Step]:
    """Return the stories of stages in Go, each as a run of its own, and its chain."""
    steps: list[Step] = []
    for file in sorted((ROOT / "internal/platform/stages/testdata").glob("*.chain")):
        run, only, listed, ids = f"chain-{file.stem}", "", [], dict[str, str]()
        for line in file.read_text(encoding="utf-8").partition("---")[0].splitlines():
            number, *words = line.split() or ["#"]
            only = words[0] if number == "flow" else only
            if not number.isdigit():
                continue
            named = dict(word.split("=") for word in words[2:])
            ids[number] = ids[f"{int(number):064x}"] = named.get("dedup", f"{run}-{number}")
            by = {"causation_id": ids.get(named["by"], named["by"])} if "by" in named else {}
            fields = {"correlation_id": run, "dedup_id": ids[number], "source": named.get("source", ""), **by}
            listed.append(event(words[1], {"n": int(number)}, **fields))
        steps += [publish(*listed), get(f"/v1/chain/{run}", **({"flow": only} if only else {}))]
    return steps


def histories() -> list[Step]:
    """Return runs of random stages, some with a cause, and the chain of each."""
    chance, steps = random.Random(7), list[Step]()
    for i in range(60):
        edges = chance.choice(list(FLOWS.values()))
        stages = sorted({end for edge in edges for end in edge})
        listed = []
        for n in range(chance.randint(2, 12)):
            cause = {"causation_id": f"history-{i}-{chance.randrange(n)}"} if n and chance.random() < 0.4 else {}
            fields = {"correlation_id": f"history-{i}", "dedup_id": f"history-{i}-{n}", **cause}
            listed.append(event(chance.choice(stages), {"n": n}, **fields))
        steps += [publish(*listed), get(f"/v1/chain/history-{i}")]
    return steps


def runs() -> list[Step]:
    """Return stages that payload fields assign to two runs, some by their correlation ids alone, and their chains."""
    chance, steps = random.Random(8), list[Step]()
    for i in range(20):
        listed = []
        for n in range(chance.randint(2, 10)):
            named = {
                "config_key": f"c{chance.randrange(2)}-{i}",
                "iteration": chance.choice([1, True, "1,2", 1.5, 1e22]),
            }
            payload = {"n": n, **(named if chance.random() < 0.6 else {})}
            ids = {"correlation_id": f"run-{i}-{chance.randrange(3)}"} if chance.random() < 0.8 else {}
            stage = chance.choice(["TRAINING_STARTED", "TRAINING_COMPLETED", "EVALUATION_STARTED", "RUN_ENDED"])
            listed.append(event(stage, payload, dedup_id=f"run-{i}-{n}", **ids))
        steps.append(publish(*listed))
        steps += [get(f"/v1/chain/run-{i}-{n}") for n in range(3)]
        steps += [
            get(f"/v1/chain/config_key=c{n}-{i},iteration={text}") for n in range(2) for text in ("1", "true", "1%2C2")
        ]
    return steps


BY_FIELDS = {"run_by": ["config_key", "iteration"]}

TRANSCRIPTS: dict[str, list[Step]] = {
    "how runs go": [*chains(), *histories()],
    "how runs that payload fields name go": [
        post("/v1/flows", [flow("training_pipeline", **BY_FIELDS),
                           flow("ending", ("EVALUATION_STARTED", "RUN_ENDED"), **BY_FIELDS)]),
        *runs(),
        get("/v1/flows/training_pipeline"),
        ("DELETE", "/v1/flows/training_pipeline", None),
        ("DELETE", "/v1/flows/ending", None),
    ],
    "what flows are taken": [
        get("/v1/flows"),
        get("/v1/flows/none"),
        get("/v1/flows/backpressure"),
        ("DELETE", "/v1/flows/none", None),
        ("DELETE", "/v1/flows/backpressure", None),
        post("/v1/flows", flow("labels", ("labels.wanted", "training.completed"), document="a document")),
        ("POST", "/v1/flows", flow("labels", ("LABELS_WANTED", "LABELS_READY")), {"dry_run": "true"}),
        get("/v1/flows/labels"),
        post("/v1/flows", flow("labels", ("LABELS_WANTED", "LABELS_READY"),
                               edge_notes=[{"edge": 0, "condition": "none is left", "to_state": "ready"}])),
        post("/v1/flows", [flow("a-flow", ("A_1", "B_1")), flow("backpressure", run_by=["node"])]),
        get("/v1/flows"),
        put("/v1/settings/chain.deadlines", {"value": "labels:LABELS_WANTED->LABELS_READY=1h"}),
        put("/v1/settings/chain.deadlines", {"value": "labels:LABELS_READY->LABELS_WANTED=1h"}),
        post("/v1/flows", flow("labels", ("LABELS_WANTED", "LABELS_LOST"))),
        ("DELETE", "/v1/flows/labels", None),
        publish(event("LABELS_WANTED", correlation_id="labels")),
        get("/v1/chain/labels"),
        get("/v1/chain/labels", deadline="labels:LABELS_WANTED->LABELS_READY=2h"),
        put("/v1/settings/chain.deadlines", {"value": ""}),
        get("/v1/chain/labels"),
        get("/v1/chain/labels", flow="a-flow"),
        get("/v1/chain/labels", flow="none"),
        get("/v1/chain/labels", deadline="labels:LABELS_WANTED->LABELS_LOST=2h"),
        get("/v1/chain/labels", deadline="soon"),
        get("/v1/chain/labels", from_="{1}"),
        get("/v1/chain/labels", from_="end"),
        get("/v1/chain/labels", from_="soon"),
        get("/v1/chain/labels", format="xml"),
        get("/v1/chain/nothing"),
        *[("DELETE", f"/v1/flows/{name}", None) for name in ("labels", "a-flow", "backpressure")],
        *[
            post("/v1/flows", body)
            for body in (
                {}, [], 7, [7], flow("Bad"), flow(7), flow("f"), flow("f", ("A_1",)), flow("f", ("A_1", "A_1")),
                flow("f", ("A_1", "B_1", "C_1")), flow("f", ("A_1", 7)), flow("f", ("A_1", "B_1"), ("A_1", "B_1")),
                flow("f", ("A_1", "B-"), run_by=["a"]), flow("f", ("A_1", "CHAIN_OVERDUE")), {"name": "f", "edges": 7},
                flow("f", ("A_1", "B_1"), ("B_1", "C_1"), ("C_1", "B_1")), flow("f", ("B_1", "C_1"), ("C_1", "B_1")),
                flow("f", ("A_1", "B_1"), run_by=["a", "a"]), flow("f", ("A_1", "B_1"), run_by=["a,b"]),
                flow("f", ("A_1", "B_1"), run_by="a"), flow("f", ("A_1", "B_1"), run_by=[7]),
                flow("f", ("A_1", "B_1"), run_by=list("abcdefghi")), flow("f", run_by=["a"]),
                flow("f", ("A_1", "B_1"), edge_notes=[{"edge": 1}]), flow("f", ("A_1", "B_1"), edge_notes=[{"at": 1}]),
                flow("f", ("A_1", "B_1"), edge_notes=[{}, {}]), flow("f", ("A_1", "B_1"), edge_notes=[7]),
                flow("f", ("A_1", "B_1"), more=1), flow("f", ("A_1", "B_1"), document="x" * 300),
                flow("backpressure", ("A_1", "B_1")), [flow("g", ("A_1", "B_1")), flow("f", ("A_1", "A_1"))],
                flow("f", *((f"A_{i}", "B_1") for i in range(65))),
            )
        ],
        *[("POST", "/v1/flows", body) for body in ("", "{", '{"name":"f","name":"f"}')],
        put("/v1/settings/validation.strict", {"value": True}),
        post("/v1/flows", flow("f", ("A_1", "B_1"))),
        put("/v1/settings/validation.strict", {"value": ""}),
        get("/v1/flows"),
    ],
    "what is appended": [
        publish(event(key="k", source="s", correlation_id="r", causation_id="c", time="2026-01-05T12:00:00.5+02:00")),
        publish(event("training.completed"), event("TRAINING_COMPLETE", {"n": 2}), event("PROMOTION_COMPLETE")),
        publish(event("sync_completed", {"x": [1, 2.0, 1e22, -0.0, "ü\u2028\"\\/\b", {"b": 1, "a": {}}]})),
        publish(event("my-type.of.mine"), event("data_sync_failed", {"correlation_id": "in the payload"})),
        publish({"event_type": "DATA_SYNC_COMPLETED", "timestamp": 1767600000.25, "payload": {"t": 1}}),
        publish(event(value="sync_completed", payload={"v": 1}), event(payload={"v": 2}, dedup=None, key=None)),
        get("/v1/events", from_="{1}"),
        get("/v1/events", from_="-3"),
        get("/v1/events/{1}"),
    ],
    "what is a duplicate": [
        publish(event()),
        publish(event(source="other", key="other")),
        publish(event(dedup=False)),
        publish(event(), event(), event(payload={"n": 1}), event(payload={"n": 1})),
        publish(event(dedup_id="a"), event(payload={"n": 2}, dedup_id="b")),
        publish(event(dedup_id="a")),
        publish(event(payload={"n": 3}, dedup_id="a")),
        publish(event(payload={"n": 4}), event(payload={"n": 3}, dedup_id="a")),
        publish(event(payload={"n": 4})),
        publish(event(payload={"n": 5}, dedup_id="c"), event(payload={"n": 6}, dedup_id="c")),
        get("/v1/dedup/{1}"),
        get("/v1/dedup/99999"),
        get("/v1/dedup/0"),
        get("/v1/dedup/no"),
        get("/v1/dedup/" + "0" * 64),
        get("/v1/events", from_="{1}"),
    ],
    "who is registered": [
        *[put("/v1/clients/a%3Ab", body) for body in (
            {"host": "h", "pid": 7, "ttl": "90s", "subscriptions": [
                {"name": "x", "filter": {"types": ["training.*"]}, "handler_timeout_seconds": 7.5, "cursor": "c",
                 "critical": True, "state": "fenced", "mode": "durable"}]},
            {"subscriptions": [
                {"name": "x", "health": {"timed_out": 2, "failed_attempts": 3, "breaker": "half-open",
                                         "last_error": "busy\n" + "€" * 99,
                                         "last_error_at": "2026-01-05T10:00:00+02:00"}},
                {"name": "y", "health": {}}]},
            {"subscriptions": [{"name": "x", "health": {"breaker": "ajar"}}]},
            {"subscriptions": [{"name": "x", "health": {"last_error_at": "1960-01-05T10:00:00Z"}}]},
            {"subscriptions": [{"name": "x", "health": {"last_error_at": "soon"}}]},
            {}, {"subscriptions": [{"name": ""}]}, {"subscriptions": [{"name": "x", "mode": "m"}]},
            {"subscription": []},
            {"subscriptions": [{"name": "x", "state": "s"}]}, {"ttl": "1s", "subscriptions": [{"name": "x"}]},
            {"ttl": "soon", "subscriptions": [{"name": "x"}]},
        )],
        put("/v1/clients/c", {"subscriptions": [{"name": "y"}, {"name": "z", "filter": {"keys": ["k"]}}]}),
        get("/v1/clients"),
        get("/v1/clients", limit=1),
        get("/v1/clients", after="a:b"),
        put("/v1/clients/c", {"subscriptions": []}),
        ("DELETE", "/v1/clients/a%3Ab", None),
        ("DELETE", "/v1/clients/a%3Ab", None),
        get("/v1/clients"),
    ],
    "what a publish would answer": [
        post("/v1/catalogue/validate", event()),
        post("/v1/catalogue/validate", event("training.completed", {"config_key": "a", "zz": 1})),
        post("/v1/catalogue/validate", [event(), event("LEADER_ELECTED"), event("MY_TYPE"), event("a b")]),
        ("POST", "/v1/catalogue/validate", event("MY_TYPE"), {"strict": "true"}),
        ("POST", "/v1/catalogue/validate", event(payload={"zz": 1}), {"strict": "true"}),
        ("POST", "/v1/catalogue/validate", event(), {"strict": "maybe"}),
        ("POST", "/v1/catalogue/validate", event(), {"x": "1"}),
        post("/v1/catalogue/validate", []),
        post("/v1/catalogue/validate", event(time="x")),
        post("/v1/catalogue/validate", event(x=1)),
        get("/v1/catalogue/validate"),
        get("/v1/events", from_="end"),
    ],
    "who holds a role": [
        get("/v1/roles"),
        get("/v1/roles/SYNC"),
        get("/v1/roles/" + "r" * 257),
        acquire("SYNC", "a"),  # whose fence is {1}
        acquire("SYNC", "a", ttl="1m30s"),
        acquire("SYNC", "b"),
        acquire("SYNC", "b", wait="1ms"),
        acquire("SYNC", "c", wait="1ms", ttl="30s"),
        get("/v1/roles/SYNC"),
        acquire("SYNC", "b"),
        acquire("SYNC", "b", wait="1ms"),
        acquire("PROMOTION%2F1", "a", ttl="1h"),
        get("/v1/roles"),
        get("/v1/roles", limit=1),
        get("/v1/roles", after="PROMOTION/1"),
        get("/v1/roles", limit=1001),
        get("/v1/roles", page=1),
        put("/v1/roles", {"leases": [{"role": "SYNC", "fence": 1}, {"role": "SYNC", "fence": 2},
                                     {"role": "NONE", "fence": 1}, {"role": "SYNC"}]}),
        under("SYNC", "{1}", publish(event())),
        under("SYNC", "{2}", publish(event(dedup=False))),
        under("NONE", "{1}", publish(event(dedup=False))),
        under("SYNC", "{1}", numbered("under", 1, event(payload={"n": 1}))),
        under("SYNC", "{2}", numbered("under", 2, event(payload={"n": 2}))),
        under("SYNC", "{1}", numbered("under", 2, event(payload={"n": 3}))),
        under("SYNC", "{1}", numbered("under", 3, event("A B"))),
        put("/v1/cursors/under"),
        post("/v1/cursors/under/open"),
        under("SYNC", "{1}", post("/v1/cursors/under/commit", {"offset": 1, "generation": 1})),
        under("SYNC", "{2}", post("/v1/cursors/under/commit", {"offset": 2, "generation": 1})),
        under("SYNC", "{2}", post("/v1/cursors/none/commit", {"offset": 2, "generation": 1})),
        under("SYNC", "{1}", post("/v1/cursors/none/commit", {"offset": 2, "generation": 1})),
        under("SYNC", "", post("/v1/cursors/under/commit", {"offset": 2, "generation": 1})),
        delete("/v1/roles/SYNC", session="c"),
        delete("/v1/roles/SYNC", session="nobody"),
        delete("/v1/roles/SYNC", session="a"),
        delete("/v1/roles/SYNC", session="a"),
        under("SYNC", "{1}", publish(event(payload={"n": 4}))),
        under("SYNC", "{1}", numbered("under", 1, event(payload={"n": 1}))),
        put("/v1/roles", {"leases": [{"role": "SYNC", "fence": 1}]}),
        delete("/v1/roles/SYNC", fence="{1}"),
        get("/v1/events", from_="{1}"),
        acquire("SYNC", "c", wait="1ms"),
        delete("/v1/roles/SYNC", fence="{7}"),
        delete("/v1/roles/NONE", fence="{7}"),
        delete("/v1/roles/NONE", session="a"),
        delete("/v1/roles/SYNC", session="c"),
        delete("/v1/roles/PROMOTION%2F1", session="a"),
        get("/v1/events", from_="{1}", type="ROLE_*"),
        get("/v1/roles"),
        ("DELETE", "/v1/cursors/under", None),
        *[put("/v1/roles/SYNC", body) for body in (
            {}, {"holder": "h"}, {"session": "s"}, {"holder": "", "session": ""}, {"holder": 7, "session": "s"},
            {"holder": LONG, "session": "s"}, {"holder": "h", "session": CONTROL}, {"holder": "h", "sesion": "s"},
            *[{"holder": "h", "session": "s", "ttl": ttl} for ttl in ("1s", "61m", "soon", "-2s", 15)],
            *[{"holder": "h", "session": "s", "wait": wait} for wait in ("6m", "soon", "-1s", 1)],
        )],
        ("PUT", "/v1/roles/SYNC", ""),
        acquire(LONG, "s"),
        acquire("a%0Ab", "s"),
        *[put("/v1/roles", body) for body in (
            {}, {"leases": []}, {"leases": [{}]}, {"leases": [{"role": "SYNC", "fence": -1}]},
            {"leases": [{"role": "SYNC", "fence": 1}, {"role": LONG, "fence": 1}]}, {"leases": {}}, {"lease": []},
            {"leases": [{"role": "SYNC", "fence": 1}] * 1001},
        )],
        ("PUT", "/v1/roles", ""),
        *[delete("/v1/roles/SYNC", **query) for query in (
            {}, {"session": "s", "fence": 1}, {"fence": "x"}, {"fence": 0}, {"seson": "s"})],
        delete("/v1/roles/a%0Ab", session="s"),
        *[under(role, fence, publish(event())) for role, fence in (
            ("SYNC", ""), ("", 1), ("SYNC", 0), ("SYNC", "x"), ("SYNC", -1), (LONG, 1))],
        publish(event("ROLE_ANYTHING")),
        get("/v1/roles"),
    ],
    "what is scheduled": [
        schedule("a", event()),
        schedule("a", event()),
        schedule("a", event(), at="2099-01-02"),
        schedule("a", event(payload={"n": 1})),
        schedule("a", event(dedup=False)),
        schedule("a", event(dedup_id="scheduled")),
        schedule("a", event(key="other")),
        schedule("b%2Fc", event("model.promoted", key="k", source="s", correlation_id="run", dedup=False,
                                time="2026-01-05T10:00:00Z"), at="4070908800.5"),
        schedule("d", event("MY_TYPE", {"correlation_id": "run"}, dedup_id="scheduled d", causation_id="why")),
        *[get(SCHEDULED + id_) for id_ in ("a", "b%2Fc", "d", "none")],
        get("/v1/scheduled"),
        get("/v1/scheduled", limit=2),
        get("/v1/scheduled", after="b/c"),
        get("/v1/scheduled", limit=1001),
        get("/v1/scheduled", page=1),
        get(SCHEDULED + "a", page=1),
        ("DELETE", SCHEDULED + "a", None),
        ("DELETE", SCHEDULED + "a", None),
        delete(SCHEDULED + "b%2Fc", id="x"),
        *[("DELETE", SCHEDULED + id_, None) for id_ in ("b%2Fc", "d", LONG, "a%0Ab")],
        put("/v1/settings/schedule.max", {"value": 1}),
        *[schedule("a", event())] * 2,
        put("/v1/settings/schedule.max", {"value": ""}),
        ("DELETE", SCHEDULED + "a", None),
        *[put(SCHEDULED + "f", body) for body in (
            {}, {"at": "2099-01-01"}, {"event": event()}, {"at": "", "event": event()}, {"at": 7, "event": event()},
            {"at": "2099-01-01", "event": event(), "id": "x"},
        )],
        ("PUT", SCHEDULED + "f", ""),
        *[schedule("f", event(), at=at) for at in ("soon", "36h", "99999999999", "2256-01-01", "1600-01-01", "1e400")],
        *[schedule("f", wrong) for wrong in (
            {}, {"type": "A B"}, {"type": "LEADER_ELECTED"}, {"type": "A", "payload": 7},
            event(key=LONG), event(key=CONTROL), event(time="soon"), event(what=1),
        )],
        ("PUT", SCHEDULED + "f", '{"at":"2099-01-01","event":{"type":"MODEL_PROMOTED","type":"A"}}'),
        ("PUT", SCHEDULED + "f", '{"at":"2099-01-01","event":{"type":"A","payload":{"a":1,"a":2}}}'),
        schedule("g", event(payload={"a": json.loads("[" * 125 + "]" * 125)})),
        ("DELETE", SCHEDULED + "g", None),
        schedule("g", event(payload={"a": json.loads("[" * 126 + "]" * 126)})),
        schedule(LONG, event()),
        schedule("a%0Ab", event()),
        schedule("%20", event()),
        ("DELETE", SCHEDULED + "%20", None),
        ("POST", SCHEDULED + "f", None),
        get("/v1/scheduled"),
        get("/v1/events", from_="{1}"),
    ],
    "what a dedup policy decides": [
        *[publish(event(name), event(name), event(name, dedup_id=name), event(name, dedup_id=name))
          for name in ("TASK_HEARTBEAT", "BACKPRESSURE_ACTIVATED")],
        get("/v1/dedup/{1}"),
        get("/v1/dedup/{3}"),
        get(POLICIES + "task.heartbeat"),
        publish(updated({"run": 1, "n": 0})),
        put(POLICIES + "registry_updated", {"mode": "fields", "fields": ["run", "b", "run"]}),
        get("/v1/dedup/{7}"),
        publish(*[updated({"run": run, "n": n}) for run, n in ((1, 0), (1, 1), ("1", 1), (None, 1))]),
        publish(*[updated({"n": n}, **more) for n, more in ((1, {}), (1, {}), (1, {"dedup": False}))]),
        publish(updated({"run": 1, "n": 0, "b": {}}), updated({"b": {}, "run": 1})),
        *[get(f"/v1/dedup/{{{i}}}") for i in range(8, 14)],
        get("/v1/dedup/policies"),
        put(POLICIES + "REGISTRY_UPDATED", {"mode": "fields", "fields": ["b", "run"], "window": "2d"}),
        publish(updated({"run": 1, "n": 2})),
        get("/v1/dedup/{8}"),
        put(POLICIES + "REGISTRY_UPDATED", {"mode": "content", "window": "90s"}),
        get("/v1/dedup/{8}"),
        publish(updated({"run": 1, "n": 2}), updated({"run": 1, "n": 2})),
        publish(updated({"run": 9}), updated({"run": 8}, dedup_id="TASK_HEARTBEAT")),
        publish(updated({"run": 9})),
        get(POLICIES + "REGISTRY_UPDATED"),
        put(POLICIES + "REGISTRY_UPDATED", {"mode": "off"}),
        publish(updated({"run": 9}), updated({"run": 9})),
        ("DELETE", POLICIES + "REGISTRY_UPDATED", None),
        ("DELETE", POLICIES + "REGISTRY_UPDATED", None),
        publish(updated({"run": 9}), updated({"run": 9})),
        put(POLICIES + "TASK_HEARTBEAT", {"mode": "content"}),
        get("/v1/dedup/{1}"),
        publish(event("TASK_HEARTBEAT"), event("TASK_HEARTBEAT")),
        ("DELETE", POLICIES + "TASK_HEARTBEAT", None),
        *[put(POLICIES + "TRAINING_COMPLETED", body) for body in (
            {}, {"mode": ""}, {"mode": "sometimes"}, {"mode": "fields"}, {"mode": "content", "fields": ["a"]},
            {"mode": "off", "window": "1m"}, {"mode": 7}, {"modes": "off"},
            *[{"mode": "content", "window": window} for window in ("1ms", "soon", "32d")],
            *[{"mode": "fields", "fields": fields}
              for fields in ([""], [LONG], [f"f{i}" for i in range(17)], "x", ["config_key", "no_field"])],
        )],
        *[put(POLICIES + name, {"mode": "off"}) for name in ("a%20b", "LEADER_ELECTED", "MY_OWN", LONG)],
        put(POLICIES + "TRAINING_COMPLETE", {"mode": "off"}),
        *[("DELETE", POLICIES + name, None) for name in ("TRAINING_COMPLETED", "my.own", "LEADER_ELECTED")],
        get(POLICIES + "LEADER_ELECTED"),
        get(POLICIES + "a%20b"),
        get("/v1/dedup/policies", limit=1),
        ("DELETE", "/v1/dedup/policies", None),
    ],
    "what producers are answered": [
        numbered("p", 1, event(dedup=False)),
        numbered("p", 1, event(dedup=False)),
        numbered("p", 1, event(payload={"n": 1}, dedup=False)),
        numbered("p", 3, event()),
        numbered("p", 2, event(LONG)),
        numbered("p", 2, event(payload={"n": 2}, dedup_id="d")),
        numbered("p", 3, event(payload={"n": 3}, dedup_id="d")),
        numbered("p", 3, event(payload={"n": 3}, dedup_id="d")),
        numbered("p", 4, event(payload={"n": 4}), event(payload={"n": 4})),
        numbered("p", 4, event(payload={"n": 4}), event(payload={"n": 4})),
        numbered("unknown", 2, event()),
        numbered("p", 0, event()),
        numbered("p", "x", event()),
        numbered("", 1, event()),
        (*publish(event())[:4], {"Ringlog-Producer": "p"}),
        numbered(LONG, 1, event()),
        *[numbered("q", i, event(payload={"q": i})) for i in range(1, 67)],
        numbered("q", 2, event(payload={"q": 2})),
        numbered("q", 3, event(payload={"q": 3})),
    ],
    "what is refused of an event": [
        publish(event(None)),
        publish(event(7)),
        publish(event("")),
        publish(event("A B")),
        publish(event("...")),
        publish(event(LONG)),
        publish(event("LEADER_ELECTED"), event("LEADER_ELECTED")),
        publish(event("leader.elected")),
        publish(event("VOTER_ANYTHING")),
        publish(event(payload=[])),
        publish(event(payload="x")),
        publish({"type": "DATA_SYNC_COMPLETED", "payload": None}),
        publish({"payload": {}}),
        publish(event(key=LONG)),
        publish(event(source=CONTROL), event(key=7)),
        publish(event(), event(dedup_id=["x"])),
        publish(event(dedup="no")),
        publish(event(time="yesterday")),
        publish(event(time="1500-01-01T00:00:00Z")),
        publish(event(time=7)),
        publish(event(value="training_started")),
        publish(event(corelation_id="x")),
        publish(event(offset=7, hash="x", appended_at=None, target="t")),
        publish([]),
        publish([event(), 7]),
        publish(event(payload={"blob": "x" * 1_048_576})),
        publish(event(), event(payload={"blob": "x" * 1_048_576})),
        publish(event(payload={"blob": "x" * 4_200_000})),
        publish(event(payload={"a": json.loads("[" * 127 + "]" * 127)})),
        publish(event(payload={"a": json.loads("[" * 128 + "]" * 128)})),
        publish(event(), event(payload={"a": [1, {"b": json.loads("[" * 128 + "]" * 128)}]})),
        ("POST", "/v1/events", '{"type":"DATA_SYNC_COMPLETED","payload":{"a":{"b":1,"b":2}}}'),
        ("POST", "/v1/events", '{"type":"DATA_SYNC_COMPLETED","type":"TRAINING_STARTED"}'),
        ("POST", "/v1/events", '[{"type":"DATA_SYNC_COMPLETED","time":null,"timestamp":1}]'),
        ("POST", "/v1/events", ""),
        ("POST", "/v1/events", "{"),
        get("/v1/events", from_="{1}"),
    ],
    "what is warned about": [
        publish(event("TRAINNING_COMPLETED")),
        publish(event("TRAINING_COMPLETED", {"epochs_completed": "3", "config_key": 1, "final_loss": True})),
        publish(event("TRAINING_COMPLETED", {f"unlisted_{i}": i for i in range(12)})),
        publish(event("TRAINING_COMPLETED", {"correlation_id": 7})),
        publish(event("TRAINING_STARTED", {"correlation_id": LONG})),
        *[publish(event("WORK_QUEUE_STALLED", {"pending_count": count})) for count in (3.0, 3.5, None, {}, "3", True)],
        publish(event("WORK_QUEUE_STALLED", {"pending_count": 1, "extra": {}}), event("COORDINATOR_HEALTHY")),
        get("/v1/events", from_="end", type="TRAINNING_*"),
        put("/v1/cursors/warned", {"from": 1, "filter": {"types": ["TRAINNING_STARTED", "training.*"]}}),
        put("/v1/cursors/warned", {"from": 1, "filter": {"types": ["TRAINNING_STARTED", "training.*"]}}),
        put("/v1/groups/warned-group", {"from": 1, "filter": {"types": ["training.*"], "categories": ["sync"]}}),
    ],
    "what a filter passes": [
        publish(event(key="k", source="s"), event("TRAINING_STARTED", correlation_id="r")),
        publish(event("MY_OWN"), event("MY_OTHER", key="k")),
        *[
            get("/v1/events", from_="{1}", **chosen)
            for chosen in (
                {"type": "data.sync.*"}, {"type": "sync_*"}, {"type": "my_o?n"}, {"type": "training_started"},
                {"category": "TRAINING"}, {"category": "sync", "source": "s"}, {"key": "k"}, {"key": ""},
                {"correlation_id": "r"}, {"type": "MY_*", "key": "k"}, {"category": "none"}, {"type": "a b"},
                {"type": LONG}, {"source": CONTROL}, {"limit": 2}, {"limit": "x"}, {"nothing": 1},
                {"consistency": "linearizable"},
            )
        ],
    ],
    "where a read begins": [
        publish(event(), event(payload={"n": 1}), event(payload={"n": 2})),
        *[
            get("/v1/events", from_=position)
            for position in (
                "{1}", "-1", "end", "END", "@2099-01-01", "2099-01-01T00:00:00Z", "0", "-0", "soon", "@soon",
                "999999999",
            )
        ],
        get("/v1/events/0"),
        get("/v1/events/x"),
        get("/v1/events/999999999"),
        get("/v1/nowhere"),
        ("PATCH", "/v1/events", None),
    ],
    "what a cursor does": [
        publish(event(), event(payload={"n": 1}), event("TRAINING_STARTED"), event(payload={"n": 2})),
        put("/v1/cursors/c", {"from": 1, "filter": {"types": ["data.sync.*"]}}),
        put("/v1/cursors/c", {"from": 3, "filter": {"types": ["data.sync.*"]}}),
        put("/v1/cursors/c", {"filter": {"types": ["data.sync.*", "TRAINING_STARTED"]}}),
        put("/v1/groups/c", {"filter": {"types": ["data.sync.*"]}}),
        get("/v1/explain", cursor="c", offset=1),
        post("/v1/cursors/c/open", {"opener": "one"}),
        post("/v1/cursors/c/open", {"opener": "one"}),
        get("/v1/cursors/c/events", generation=1),
        post("/v1/cursors/c/commit", {"offset": 2, "generation": 1}),
        get("/v1/explain", cursor="c", offset=1),
        get("/v1/explain", cursor="c", offset=3),
        get("/v1/explain", cursor="c", offset=4),
        post("/v1/cursors/c/commit", {"offset": 1, "generation": 1}),
        get("/v1/cursors/c/events", generation=1),
        get("/v1/cursors/c"),
        post("/v1/cursors/c/open", {"opener": "two"}),
        post("/v1/cursors/c/open", {"opener": "one"}),
        get("/v1/cursors/c/events", generation=1),
        get("/v1/cursors/c/events", generation=9),
        get("/v1/cursors/c/events"),
        post("/v1/cursors/c/commit", {"offset": 3, "generation": 1}),
        post("/v1/cursors/c/commit", {"offset": 99999, "generation": 2}),
        post("/v1/cursors/c/commit", {"offset": 3}),
        post("/v1/cursors/c/commit", {"offset": "x", "generation": 2}),
        post("/v1/cursors/c/seek", {"to": 4, "seeker": "s"}),
        post("/v1/cursors/c/seek", {"to": 1, "seeker": "s"}),
        get("/v1/explain", cursor="c", offset=3),
        post("/v1/cursors/c/seek", {"to": "-1"}),
        post("/v1/cursors/c/seek", {"to": "end"}),
        post("/v1/cursors/c/seek", {"to": 99999}),
        post("/v1/cursors/c/seek", {"to": "soon"}),
        post("/v1/cursors/c/seek", {}),
        post("/v1/cursors/c/seek", {"to": 2}),
        put("/v1/cursors/c/filter", {"filter": {"types": ["TRAINING_STARTED"]}}),
        put("/v1/cursors/c/filter", {"filter": {"types": ["TRAINING_STARTED"]}}),
        put("/v1/cursors/c/filter", {}),
        get("/v1/cursors/c/events", generation=2),
        get("/v1/cursors/c/events", generation=3),
        get("/v1/wait", offset=1, cursors="c", timeout="5s"),
        get("/v1/wait", offset=1, cursors="c,none", timeout="5s"),
        get("/v1/wait", offset=4, cursors="c", timeout="50ms"),
        get("/v1/wait", offset=4, timeout="5s"),
        get("/v1/wait", cursors="c"),
        put("/v1/cursors/late", {"from": "end", "policy": {"hold_for": "36h", "hold_events": 7}}),
        put("/v1/cursors/late", {"from": "end", "policy": {"hold_for": "1.5d", "hold_events": 7}}),
        get("/v1/explain", cursor="late", offset=1),
        ("DELETE", "/v1/cursors/late", None),
        ("DELETE", "/v1/cursors/late", None),
        ("DELETE", "/v1/cursors/c", None),
        get("/v1/cursors/c"),
        post("/v1/cursors/c/open"),
        post("/v1/cursors/c/commit", {"offset": 1, "generation": 1}),
        post("/v1/cursors/c/seek", {"to": "end"}),
        get("/v1/cursors/c/events", generation=1),
        get("/v1/explain", cursor="c", offset=1),
        put("/v1/cursors/" + LONG),
        put("/v1/cursors/a%0Ab"),
        put("/v1/cursors/c", {"from": 99999}),
        put("/v1/cursors/c", {"filter": {"type": ["x"]}}),
        put("/v1/cursors/c", {"filter": {"types": [""]}}),
        put("/v1/cursors/c", {"filter": {"types": "x"}}),
        put("/v1/cursors/c", {"filter": {"types": ["x"] * 257}}),
        put("/v1/cursors/c", {"filter": {"keys": ["x" * 200] * 100}}),
        put("/v1/cursors/c", {"filters": {}}),
        put("/v1/cursors/c", {"policy": {"hold_for": "long"}}),
        get("/v1/cursors/c"),
    ],
    "what becomes of dead letters": [
        publish(event(key="k"), event(payload={"n": 1}), event(payload={"n": 2}), event("TRAINING_STARTED")),
        put("/v1/cursors/d", {"from": 1}),
        post("/v1/cursors/d/open"),
        post("/v1/cursors/d/deadletter", {"offset": 1, "generation": 1, "error": "no config 17", "attempts": 3}),
        post("/v1/cursors/d/deadletter", {"offset": 1, "generation": 1, "error": "again"}),
        post("/v1/cursors/d/deadletter", {"offset": 2, "generation": 9}),
        post("/v1/cursors/d/deadletter", {"offset": 99999, "generation": 1}),
        post("/v1/cursors/d/deadletter", {"offset": 0, "generation": 1}),
        post("/v1/cursors/d/deadletter", {"generation": 1}),
        post("/v1/cursors/d/commit", {"offset": 2, "generation": 1}),
        post("/v1/cursors/d/deadletter", {"offset": 2, "generation": 1}),
        post("/v1/cursors/d/deadletter", {"offset": 3, "generation": 1, "error": "no config 18", "handler": "h"}),
        get("/v1/dlq"),
        get("/v1/dlq", limit=1),
        get("/v1/dlq", cursor="d", error="18"),
        get("/v1/dlq", cursor="none"),
        get("/v1/dlq", type="data.*", after=1),
        get("/v1/dlq", type="a b"),
        get("/v1/dlq", state="alive"),
        get("/v1/dlq", limit=20000),
        get("/v1/dlq/errors"),
        get("/v1/dlq/errors", cursor="none"),
        get("/v1/dlq/1"),
        get("/v1/dlq/0"),
        get("/v1/dlq/99"),
        get("/v1/explain", cursor="d", offset=1),
        post("/v1/dlq/redrive", {}),
        post("/v1/dlq/redrive", {"ids": [1], "all": True}),
        post("/v1/dlq/redrive", {"ids": [1], "cursor": "d"}),
        post("/v1/dlq/redrive", {"ids": [0]}),
        post("/v1/dlq/redrive", {"ids": [99]}),
        post("/v1/dlq/redrive", {"ids": [1], "to": "none"}),
        post("/v1/dlq/redrive", {"cursor": "d", "dry_run": True}),
        post("/v1/dlq/redrive", {"error": "17"}),
        post("/v1/dlq/redrive", {"ids": [1]}),
        get("/v1/dlq", state="redriven"),
        get("/v1/explain", cursor="d", offset=1),
        get("/v1/explain", cursor="d", offset=7),
        get("/v1/cursors/d/events", generation=1),
        get("/v1/events", from_="{1}"),
        get("/v1/events", from_="{1}", redriven="true"),
        post("/v1/dlq/purge", {"ids": [1]}),
        post("/v1/cursors/d/deadletter", {"offset": 7, "generation": 1, "error": "failed again"}),
        get("/v1/dlq/1"),
        put("/v1/cursors/e", {"from": "end"}),
        post("/v1/dlq/redrive", {"ids": [1], "to": "e"}),
        get("/v1/dlq/1"),
        post("/v1/cursors/e/open"),
        post("/v1/cursors/d/deadletter", {"offset": 10, "generation": 1}),
        post("/v1/cursors/e/seek", {"to": "end"}),
        get("/v1/dlq/1"),
        post("/v1/dlq/redrive", {"ids": [1]}),
        get("/v1/cursors/e/events", generation=1),
        post("/v1/cursors/e/commit", {"offset": 9, "generation": 1}),
        get("/v1/dlq"),
        get("/v1/dlq/1"),
        ("DELETE", "/v1/cursors/d", None),
        post("/v1/dlq/redrive", {"ids": [2]}),
        post("/v1/dlq/redrive", {"ids": [2], "max_events": 1, "older_than": "1h"}),
        post("/v1/dlq/purge", {"older_than": "1h"}),
        post("/v1/dlq/purge", {"older_than": "soon"}),
        post("/v1/dlq/purge", {"ids": [2, 99]}),
        post("/v1/dlq/purge", {"all": True}),
        ("DELETE", "/v1/cursors/e", None),
    ],
    "what a group refuses": [
        publish(event(key="a"), event(payload={"n": 1}, key="a"), event(payload={"n": 2}, key="b")),
        put("/v1/groups/g", {"from": 1, "group": {"ack_wait": "45s", "max_deliver": 2}}),
        put("/v1/groups/g", {"from": 2, "group": {"ack_wait": "0m45.0s", "max_deliver": 2}}),
        put("/v1/groups/g", {"group": {"ack_wait": "46s", "max_deliver": 2}}),
        put("/v1/cursors/g"),
        put("/v1/groups/h", {"group": {"ack_wait": "1ms"}}),
        put("/v1/groups/h", {"group": {"ack_wait": "x"}}),
        put("/v1/groups/h", {"group": {"max_deliver": -1}}),
        put("/v1/groups/h", {"group": {"max_deliver": 2000000}}),
        put("/v1/groups/h", {"group": {"max_pending": 2000000}}),
        get("/v1/groups/h"),
        exchange("h", "m", 0),
        post("/v1/groups/g/exchange", {}),
        post("/v1/groups/g/exchange", {"member": LONG}),
        exchange("g", "m", 7),
        exchange("g", "m", 0, acks=[span(0, 0)]),
        exchange("g", "m", 0, progress=[span(3, 2)]),
        exchange("g", "m", 0, nacks=[nack(0)]),
        exchange("g", "m", 0, nacks=[nack(1, delay_ms=90000000)]),
        exchange("g", "m", 0, nacks=[nack(1, dead=True, released=True)]),
        exchange("g", "m", 0, want=20000),
        exchange("g", "m", 0, wait_ms=60000),
        exchange("g", "m", 0, want=1, leave=True),
        exchange("g", "m", 0, want="x"),
        exchange("g", "m", 0, nothing=1),
        post("/v1/cursors/g/open"),
        post("/v1/cursors/g/commit", {"offset": 1, "generation": 1}),
        post("/v1/cursors/g/deadletter", {"offset": 1, "generation": 1}),
        put("/v1/cursors/g/filter", {"filter": {"types": ["DATA_SYNC_STARTED"]}}),
        get("/v1/groups/g"),
        put("/v1/cursors/plain", {"from": "end"}),
        get("/v1/groups/plain"),
        ("DELETE", "/v1/groups/plain", None),
        ("DELETE", "/v1/cursors/plain", None),
        ("DELETE", "/v1/groups/g", None),
        ("DELETE", "/v1/groups/g", None),
        get("/v1/groups/g/members"),
    ],
    "what members of a group get": [
        # Letters of HANDLER_ events are not reported: nothing is appended while the group is served.
        publish(event("HANDLER_FAILED", key="a"), event("HANDLER_FAILED", payload={"n": 1}, key="a")),
        publish(event(payload={"n": 2}, key="b"), event(payload={"n": 3})),
        put("/v1/groups/g", {"from": 1, "group": {"max_deliver": 2}}),
        exchange("g", "one", 0, want=10),
        exchange("g", "two", 0, want=10),
        get("/v1/explain", cursor="g", offset=1),
        exchange("g", "one", 1, acks=[span(3, 3), span(2, 2)]),
        get("/v1/explain", cursor="g", offset=3),
        exchange("g", "one", 1, nacks=[nack(1, error="x", handler="h")]),
        get("/v1/explain", cursor="g", offset=1),
        exchange("g", "two", 2, want=10, wait_ms=5000),
        exchange("g", "one", 1, acks=[span(1, 1)]),
        exchange("g", "two", 2, nacks=[nack(1, error="y")]),
        get("/v1/dlq", cursor="g"),
        get("/v1/explain", cursor="g", offset=1),
        exchange("g", "two", 2, want=10, wait_ms=5000),
        exchange("g", "two", 2, nacks=[nack(2, released=True)]),
        exchange("g", "two", 2, want=10, wait_ms=5000),
        exchange("g", "two", 2, nacks=[nack(2, dead=True, error="z")]),
        get("/v1/dlq", cursor="g"),
        get("/v1/groups/g"),
        get("/v1/groups/g/members"),
        exchange("g", "one", 1, leave=True),
        exchange("g", "one", 1),
        exchange("g", "two", 2, want=10, wait_ms=5000),
        exchange("g", "two", 0, want=10, holding=[span(4, 5)]),
        exchange("g", "two", 0, want=10),
        exchange("g", "two", 4, acks=[span(4, 4)]),
        get("/v1/groups/g"),
        post("/v1/dlq/redrive", {"cursor": "g"}),
        exchange("g", "two", 4, want=10, wait_ms=5000),
        ("DELETE", "/v1/groups/g", None),
        post("/v1/dlq/purge", {"cursor": "g"}),
    ],
    "what trimming does": [
        publish(event(), event(payload={"n": 1})),
        publish(event(payload={"n": 2})),
        publish(event(payload={"n": 3})),
        put("/v1/cursors/t", {"from": 2}),
        post("/v1/cursors/t/open"),
        post("/v1/compact", {"before": 99999}),
        post("/v1/compact", {"before": 1, "keep": 1}),
        post("/v1/compact", {"before": 4, "force": True}),
        get("/v1/events/{1}"),
        get("/v1/events", from_="{1}"),
        get("/v1/cursors/t"),
        get("/v1/cursors/t/events", generation=1),
        get("/v1/explain", cursor="t", offset=1),
        get("/v1/explain", cursor="t", offset=2),
        ("DELETE", "/v1/cursors/t", None),
    ],
    "what is allocated": [
        get("/v1/resources"),
        get("/v1/resources/net"),
        get("/v1/allocations/none"),
        put("/v1/resources/net", {"capacity": 100, "unit": "Mbit/s", "preemptible": True}),
        put("/v1/resources/disk%2F1", {"capacity": 2}),
        put("/v1/resources/disk%2F1", {"capacity": 3, "preemptible": False}),
        get("/v1/resources"),
        get("/v1/resources", limit=1),
        get("/v1/resources", after="disk/1"),
        get("/v1/resources", limit=1001),
        allocate("a", net=60),  # whose fence is {1}
        allocate("a", net=60, ttl="1m30s", holder="other"),
        allocate("a", net=61),
        allocate("a", net=60, priority="HIGH"),
        allocate("b", net=60),
        allocate("b", net=60, wait="1ms"),
        allocate("b", net=60, wait="1ms", ttl="30s"),
        allocate("c", net=10, wait="1ms"),  # behind b
        allocate("d", net=10, wait="1ms", priority="high"),  # before b, {2}
        allocate("e", net=90, wait="1ms", priority="critical"),  # may end LOW ones alone
        allocate("f", net=1, wait="1ms", **{"disk/1": 1}),
        get("/v1/resources"),
        get("/v1/allocations"),
        get("/v1/allocations", limit=2),
        get("/v1/allocations", after="d"),
        get("/v1/allocations", page=1),
        *[get(f"/v1/allocations/{id_}") for id_ in "abf"],
        put("/v1/allocations", {"leases": [{"allocation": id_, "fence": fence} for id_, fence in (
            ("a", 1), ("a", 2), ("b", 0), ("none", 1))] + [{"allocation": "b"}]}),
        delete("/v1/allocations/c"),
        delete("/v1/allocations/e"),
        delete("/v1/allocations/a"),  # b and f are granted
        delete("/v1/allocations/a"),
        get("/v1/resources/net"),
        get("/v1/allocations"),
        # A CRITICAL request ends LOW allocations, the newest first, if that is enough.
        *[delete(f"/v1/allocations/{id_}") for id_ in "bdf"],
        *[allocate(f"low-{i}", net=30, priority="LOW") for i in range(3)],
        allocate("low-3", priority="LOW", net=5, **{"disk/1": 1}),
        allocate("normal", net=5),
        allocate("urgent", net=96, priority="CRITICAL"),
        allocate("urgent", net=30, priority="CRITICAL"),
        allocate("both", net=60, priority="CRITICAL", **{"disk/1": 2}),
        allocate("later", net=60, priority="CRITICAL", **{"disk/1": 1}),
        get("/v1/allocations"),
        # A lower capacity takes nothing away, and drops what will never fit.
        allocate("large", net=80, wait="1ms", **{"disk/1": 3}),
        allocate("small", **{"disk/1": 1}, wait="1ms"),
        put("/v1/resources/net", {"capacity": 50}),
        get("/v1/allocations"),
        allocate("large", net=80, wait="1ms", **{"disk/1": 3}),
        ("DELETE", "/v1/resources/net", None),
        ("DELETE", "/v1/resources/net", None, {"page": 1}),
        *[delete(f"/v1/allocations/{id_}") for id_ in (
            "low-0", "low-1", "low-2", "low-3", "normal", "urgent", "both", "later", "large", "small")],
        ("DELETE", "/v1/resources/net", None),
        ("DELETE", "/v1/resources/net", None),
        get("/v1/events", from_="{1}"),
        *[put("/v1/resources/r", body) for body in (
            {}, {"capacity": -1}, {"capacity": "1"}, {"capacity": 1.5}, {"capacity": (1 << 53) + 1},
            {"capacity": 1 << 53, "unit": "u" * 65}, {"capacity": 1, "unit": CONTROL}, {"capacity": 1, "unit": 7},
            {"capacity": 1, "preemptible": "no"}, {"capcity": 1}, {"capacity": 5.0},
        )],
        ("PUT", "/v1/resources/r", ""),
        put(f"/v1/resources/{LONG}", {"capacity": 1}),
        put("/v1/resources/a%0Ab", {"capacity": 1}),
        *[put("/v1/allocations/x", body) for body in (
            {}, {"holder": ""}, {"amounts": {"r": 1}}, {"holder": "h"}, {"holder": "h", "amounts": {}},
            {"holder": "h", "amounts": {"r": 0}}, {"holder": "h", "amounts": {"r": 6}},
            {"holder": "h", "amounts": {"none": 1, "r": 1}}, {"holder": "h", "amounts": {LONG: 1}},
            {"holder": "h", "amounts": {"": 1}}, {"holder": "h", "amounts": {f"r{i}": 1 for i in range(17)}},
            {"holder": 7, "amounts": {"r": 1}}, {"holder": LONG, "amounts": {"r": 1}},
            {"holder": CONTROL, "amounts": {"r": 1}}, {"holder": "h", "amount": {"r": 1}},
            *[{"holder": "h", "amounts": amounts} for amounts in ("r=1", ["r"], 7, {"r": -1}, {"r": "1"}, {"r": 1.5})],
            *[{"holder": "h", "amounts": {"r": 1}, "ttl": ttl} for ttl in ("1s", "25h", "soon", "-2s", 15)],
            *[{"holder": "h", "amounts": {"r": 1}, "wait": wait} for wait in ("6m", "soon", "-1s", 1)],
            *[{"holder": "h", "amounts": {"r": 1}, "priority": priority} for priority in ("URGENT", 1)],
        )],
        ("PUT", "/v1/allocations/x", ""),
        allocate(LONG, r=1),
        allocate("a%0Ab", r=1),
        *[put("/v1/allocations", body) for body in (
            {}, {"leases": []}, {"leases": [{}]}, {"leases": [{"allocation": "x", "fence": -1}]},
            {"leases": [{"allocation": "x", "fence": 1}, {"allocation": LONG, "fence": 1}]}, {"leases": {}},
            {"leases": [{"allocation": "x", "fence": 1}] * 1001},
        )],
        ("PUT", "/v1/allocations", ""),
        delete("/v1/allocations/a%0Ab"),
        *[("DELETE", f"/v1/resources/{name}", None) for name in ("r", "disk%2F1", "q")],
        get("/v1/resources"),
        get("/v1/allocations"),
    ],
    "what bodies are refused": [
        put("/v1/cursors/b", {"from": 1}),
        put("/v1/groups/bg", {"from": 1}),
        post("/v1/cursors/b/open"),
        *[
            post("/v1/groups/bg/exchange", {"member": "m", **body})
            for body in (
                {"acks": [7]}, {"acks": 7}, {"acks": [{"from": "x", "to": 1}]}, {"acks": [{"start": 1}]},
                {"nacks": ["x"]}, {"nacks": [{"offset": "x"}]}, {"nacks": [{"offset": 1, "error": 7}]},
                {"progress": [{"from": 1}]},
                {"wait_ms": 1.5}, {"want": -1}, {"leave": 1}, {"acks": None}, {"session": "x"},
            )
        ],
        exchange("bg", 7),
        *[post("/v1/dlq/purge", {"ids": ids}) for ids in (["x"], 7, [1.5], [1.0], [2.0**53 - 1], [2.0**53], [-1.0])],
        *[put("/v1/groups/whole", {"group": {"max_deliver": number}}) for number in (80.0, 80, 2.0**60)],
        put("/v1/cursors/whole", {"from": 1.0}),
        *[post("/v1/cursors/whole/seek", {"to": to}) for to in (2.0**53 - 1, 2.0**53)],
        *[post("/v1/dlq/purge", body) for body in ({"all": "x"}, {"type": 7})],
        *[post("/v1/dlq/redrive", body) for body in ({"to": 7}, {"ids": [-1]}, {"cursor": 7}, {"older_than": 7})],
        *[put("/v1/cursors/c", {"filter": body}) for body in (7, {"types": [7]}, {"types": {}}, {"keys": [None]})],
        *[put("/v1/cursors/c", {"policy": body}) for body in (7, {"hold_events": "x"}, {"hold_for": 7}, {"hold": 1})],
        *[put("/v1/groups/c", {"group": body}) for body in (7, {"max_deliver": "x"}, {"ack_wait": 7}, {"ack": "1s"})],
        *[put("/v1/cursors/c", {"from": start}) for start in ({}, 1.5, True, [1])],
        *[post("/v1/cursors/b/seek", {"to": to}) for to in ({}, 1.5, True)],
        *[post("/v1/cursors/b/commit", {"offset": offset, "generation": 1}) for offset in (-1, 1.5, True, None)],
        post("/v1/cursors/b/deadletter", {"offset": 1, "generation": 1, "error": 7}),
        post("/v1/cursors/b/deadletter", {"offset": 1, "generation": 1, "attempts": "x"}),
        post("/v1/cursors/b/open", {"opener": 7}),
        post("/v1/cursors/b/open", {"opener": LONG}),
        post("/v1/compact", {"before": "x"}),
        post("/v1/compact", {"keep": -1}),
        put("/v1/settings/dedup.window", {"value": {}}),
        put("/v1/settings/dedup.window", {"value": None}),
        *[("PUT", "/v1/cursors/c", body) for body in ("[]", "7", "{", '{"from":1,"from":2}', "null")],
        ("PUT", "/v1/cursors/c/filter", ""),
        get("/v1/cursors", limit=7000),
        get("/v1/wait", offset=1, cursors="b", timeout="soon"),
        ("DELETE", "/v1/cursors/c", None),
        ("DELETE", "/v1/cursors/b", None),
        ("DELETE", "/v1/groups/bg", None),
    ],
    "what settings take": [
        get("/v1/settings/dedup.window"),
        put("/v1/settings/dedup.window", {"value": "2m"}),
        put("/v1/settings/dedup.window", {"value": "1ms"}),
        put("/v1/settings/dedup.window", {"value": "soon"}),
        put("/v1/settings/dedup.window", {"value": 7}),
        put("/v1/settings/dedup.window", {}),
        put("/v1/settings/dedup.window", {"value": ""}),
        put("/v1/settings/group.max_deliver", {"value": 7}),
        put("/v1/settings/group.max_deliver", {"value": -7}),
        put("/v1/settings/group.max_deliver", {"value": ""}),
        put("/v1/settings/validation.strict", {"value": True}),
        publish(event("MY_TYPE")),
        publish(event("TRAINING_STARTED"), event("MY_TYPE")),
        put("/v1/settings/validation.strict", {"value": "maybe"}),
        put("/v1/settings/validation.strict", {"value": ""}),
        put("/v1/settings/catalogue.reserved", {"value": "accept-as-foreign"}),
        publish(event("LEADER_ELECTED")),
        put("/v1/settings/catalogue.reserved", {"value": ""}),
        put("/v1/settings/backpressure.lag", {"value": "a=b=100/20, selfplay-*=5/3"}),
        put("/v1/settings/backpressure.lag", {"value": "a=4/3"}),
        put("/v1/settings/backpressure.lag", {"value": "a*b=5/3"}),
        put("/v1/settings/backpressure.lag", {"value": "=5/3"}),
        put("/v1/settings/backpressure.lag", {"value": "a=5/3,"}),
        put("/v1/settings/backpressure.lag", {"value": "a=5/-3"}),
        put("/v1/settings/backpressure.lag", {"value": ""}),
        get("/v1/settings/none"),
        put("/v1/settings/none", {"value": 1}),
        get("/v1/events", from_="{1}"),
    ],
}  # fmt: skip


class Transcripts(unittest.TestCase):
    cluster: Cluster

    @classmethod
    def setUpClass(cls) -> None:
        cls.cluster = Cluster(1)
        cls.addClassCleanup(cls.cluster.close)

    def test_settings_and_catalogue_are_those_of_a_node(self) -> None:
        memory = MemoryLog()
        with Client(self.cluster.urls) as node, Client(memory.url) as log:
            settings = [
                [(one["key"], one["value"], one["default"]) for one in side.request("GET", "/v1/settings")["settings"]]
                for side in (log, node)
            ]
            self.assertEqual(*settings)
            documented = {"emitters", "subscribers", "documents", "impact", "alias_of"}
            ours, theirs = log.catalogue(), node.catalogue()
            self.assertEqual([one["name"] for one in ours], [one["name"] for one in theirs])
            for mine, its in zip(ours, theirs, strict=True):
                self.assertEqual({name: its[name] for name in mine if name != "payload"},
                                 {name: mine[name] for name in mine if name != "payload"})  # fmt: skip
                fields = [{field["name"]: field["type"] for field in one["payload"]} for one in (mine, its)]
                self.assertEqual(*fields)
                self.assertLessEqual({name for name in its if "cross_process" not in name} - set(mine), documented)
            catalogues = [side.request("GET", "/v1/catalogue") for side in (log, node)]
            for part in ("aliases", "categories"):
                self.assertEqual(catalogues[0][part], catalogues[1][part])

    def test_a_memory_log_answers_as_a_node(self) -> None:
        memory = MemoryLog()
        with Client(self.cluster.urls) as node, Client(memory.url) as log:
            # Both logs have the same last offset when the first transcript begins.
            while log.publish("DATA_SYNC_STARTED", {}, dedup=False).offset < node.cluster()["last_offset"]:
                pass
        self.maxDiff = None
        for title, steps in TRANSCRIPTS.items():
            sides = Side(self.cluster.urls, title), Side(memory.url, title)
            for side in sides:
                self.addCleanup(side.log.close)
            for i, step in enumerate(steps):
                method, path, body, query, headers = (*step, None, None, None)[:5]
                with self.subTest(title, step=i, asked=f"{method} {path} {json.dumps(body)[:200]} {query}"):
                    self.assertEqual(*(side.ask(method, path, body, query, headers) for side in reversed(sides)))
