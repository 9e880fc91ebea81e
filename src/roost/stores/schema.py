"""The SQLite schema. A newer one than this release knows is refused."""

from __future__ import annotations

import sqlite3

from roost.protocol.types import TaskState

VERSION = 1

CODE_OF = {state: code for code, state in enumerate(TaskState)}
STATE_OF = dict(enumerate(TaskState))
"""States are stored as the numbers that the protocol gives them."""

STATEMENTS = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "INSERT INTO meta VALUES ('version', 1), ('probes', 0)",
    """CREATE TABLE tasks (
        id TEXT PRIMARY KEY,
        tenant TEXT NOT NULL,
        owner TEXT NOT NULL,
        agent TEXT NOT NULL,
        context_id TEXT NOT NULL,
        created INTEGER NOT NULL,
        state INTEGER NOT NULL,
        status_time INTEGER NOT NULL,
        worker TEXT,
        fence INTEGER NOT NULL,
        hidden INTEGER NOT NULL,
        snapshot_seq INTEGER,
        snapshot_sub INTEGER,
        body BLOB,
        artifacts BLOB
    )""",
    """CREATE TABLE entries (
        task_id TEXT NOT NULL,
        seq INTEGER NOT NULL,
        sub INTEGER NOT NULL,
        kind TEXT NOT NULL,
        data BLOB NOT NULL,
        time INTEGER NOT NULL,
        ordinal INTEGER NOT NULL,
        chain BLOB NOT NULL,
        PRIMARY KEY (task_id, seq, sub)
    ) WITHOUT ROWID""",
    "CREATE INDEX tasks_listed ON tasks (tenant, owner, agent, status_time DESC, id) WHERE hidden = 0",
    "CREATE INDEX tasks_by_state ON tasks (tenant, owner, agent, state, status_time DESC, id) WHERE hidden = 0",
    """CREATE INDEX tasks_by_context ON tasks (tenant, owner, agent, context_id, status_time DESC, id, state)
        WHERE hidden = 0""",
    "CREATE INDEX tasks_active ON tasks (created, id) WHERE state IN (1, 2)",
)


class NewerSchema(Exception):
    """The journal was written by a newer release."""


def migrate(connection: sqlite3.Connection) -> None:
    connection.execute("BEGIN IMMEDIATE")
    found = connection.execute("SELECT name FROM sqlite_master WHERE name = 'meta'").fetchone()
    if found is None:
        for statement in STATEMENTS:
            connection.execute(statement)
    else:
        version = connection.execute("SELECT value FROM meta WHERE key = 'version'").fetchone()[0]
        if version > VERSION:
            connection.execute("ROLLBACK")
            raise NewerSchema(
                f"this journal has schema {version}, this release of Roost knows {VERSION}: upgrade Roost"
            )
    connection.execute("COMMIT")
