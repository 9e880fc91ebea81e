"""A journal to push from, webhooks that do as they are told, and workers that share both."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from roost.engine.extension import Extensions
from roost.engine.ids import new_id, now_us, timestamp
from roost.engine.leases import Worker
from roost.engine.push import Pusher
from roost.engine.push_delivery import PushRules, PushSettings
from roost.engine.stats import Stats
from roost.engine.store_types import Append, CursorMove, NewTask, Push, PushConfig, Scope, StoreUnavailable, TaskHead
from roost.engine.webhook import Headers, Undeliverable, sealed
from roost.identity.seal import Seal, new_key
from roost.protocol import entries as kinds
from roost.protocol.codec import encode
from roost.protocol.entries import NO_CHAIN, Entry
from roost.protocol.states import SETTLED
from roost.protocol.types import (
    StreamResponse,
    TaskPushNotificationConfig,
    TaskState,
    TaskStatus,
    TaskStatusUpdateEvent,
)
from roost.stores.memory import MemoryStore

URL = "https://hooks.example.com/in?key=k3y"
AGENT = "agent"
RULES = PushRules(attempts=3, retry_s=0.002)
SEAL = Seal(new_key())


class Store(MemoryStore):
    """Remembers the moves, and can be out of order."""

    def __init__(self) -> None:
        super().__init__()
        self.moves: list[CursorMove] = []
        self.looks = 0
        """How often it was asked for what is due."""
        self.refused = 0
        """How often it wrote nothing."""
        self.down = False
        """It writes nothing."""
        self.unreadable = False
        self.loses_holds = False
        """It holds, and then the answer is lost."""
        self.answers = asyncio.Event()
        """While it is not set, what was asked about pushes is done and not answered."""
        self.answers.set()
        self.unanswered = 0

    async def _answer(self) -> None:
        self.unanswered += 1
        await self.answers.wait()
        self.unanswered -= 1

    async def read_entries(self, task_id: str, after: int, limit: int, **more: Any) -> list[Entry]:
        if self.unreadable:
            raise StoreUnavailable("unreadable")
        return await super().read_entries(task_id, after, limit, **more)

    async def read_pushes(self, task_id: str) -> list[Push]:
        if self.unreadable:
            raise StoreUnavailable("unreadable")
        found = await super().read_pushes(task_id)
        await self._answer()
        return found

    async def move_pushes(self, worker: str, moves: Sequence[CursorMove]) -> list[bool]:
        await asyncio.sleep(0)
        if self.down:
            self.refused += 1
            raise StoreUnavailable("down")
        self.moves += moves
        return await super().move_pushes(worker, moves)

    async def hold_pushes(self, worker: str, limit: int) -> list[Push]:
        self.looks += 1
        if self.down:
            raise StoreUnavailable("down")
        found = await super().hold_pushes(worker, limit)
        if found and self.loses_holds:
            self.loses_holds = False
            raise StoreUnavailable("the answer was lost")
        if found:
            await self._answer()
        return found

    def push(self, task_id: str, config_id: str = "hook") -> Push:
        return self.pushes[task_id, config_id]

    def lose(self, task_id: str, config_id: str = "hook") -> None:
        """Another host has removed the task and its webhook."""
        del self.rows[task_id], self.pushes[task_id, config_id]

    def make_due(self, task_id: str, config_id: str = "hook") -> None:
        """The wait for its next try is over."""
        self.pushes[task_id, config_id] = self.push(task_id, config_id)._replace(due=0)


class SharedStore(Store):
    """Workers are alive unless they are among the `dead`."""

    shared = True

    def __init__(self) -> None:
        super().__init__()
        self.workers_dead: set[str] = set()

    async def hold_pushes(self, worker: str, limit: int) -> list[Push]:
        others = {
            key: push
            for key, push in self.pushes.items()
            if push.holder is not None and push.holder not in self.workers_dead
        }
        self.pushes = {key: push for key, push in self.pushes.items() if key not in others}
        try:
            return await super().hold_pushes(worker, limit)
        finally:
            self.pushes |= others


class Task:
    """Writes a task's journal as the engine would."""

    def __init__(self, store: MemoryStore, *, hidden: bool = False) -> None:
        self.store = store
        self.id = new_id()
        self.seq = 0
        self.hidden = hidden

    async def begin(self, push: PushConfig | None = None, worker: str = "w1") -> None:
        self.head = TaskHead(TaskState.SUBMITTED, 1, worker, 1, self.hidden)
        create = NewTask(self.id, Scope("default", "me", AGENT), "context", now_us())
        append = Append(self.id, 1, [self._entry(TaskState.SUBMITTED)], create, self.head)
        append.push = push
        await self.store.commit([append])

    async def say(self, state: TaskState = TaskState.WORKING, *, goes_on: bool = False) -> None:
        self.head = self.head._replace(state=state, hidden=self.hidden)
        append = Append(self.id, 1, [self._entry(state)], None, self.head, goes_on=goes_on)
        await self.store.commit([append])

    async def end(self) -> None:
        await self.say(TaskState.COMPLETED)

    def _entry(self, state: TaskState) -> Entry:
        self.seq += 1
        status = TaskStatus(state=state, timestamp=timestamp(now_us()))
        event = TaskStatusUpdateEvent(task_id=self.id, context_id="context", status=status, metadata={"seq": self.seq})
        data = encode(StreamResponse(status_update=event))
        return Entry(self.seq, 0, kinds.STATUS, data, now_us(), 0, NO_CHAIN)

    def bodies(self, *seqs: int) -> list[bytes]:
        return [entry.data for entry in self.store.rows[self.id].entries if entry.seq in seqs]

    @property
    def settled(self) -> bool:
        return self.head.state in SETTLED


class Call(NamedTuple):
    url: str
    headers: dict[str, str]
    body: bytes


class Webhooks:
    """The sender. `answers` by URL: a status, an exception, or a list of them, one a call."""

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.answers: dict[str, Any] = {}
        self.shut: dict[str, asyncio.Event] = {}
        """URLs that answer when their event is set."""
        self.now: dict[str, int] = {}
        self.most: dict[str, int] = {}
        """Calls under way, by host: now, and the most there were."""

    async def check(self, url: str) -> None:
        return None

    async def post(self, url: str, headers: Headers, body: bytes) -> int:
        host = url.split("/")[2]
        self.calls.append(Call(url, dict(headers), body))
        self.now[host] = self.now.get(host, 0) + 1
        self.most[host] = max(self.most.get(host, 0), self.now[host])
        try:
            if url in self.shut:
                await self.shut[url].wait()
            await asyncio.sleep(0)
        finally:
            self.now[host] -= 1
        answer = self.answers.get(url, 204)
        if isinstance(answer, list):
            answer = answer.pop(0) if answer else 204
        if isinstance(answer, Undeliverable):
            raise answer
        return int(answer)

    def bodies(self, url: str = URL) -> list[bytes]:
        return [call.body for call in self.calls if call.url == url]


def webhook(task: Task, cursor: int = 0, *, url: str = URL, config_id: str = "hook", seal: Seal = SEAL) -> PushConfig:
    return sealed(seal, task.id, TaskPushNotificationConfig(url=url, id=config_id, task_id=task.id), cursor)


@asynccontextmanager
async def pushing(
    store: MemoryStore,
    sender: Webhooks,
    rules: PushRules = RULES,
    *,
    worker: str = "w1",
    seal: Seal = SEAL,
    started: bool = True,
) -> AsyncIterator[Pusher]:
    pusher = Pusher(
        store, Worker(worker, shared=store.shared), PushSettings(sender, seal, rules), Extensions(), Stats()
    )
    if started:
        pusher.start()
    try:
        yield pusher
    finally:
        await pusher.close()


def die(pusher: Pusher) -> None:
    """Stop everything as a crash would, as far as others can see."""
    pusher.closing = pusher.delivery.closing = True
    for task in (*pusher.running, pusher.watching, pusher.moves.task):
        if task is not None:
            task.cancel()
    pusher.held.clear()
