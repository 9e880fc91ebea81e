"""The ledger of reservations: the keys in memory, the rest in the table of sqlite_reservations.py.

One process has the file, so a dict can hold the keys that are taken, and a message costs no index. The ledger decides
about the reservations of a group before the group goes to the writer, and records them when it is committed. Two
groups may be on their way to the writer at once: an append that wants a key of the other group waits for its outcome.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from roost.engine.store_types import Append, OutcomeUnknown, Refusal, Reserved, StaleFence, StoreUnavailable, Taken
from roost.identity.ports import now_ms
from roost.stores import sqlite_reservations as reservations
from roost.stores.sqlite_connections import Readers, Writer
from roost.stores.sqlite_reservations import NumberedReservation, ReservationRow

DROPPED_AT_ONCE = 500
"""Rows that are deleted in one transaction, for which commits have to wait."""


class Ledger:
    def __init__(self, readers: Readers, writer: Writer, row_ids: dict[bytes, int]) -> None:
        self.readers = readers
        self.writer = writer
        self.row_ids = row_ids
        """The row of each key that is taken, or was: the row says until when."""
        self.last_id = max(row_ids.values(), default=0)
        self.in_flight: dict[bytes, asyncio.Future[None]] = {}
        """Keys of groups that the writer has; the future is done when the outcome is known."""
        self.doubtful: dict[bytes, int] = {}
        """Keys of groups whose outcome is unknown, with the row that each would have."""

    async def commit(self, group: Sequence[Append]) -> list[Refusal | None]:
        """Commit the group, in one transaction unless an append has to wait for a key that is in flight."""
        results: list[Refusal | None] = [None] * len(group)
        rest: Sequence[int] = range(len(group))
        partly_committed = False
        while True:
            rows = await self._read([reserve.key for at in rest if (reserve := group[at].reserve) is not None])
            batch = self._next_batch(group, rest, rows, results)
            try:
                await self._write(group, batch, results)
            except StoreUnavailable as error:
                if partly_committed:
                    raise OutcomeUnknown(f"a part of the group is committed, the rest is not: {error}") from error
                raise
            rest = batch.waiting
            if not rest:
                return results
            partly_committed = partly_committed or bool(batch.row_ids)
            if batch.blockers:
                await asyncio.wait(batch.blockers)

    async def read(self, key: bytes) -> Reserved | None:
        rows = await self._read([key])
        row = rows.get(self.row_ids.get(key, 0))
        return None if row is None or row.expires <= now_ms() else row.reserved

    async def drop(self, most: int) -> int:
        """Delete the reservations that have expired, and the oldest of more than `most`; return how many."""
        dropped = await self._drop(await self.readers.do(reservations.expired))
        excess = len(self.row_ids) - most
        if excess > 0:
            dropped += await self._drop(await self.readers.do(reservations.first, excess))
        return dropped

    async def _drop(self, rows: Sequence[NumberedReservation]) -> int:
        """Return how many of the rows had not been replaced by later ones before."""
        dropped = 0
        for start in range(0, len(rows), DROPPED_AT_ONCE):
            some = rows[start : start + DROPPED_AT_ONCE]
            await self.writer.do(reservations.drop_reserved, [row.id for row in some])
            current = [key for row_id, key in some if self.row_ids.get(key) == row_id]
            for key in current:
                del self.row_ids[key]
            dropped += len(current)
        return dropped

    async def _read(self, keys: Sequence[bytes]) -> dict[int, ReservationRow | None]:
        """Return the rows of those keys that are taken; usually there are none."""
        if self.doubtful:
            await self._settle({key: self.doubtful[key] for key in keys if key in self.doubtful})
        ids = [self.row_ids[key] for key in keys if key in self.row_ids]
        if not ids:
            return {}
        rows = await self.readers.do(reservations.read_rows, ids)
        return {row_id: rows.get(row_id) for row_id in ids}

    async def _settle(self, doubtful: dict[bytes, int]) -> None:
        """Find out which rows are in the table. The writer looks after it has finished its pending work."""
        if not doubtful:
            return
        stored = set(await self.writer.do(reservations.confirm_reserved, list(doubtful.values())))
        for key, row_id in doubtful.items():
            if self.doubtful.get(key) == row_id:
                del self.doubtful[key]
                if row_id in stored:
                    self.row_ids[key] = row_id

    def _next_batch(
        self,
        group: Sequence[Append],
        places: Sequence[int],
        rows: dict[int, ReservationRow | None],
        results: list[Refusal | None],
    ) -> _LedgerBatch:
        """Decide which appends are written now. An append whose key another task has is refused.

        When an append waits, so do the later appends of its task.
        """
        batch = _LedgerBatch()
        waiting_tasks: set[str] = set()
        now = now_ms()
        for at in places:
            append = group[at]
            key = None if append.reserve is None else append.reserve.key
            if append.task_id in waiting_tasks:
                batch.waiting.append(at)
                continue
            if key is None:
                batch.row_ids[at] = None
                continue
            row_id = self.row_ids.get(key)
            if key in self.in_flight or key in self.doubtful or (row_id is not None and row_id not in rows):
                batch.waiting.append(at)
                waiting_tasks.add(append.task_id)
                if key in self.in_flight:
                    batch.blockers.add(self.in_flight[key])
                continue
            row = None if row_id is None else rows[row_id]
            if row is None or row.expires <= now:
                self.last_id += 1
                batch.row_ids[at] = batch.new_rows[key] = self.last_id
                self.in_flight[key] = batch.done
            elif row.task_id == append.task_id:
                batch.row_ids[at] = None
            else:
                results[at] = Taken(row.reserved)
        return batch

    async def _write(self, group: Sequence[Append], batch: _LedgerBatch, results: list[Refusal | None]) -> None:
        places = list(batch.row_ids)
        appends = group if len(places) == len(group) else [group[at] for at in places]
        row_ids = list(batch.row_ids.values()) if batch.new_rows else []
        try:
            stale = await self.writer.commit(appends, row_ids) if appends else []
        except BaseException as error:
            if isinstance(error, OutcomeUnknown) or not isinstance(error, StoreUnavailable):
                self.doubtful.update(batch.new_rows)
            raise
        else:
            committed = dict(batch.new_rows)
            for at in (places[index] for index in stale):
                results[at] = StaleFence(group[at].task_id)
                reserve = group[at].reserve
                if reserve is not None and batch.row_ids[at] is not None:
                    del committed[reserve.key]
            self.row_ids.update(committed)
        finally:
            for key in batch.new_rows:
                del self.in_flight[key]
            batch.done.set_result(None)


class _LedgerBatch:
    """The appends of a group that go in one transaction, and those that have to wait."""

    def __init__(self) -> None:
        self.row_ids: dict[int, int | None] = {}
        """Places in the group of the appends to write, with the row id of the reservation that each takes now."""
        self.new_rows: dict[bytes, int] = {}
        """The reservations that the batch takes: key and row id."""
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting: list[int] = []
        self.blockers: set[asyncio.Future[None]] = set()
        """The outcomes that the waiting appends wait for."""
