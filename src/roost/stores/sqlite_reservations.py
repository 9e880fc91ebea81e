"""Reservations: the keys in memory, the rest in a table that is only appended to.

One process has the file, so which keys are taken can be kept in a dict, and a message costs no
index. What a group wants is settled here before the group goes to the writer, and noted when it
is committed. Two groups may be on their way at once: who wants a key that is on its way waits.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import NamedTuple

from roost.engine.ports import Append, OutcomeUnknown, Refusal, Reserved, StaleFence, StoreUnavailable, Taken
from roost.stores.sqlite_pushes import now_ms
from roost.stores.sqlite_tasks import marks


class Row(NamedTuple):
    task_id: str
    seq: int
    fingerprint: str
    expires: int

    @property
    def reserved(self) -> Reserved:
        return Reserved(self.task_id, self.seq, self.fingerprint)


class NumberedReservation(NamedTuple):
    id: int
    key: bytes


class LedgerBackend(NamedTuple):
    """What the ledger has its store do."""

    write: Callable[[Sequence[Append], Sequence[int | None]], Awaitable[list[int]]]
    """Commit a group, with the row id of each reservation; the places of those that are stale."""
    read: Callable[[Sequence[int]], Awaitable[dict[int, Row]]]
    confirm: Callable[[Sequence[int]], Awaitable[list[int]]]
    """Which of the rows there are, when all that is on its way is done."""


class Ledger:
    def __init__(self, rows: dict[bytes, int], deeds: LedgerBackend) -> None:
        self.rows = rows
        self.last = max(rows.values(), default=0)
        self.deeds = deeds
        self.coming: dict[bytes, asyncio.Future[None]] = {}
        """Keys in a group that is on its way; done with the group."""
        self.doubtful: dict[bytes, int] = {}
        """Keys in a group whose outcome is not known."""

    async def commit(self, group: Sequence[Append]) -> list[Refusal | None]:
        """All at once; only who wants a key that is on its way goes later, when that one's outcome is known."""
        results: list[Refusal | None] = [None] * len(group)
        rest: Sequence[int] = range(len(group))
        begun = False
        while True:
            found = await self._found([reserve.key for at in rest if (reserve := group[at].reserve) is not None])
            together = self._sort(group, rest, found, results)
            try:
                await self._write(group, together, results)
            except StoreUnavailable as error:
                if begun:
                    raise OutcomeUnknown(f"a part is committed, the rest is not: {error}") from error
                raise
            rest = together.waiting
            if not rest:
                return results
            begun = begun or bool(together.going)
            if together.before:
                await asyncio.wait(together.before)

    async def read(self, key: bytes) -> Reserved | None:
        found = await self._found([key])
        row = found.get(self.rows.get(key, 0))
        return None if row is None or row.expires <= now_ms() else row.reserved

    def forget(self, dropped: Iterable[NumberedReservation]) -> int:
        """Their rows are deleted; how many had not been replaced before."""
        gone = [key for row_id, key in dropped if self.rows.get(key) == row_id]
        for key in gone:
            del self.rows[key]
        return len(gone)

    async def _found(self, keys: Sequence[bytes]) -> dict[int, Row | None]:
        """The rows of those keys that are taken; usually none."""
        if self.doubtful:
            await self._settle({key: self.doubtful[key] for key in keys if key in self.doubtful})
        ids = [self.rows[key] for key in keys if key in self.rows]
        if not ids:
            return {}
        rows = await self.deeds.read(ids)
        return {row_id: rows.get(row_id) for row_id in ids}

    async def _settle(self, asked: dict[bytes, int]) -> None:
        if not asked:
            return
        there = set(await self.deeds.confirm(list(asked.values())))
        for key, row_id in asked.items():
            if self.doubtful.get(key) == row_id:
                del self.doubtful[key]
                if row_id in there:
                    self.rows[key] = row_id

    def _sort(
        self,
        group: Sequence[Append],
        places: Sequence[int],
        found: dict[int, Row | None],
        results: list[Refusal | None],
    ) -> _Together:
        """Who goes now. Whose key is another's is refused; what follows in a task that waits waits too."""
        together = _Together()
        behind: set[str] = set()
        now = now_ms()
        for at in places:
            append = group[at]
            key = None if append.reserve is None else append.reserve.key
            if append.task_id in behind:
                together.waiting.append(at)
                continue
            if key is None:
                together.going[at] = None
                continue
            row_id = self.rows.get(key)
            if key in self.coming or key in self.doubtful or (row_id is not None and row_id not in found):
                together.waiting.append(at)
                behind.add(append.task_id)
                if key in self.coming:
                    together.before.add(self.coming[key])
                continue
            row = None if row_id is None else found[row_id]
            if row is None or row.expires <= now:
                self.last += 1
                together.going[at] = together.taking[key] = self.last
                self.coming[key] = together.done
            elif row.task_id == append.task_id:
                together.going[at] = None
            else:
                results[at] = Taken(row.reserved)
        return together

    async def _write(self, group: Sequence[Append], together: _Together, results: list[Refusal | None]) -> None:
        taking, places = together.taking, list(together.going)
        some = group if len(places) == len(group) else [group[at] for at in places]
        try:
            stale = await self.deeds.write(some, list(together.going.values()) if taking else []) if some else []
        except BaseException as error:
            if isinstance(error, OutcomeUnknown) or not isinstance(error, StoreUnavailable):
                self.doubtful.update(taking)
            raise
        else:
            won = dict(taking)
            for at in (places[index] for index in stale):
                results[at] = StaleFence(group[at].task_id)
                reserve = group[at].reserve
                if reserve is not None and together.going[at] is not None:
                    del won[reserve.key]
            self.rows.update(won)
        finally:
            for key in taking:
                del self.coming[key]
            together.done.set_result(None)


class _Together:
    """Those of a group that go in one transaction, and those that have to wait."""

    def __init__(self) -> None:
        self.going: dict[int, int | None] = {}
        """Places in the group, with the row for the key where it is taken now."""
        self.taking: dict[bytes, int] = {}
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting: list[int] = []
        self.before: set[asyncio.Future[None]] = set()


def load(connection: sqlite3.Connection) -> dict[bytes, int]:
    """Of two rows with the same key the later one counts: the other had run out."""
    return dict(connection.execute("SELECT key, id FROM reservations ORDER BY id"))


def read_rows(connection: sqlite3.Connection, ids: Sequence[int]) -> dict[int, Row]:
    rows = connection.execute(
        f"SELECT id, task_id, seq, fingerprint, expires FROM reservations WHERE id IN ({marks(ids)})", list(ids)
    )
    return {row[0]: Row(*row[1:]) for row in rows}


def confirm_reserved(connection: sqlite3.Connection, ids: list[int]) -> list[int]:
    return list(read_rows(connection, ids))


def expired(connection: sqlite3.Connection) -> list[NumberedReservation]:
    rows = connection.execute("SELECT id, key FROM reservations WHERE expires <= ? ORDER BY id", (now_ms(),))
    return [NumberedReservation(*row) for row in rows]


def first(connection: sqlite3.Connection, count: int) -> list[NumberedReservation]:
    rows = connection.execute("SELECT id, key FROM reservations ORDER BY id LIMIT ?", (count,))
    return [NumberedReservation(*row) for row in rows]


def drop_reserved(connection: sqlite3.Connection, ids: list[int]) -> None:
    connection.execute(f"DELETE FROM reservations WHERE id IN ({marks(ids)})", ids)
