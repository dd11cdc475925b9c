"""Where the cluster is and how it is called: arguments, and the environment where they are not given."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import urlsplit

from ringlog._core.checks import check_number
from ringlog._core.notices import OnWarning
from ringlog._core.tls import Secure
from ringlog.errors import InvalidArgument

if TYPE_CHECKING:
    import ssl

    from ringlog._core.io import Io

DEFAULT_ENDPOINT = "http://127.0.0.1:8770"
MEMORY = "memory"  # the scheme of a log of ringlog.testing
MIN_TIMEOUT, MAX_TIMEOUT = 0.001, 300.0
"""Seconds. Nodes keep a producer's results for 15 minutes: a retry after that could be appended twice."""


MIN_SPOOL = 1 << 16
MAX_AHEAD = 900 * 10**9  # nanoseconds by which the times of events may be ahead of a clock that was set back


class Endpoint(NamedTuple):
    """The address of a node. prefix is the path under which a proxy serves it, "" without one."""

    scheme: str
    host: str
    port: int
    prefix: str

    @property
    def url(self) -> str:
        """The address as a URL without a slash at its end."""
        return f"{self.scheme}://{self.authority}{self.prefix}"

    @property
    def authority(self) -> str:
        """The value of the Host header."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_endpoint(text: str) -> Endpoint:
    """Read a URL or host:port, which means http."""
    try:
        url = urlsplit(text if "://" in text or ":/" in text else "http://" + text)
        port = url.port or (443 if url.scheme == "https" else 80)
    except ValueError:
        url, port = urlsplit(""), 0
    if url.scheme not in ("http", "https", MEMORY) or not url.hostname or url.query or url.fragment or url.username:
        raise InvalidArgument(
            f"endpoint {text!r} is not a URL such as {DEFAULT_ENDPOINT}",
            code="invalid_argument",
            field="endpoints",
            remedy="give URLs of nodes, separated by commas, to Client or in RINGLOG_ENDPOINTS",
        )
    return Endpoint(url.scheme, url.hostname, port, url.path.rstrip("/"))


def find_endpoints(given: str | Iterable[str] | None) -> list[Endpoint]:
    """Return the endpoints given, else those of RINGLOG_ENDPOINTS or RINGRIFT_COORDINATOR_URL, else the default."""
    if given is None:
        variables = os.environ.get("RINGLOG_ENDPOINTS"), os.environ.get("RINGRIFT_COORDINATOR_URL")
        given = next(filter(None, variables), DEFAULT_ENDPOINT)
    parts = given.split(",") if isinstance(given, str) else given
    endpoints = [parse_endpoint(part.strip()) for part in parts if part.strip()]
    return endpoints or [parse_endpoint("")]  # which raises


def find_token(given: str | None, file: str | os.PathLike[str] | None) -> str:
    """Return the cluster token given, else that in the file, else RINGRIFT_CLUSTER_AUTH_TOKEN; "" is none.

    The file is that given, else RINGLOG_TOKEN_FILE. One that is empty or cannot be read is an error.
    """
    remedy = "write the cluster token into the file, or do not name it"
    if given is None and (file := file or os.environ.get("RINGLOG_TOKEN_FILE")):
        try:
            with open(file, encoding="utf-8") as f:
                given = f.read().strip()
        except OSError as e:
            raise InvalidArgument(f"token file: {e}", code="invalid_argument", field="token_file", remedy=remedy) from e
        if not given:
            raise InvalidArgument(
                f"token file {file} is empty", code="invalid_argument", field="token_file", remedy=remedy
            )
    token = (os.environ.get("RINGRIFT_CLUSTER_AUTH_TOKEN", "") if given is None else given).strip()
    if not token.isascii() or not token.isprintable():
        raise InvalidArgument(
            "the token has characters that no HTTP header can carry", code="invalid_argument", field="token"
        )
    return token


def token_origin(given: str | None, file: str | os.PathLike[str] | None) -> str:
    """Return where find_token takes the token from, for errors; "" is nowhere."""
    if given is not None:
        return "given as an argument"
    if file or os.environ.get("RINGLOG_TOKEN_FILE"):
        return f"in the file {file or os.environ['RINGLOG_TOKEN_FILE']}"
    return "of RINGRIFT_CLUSTER_AUTH_TOKEN" if os.environ.get("RINGRIFT_CLUSTER_AUTH_TOKEN") else ""


class Clock:
    """Gives events the times at which they were published, no two of them the same."""

    def __init__(self) -> None:
        self.after_fork()
        self._last = self._ticks = 0
        self._second, self._text = -1, ""

    def after_fork(self) -> None:
        """Renew the lock, which a thread of the parent may have held."""
        self._lock = threading.RLock()  # the handler of a signal may publish, too

    def now(self) -> str:
        """Return the time in RFC 3339. Where the clock is set back, it is ahead: what has passed tells events apart."""
        with self._lock:
            ticks, wall = time.monotonic_ns(), time.time_ns()
            passed, self._ticks = max(ticks - self._ticks, 1), ticks
            self._last = wall if self._last - wall > MAX_AHEAD else max(wall, self._last + passed)
            second, fraction = divmod(self._last, 10**9)
            if second != self._second:
                self._second, self._text = second, time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(second))
            return f"{self._text}.{fraction:09d}Z"


class Config:
    """What a client was made with, complete and checked."""

    def __init__(
        self,
        endpoints: str | Iterable[str] | None,
        token: str | None,
        token_file: str | os.PathLike[str] | None,
        source: str,
        timeout: float,
        attempt_timeout: float,
        delivery_timeout: float,
        tls: ssl.SSLContext | None,
        tls_ca: str | os.PathLike[str] | None,
        tls_cert: str | os.PathLike[str] | None,
        tls_key: str | os.PathLike[str] | None,
        cluster_id: str,
        on_warning: OnWarning | None,
        spool: str | os.PathLike[str] | None,
        spool_bytes: int,
        spool_after: float,
    ) -> None:
        self.endpoints = find_endpoints(endpoints)
        self.token = find_token(token, token_file)
        self.token_origin = token_origin(token, token_file)
        self._token_file = None if token is not None else token_file or os.environ.get("RINGLOG_TOKEN_FILE")
        self.source = source
        self.timeout = timeout
        self.attempt_timeout = attempt_timeout
        self.delivery_timeout = delivery_timeout
        self.cluster_id = cluster_id
        self.on_warning = on_warning
        self.secure = Secure(tls, tls_ca, tls_cert, tls_key)
        if any(endpoint.scheme == "https" for endpoint in self.endpoints):
            self.secure.context()  # raises what is wrong with the files
        self.spool = os.fspath(os.environ.get("RINGLOG_SPOOL", "") if spool is None else spool)
        self.spool_bytes = spool_bytes
        self.spool_after = spool_after
        self.clock = Clock() if self.spool else None
        check_number("spool_bytes", spool_bytes, MIN_SPOOL, 1 << 50, 1 << 28, whole=True)
        for name in ("timeout", "attempt_timeout", "delivery_timeout", "spool_after"):
            check_number(name, getattr(self, name), MIN_TIMEOUT, MAX_TIMEOUT, 30)

    def renew_token(self, refused: str) -> bool:
        """Report whether there is another token than the one that a node has refused.

        The file that it is from is read again then, and not before: it may be replaced before the nodes have the new
        token. One that cannot be read, or is empty because somebody is writing it, has none.
        """
        if self.token == refused and self._token_file:
            with contextlib.suppress(InvalidArgument):
                self.token = find_token(None, self._token_file)
        return self.token != refused

    def over(self, io: Io) -> Io:
        """Return the Io that reaches the endpoints: the one given, or one over it to a log in memory."""
        if self.endpoints[0].scheme != MEMORY:
            return io
        from ringlog._memory import wire  # for tests alone

        return wire.MemoryIo(io, wire.find(self.endpoints[0].host))

    def tls_for(self, endpoint: Endpoint) -> ssl.SSLContext | None:
        """Return the TLS context for the next connection to an endpoint, None for http."""
        return self.secure.context() if endpoint.scheme == "https" else None
