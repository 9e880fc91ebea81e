"""The SQLite schema. A newer one than this release knows is refused.

Made for few B-tree operations per task, which is what a durable message costs: see
docs/adr/0004-sqlite-layout.md. The entries of one commit are one row (a segment), and the
snapshot that the commit brings is in it. A task is in the indexes for listing only while nobody
works on it; active ones have an index of their own. The indexes end with what the conditions on
them name, so that counting reads nothing else.
"""

from __future__ import annotations

import sqlite3

from roost.protocol.types import TaskState

VERSION = 1

CODE_OF = {state: code for code, state in enumerate(TaskState)}
STATE_OF = dict(enumerate(TaskState))
"""States are stored as the numbers that the protocol gives them: 1 and 2 are SUBMITTED and WORKING."""

ACTIVE, LISTED, UNLISTED = 0, 1, 2
"""tasks.place: which index a task is in. Active ones, settled ones, and direct exchanges that are over."""

STATEMENTS = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value) WITHOUT ROWID",
    "INSERT INTO meta VALUES ('version', 1), ('probes', 0)",
    """CREATE TABLE scopes (
        id INTEGER PRIMARY KEY,
        tenant TEXT NOT NULL,
        owner TEXT NOT NULL,
        agent TEXT NOT NULL,
        UNIQUE (tenant, owner, agent)
    )""",
    """CREATE TABLE tasks (
        id TEXT PRIMARY KEY,
        scope INTEGER NOT NULL,
        context_id TEXT NOT NULL,
        created INTEGER NOT NULL,
        state INTEGER NOT NULL,
        status_time INTEGER NOT NULL,
        worker TEXT,
        fence INTEGER NOT NULL,
        hidden INTEGER NOT NULL,
        place INTEGER NOT NULL
    ) WITHOUT ROWID""",
    """CREATE TABLE segments (
        task_id TEXT NOT NULL,
        last_seq INTEGER NOT NULL,
        last_sub INTEGER NOT NULL,
        internal INTEGER NOT NULL,
        entries BLOB NOT NULL,
        body BLOB,
        artifacts BLOB
    )""",
    "CREATE UNIQUE INDEX segments_of_task ON segments (task_id, last_seq, last_sub)",
    f"CREATE INDEX tasks_active ON tasks (scope, status_time DESC, id, state, hidden, place) WHERE place = {ACTIVE}",
    f"CREATE INDEX tasks_by_state ON tasks (scope, state, status_time DESC, id, place) WHERE place = {LISTED}",
    f"""CREATE INDEX tasks_by_context ON tasks (scope, context_id, status_time DESC, id, state, place)
        WHERE place = {LISTED}""",
)

APPEND_COLUMNS = (
    "task_id, state, status_time, worker, fence, hidden, place, scope, context_id, created,"
    " last_seq, last_sub, internal, entries, body, artifacts"
)

TRIGGER = (
    f"CREATE TEMP VIEW appends AS SELECT {', '.join(f'NULL AS {name.strip()}' for name in APPEND_COLUMNS.split(','))}",
    """CREATE TEMP TRIGGER append INSTEAD OF INSERT ON appends WHEN NEW.task_id IS NOT NULL BEGIN
        INSERT OR IGNORE INTO tasks
            SELECT NEW.task_id, NEW.scope, NEW.context_id, NEW.created, NEW.state, NEW.status_time, NEW.worker,
                NEW.fence, NEW.hidden, NEW.place
            WHERE NEW.created IS NOT NULL;
        UPDATE tasks SET state = NEW.state, status_time = NEW.status_time, worker = NEW.worker, fence = NEW.fence,
                hidden = NEW.hidden, place = NEW.place
            WHERE id = NEW.task_id AND NEW.created IS NULL AND NEW.state IS NOT NULL;
        INSERT OR IGNORE INTO segments
            SELECT NEW.task_id, NEW.last_seq, NEW.last_sub, NEW.internal, NEW.entries, NEW.body, NEW.artifacts
            WHERE NEW.entries IS NOT NULL;
    END""",
)
"""A row of `appends` is what one task adds in one commit, so that a whole group is one statement.

A row that is there already is the commit's own: an earlier try whose answer was lost.
"""


def place_of(state: TaskState, hidden: bool) -> int:
    if CODE_OF[state] < 3:
        return ACTIVE
    return UNLISTED if hidden else LISTED


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
