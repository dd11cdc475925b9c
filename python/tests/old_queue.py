"""The old queue in its real shape: the three tables that its module makes in a SQLite file."""

from __future__ import annotations

import sqlite3
from pathlib import Path

SCHEMA = """
PRAGMA journal_mode = WAL;
CREATE TABLE events (
    event_id INTEGER PRIMARY KEY AUTOINCREMENT,
    event_type TEXT NOT NULL,
    payload TEXT NOT NULL DEFAULT '{}',
    source TEXT NOT NULL DEFAULT '',
    hostname TEXT NOT NULL DEFAULT '',
    created_at REAL NOT NULL,
    INDEX_event_type TEXT GENERATED ALWAYS AS (event_type) STORED
);
CREATE TABLE subscribers (
    subscriber_id TEXT PRIMARY KEY,
    process_name TEXT NOT NULL,
    hostname TEXT NOT NULL,
    pid INTEGER NOT NULL,
    subscribed_types TEXT NOT NULL DEFAULT '[]',
    last_poll_at REAL NOT NULL,
    created_at REAL NOT NULL
);
CREATE TABLE acks (
    subscriber_id TEXT NOT NULL REFERENCES subscribers (subscriber_id) ON DELETE CASCADE,
    event_id INTEGER NOT NULL REFERENCES events (event_id) ON DELETE CASCADE,
    acked_at REAL NOT NULL,
    PRIMARY KEY (subscriber_id, event_id)
);
CREATE INDEX idx_events_type ON events (event_type);
CREATE INDEX idx_events_created ON events (created_at);
CREATE INDEX idx_acks_subscriber ON acks (subscriber_id);
CREATE INDEX idx_acks_event ON acks (event_id);
"""

Row = tuple[str, str, str, str, float]
"""event_type, payload, source, hostname, created_at"""


def make_queue(file: Path) -> Path:
    """Make an empty queue."""
    db = sqlite3.connect(file)
    db.executescript(SCHEMA)
    db.close()
    return file


def rows(file: Path) -> list[Row]:
    """Return the rows of a queue, in order."""
    db = sqlite3.connect(file)
    found = db.execute("SELECT event_type, payload, source, hostname, created_at FROM events ORDER BY event_id")
    listed: list[Row] = found.fetchall()
    db.close()
    return listed


def append(file: Path, *found: Row) -> int:
    """Append rows as they are, and return how many."""
    db = sqlite3.connect(file, timeout=60)
    with db:
        db.executemany(
            "INSERT INTO events (event_type, payload, source, hostname, created_at) VALUES (?, ?, ?, ?, ?)", found
        )
    db.close()
    return len(found)


def forget_acks(file: Path) -> None:
    """Forget what was acknowledged."""
    db = sqlite3.connect(file, timeout=60)
    with db:
        db.execute("DELETE FROM acks")
    db.close()
