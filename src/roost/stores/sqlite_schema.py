"""The SQLite schema, and how a file of an older release is migrated to it.

The layout needs few B-tree operations per task, because they are what a durable message costs: see
docs/adr/0004-sqlite-layout.md. The entries of one commit are one row (a segment), which also has the snapshot that
came with the commit. A task is in the indexes for listing only while nobody works on it; active tasks have an index of
their own. The indexes end with the columns of their conditions, so that counting reads nothing else.

Two numbers in `meta` describe a file:

- `version`: the oldest schema whose code can work with the file. A release refuses a version beyond its own, so a
  step raises it only if it would break the release before.
- `schema`: how far the file is migrated (absent in files of schema 1). A newer release's file with a `version` that
  this release knows is used as it is.

A step is never edited once it is released. Older code must be able to continue: `tasks` and `segments` keep their
columns, because the code of schema 1 inserts without naming them.
"""

from __future__ import annotations

import sqlite3
from typing import NamedTuple

from roost.protocol.states import PAUSED, TERMINAL
from roost.protocol.types import TaskState

VERSION = 5

CODE_OF = {state: code for code, state in enumerate(TaskState)}
STATE_OF = dict(enumerate(TaskState))
"""States are stored by their numbers in the protocol: 1 and 2 are SUBMITTED and WORKING."""
OVER = sorted(CODE_OF[state] for state in TERMINAL)
WAITING = sorted(CODE_OF[state] for state in PAUSED)

ACTIVE, LISTED, UNLISTED = 0, 1, 2
"""The values of tasks.place, which decides the index: active tasks, settled ones, and ended direct exchanges."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
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
        """CREATE INDEX tasks_active ON tasks (scope, status_time DESC, id, state, hidden, place)
            WHERE place = 0""",
        """CREATE INDEX tasks_by_state ON tasks (scope, state, status_time DESC, id, place)
            WHERE place = 1""",
        """CREATE INDEX tasks_by_context ON tasks (scope, context_id, status_time DESC, id, state, place)
            WHERE place = 1""",
    ),
    (
        # An ended direct exchange is in no other index, and its retention ends too.
        "CREATE INDEX tasks_unlisted ON tasks (scope, state, status_time DESC, id, place) WHERE place = 2",
        # Rows are only appended, and deleted from the front: the keys are looked up in the host's memory.
        """CREATE TABLE reservations (
            id INTEGER PRIMARY KEY,
            key BLOB NOT NULL,
            task_id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            fingerprint TEXT NOT NULL,
            expires INTEGER NOT NULL
        )""",
        """CREATE TABLE pushes (
            task_id TEXT NOT NULL,
            id TEXT NOT NULL,
            agent TEXT NOT NULL,
            sealed BLOB NOT NULL,
            cursor INTEGER NOT NULL,
            created INTEGER NOT NULL,
            holder TEXT,
            due INTEGER,
            attempts INTEGER NOT NULL DEFAULT 0,
            buried INTEGER NOT NULL DEFAULT 0,
            paused INTEGER NOT NULL DEFAULT 0,
            error TEXT NOT NULL DEFAULT '',
            UNIQUE (task_id, id)
        )""",
        "CREATE INDEX pushes_due ON pushes (due, holder, agent) WHERE due IS NOT NULL",
        """CREATE TABLE dead_letters (
            task_id TEXT NOT NULL,
            config_id TEXT NOT NULL,
            seq INTEGER NOT NULL,
            attempts INTEGER NOT NULL,
            error TEXT NOT NULL,
            time INTEGER NOT NULL,
            UNIQUE (task_id, config_id, seq)
        )""",
        """CREATE TABLE tombstones (
            task_id TEXT PRIMARY KEY,
            scope INTEGER NOT NULL,
            state INTEGER NOT NULL,
            status_time INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            chain BLOB NOT NULL,
            pruned INTEGER NOT NULL
        ) WITHOUT ROWID""",
        """CREATE TABLE usage (
            agent TEXT PRIMARY KEY,
            tasks INTEGER NOT NULL,
            size INTEGER NOT NULL
        ) WITHOUT ROWID""",
    ),
    (
        # `version` is the value of meta's `identities` after the row's last change.
        """CREATE TABLE tokens (
            id TEXT PRIMARY KEY,
            version INTEGER NOT NULL,
            digest BLOB NOT NULL UNIQUE,
            name TEXT NOT NULL,
            subject TEXT NOT NULL,
            tenants TEXT NOT NULL,
            scopes TEXT NOT NULL,
            created INTEGER NOT NULL,
            expires INTEGER,
            revoked INTEGER
        ) WITHOUT ROWID""",
        "CREATE INDEX tokens_by_version ON tokens (version)",
        """CREATE TABLE signing_keys (
            agent TEXT NOT NULL,
            kid TEXT NOT NULL,
            version INTEGER NOT NULL,
            alg TEXT NOT NULL,
            public BLOB NOT NULL,
            sealed BLOB NOT NULL,
            created INTEGER NOT NULL,
            until INTEGER,
            retired INTEGER,
            PRIMARY KEY (agent, kid)
        ) WITHOUT ROWID""",
        "CREATE INDEX signing_keys_by_version ON signing_keys (version)",
        "CREATE UNIQUE INDEX signing_keys_current ON signing_keys (agent) WHERE until IS NULL",
        "INSERT INTO meta VALUES ('identities', 0)",
        # AUTOINCREMENT: a number is never used again, even if the highest ones are deleted.
        """CREATE TABLE audit (
            number INTEGER PRIMARY KEY AUTOINCREMENT,
            time INTEGER NOT NULL,
            actor TEXT NOT NULL,
            action TEXT NOT NULL,
            target TEXT NOT NULL,
            outcome TEXT NOT NULL,
            address TEXT NOT NULL
        )""",
        # It replaces `usage`, which stays for older releases. They count differently, so this is computed anew.
        """CREATE TABLE kept (
            party TEXT NOT NULL,
            name TEXT NOT NULL,
            tasks INTEGER NOT NULL,
            size INTEGER NOT NULL,
            PRIMARY KEY (party, name)
        ) WITHOUT ROWID""",
        """WITH sizes AS MATERIALIZED (
            SELECT task_id, sum(length(entries) + ifnull(length(body), 0) + ifnull(length(artifacts), 0)) AS size
            FROM segments GROUP BY task_id
        ), scoped AS MATERIALIZED (
            SELECT tenant, owner, agent, count(*) AS tasks, ifnull(sum(size), 0) AS size
            FROM tasks JOIN scopes ON scopes.id = tasks.scope LEFT JOIN sizes ON sizes.task_id = tasks.id
            GROUP BY tasks.scope
        )
        INSERT INTO kept
            SELECT 'tenant', tenant, sum(tasks), sum(size) FROM scoped GROUP BY tenant
            UNION ALL SELECT 'owner', owner, sum(tasks), sum(size) FROM scoped GROUP BY owner
            UNION ALL SELECT 'agent', agent, sum(tasks), sum(size) FROM scoped GROUP BY agent""",
    ),
    (
        """CREATE TABLE checkpoints (
            number INTEGER PRIMARY KEY,
            time INTEGER NOT NULL,
            statement BLOB NOT NULL
        )""",
        # Leaves with a number beyond the last checkpoint belong to one that is being made.
        """CREATE TABLE leaves (
            task_id TEXT NOT NULL,
            number INTEGER NOT NULL,
            seq INTEGER NOT NULL,
            sub INTEGER NOT NULL,
            chain BLOB NOT NULL,
            scope BLOB NOT NULL,
            PRIMARY KEY (task_id, number)
        ) WITHOUT ROWID""",
        "CREATE UNIQUE INDEX leaves_by_number ON leaves (number, task_id)",
    ),
    (
        # When each agent was served last, in milliseconds.
        """CREATE TABLE served_agents (
            agent TEXT PRIMARY KEY,
            time_ms INTEGER NOT NULL
        ) WITHOUT ROWID""",
    ),
)

_APPEND = (
    "task_id, state, status_time, worker, fence, hidden, place, scope, context_id, created,"
    " last_seq, last_sub, internal, entries, body, artifacts"
)
_RESERVE = "reserve_id, reserve_key, fingerprint, expires"
_PUSH = "push_id, sealed, cursor, pushed, goes_on"

_KEEP = """
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
"""
_TAKE = """
    INSERT OR IGNORE INTO reservations
        SELECT NEW.reserve_id, NEW.reserve_key, NEW.task_id, NEW.last_seq, NEW.fingerprint, NEW.expires
        WHERE NEW.reserve_id IS NOT NULL;
"""
_CALL = """
    INSERT OR IGNORE INTO pushes (task_id, id, agent, sealed, cursor, created, holder, due)
        SELECT NEW.task_id, NEW.push_id, agent, NEW.sealed, NEW.cursor, NEW.pushed, NEW.worker, NEW.pushed
        FROM scopes WHERE id = NEW.scope AND NEW.push_id IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM tasks WHERE id = NEW.task_id);
    UPDATE pushes SET due = NEW.goes_on, holder = NEW.worker
        WHERE task_id = NEW.task_id AND due IS NULL AND paused = 0 AND NEW.goes_on IS NOT NULL
            AND NOT EXISTS (SELECT 1 FROM segments
                WHERE task_id = NEW.task_id AND last_seq = NEW.last_seq AND last_sub = NEW.last_sub);
"""


class View(NamedTuple):
    """A view whose rows are what one task adds in one commit, so that a whole group is one statement.

    A row that exists already comes from an earlier try of the same commit whose reply was lost. Each statement in a
    trigger costs time for every row of a group, hence three views: most groups need only the first two.
    """

    name: str
    columns: str
    work: str

    @property
    def width(self) -> int:
        return self.columns.count(",") + 1

    @property
    def statements(self) -> tuple[str, str]:
        columns = ", ".join(f"NULL AS {name.strip()}" for name in self.columns.split(","))
        return (
            f"CREATE TEMP VIEW {self.name} AS SELECT {columns}",
            f"""CREATE TEMP TRIGGER {self.name}_inserted INSTEAD OF INSERT ON {self.name}
                WHEN NEW.task_id IS NOT NULL BEGIN {self.work} END""",
        )


APPENDS = View("appends", _APPEND, _KEEP)
RESERVING = View("reserving", f"{_APPEND}, {_RESERVE}", _KEEP + _TAKE)
PUSHING = View("pushing", f"{_APPEND}, {_RESERVE}, {_PUSH}", _CALL + _KEEP + _TAKE)


def place_of(state: TaskState, hidden: bool) -> int:
    if CODE_OF[state] < 3:
        return ACTIVE
    return UNLISTED if hidden else LISTED


class NewerSchema(Exception):
    """A newer release wrote the journal."""


class NotAJournal(Exception):
    """The file is a valid SQLite database, but not a journal."""


def schema_of(connection: sqlite3.Connection) -> int:
    """Return the schema of a file, 0 if it is empty. This only reads, and takes the same time for any size."""
    tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    if not {"meta", "tasks", "segments"} <= tables:
        raise NotAJournal("it is a database, but not a journal of Roost")
    meta = dict(connection.execute("SELECT key, value FROM meta"))
    version = meta.get("version")
    if not isinstance(version, int):
        raise NotAJournal("it does not say which schema it has")
    if version > VERSION:
        raise NewerSchema(f"this journal needs schema {version}, this release of Roost knows {VERSION}: upgrade Roost")
    return int(meta.get("schema", version))


def migrate(connection: sqlite3.Connection) -> None:
    """Apply the missing migrations, all or none. The caller has the lock."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        for statements in MIGRATIONS[schema_of(connection) :]:
            for statement in statements:
                connection.execute(statement)
        connection.execute("INSERT INTO meta VALUES ('schema', ?) ON CONFLICT DO NOTHING", (VERSION,))
        connection.execute("UPDATE meta SET value = ? WHERE key = 'schema' AND value < ?", (VERSION, VERSION))
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")
