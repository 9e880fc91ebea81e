"""Queries for reservations, whose rows are appended at the end and deleted from the front."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import NamedTuple

from roost.engine.store_types import Reserved
from roost.identity.ports import now_ms
from roost.stores.sqlite_tasks import marks


class ReservationRow(NamedTuple):
    task_id: str
    seq: int
    fingerprint: str
    expires: int
    """Milliseconds since 1970."""

    @property
    def reserved(self) -> Reserved:
        return Reserved(self.task_id, self.seq, self.fingerprint)


class NumberedReservation(NamedTuple):
    id: int
    key: bytes


def load_keys(connection: sqlite3.Connection) -> dict[bytes, int]:
    """Return the row id of each key. Of two rows with the same key the later one counts: the other has expired."""
    return dict(connection.execute("SELECT key, id FROM reservations ORDER BY id"))


def read_rows(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, ReservationRow]:
    rows = connection.execute(
        f"SELECT id, task_id, seq, fingerprint, expires FROM reservations WHERE id IN ({marks(ids)})", list(ids)
    )
    return {row[0]: ReservationRow(*row[1:]) for row in rows}


def confirm_reserved(connection: sqlite3.Connection, ids: Sequence[int]) -> list[int]:
    """Return those of the row ids that are in the table."""
    return list(read_rows(connection, ids))


def expired(connection: sqlite3.Connection) -> list[NumberedReservation]:
    rows = connection.execute("SELECT id, key FROM reservations WHERE expires <= ? ORDER BY id", (now_ms(),))
    return [NumberedReservation(*row) for row in rows]


def first(connection: sqlite3.Connection, count: int) -> list[NumberedReservation]:
    rows = connection.execute("SELECT id, key FROM reservations ORDER BY id LIMIT ?", (count,))
    return [NumberedReservation(*row) for row in rows]


def drop_reserved(connection: sqlite3.Connection, ids: Sequence[int]) -> None:
    connection.execute(f"DELETE FROM reservations WHERE id IN ({marks(ids)})", list(ids))
