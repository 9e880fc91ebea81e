"""The PostgreSQL schema, and how a database is migrated to it.

Everything is in the schema `roost`. As in SQLite (docs/adr/0004-sqlite-layout.md) the entries of one commit are one
row (a segment), which also has the snapshot that came with the commit. Text is compared byte by byte (COLLATE "C").
Times are milliseconds by the server's clock, except where a column says otherwise.

A migration is a numbered step. Hosts of two releases may run at once while one replaces the other, so a step says
which releases can continue: a function that an older release calls stays, and a new one gets a new name.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from roost.protocol.states import TERMINAL
from roost.stores.postgres_accounts import ACCOUNTS
from roost.stores.postgres_checkpoints import CHECKPOINTS
from roost.stores.postgres_commit import COMMIT_FUNCTION
from roost.stores.postgres_identities import IDENTITIES
from roost.stores.sqlite_schema import ACTIVE, CODE_OF, UNLISTED, WAITING, NewerSchema

OVER = f"state IN ({', '.join(str(CODE_OF[state]) for state in sorted(TERMINAL, key=CODE_OF.__getitem__))})"
"""The condition for tasks that have ended. Queries must contain exactly this text to use the index."""
PAUSED = f"state IN ({', '.join(map(str, WAITING))})"
"""The same for tasks that wait for an answer."""

LOCK = 0x726F6F7374
"""The advisory lock for migrations: the bytes "roost"."""

TABLES = (
    """CREATE TABLE scopes (
        id integer PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        digest bytea NOT NULL UNIQUE, -- of the three names, which together may be too long for an index
        tenant text COLLATE "C" NOT NULL,
        owner text COLLATE "C" NOT NULL,
        agent text COLLATE "C" NOT NULL
    )""",
    """CREATE TABLE tasks (
        id text COLLATE "C" PRIMARY KEY,
        scope integer NOT NULL,
        agent text COLLATE "C" NOT NULL,
        context_id text COLLATE "C" NOT NULL,
        created bigint NOT NULL, -- microseconds by the clock of the host
        state smallint NOT NULL,
        status_time bigint NOT NULL,
        worker text COLLATE "C",
        fence bigint NOT NULL,
        hidden boolean NOT NULL,
        place smallint NOT NULL,
        turn boolean NOT NULL, -- it is this task's turn in its context; false unless it is active
        cancel boolean NOT NULL DEFAULT false -- its worker has to cancel it; false unless it is active
    )""",
    """CREATE TABLE segments (
        task_id text COLLATE "C" NOT NULL,
        last_seq bigint NOT NULL,
        last_sub bigint NOT NULL,
        count integer NOT NULL, -- number of entries
        internal integer NOT NULL, -- number of internal entries
        entries bytea NOT NULL,
        body bytea,
        artifacts bytea,
        PRIMARY KEY (task_id, last_seq, last_sub)
    )""",
    f"CREATE INDEX tasks_by_worker ON tasks (coalesce(worker, '')) WHERE place = {ACTIVE}",
    "CREATE INDEX tasks_by_state ON tasks (scope, state, status_time DESC, id) WHERE NOT hidden",
    f"CREATE INDEX tasks_by_context ON tasks (scope, context_id, status_time DESC, id) WHERE place <> {UNLISTED}",
    f"CREATE INDEX tasks_over ON tasks (agent, status_time, id) WHERE {OVER}",
    "CREATE INDEX tasks_to_cancel ON tasks (worker) WHERE cancel",
    """CREATE TABLE workers (
        id text COLLATE "C" PRIMARY KEY,
        expires bigint NOT NULL
    )""",
    """CREATE TABLE reservations (
        key bytea PRIMARY KEY,
        task_id text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        fingerprint text NOT NULL,
        expires bigint NOT NULL -- microseconds, so that it is also the order in which they were made
    )""",
    "CREATE INDEX reservations_by_age ON reservations (expires)",
    """CREATE TABLE pushes (
        task_id text COLLATE "C" NOT NULL,
        id text COLLATE "C" NOT NULL,
        number bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
        sealed bytea NOT NULL,
        cursor bigint NOT NULL,
        agent text COLLATE "C" NOT NULL,
        created bigint NOT NULL,
        holder text COLLATE "C",
        due bigint,
        attempts integer NOT NULL DEFAULT 0,
        buried integer NOT NULL DEFAULT 0,
        paused boolean NOT NULL DEFAULT false,
        error text NOT NULL DEFAULT '',
        PRIMARY KEY (task_id, id)
    )""",
    "CREATE INDEX pushes_due ON pushes (due) WHERE due IS NOT NULL",
    "CREATE INDEX pushes_by_holder ON pushes (coalesce(holder, '')) WHERE due IS NOT NULL",
    """CREATE TABLE dead_letters (
        number bigint PRIMARY KEY GENERATED ALWAYS AS IDENTITY,
        task_id text COLLATE "C" NOT NULL,
        config_id text COLLATE "C" NOT NULL,
        seq bigint NOT NULL,
        attempts integer NOT NULL,
        error text NOT NULL,
        time bigint NOT NULL
    )""",
    "CREATE INDEX dead_letters_of_push ON dead_letters (task_id, config_id)",
    """CREATE TABLE tombstones (
        task_id text COLLATE "C" PRIMARY KEY,
        scope integer NOT NULL,
        state smallint NOT NULL,
        status_time bigint NOT NULL,
        seq bigint NOT NULL,
        chain bytea NOT NULL,
        pruned bigint NOT NULL
    )""",
    """CREATE TABLE usage (
        agent text COLLATE "C" PRIMARY KEY,
        tasks bigint NOT NULL,
        size bigint NOT NULL
    )""",
)

CLOCKS = (
    """CREATE FUNCTION now_ms() RETURNS bigint LANGUAGE sql STABLE
        AS 'SELECT (extract(epoch FROM statement_timestamp()) * 1000)::bigint'""",
    """CREATE FUNCTION clock_us() RETURNS bigint LANGUAGE sql VOLATILE
        AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint'""",
)

BEFORE_IT = f"""
    SELECT o.id
    INTO before
    FROM tasks o
    WHERE o.place = {ACTIVE}
        AND o.scope = mine.scope
        AND o.context_id = mine.context_id
        AND o.id <> mine.id
        AND (o.turn OR (o.created, o.id) < (mine.created, mine.id))
    ORDER BY o.created DESC, o.id DESC
    LIMIT 1;
"""

TAKE_TURN_FUNCTION = f"""
CREATE FUNCTION take_turn_1(task text) RETURNS text LANGUAGE plpgsql AS $$
-- The lock serialises requests for the turn in one context; most find an earlier task and return without the lock.
DECLARE
    mine record;
    before text;
BEGIN
    SELECT id, scope, context_id, created, turn
    INTO mine
    FROM tasks
    WHERE id = task AND place = {ACTIVE};
    IF NOT FOUND OR mine.turn THEN
        RETURN NULL;
    END IF;
    {BEFORE_IT}
    IF before IS NULL THEN
        PERFORM pg_advisory_xact_lock(hashtextextended(mine.context_id, mine.scope));
        {BEFORE_IT}
    END IF;
    IF before IS NULL THEN
        UPDATE tasks SET turn = true WHERE id = task AND place = {ACTIVE};
    END IF;
    RETURN before;
END $$
"""

MOVE_PUSHES_FUNCTION = """
CREATE FUNCTION move_pushes_1(
    me text, task_ids text[], config_ids text[], cursors bigint[], tries integer[], in_a_row integer[],
    pauses boolean[], errors text[], delays bigint[], keeps boolean[],
    dead_seqs bigint[], dead_attempts integer[], dead_errors text[], dead_times bigint[]
) RETURNS SETOF integer LANGUAGE plpgsql AS $$
#variable_conflict use_column
-- Returns the positions in the arrays of the cursors that were moved.
DECLARE
    m record;
BEGIN
    -- Before a config comes to rest: a commit that continues its task is done already, or will see the config at rest.
    PERFORM 1
    FROM tasks
    WHERE id IN (
        SELECT r.id
        FROM unnest(task_ids, delays, pauses) AS r (id, delay, paused)
        WHERE r.delay IS NULL AND NOT r.paused
    )
    ORDER BY id
    FOR SHARE;
    FOR m IN
        SELECT *
        FROM unnest(
            task_ids, config_ids, cursors, tries, in_a_row, pauses, errors, delays, keeps,
            dead_seqs, dead_attempts, dead_errors, dead_times
        ) WITH ORDINALITY AS given (
            task_id, config_id, cursor, attempts, buried, paused, error, delay, keep,
            dead_seq, dead_attempts, dead_error, dead_time, ord
        )
        ORDER BY task_id, config_id, ord
    LOOP
        UPDATE pushes p
        SET cursor = m.cursor,
            attempts = m.attempts,
            buried = m.buried,
            paused = m.paused,
            error = m.error,
            holder = CASE WHEN m.keep THEN me END,
            due = CASE
                WHEN m.delay IS NOT NULL THEN now_ms() + m.delay
                WHEN m.paused THEN NULL
                WHEN EXISTS (SELECT FROM segments s WHERE s.task_id = m.task_id AND s.last_seq > m.cursor) THEN now_ms()
            END
        WHERE p.task_id = m.task_id AND p.id = m.config_id AND p.holder = me;
        IF FOUND THEN
            IF m.dead_seq IS NOT NULL THEN
                INSERT INTO dead_letters (task_id, config_id, seq, attempts, error, time)
                VALUES (m.task_id, m.config_id, m.dead_seq, m.dead_attempts, m.dead_error, m.dead_time);
            END IF;
            RETURN NEXT m.ord::integer;
        END IF;
    END LOOP;
END $$
"""

SERVED = (
    """CREATE TABLE served_agents (
        agent text COLLATE "C" PRIMARY KEY,
        time_ms bigint NOT NULL -- when it was served last
    )""",
    # Only a task that pauses has to be entered. Commits wait while it is built, for one reading of the table.
    f"CREATE INDEX tasks_paused ON tasks (agent, id) WHERE {PAUSED}",
)

SURVIVORS = (
    """CREATE TABLE survivors (
        worker text COLLATE "C" PRIMARY KEY, -- its lease ended, but not its process
        time_ms bigint NOT NULL
    )""",
    # the most active tasks of a worker whose lease ended, before any of them was adopted
    "ALTER TABLE workers ADD COLUMN tasks bigint NOT NULL DEFAULT 0",
)


class Migration(NamedTuple):
    """Statements that bring the schema from one version to the next."""

    statements: tuple[str, ...]
    readable: int
    """The oldest schema whose release can work with a database after this migration."""


MIGRATIONS = (
    Migration((*TABLES, *CLOCKS, COMMIT_FUNCTION, TAKE_TURN_FUNCTION, MOVE_PUSHES_FUNCTION), readable=1),
    Migration((*IDENTITIES, *ACCOUNTS), readable=1),
    Migration(CHECKPOINTS, readable=1),
    Migration(SERVED, readable=1),
    Migration(SURVIVORS, readable=1),
)
VERSION = len(MIGRATIONS)


async def migrate(connection: Any) -> None:
    """Migrate the database to this release's schema; hosts that start at the same time do it one after another."""
    if await _is_ready(connection):
        return
    async with connection.transaction():
        await connection.execute("SET LOCAL statement_timeout = 0")
        await connection.execute("SELECT pg_advisory_xact_lock($1)", LOCK)
        if await connection.fetchval("SELECT to_regnamespace('roost')") is None:
            await connection.execute("CREATE SCHEMA roost")
        if await connection.fetchval("SELECT to_regclass('roost.meta')") is None:
            await connection.execute("CREATE TABLE meta (key text PRIMARY KEY, value bigint NOT NULL)")
            await connection.execute("INSERT INTO meta VALUES ('schema', 0), ('readable', 0), ('probes', 0)")
        done = await _schema(connection)
        for number, migration in enumerate(MIGRATIONS[done:], done + 1):
            for statement in migration.statements:
                await connection.execute(statement)
            await connection.execute("UPDATE meta SET value = $1 WHERE key = 'schema'", number)
            await connection.execute("UPDATE meta SET value = $1 WHERE key = 'readable'", migration.readable)


async def _is_ready(connection: Any) -> bool:
    if await connection.fetchval("SELECT to_regclass('roost.meta')") is None:
        return False
    return await _schema(connection) >= VERSION


async def _schema(connection: Any) -> int:
    """Return the schema of the database; NewerSchema if this release cannot use it."""
    found = {row["key"]: row["value"] for row in await connection.fetch("SELECT key, value FROM meta")}
    if found["readable"] > VERSION:
        raise NewerSchema(
            f"this database has schema {found['schema']}, this release of Roost knows {VERSION}: upgrade Roost"
        )
    return int(found["schema"])
