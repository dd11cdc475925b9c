"""`python -m ringlog`, for hosts without the Go binary. Its exit codes are those of the command `ringlog`."""

from __future__ import annotations

import argparse
import json
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

from ringlog import Client, __version__
from ringlog.errors import (
    InvalidArgument,
    NotFound,
    OtherCluster,
    RinglogError,
    Unauthenticated,
    Unavailable,
)

DONE, FAILED, USAGE, UNREACHABLE, NOT_FOUND, TIMED_OUT, REFUSED = range(7)


class Exit(Exception):
    """Ends the program with an exit code, and a line on stderr unless the text is empty."""

    def __init__(self, code: int, text: str = "") -> None:
        super().__init__(text)
        self.code = code


class _Parser(argparse.ArgumentParser):
    """Reports what is wrong with the arguments in one line."""

    def error(self, message: str) -> NoReturn:
        raise Exit(USAGE, f"{message}; see {self.prog} --help")


def connect(args: argparse.Namespace, **options: Any) -> Client:
    """Return the client that the arguments describe. What is published at a terminal is not spooled unasked."""
    return Client(
        args.endpoints,
        token_file=args.token_file,
        tls_ca=args.tls_ca,
        tls_cert=args.tls_cert,
        tls_key=args.tls_key,
        timeout=args.timeout,
        attempt_timeout=min(args.timeout, 3.0),
        on_warning=_warn,
        **{"spool": "", **options},
    )


def _warn(warning: dict[str, Any]) -> None:
    say(f"warning: {warning.get('field')}: {warning.get('message')}")


def say(text: str) -> None:
    """Print a line on stderr, in one piece also beside other threads and processes."""
    sys.stderr.write(f"ringlog: {text}\n")
    sys.stderr.flush()


class _Say(logging.Handler):
    """Prints what the package logs."""

    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def emit(value: Any) -> None:
    """Print a JSON object on a line."""
    print(json.dumps(value, ensure_ascii=False, separators=(",", ":")), flush=True)


def exit_code(error: RinglogError) -> int:
    """Return the exit code for an error."""
    if error.code in ("reserved", "unknown_type"):
        return REFUSED
    if isinstance(error, (InvalidArgument, Unauthenticated)):
        return USAGE
    if isinstance(error, NotFound):
        return NOT_FOUND
    if error.code == "timeout":
        return TIMED_OUT
    if isinstance(error, Unavailable):
        return FAILED if error.code == "overloaded" else UNREACHABLE
    codes = ("conflict", "exists", "fenced", "out_of_sequence", "unknown_producer")
    return REFUSED if isinstance(error, OtherCluster) or error.code in codes else FAILED


def filters(parser: argparse.ArgumentParser) -> None:
    """Add the flags that select events."""
    parser.add_argument("-t", "--type", action="append", default=[], help="names or patterns such as training.*")
    parser.add_argument("--source", action="append", default=[], help="only events of this source")
    parser.add_argument("--key", action="append", default=[], help="only events with this key")
    parser.add_argument("--correlation-id", action="append", default=[], help="only events of this run")


def chosen(args: argparse.Namespace) -> dict[str, list[str]]:
    """Return what filters has read, as the client takes it."""
    types = [name for given in args.type for name in given.split(",") if name]
    return {"types": types, "sources": args.source, "keys": args.key, "correlation_ids": args.correlation_id}


def _parser() -> argparse.ArgumentParser:
    from ringlog._cli import doctor, importing, publish, react, shadow, spool, tail

    parser = _Parser(prog="python -m ringlog", description=__doc__, allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("-e", "--endpoints", help="URLs of nodes, separated by commas; default RINGLOG_ENDPOINTS")
    common.add_argument("--token-file", help="a file with the cluster token; default RINGLOG_TOKEN_FILE")
    common.add_argument("--tls-ca", help="for https: a file with the CA of nodes' certificates; default RINGLOG_TLS_CA")
    common.add_argument("--tls-cert", help="a file with the certificate to show to nodes; default RINGLOG_TLS_CERT")
    common.add_argument("--tls-key", help="a file with its key; default RINGLOG_TLS_KEY")
    common.add_argument("--timeout", type=float, default=30.0, help="seconds for which a call is repeated (30)")
    common.add_argument("--json", action="store_true", help="print JSON, an object a line")
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="VERB")
    for module in (publish, tail, react, spool, doctor, importing, shadow):
        module.add(verbs, common)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run a verb and return its exit code."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    logger = logging.getLogger("ringlog")
    logger.addHandler(_Say(logging.WARNING))
    logger.propagate = False
    try:
        args = _parser().parse_args(argv)
        code: int = args.run(args) or DONE
        sys.stdout.flush()
    except Exit as e:
        if str(e):
            say(str(e))
        return e.code
    except RinglogError as e:
        say(str(e))
        return exit_code(e)
    except BrokenPipeError:
        # The interpreter flushes stdout at its end, too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DONE
    except KeyboardInterrupt:
        return 130
    except OSError as e:
        say(str(e))
        return FAILED
    return code
