"""python -m ringlog.compat FOLDER: write modules that keep the platform's old import lines."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

HEAD = '"""Put in place of the old module: its names, on the log."""\n'
MODULES = {
    "coordination/cross_process_events": ["cross_process_events"],
    "coordination/dead_letter_queue": ["dead_letter_queue"],
    "coordination/event_emitters": ["event_emitters"],
    "coordination/event_router": ["event_emitters", "event_router"],
    "coordination/stage_events": ["stage_events"],
    "coordination/unified_event_coordinator": ["event_emitters", "event_router"],
    "core/event_bus": ["event_bus"],
    "distributed/cross_process_events": ["cross_process_events"],
    "distributed/data_events": ["data_events", "event_emitters"],
    "distributed/stage_events": ["stage_events"],
}
"""Old modules below the package app, each with those of ringlog.compat whose names it has."""


def main(arguments: list[str] | None = None) -> int:
    """Write the modules, and return the exit code."""
    parser = argparse.ArgumentParser(
        "python -m ringlog.compat", description="Write modules that keep the platform's old import lines."
    )
    parser.add_argument("folder", type=Path, help="the folder that has the package app, or is to have it")
    parser.add_argument("--replace", action="store_true", help="write over the platform's own modules")
    args = parser.parse_args(arguments)
    files = {args.folder / "app" / f"{old}.py": _source(new) for old, new in MODULES.items()}
    try:
        foreign = [path for path in files if path.exists() and not path.read_text("utf-8").startswith(HEAD)]
        if foreign and not args.replace:
            print(f"ringlog: {foreign[0]} is a module of the platform; --replace writes over it", file=sys.stderr)
            return 1
        for path, source in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(source, "utf-8")
            print(path)
    except (OSError, UnicodeDecodeError) as e:
        print(f"ringlog: {e}", file=sys.stderr)
        return 1
    return 0


def _source(modules: list[str]) -> str:
    return HEAD + "\n" + "".join(f"from ringlog.compat.{module} import *  # noqa: F403\n" for module in modules)


if __name__ == "__main__":
    sys.exit(main())
