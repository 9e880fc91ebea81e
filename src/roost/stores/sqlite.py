"""The journal in one SQLite file: WAL, synchronous=FULL, one writer that commits in groups.

One host process per file: an flock on `journal.lock` is the lease. The writer (sqlite_writer.py)
has a connection of its own, in a process or a thread; readers (sqlite_reader.py) have theirs.
The SQL is in sqlite_tasks.py, sqlite_pushes.py, sqlite_records.py, sqlite_identities.py and
sqlite_checkpoints.py, what the store knows of reservations in sqlite_reserved.py.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from roost.engine.ports import (
    Adopted,
    Append,
    CursorMove,
    DeadLetter,
    ListQuery,
    Party,
    Position,
    Push,
    PushConfig,
    Refusal,
    Reserved,
    Stored,
    StoredUsage,
    TaskPage,
    Tombstone,
    Update,
    UsageDelta,
)
from roost.engine.stats import summed
from roost.identity.ports import Audited, Changes, NumberedAudit, SigningKey, Token
from roost.protocol.entries import Entry
from roost.stores import sqlite_identities as identities
from roost.stores import sqlite_pushes as pushes
from roost.stores import sqlite_records as records
from roost.stores import sqlite_reservations as reservations
from roost.stores import sqlite_schema
from roost.stores import sqlite_tasks as tasks
from roost.stores.sqlite_making import MadeCheckpoints
from roost.stores.sqlite_process import ProcessCarrier
from roost.stores.sqlite_reader import Readers
from roost.stores.sqlite_reservations import Ledger, LedgerBackend
from roost.stores.sqlite_thread import ThreadCarrier
from roost.stores.sqlite_writer import connect, reason

READERS = 2
LOCK_WAIT_S = 2.0
PRUNED_AT_ONCE = 50
DROPPED_AT_ONCE = 500
"""Rows that go in one transaction: commits wait for it."""

JOURNAL, LOCK = "journal.db", "journal.lock"


class StoreInUse(Exception):
    """Another host process has the journal open."""


class StoreBroken(Exception):
    """The journal cannot be opened; the message says what to do."""


class SQLiteStore(MadeCheckpoints):
    name = "sqlite"
    shared = False

    def __init__(self, folder: Path, carrier: type[ThreadCarrier] | type[ProcessCarrier] = ThreadCarrier) -> None:
        self.folder = folder
        self.path = folder / JOURNAL
        self.location = str(self.path)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.lock = lock_folder(folder)
        except OSError as error:
            raise StoreBroken(f"{error}. Choose another folder with --data") from error
        try:
            taken = _prepare(self.path)
            self.carrier = carrier(self.path, self.lock)
        except BaseException:
            os.close(self.lock)
            raise
        self.ledger = Ledger(taken, LedgerBackend(self._write, self._read_reserved, self._confirm_reserved))
        self.to_cancel: set[str] = set()
        self.readers = Readers(self.path, READERS)

    async def open(self) -> None:
        """It is open: who cannot have the folder is told when the store is made."""

    async def close(self) -> None:
        await self.carrier.close()
        self.readers.close()
        os.close(self.lock)

    # Journal

    async def commit(self, group: Sequence[Append]) -> list[Refusal | None]:
        return await self.ledger.commit(group)

    async def read_task(self, task_id: str, owner: str | None = None) -> Stored | None:
        return await self.readers.do(tasks.read_task, task_id, owner)

    async def read_entries(self, task_id: str, after: int, limit: int, *, wire: bool, sub: int = 0) -> list[Entry]:
        return await self.readers.do(tasks.read_entries, task_id, after, limit, wire, sub)

    async def read_internal(self, task_id: str) -> list[Entry]:
        return await self.readers.do(tasks.read_internal, task_id)

    async def read_updates(self, positions: Sequence[Position], limit: int) -> list[Update]:
        return await self.readers.do(tasks.read_updates, positions, limit)

    async def list_tasks(self, query: ListQuery) -> TaskPage:
        return await self.readers.do(tasks.list_tasks, query)

    async def probe(self) -> None:
        await self.carrier.do("probe")

    # Leases: the lock on the folder is the only one

    async def renew(self, worker: str, ttl_s: float) -> bool:
        return True

    async def leave(self, worker: str) -> None:
        await self.carrier.do("leave", worker)

    async def adopt(self, worker: str, agents: Sequence[str], limit: int) -> list[Adopted]:
        adopted: list[Adopted] = await self.carrier.do("adopt", worker, agents, limit)
        return adopted

    async def mine(self, worker: str, limit: int) -> list[Adopted]:
        return await self.readers.do(tasks.mine, worker, limit)

    async def take_turn(self, task_id: str) -> str | None:
        return None

    async def ask_cancel(self, task_id: str) -> None:
        self.to_cancel.add(task_id)

    async def asked_to_cancel(self, worker: str) -> list[str]:
        active = await self.readers.do(tasks.active_of, list(self.to_cancel))
        self.to_cancel.intersection_update(active)
        return [task_id for task_id, holder in active.items() if holder == worker]

    # Reservations

    async def read_reserved(self, key: bytes) -> Reserved | None:
        return await self.ledger.read(key)

    async def drop_reservations(self, most: int) -> int:
        dropped = await self._drop(await self.readers.do(reservations.expired))
        over = len(self.ledger.rows) - most
        if over > 0:
            dropped += await self._drop(await self.readers.do(reservations.first, over))
        return dropped

    async def _drop(self, rows: Sequence[reservations.NumberedReservation]) -> int:
        dropped = 0
        for start in range(0, len(rows), DROPPED_AT_ONCE):
            some = rows[start : start + DROPPED_AT_ONCE]
            await self.carrier.do("drop_reserved", [row.id for row in some])
            dropped += self.ledger.forget(some)
        return dropped

    async def _write(self, group: Sequence[Append], reserve_ids: Sequence[int | None]) -> list[int]:
        stale: list[int] = await self.carrier.do("commit", group, reserve_ids)
        return stale

    async def _read_reserved(self, ids: Sequence[int]) -> dict[int, reservations.Row]:
        return await self.readers.do(reservations.read_rows, ids)

    async def _confirm_reserved(self, ids: Sequence[int]) -> list[int]:
        there: list[int] = await self.carrier.do("confirm_reserved", ids)
        return there

    # Cursors

    async def put_push(self, config: PushConfig, worker: str) -> bool:
        return bool(await self.carrier.do("put_push", config, worker))

    async def read_pushes(self, task_id: str) -> list[Push]:
        return await self.readers.do(pushes.read_pushes, task_id)

    async def delete_push(self, task_id: str, config_id: str) -> bool:
        return bool(await self.carrier.do("delete_push", task_id, config_id))

    async def hold_pushes(self, worker: str, agents: Sequence[str], limit: int) -> list[Push]:
        held: list[Push] = await self.carrier.do("hold_pushes", worker, agents, limit)
        return held

    async def move_pushes(self, worker: str, moves: Sequence[CursorMove]) -> list[bool]:
        moved: list[bool] = await self.carrier.do("move_pushes", worker, moves)
        return moved

    async def list_pushes(self, *, failing: bool, limit: int) -> list[Push]:
        return await self.readers.do(pushes.list_pushes, failing, limit)

    async def list_dead(self, limit: int) -> list[DeadLetter]:
        return await self.readers.do(pushes.list_dead, limit)

    async def retry_pushes(self, task_id: str | None, config_id: str | None) -> int:
        return int(await self.carrier.do("retry_pushes", task_id, config_id))

    async def outbox(self) -> tuple[int, int]:
        return await self.readers.do(pushes.outbox)

    # Records

    async def prune(self, agent: str, before_ms: int | None, keep: int | None, limit: int) -> list[UsageDelta]:
        graves = await self.readers.do(records.doomed, agent, before_ms, keep, limit)
        went: list[UsageDelta] = []
        for start in range(0, len(graves), PRUNED_AT_ONCE):
            went += await self.carrier.do("bury", graves[start : start + PRUNED_AT_ONCE])
        return summed(went)

    async def read_tombstone(self, task_id: str) -> Tombstone | None:
        return await self.readers.do(records.read_tombstone, task_id)

    async def add_usage(self, deltas: Sequence[UsageDelta]) -> None:
        await self.carrier.do("add_usage", deltas)

    async def usage(self) -> list[StoredUsage]:
        return await self.readers.do(records.usage)

    async def stored_bytes(self, accounts: Sequence[tuple[Party, str]]) -> list[int]:
        return await self.readers.do(records.stored_bytes, accounts)

    async def agents(self) -> list[str]:
        return await self.readers.do(records.agents)

    async def oldest(self) -> int | None:
        return await self.readers.do(records.oldest)

    def free_bytes(self) -> int | None:
        space = os.statvfs(self.folder)
        return space.f_bavail * space.f_frsize

    def wal_bytes(self) -> int | None:
        try:
            return self.path.with_name(f"{JOURNAL}-wal").stat().st_size
        except FileNotFoundError:
            return 0

    # Identities

    async def read_identities(self, after: int) -> Changes:
        return await self.readers.do(identities.read_identities, after)

    async def add_token(self, token: Token) -> bool:
        return bool(await self.carrier.do("add_token", token))

    async def revoke_token(self, token_id: str, at: int) -> Token | None:
        token: Token | None = await self.carrier.do("revoke_token", token_id, at)
        return token

    async def add_key(self, key: SigningKey, replacing: str | None, until: int) -> bool:
        return bool(await self.carrier.do("add_key", key, replacing, until))

    async def retire_key(self, agent: str, kid: str, at: int) -> bool:
        return bool(await self.carrier.do("retire_key", agent, kid, at))

    async def write_audit(self, lines: Sequence[Audited], keep: int) -> None:
        await self.carrier.do("write_audit", lines, keep)

    async def read_audit(self, before: int | None, limit: int) -> list[NumberedAudit]:
        return await self.readers.do(identities.read_audit, before, limit)

    async def share(self, worker: str, figures: bytes) -> dict[str, bytes]:
        return {}


def lock_folder(folder: Path) -> int:
    """Ours until we close it. A host that was killed leaves it when its last commit is done: a moment to wait."""
    handle = os.open(folder / LOCK, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError:
            if time.monotonic() < deadline:
                time.sleep(0.02)
                continue
            os.close(handle)
            raise StoreInUse(
                f"{folder} is in use by another roost process. Stop it, or choose another folder with --data."
            ) from None


def _prepare(path: Path) -> dict[bytes, int]:
    """Make the file, or bring it to this schema; the reservations in it. A file that is not ours is left as it is."""
    try:
        path.touch(mode=0o600)
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            sqlite_schema.found(connection)
        with closing(connect(path)) as connection:
            sqlite_schema.migrate(connection)
            return reservations.load(connection)
    except (OSError, sqlite_schema.NotAJournal) as error:
        raise StoreBroken(f"cannot use {path}: {error}. Choose another folder with --data") from error
    except sqlite3.Error as error:
        raise StoreBroken(f"cannot use {reason(path, error)}. Or choose another folder with --data") from error
