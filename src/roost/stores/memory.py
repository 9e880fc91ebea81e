"""A journal in memory, which ends with the process: for tests and `roost serve --memory`."""

from __future__ import annotations

import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence

from roost.engine.stats import size_of, summed
from roost.engine.store_types import (
    COUNT_CAP,
    MOST_BYTES,
    Adopted,
    Append,
    CursorMove,
    DeadLetter,
    ListQuery,
    LostTasks,
    NewTask,
    Party,
    Position,
    Push,
    PushConfig,
    Refusal,
    Reserved,
    Snapshot,
    StaleFence,
    Stored,
    StoredUsage,
    Taken,
    TaskHead,
    TaskPage,
    Tombstone,
    Update,
    UsageDelta,
    Withheld,
    adopted_from,
    page_end,
)
from roost.identity.ports import now_ms
from roost.protocol.entries import Entry
from roost.protocol.states import ACTIVE, PAUSED, TERMINAL
from roost.protocol.types import TaskState
from roost.stores.memory_checkpoints import MemoryCheckpoints
from roost.stores.memory_identities import MemoryIdentities

ANY_SIZE = 2**62


class _Row:
    def __init__(self, new: NewTask, head: TaskHead) -> None:
        self.new = new
        self.head = head
        self.snapshot: Snapshot | None = None
        self.entries: list[Entry] = []
        self.size = 0


class MemoryStore(MemoryIdentities, MemoryCheckpoints):
    name = "memory"
    location = "memory (nothing is kept)"
    shared = False

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, _Row] = {}
        self.reserved: dict[bytes, tuple[Reserved, float]] = {}
        """Reservations with the time when each expires, in seconds since 1970."""
        self.pushes: dict[tuple[str, str], Push] = {}
        self.dead: list[DeadLetter] = []
        self.tombstones: dict[str, Tombstone] = {}
        self.kept: dict[tuple[Party, str], StoredUsage] = {}
        self.to_cancel: set[str] = set()
        self.survived: set[str] = set()
        self.lost_tasks = LostTasks()
        self.served: dict[str, int] = {}
        """When each agent was served last, in milliseconds."""

    async def open(self) -> None:
        return None

    async def commit(self, group: Sequence[Append]) -> list[Refusal | None]:
        return [self._append(append) for append in group]

    def _append(self, append: Append) -> Refusal | None:
        row = self.rows.get(append.task_id)
        taken = None if append.reserve is None else self._reserved(append.reserve.key)
        if taken is not None and taken.task_id != append.task_id:
            return Taken(taken)
        again = row is not None and append.create is not None
        if append.create is not None and append.head is not None and row is None:
            row = self.rows[append.task_id] = _Row(append.create, append.head)
        elif row is None:
            return StaleFence(append.task_id)
        elif row.head.fence != append.fence:
            if not _is_done(row, append):
                return StaleFence(append.task_id)
            again = True
        last = row.entries[-1][:2] if row.entries else (-1, 0)
        if append.entries and append.entries[-1][:2] > last:
            row.size += size_of(append)
        row.entries.extend(entry for entry in append.entries if entry[:2] > last)
        if append.head is not None:
            row.head = append.head
        if append.snapshot is not None:
            row.snapshot = append.snapshot
        if append.reserve is not None and taken is None:
            reserved = Reserved(append.task_id, append.entries[-1].seq, append.reserve.fingerprint)
            self.reserved.pop(append.reserve.key, None)  # one that replaces an expired one is the newest
            self.reserved[append.reserve.key] = (reserved, time.time() + append.reserve.ttl_s)
        if append.push is not None and not again:
            self._put(append.push, row.head.worker)
        if append.goes_on and not again:
            for key, push in self.pushes.items():
                if key[0] == append.task_id and push.due is None and not push.paused:
                    self.pushes[key] = push._replace(due=now_ms(), holder=row.head.worker)
        return None

    async def read_task(self, task_id: str, owner: str | None = None, most: int | None = None) -> Stored | None:
        row = self.rows.get(task_id)
        if row is None or owner not in (None, row.new.scope.owner):
            return None
        stored, size = _stored(row), _size(row)
        if row.snapshot is None or most is None or size <= most:
            return stored
        return stored._replace(snapshot=None, withheld=Withheld(row.snapshot.seq, row.snapshot.sub, size))

    async def read_entries(
        self, task_id: str, after: int, limit: int, *, wire: bool, sub: int = 0, most: int = MOST_BYTES
    ) -> list[Entry]:
        row = self.rows.get(task_id)
        if row is None:
            return []
        start = bisect_right(row.entries, (after, sub), key=lambda entry: (entry.seq, entry.sub))
        found: list[Entry] = []
        size = 0
        for entry in row.entries[start:]:
            if wire and entry.sub:
                continue
            size += len(entry.data)
            if len(found) == limit or (found and size > most):
                break
            found.append(entry)
        return found

    async def read_internal(self, task_id: str) -> list[Entry]:
        row = self.rows.get(task_id)
        return [] if row is None else [entry for entry in row.entries if entry.sub]

    async def list_tasks(self, query: ListQuery) -> TaskPage:
        after_ms = -1 if query.after is None else query.after.timestamp() * 1000
        rows = [
            row
            for row in self.rows.values()
            if row.new.scope == query.scope
            and not row.head.hidden
            and (not query.context_id or row.new.context_id == query.context_id)
            and (query.state is TaskState.UNSPECIFIED or row.head.state is query.state)
            and row.head.status_time >= after_ms
        ]
        rows.sort(key=lambda row: (-row.head.status_time, row.new.id))
        total = min(len(rows), COUNT_CAP)
        if query.cursor is not None:
            status_time, task_id = query.cursor
            rows = [row for row in rows if (-row.head.status_time, row.new.id) > (-status_time, task_id)]
        rows = rows[: query.limit]
        end, size = page_end([_size(row, query.artifacts) for row in rows], query.most)
        if query.unread is not None and size > query.unread:
            return TaskPage([], total, size, end < len(rows))
        return TaskPage([_stored(row, query.artifacts) for row in rows[:end]], total, size, end < len(rows))

    async def read_updates(self, positions: Sequence[Position], limit: int) -> list[Update]:
        found = []
        for task_id, seq, sub in positions:
            row = self.rows.get(task_id)
            if row is not None:
                entries = await self.read_entries(task_id, seq, limit, wire=False, sub=sub, most=ANY_SIZE)
                found.append(Update(task_id, row.head, entries))
        return found

    # Leases: there is no other process

    async def renew(self, worker: str, ttl_s: float) -> bool:
        return True

    async def survive(self, worker: str) -> None:
        self.survived.add(worker)

    async def survivors(self, workers: Sequence[str]) -> list[str]:
        return [worker for worker in workers if worker in self.survived]

    async def leave(self, worker: str) -> None:
        for row in self.rows.values():
            if row.head.state in ACTIVE and row.head.worker == worker:
                row.head = row.head._replace(worker=None)

    async def adopt(self, worker: str, agents: Sequence[str], limit: int) -> list[Adopted]:
        found = [
            row
            for row in self.rows.values()
            if row.head.state in ACTIVE and row.head.worker != worker and row.new.scope.agent in agents
        ]
        found.sort(key=lambda row: (row.new.created, row.new.id))
        tasks = Counter(row.head.worker or "" for row in self.rows.values() if row.head.state in ACTIVE)
        adopted = [adopted_from(row.new.id, row.head.fence + 1, row.head.worker, tasks) for row in found[:limit]]
        for row in found[:limit]:
            row.head = row.head._replace(worker=worker, fence=row.head.fence + 1)
        return self.lost_tasks.remember(adopted)

    async def adopt_task(self, worker: str, task_id: str) -> int | None:
        if not self._active(task_id) or self.rows[task_id].head.worker == worker:
            return None
        row = self.rows[task_id]
        row.head = row.head._replace(worker=worker, fence=row.head.fence + 1)
        return row.head.fence

    async def mine(self, worker: str, limit: int) -> list[Adopted]:
        rows = [row for row in self.rows.values() if row.head.state in ACTIVE and row.head.worker == worker]
        return [Adopted(row.new.id, row.head.fence, False) for row in rows[:limit]]

    async def take_turn(self, task_id: str) -> str | None:
        return None

    async def ask_cancel(self, task_id: str) -> None:
        self.to_cancel.add(task_id)

    async def asked_to_cancel(self, worker: str) -> list[str]:
        self.to_cancel = {task_id for task_id in self.to_cancel if self._active(task_id)}
        return [task_id for task_id in self.to_cancel if self.rows[task_id].head.worker == worker]

    def _active(self, task_id: str) -> bool:
        return task_id in self.rows and self.rows[task_id].head.state in ACTIVE

    # Reservations

    async def read_reserved(self, key: bytes) -> Reserved | None:
        return self._reserved(key)

    def _reserved(self, key: bytes) -> Reserved | None:
        found = self.reserved.get(key)
        return found[0] if found is not None and found[1] > time.time() else None

    async def drop_reservations(self, most: int) -> int:
        before = len(self.reserved)
        now = time.time()
        kept = [(key, value) for key, value in self.reserved.items() if value[1] > now]
        self.reserved = dict(kept[max(0, len(kept) - most) :])
        return before - len(self.reserved)

    # Push configs

    def _put(self, config: PushConfig, worker: str | None) -> None:
        row = self.rows[config.task_id]
        self.pushes[config.task_id, config.id] = Push(
            config, row.new.scope.agent, now_ms(), worker, now_ms(), 0, 0, False, ""
        )

    async def put_push(self, config: PushConfig, worker: str) -> bool:
        if config.task_id not in self.rows:
            return False
        replaced = self.pushes.get((config.task_id, config.id))
        self._put(config, worker)
        if replaced is not None:
            key = (config.task_id, config.id)
            self.pushes[key] = self.pushes[key]._replace(created=replaced.created)
        return True

    async def read_pushes(self, task_id: str) -> list[Push]:
        return [push for key, push in self.pushes.items() if key[0] == task_id]

    async def delete_push(self, task_id: str, config_id: str) -> bool:
        self.dead = [letter for letter in self.dead if letter[:2] != (task_id, config_id)]
        return self.pushes.pop((task_id, config_id), None) is not None

    async def hold_pushes(self, worker: str, limit: int) -> list[Push]:
        now = now_ms()
        due = [
            (push.due, key)
            for key, push in self.pushes.items()
            if push.due is not None and push.due <= now and push.holder != worker
        ]
        keys = [key for _, key in sorted(due)[:limit]]
        for key in keys:
            self.pushes[key] = self.pushes[key]._replace(holder=worker)
        return [self.pushes[key] for key in keys]

    async def move_pushes(self, worker: str, moves: Sequence[CursorMove]) -> list[bool]:
        return [self._move(worker, move) for move in moves]

    def _move(self, worker: str, move: CursorMove) -> bool:
        key = (move.task_id, move.config_id)
        push = self.pushes.get(key)
        if push is None or push.holder != worker:
            return False
        due = None if move.delay_s is None else now_ms() + round(move.delay_s * 1000)
        if due is None and not move.paused and self.rows[move.task_id].entries[-1].seq > move.cursor:
            due = now_ms()
        self.pushes[key] = push._replace(
            config=push.config._replace(cursor=move.cursor),
            holder=worker if move.keep else None,
            due=due,
            attempts=move.attempts,
            buried=move.buried,
            paused=move.paused,
            error=move.error,
        )
        if move.dead is not None:
            self.dead = [letter for letter in self.dead if letter[:3] != move.dead[:3]]
            self.dead.append(move.dead)
        return True

    async def list_pushes(self, *, failing: bool, limit: int) -> list[Push]:
        found = [push for push in self.pushes.values() if not failing or push.attempts or push.buried or push.paused]
        return found[::-1][:limit]

    async def list_dead(self, limit: int) -> list[DeadLetter]:
        return self.dead[::-1][:limit]

    async def retry_pushes(self, task_id: str | None, config_id: str | None) -> int:
        count = 0
        for key, push in self.pushes.items():
            chosen = task_id in (None, key[0]) and config_id in (None, key[1])
            letters = [letter.seq for letter in self.dead if letter[:2] == key]
            if not chosen or not (letters or push.attempts or push.buried or push.paused):
                continue
            cursor = min([push.config.cursor, *(seq - 1 for seq in letters)])
            self.pushes[key] = push._replace(
                config=push.config._replace(cursor=cursor),
                holder=None,
                due=now_ms(),
                attempts=0,
                buried=0,
                paused=False,
                error="",
            )
            self.dead = [letter for letter in self.dead if letter[:2] != key]
            count += 1
        return count

    async def outbox(self) -> tuple[int, int]:
        return sum(push.due is not None for push in self.pushes.values()), len(self.dead)

    # Records

    async def agents(self) -> list[str]:
        scopes = [row.new.scope for row in self.rows.values()]
        return sorted({scope.agent for scope in scopes + [gone.scope for gone in self.tombstones.values()]})

    async def note_served(self, agents: Sequence[str]) -> None:
        now = now_ms()
        self.served |= dict.fromkeys(agents, now)
        for agent in await self.agents():
            self.served.setdefault(agent, now)

    async def unserved(self, before_ms: int) -> list[str]:
        return sorted(agent for agent, time_ms in self.served.items() if time_ms < before_ms)

    async def unfinished(self, agent: str, limit: int) -> list[str]:
        """List paused tasks, and active ones that no worker is named for.

        The store does not know the name of the living worker. Tasks that name a dead one are found by `adopt`.
        """
        found = [
            row.new.id
            for row in self.rows.values()
            if row.new.scope.agent == agent
            and (row.head.state in PAUSED or (row.head.state in ACTIVE and row.head.worker is None))
        ]
        return sorted(found)[:limit]

    async def prune(self, agent: str, before_ms: int | None, keep: int | None, limit: int) -> list[UsageDelta]:
        ended = self._prunable(agent)
        ended.sort(key=lambda row: (row.head.status_time, row.new.id))
        excess = len(ended) - keep if keep is not None else 0
        pruned = [
            row
            for index, row in enumerate(ended)
            if index < excess or (before_ms is not None and row.head.status_time < before_ms)
        ][:limit]
        return await self._prune(pruned)

    async def prune_task(self, agent: str, task_id: str) -> list[UsageDelta]:
        return await self._prune([row for row in self._prunable(agent) if row.new.id == task_id])

    def _prunable(self, agent: str) -> list[_Row]:
        delivering = {key[0] for key, push in self.pushes.items() if push.due is not None}
        return [
            row
            for row in self.rows.values()
            if row.new.scope.agent == agent and row.head.state in TERMINAL and row.new.id not in delivering
        ]

    async def _prune(self, pruned: Sequence[_Row]) -> list[UsageDelta]:
        for row in pruned:
            last = row.entries[-1]
            self.tombstones[row.new.id] = Tombstone(
                row.new.id, row.new.scope, row.head.state, row.head.status_time, last.seq, last.chain, now_ms()
            )
            del self.rows[row.new.id]
            self.pushes = {key: push for key, push in self.pushes.items() if key[0] != row.new.id}
            self.dead = [letter for letter in self.dead if letter.task_id != row.new.id]
        deleted = summed(UsageDelta(*row.new.scope, 1, row.size) for row in pruned)
        await self.add_usage([usage._replace(tasks=-usage.tasks, size=-usage.size) for usage in deleted])
        return deleted

    async def read_tombstone(self, task_id: str) -> Tombstone | None:
        return self.tombstones.get(task_id)

    async def scan_tasks(self, after: str, limit: int) -> list[tuple[NewTask, Entry]]:
        found = sorted((row for row in self.rows.values() if row.new.id > after), key=lambda row: row.new.id)
        return [(row.new, row.entries[-1]) for row in found[:limit]]

    async def scan_tombstones(self, after: str, limit: int) -> list[Tombstone]:
        return sorted(tombstone for tombstone in self.tombstones.values() if tombstone.task_id > after)[:limit]

    async def add_usage(self, deltas: Sequence[UsageDelta]) -> None:
        for tenant, owner, agent, tasks, size in deltas:
            parties: list[tuple[Party, str]] = [("tenant", tenant), ("owner", owner), ("agent", agent)]
            for party, name in parties:
                kept = self.kept.get((party, name), StoredUsage(name, 0, 0))
                self.kept[party, name] = StoredUsage(name, kept.tasks + tasks, kept.size + size)

    async def usage(self) -> list[StoredUsage]:
        return sorted(kept for (party, _), kept in self.kept.items() if party == "agent")

    async def stored_bytes(self, accounts: Sequence[tuple[Party, str]]) -> list[int]:
        return [self.kept[account].size if account in self.kept else 0 for account in accounts]

    async def oldest(self) -> int | None:
        return min((row.new.created // 1000 for row in self.rows.values()), default=None)

    def free_bytes(self) -> int | None:
        return None

    def wal_bytes(self) -> int | None:
        return None

    async def probe(self) -> None:
        return None

    async def close(self) -> None:
        self.rows.clear()


def _is_done(row: _Row, append: Append) -> bool:
    """Whether an earlier try, whose reply was lost, has committed the append and raised the fence itself."""
    if append.head is None or not append.entries or append.head.fence != row.head.fence:
        return False
    return append.entries[-1] in row.entries[-len(append.entries) :]


def _stored(row: _Row, artifacts: bool = True) -> Stored:
    snapshot = row.snapshot
    if snapshot is not None and not artifacts:
        snapshot = snapshot._replace(artifacts=b"[]")
    return Stored(row.new, row.head, snapshot)


def _size(row: _Row, artifacts: bool = True) -> int:
    if row.snapshot is None:
        return 0
    return len(row.snapshot.body) + (len(row.snapshot.artifacts) if artifacts else 0)
