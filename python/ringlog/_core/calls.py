"""One call to the cluster: which node is asked, what is repeated, what an error means.

A call is repeated at the nodes in turn until one answers for good or its time has passed. Every
call of the HTTP interface may be repeated but a publish without a producer, which this package
does not send. All calls go to one cluster, that of the first node that answers.
"""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode

from ringlog._core import tls
from ringlog._core.config import Config
from ringlog._core.encode import encode
from ringlog._core.http import ResponseParser, encode_request
from ringlog._core.io import Connection, Io
from ringlog._core.nodes import Node, Nodes
from ringlog._core.notices import Outage, Warnings
from ringlog.errors import OutcomeUnknown, RinglogError, Unavailable, from_answer

Query = Mapping[str, str | list[str]]
LINEARIZABLE: dict[str, str | list[str]] = {"consistency": "linearizable"}

FEATURE_LEVEL = 10  # of the nodes that this package was made with; docs/operations.md explains levels
FIRST_PAUSE, MAX_PAUSE, GROWTH = 0.02, 1.0, 1.1  # seconds between rounds over all nodes
MAX_INTERNAL = 3  # answers that report a node's own fault before it is taken for the request's
NOTHING_HAPPENED = frozenset({"timeout", "overloaded", "no_leader", "no_quorum", "unavailable"})
MAY_HAVE_HAPPENED = frozenset({"outcome_unknown", "internal"})
PASSING = NOTHING_HAPPENED | MAY_HAVE_HAPPENED | {"other_cluster"}


def path(*parts: str | int) -> str:
    """Return a path of the interface, with names quoted: path("cursors", "a b", "open")."""
    return "/v1/" + "/".join(quote(str(part), safe="") for part in parts)


class Answer:
    """A response on its way: its status and headers have been received, its body perhaps not."""

    def __init__(self, node: Node, connection: Connection, timeout: float) -> None:
        self.node, self.connection, self.timeout = node, connection, timeout
        self.parser = ResponseParser()
        self._early = b""  # what of the body came with the head

    async def receive_head(self) -> None:
        """Receive until status and headers are there."""
        while not self.parser.status:
            self._early += self.parser.feed(await self.connection.receive(self.timeout))

    async def receive_some(self) -> bytes:
        """Return the next bytes of the body, b"" at its end."""
        early, self._early = self._early, b""
        while not early and not self.parser.complete:
            early = self.parser.feed(await self.connection.receive(self.timeout))
        return early

    async def receive_all(self) -> bytes:
        """Return the rest of the body, and keep the connection for the next request."""
        parts = []
        while part := await self.receive_some():
            parts.append(part)
        self.release()
        return b"".join(parts)

    def release(self) -> None:
        """Keep the connection if the response was read to its end, close it otherwise."""
        if self.parser.reusable:
            self.connection.idle_since = time.monotonic()
            self.node.put_idle(self.connection)
        else:
            self.connection.close()

    def header(self, name: str) -> str:
        """Return a header, "" if it is not there. The name is in lower case."""
        return self.parser.headers.get(name, "")


class Moment(NamedTuple):
    """A moment by the monotonic clock and by that of the day."""

    monotonic: float
    wall: float

    @staticmethod
    def now() -> Moment:
        """Return the present one."""
        return Moment(time.monotonic(), time.time())

    def elapsed(self) -> float:
        """Return the seconds since then by the clock that shows more: one of them stops while the machine sleeps."""
        return max(time.monotonic() - self.monotonic, time.time() - self.wall)


class Attempts:
    """A call on its way from node to node."""

    def __init__(self, what: str, patience: float, unknown: bool = False, aside: bool = False) -> None:
        self.what = what
        self.aside = aside  # any node serves it as well as the leader, which has more work than the others
        self.began = Moment.now()
        self.patience = patience
        self.pause = FIRST_PAUSE
        self.tried: list[Node] = []  # in this round
        self.refused = False  # in this round, by a node that answered
        self.answered = False  # by any node
        self.unknown = unknown  # an attempt may have happened
        self.token = ""  # of the newest attempt
        self.in_flight = False  # a request is on its way, which may happen
        self.stopped = False
        self.internal = 0
        self.foreign: list[Node] = []  # nodes of another cluster
        self.untrusted: list[Node] = []  # nodes to which TLS failed
        self.last: Exception | None = None
        self.outage: Outage | None = None  # is notified of each round over all nodes without an answer

    def left(self) -> float:
        """Return the seconds for which the call may still be repeated. Nodes forget a producer also while this machine
        sleeps."""
        return max(0.0, self.patience - self.began.elapsed())

    def stop(self) -> None:
        """Send nothing from now on. May be called from another thread, which then asks may_have_happened."""
        self.stopped, self.patience = True, 0.0

    def may_have_happened(self) -> bool:
        """Report whether a node may have carried the call out."""
        return self.unknown or self.in_flight

    def error(self) -> RinglogError:
        """Return the error of a call that no node has decided."""
        seconds = f"{self.began.elapsed():.1f} s"
        cause = f"{self.last or 'it was being tried'}" if self.last is None or str(self.last) else repr(self.last)
        failure: RinglogError
        if self.may_have_happened():
            failure = OutcomeUnknown(
                f"{self.what}: no answer after {seconds}: {cause}",
                code="outcome_unknown",
                remedy="it may have happened: look before repeating it",
            )
        elif self.answered and isinstance(self.last, RinglogError):
            failure = self.last
        else:
            failure = Unavailable(
                f"{self.what}: no node has answered in {seconds}: {cause}",
                code="unreachable",
                remedy=tls.remedy(getattr(self.last, "__cause__", None))
                or "check the endpoints, and that the nodes run",
            )
        if failure is not self.last:
            failure.__cause__ = self.last
        return failure


class Calls:
    """Sends requests to the cluster."""

    def __init__(self, io: Io, config: Config) -> None:
        self.io, self.config = io, config
        self.nodes = Nodes(config.endpoints)
        self.cluster_id = config.cluster_id
        self.warnings = Warnings(config.on_warning)

    async def call(
        self,
        method: str,
        target: str,
        body: Any = None,
        query: Query | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        patience: float | None = None,
        attempt: float | None = None,
        tries: Attempts | None = None,
    ) -> Any:
        """Send a JSON request and return the decoded answer, or the text of one that is not JSON.

        patience is for how many seconds the call is repeated, unless tries says so, attempt how many a node may take.
        """
        data = None if body is None else encode(body)
        answer = await self.open(
            method, target, data, query, headers=headers, patience=patience, attempt=attempt, tries=tries
        )
        content = answer[1]
        if "json" in answer[0].header("content-type"):
            return json.loads(content)
        return content.decode("utf-8", "replace")

    async def open(
        self,
        method: str,
        target: str,
        body: bytes | None = None,
        query: Query | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        patience: float | None = None,
        attempt: float | None = None,
        stream: bool = False,
        tries: Attempts | None = None,
    ) -> tuple[Answer, bytes]:
        """Send a request until a node answers for good, and return the answer with its body.

        With stream the body has not been received; the caller releases the answer. With tries the caller may
        stop the call. Raises the RinglogError of an answer that is final, else OutcomeUnknown or Unavailable.
        """
        if query:
            target += "?" + urlencode([(k, v) for k, v in query.items() if v != []], doseq=True)
        tries = tries or Attempts(f"{method} {target}", self.config.timeout if patience is None else patience)
        reads = method == "GET"
        while True:
            node = await self._next_node(tries)
            try:
                if not self.cluster_id:
                    await self._learn_cluster(node)
                connection = await self._connect(node, attempt)
            except OSError as e:
                self._note_failure(tries, node, e)
                continue

            # From here on the request may have reached the node. Who stops the call looks for it after that.
            tries.in_flight = not reads
            if tries.stopped:
                connection.close()
                tries.in_flight = False
                raise tries.error()
            answer = Answer(node, connection, attempt or self.config.attempt_timeout)
            kept = False
            try:
                tries.token = self.config.token
                await self._send(answer, method, target, body, {**self._pinned_headers(), **(headers or {})})
                if answer.parser.status < 300 and stream:
                    kept = True
                    return self._note_success(answer), b""
                content = await answer.receive_all()
                kept = True
            except OSError as e:
                tries.unknown, tries.in_flight = tries.may_have_happened(), False
                self._note_failure(tries, node, e)
                continue
            finally:
                if not kept:
                    connection.close()
            if answer.parser.status < 300:
                return self._note_success(answer), content
            await self._judge(tries, answer, content, reads)

    async def _next_node(self, tries: Attempts) -> Node:
        """Return the node to ask, after a pause where all were asked in this round."""
        while True:
            if tries.last is not None and not tries.left():
                raise tries.error()
            node = self.nodes.pick(tries.tried, tries.refused, tries.aside)
            if node is not None:
                tries.tried.append(node)
                return node
            await self._next_round(tries, 0)

    async def _next_round(self, tries: Attempts, at_least: float) -> None:
        """Begin a round over all nodes after a pause, which grows from round to round."""
        if tries.outage is not None:
            tries.outage.failed(tries.last)
        tries.tried, tries.refused = [], False
        pause = max(tries.pause * random.uniform(0.5, 1.5), at_least)
        tries.pause = min(tries.pause * GROWTH, MAX_PAUSE)
        await self.io.sleep(min(pause, tries.left()))

    async def _connect(self, node: Node, attempt: float | None) -> Connection:
        """Return a connection to a node, an idle one if there is any."""
        connection = node.take_idle()
        if connection is None:
            endpoint = node.endpoint
            timeout = min(attempt or self.config.attempt_timeout, self.config.attempt_timeout)
            connection = await self.io.connect(endpoint.host, endpoint.port, self.config.tls_for(endpoint), timeout)
            connection.host = endpoint.authority
        return connection

    def _pinned_headers(self) -> dict[str, str]:
        """Return the headers of a request that only a node of this cluster may carry out."""
        headers = {"Content-Type": "application/json"}
        if self.config.token:
            headers["Authorization"] = "Bearer " + self.config.token
        if self.cluster_id:
            headers["Ringlog-Cluster"] = self.cluster_id
        return headers

    async def _send(
        self, answer: Answer, method: str, target: str, body: bytes | None, headers: Mapping[str, str]
    ) -> None:
        """Send a request over the answer's connection and receive the head of the response."""
        connection = answer.connection
        request = encode_request(
            method, answer.node.endpoint.prefix + target, {"Host": connection.host, **headers}, body
        )
        await connection.send(request, answer.timeout)
        await answer.receive_head()

    async def _learn_cluster(self, node: Node) -> None:
        """Ask a node for its cluster where none is known: two first requests must not reach two clusters."""
        answer = await self.ask(node, "/healthz", {})  # without the token, which another cluster must not see
        self.cluster_id = self.cluster_id or answer[0].header("ringlog-cluster")

    async def ask(self, node: Node, target: str, headers: Mapping[str, str]) -> tuple[Answer, bytes]:
        """Send one GET to one node. Errors are OSError."""
        connection = await self._connect(node, None)
        answer = Answer(node, connection, self.config.attempt_timeout)
        kept = False
        try:
            await self._send(answer, "GET", target, None, headers)
            content = await answer.receive_all()
            kept = True
        finally:
            if not kept:
                connection.close()
        return answer, content

    async def _explain_unknown_path(self, node: Node, error: RinglogError) -> None:
        """Say in the error of a path that a node lacks whether it is the endpoint's, or of a newer node."""
        if prefix := node.endpoint.prefix:
            error.field, error.remedy = (
                "endpoints",
                (f"leave {prefix} out of the endpoint {node.endpoint.url}, unless a proxy has the node there"),
            )
            return
        try:
            answer, content = await self.ask(node, "/v1/cluster", self._pinned_headers())
            cluster = json.loads(content) if answer.parser.status == 200 else {}
        except (OSError, ValueError):
            return
        # A node that no cluster knows yet is not among the members.
        for member in cluster.get("members", ()):
            if member["id"] == cluster["node_id"] and 0 < member.get("feature_level", 0) < FEATURE_LEVEL:
                from ringlog import __version__

                error.message += (
                    f": this node is older than ringlog {__version__} for Python, it is {member.get('version') or '?'}"
                    f" of feature level {member['feature_level']}, and the package was made for {FEATURE_LEVEL}"
                )
                error.remedy = "upgrade the nodes (docs/operations.md), or install the package of this node's /python/"

    def _explain_token(self, node: Node, error: RinglogError) -> None:
        """Say which token was refused, and where one can be given."""
        sent = f"not the one {self.config.token_origin}" if self.config.token else "and none was given"
        error.field, error.message = "token", f"{node.endpoint.url} wants the cluster's token, {sent}"
        error.remedy = (
            "name a file with it in RINGLOG_TOKEN_FILE or the argument token_file, or set RINGRIFT_CLUSTER_AUTH_TOKEN"
        )

    def _note_success(self, answer: Answer) -> Answer:
        if warnings := answer.header("ringlog-warnings"):
            self.warnings.report_header(warnings)
        self.nodes.worked(answer.node, answer.header("ringlog-leader"))
        return answer

    def _note_failure(self, tries: Attempts, node: Node, error: OSError) -> None:
        """Note an attempt that got no answer."""
        self.nodes.failed(node)
        tries.last = _at_node(node, error)
        if tls.remedy(error):
            # A certificate that is not trusted will not be later. Another node may have a better one.
            tries.untrusted.append(node)
            if all(any(one is failed for failed in tries.untrusted) for one in self.nodes.all):
                raise tries.error()

    async def _judge(self, tries: Attempts, answer: Answer, content: bytes, reads: bool) -> None:
        """Take in an answer that is an error, and raise it if it is final."""
        error = _decode_error(answer, content)
        tries.answered, tries.last = True, error
        tries.unknown = tries.unknown or (error.code in MAY_HAVE_HAPPENED and not reads)
        tries.in_flight = False
        leader = answer.header("ringlog-leader")
        if error.code == "unauthenticated":
            if self.config.renew_token(tries.token):
                return  # nothing has happened, and the next attempt has another token
            self._explain_token(answer.node, error)
        if error.reason == "unknown_path":
            await self._explain_unknown_path(answer.node, error)
        if error.code not in PASSING:
            self.nodes.worked(answer.node, leader)
            if not tries.unknown or reads:
                raise error
            # An attempt before this one may have happened: this answer is about the repetition.
            raise OutcomeUnknown(
                f"{tries.what}: an attempt got no answer, and its repetition was refused: {error}",
                code="outcome_unknown",
                field=error.field,
                remedy="it may have happened: look before repeating it",
            ) from error

        if error.code == "other_cluster":
            self.nodes.failed(answer.node)
            tries.foreign.append(answer.node)
            if all(any(n is f for f in tries.foreign) for n in self.nodes.all):
                raise error
            return
        if error.code == "unavailable":
            self.nodes.failed(answer.node)
        else:
            tries.refused = True
            self.nodes.declined(answer.node, leader)
        if error.code == "internal":
            tries.internal += 1
            if tries.internal > MAX_INTERNAL:
                raise tries.error()
        if error.code == "overloaded":
            await self._next_round(tries, _retry_after(answer))


def _at_node(node: Node, error: OSError) -> Exception:
    """Return an error that names the node, with the original as its cause."""
    named = ConnectionError(f"{node.endpoint.url}: {error or type(error).__name__}")
    named.__cause__ = error
    return named


def _decode_error(answer: Answer, content: bytes) -> RinglogError:
    """Return the exception of an answer, also of a proxy that answers without JSON."""
    status = answer.parser.status
    try:
        error = json.loads(content)["error"]
        code = error["code"]
    except (ValueError, LookupError, TypeError):
        # 502 to 504 come from a proxy whose node does not answer: it may have got the request.
        text = content[:200].decode("utf-8", "replace").strip()
        code = {413: "too_large", 502: "outcome_unknown", 503: "outcome_unknown", 504: "outcome_unknown"}.get(
            status, ""
        )
        url = answer.node.endpoint.url
        error = {"code": code, "message": f"{url} answered {status} without an error of ringlog: {text}"}
    return from_answer(error)


def _retry_after(answer: Answer) -> float:
    """Return the header in seconds, 0 without one."""
    try:
        return min(max(float(answer.header("retry-after")), 0.0), 60.0)
    except ValueError:
        return 0.0
