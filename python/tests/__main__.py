"""Runs all tests, each module in a process of its own: python3 -m tests [-j N] [MODULE ...].

They wait for nodes more than they compute, so several run at a time. What takes longest begins first.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import unittest
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.cluster import program

FOLDER = Path(__file__).resolve().parents[1]
LONGEST = [f"tests.test_{name}" for name in ("daemons", "contract", "cli", "spool", "faults", "compat", "arrival")]


def find_classes(suite: unittest.TestSuite) -> Iterator[str]:
    """Return the names of the classes in a suite."""
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from find_classes(part)
        else:
            yield f"{type(part).__module__}.{type(part).__qualname__}"


def find_units(names: list[str]) -> list[str]:
    """Return what is to run in a process each: modules, and the classes of those that take long."""
    units = dict.fromkeys(names)
    if not names:
        loader = unittest.TestLoader()
        found = loader.discover(str(FOLDER / "tests"), top_level_dir=str(FOLDER))
        if loader.errors:
            sys.exit("\n".join(loader.errors))
        for name in find_classes(found):
            module = name.rpartition(".")[0]
            units[name if module in LONGEST else module] = None
    return sorted(units, key=lambda unit: [unit.startswith(module) for module in LONGEST], reverse=True)


def run(unit: str) -> bool:
    """Run one unit, print its result, with all that it has printed if it failed, and return whether it passed."""
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "unittest", unit],
        cwd=FOLDER, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    passed = done.returncode == 0
    last = done.stdout.strip().rpartition("\n")[2]
    report = f"{time.monotonic() - began:6.1f} s  {unit}  {last}\n"
    sys.stdout.write(report if passed else f"{done.stdout}\n{report}")
    sys.stdout.flush()
    return passed


def main() -> int:
    """Run the tests and return the exit code."""
    parser = argparse.ArgumentParser(prog="python3 -m tests", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("-j", type=int, default=3 * (os.cpu_count() or 1), help="how many run at a time")
    parser.add_argument("modules", nargs="*", help="such as tests.test_spool; all if none is named")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="ringlog-tests-") as folder:
        # The programs that tests start compile the package once, and not into this tree.
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
        os.environ["PYTHONPYCACHEPREFIX"] = folder
        os.environ["RINGLOG_BINARY"] = program()
        with ThreadPoolExecutor(args.j) as pool:
            return int(not all([*pool.map(run, find_units(args.modules))]))


if __name__ == "__main__":
    sys.exit(main())
