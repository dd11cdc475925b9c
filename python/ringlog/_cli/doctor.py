"""doctor: what stands between this host and the cluster."""

from __future__ import annotations

import argparse
import os
import sys
import time
from datetime import datetime, timezone
from email.utils import parsedate_to_datetime
from typing import Any

from ringlog import __version__
from ringlog._cli import DONE, FAILED, UNREACHABLE, USAGE, connect, emit
from ringlog._core import tls
from ringlog._core.io import drive
from ringlog._core.spool import Spool, inspect
from ringlog.errors import RinglogError, Unauthenticated

MAX_SKEW = 30.0  # seconds
RENEW_WITHIN = 30 * 86400.0  # seconds before a certificate expires, as ringlog check has it
OLDEST = (3, 10)


class Findings:
    """What was found, and the exit code."""

    def __init__(self, args: argparse.Namespace) -> None:
        self._args = args
        self.code = DONE

    def add(self, subject: str, text: str, code: int = DONE, remedy: str = "") -> None:
        """Print a finding. The first one with a code decides the exit code."""
        self.code = self.code or code
        if self._args.json:
            emit({"ok": code == DONE, "subject": subject, "finding": text, "remedy": remedy})
        else:
            print(
                f"{'ok  ' if code == DONE else 'FAIL'} {subject}: {text}{'; ' + remedy if remedy else ''}", flush=True
            )


def add(verbs: Any, common: argparse.ArgumentParser) -> None:
    """Add the verb."""
    parser = verbs.add_parser("doctor", parents=[common], help="find out why the cluster does not answer")
    parser.add_argument("--spool", help="the folder of a spool; default RINGLOG_SPOOL")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run the verb."""
    found = Findings(args)
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < OLDEST:
        found.add("python", version, FAILED, "take 3.10 or later")
    else:
        found.add("python", version)
    args.timeout = min(args.timeout, 5.0)
    log = connect(args)
    reached = _check_nodes(found, log._operations._calls)
    if not reached:
        found.add("cluster", "no endpoint answers", UNREACHABLE, "check --endpoints, and that the nodes run")
    else:
        _check_cluster(found, log)
    _check_spool(found, args.spool or os.environ.get("RINGLOG_SPOOL", ""))
    log.close()
    return found.code


def _check_nodes(found: Findings, calls: Any) -> int:
    """Ask each endpoint for a sign of life, and return how many gave one."""
    reached = 0
    clusters: set[str] = set()
    for node in list(calls.nodes.all):
        began = time.time()
        try:
            answer, _ = drive(calls.ask(node, "/healthz", {}))
        except OSError as e:
            remedy = tls.remedy(e) or "check address and node"
            found.add(node.endpoint.url, f"no answer: {e or type(e).__name__}", UNREACHABLE, remedy)
            continue
        took = time.time() - began
        reached += 1
        clusters.add(answer.header("ringlog-cluster"))
        skew = 0.0
        if date := answer.header("date"):
            # The header has whole seconds, and is from the middle of the exchange.
            skew = began + took / 2 - parsedate_to_datetime(date).timestamp() - 0.5
        text = f"answers {answer.parser.status} in {took * 1000:.0f} ms, clock {abs(skew):.0f} s "
        text += "behind this host's" if skew > 0 else "ahead of this host's"
        if abs(skew) > MAX_SKEW:
            found.add(node.endpoint.url, text, FAILED, "set the clocks by NTP")
        else:
            found.add(node.endpoint.url, text)
    if len(clusters) > 1:
        found.add("endpoints", f"they are of {len(clusters)} clusters", USAGE, "name nodes of one cluster")
    return reached


def _check_cluster(found: Findings, log: Any) -> None:
    """Check the token, the leader and the versions."""
    try:
        cluster = log.cluster()
        status = log.status()
        version = status["version"]
    except Unauthenticated as e:
        found.add("token", e.message, USAGE, e.remedy)
        return
    except RinglogError as e:
        found.add("cluster", e.message, UNREACHABLE, e.remedy)
        return
    found.add("token", "accepted" if log._config.token else "none is sent, and none is asked for")
    leader = cluster.get("leader_http")
    if leader:
        found.add("leader", str(leader))
    else:
        found.add("leader", "there is none", UNREACHABLE, "see whether a majority of the voters runs")
    if secure := status.get("tls"):
        _check_tls(found, status["node_id"], secure)
    text = f"package {__version__}, node {version}"
    if _minor(str(version)) > _minor(__version__):
        found.add("version", text, DONE, "a newer package knows more of the node's interface")
    else:
        found.add("version", text)


def _check_tls(found: Findings, node: str, secure: Any) -> None:
    """Check the certificate of the node that has answered."""
    expires = datetime.fromisoformat(secure["expires"].split(".")[0].rstrip("Z") + "+00:00")
    left = (expires - datetime.now(timezone.utc)).total_seconds()
    text = f"{node} has mode {secure['mode']}, and a certificate that expires in {left / 86400:.0f} days"
    if problem := secure.get("problem"):
        found.add("tls", f"{text}; it cannot use the files that it has: {problem}", FAILED, "mend the files")
    elif left < RENEW_WITHIN:
        found.add("tls", text, FAILED, "make a new one with ringlog cert node, or a new CA with ringlog cert ca")
    else:
        found.add("tls", text)


def _minor(version: str) -> tuple[int, ...]:
    numbers = version.removeprefix("v").partition("-")[0].split(".")[:2]
    return tuple(int(number) for number in numbers if number.isdigit())


def _check_spool(found: Findings, folder: str) -> None:
    """Check that the spool can be used, and what is in it."""
    if not folder:
        found.add("spool", "none is named: while the cluster is away, events are refused", DONE, "set RINGLOG_SPOOL")
        return
    try:
        Spool.check_folder(os.path.abspath(folder))
        states = inspect(folder)
    except RinglogError as e:
        found.add("spool", e.message, USAGE, e.remedy)
        return
    waiting = sum(state.events for state in states if state.kind == "spool")
    aside = [state.path for state in states if state.kind != "spool" or state.problem]
    if aside:
        found.add(
            "spool", f"{waiting} events wait; kept aside: {', '.join(aside)}", FAILED, "look at them, and remove them"
        )
    else:
        found.add("spool", f"{folder}: {waiting} events wait")
