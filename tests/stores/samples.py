"""Samples for stores: tasks, appends, tokens and keys."""

from __future__ import annotations

import asyncio
import time
from hashlib import sha256
from typing import Any

from roost.engine.store_types import (
    Append,
    CursorMove,
    DeadLetter,
    ListQuery,
    NewTask,
    PushConfig,
    Reservation,
    Scope,
    Snapshot,
    TaskHead,
)
from roost.identity.ports import Audited, Identities, SigningKey, Token
from roost.protocol.entries import ARTIFACT, MESSAGE, NO_CHAIN, STATUS, Entry, link
from roost.protocol.types import TaskState

SCOPE = Scope("tenant", "owner", "agent")
WORKER = "worker-1"


def entry(seq: int, sub: int = 0, data: bytes | None = None, kind: str | None = None) -> Entry:
    data = b'{"at":"%d.%d"}' % (seq, sub) if data is None else data
    kind = kind or (MESSAGE if sub else STATUS if seq == 1 else ARTIFACT)
    time, ordinal = 1_700_000_000_000_000 + seq, seq
    return Entry(seq, sub, kind, data, time, ordinal, link(NO_CHAIN, seq, sub, kind, data, time, ordinal))


def head(state: TaskState = TaskState.SUBMITTED, **changes: Any) -> TaskHead:
    return TaskHead(state, 1000, WORKER, 1, False)._replace(**changes)


def creation(task_id: str, *entries: Entry, **changes: Any) -> Append:
    """Return the first append of a task; `changes` are fields of its NewTask, its TaskHead and the append itself."""
    new = NewTask(task_id, changes.pop("scope", SCOPE), changes.pop("context_id", "context"), changes.pop("created", 1))
    rest = {name: changes.pop(name) for name in ("snapshot", "reserve", "push") if name in changes}
    found = head(changes.pop("state", TaskState.SUBMITTED), **changes)
    return Append(task_id, found.fence, list(entries or (entry(0, 1), entry(1))), new, found, **rest)


def addition(task_id: str, *entries: Entry, fence: int = 1, **changes: Any) -> Append:
    return Append(task_id, fence, list(entries), **changes)


def ended(task_id: str, **changes: Any) -> Append:
    """Return the append of a task that ends with it."""
    return creation(task_id, **{"state": TaskState.COMPLETED, "worker": None, **changes})


def answer(task_id: str, *entries: Entry, fence: int = 1, worker: str = WORKER, **changes: Any) -> Append:
    """Return the append of an answer to a paused task, which works again on the host that received the answer."""
    moved = head(TaskState.WORKING, worker=worker, fence=fence + 1)
    return addition(task_id, *entries, fence=fence, head=moved, goes_on=True, **changes)


def reservation(name: str, ttl_s: int = 60, request: str = "a") -> Reservation:
    return Reservation(name.encode().ljust(16, b"."), (request * 64)[:64], ttl_s)


def config(task_id: str, id: str = "hook", cursor: int = 0, sealed: bytes = b"sealed") -> PushConfig:
    return PushConfig(task_id, id, sealed, cursor)


def move(task_id: str, id: str = "hook", **changes: Any) -> CursorMove:
    """Return the move after a delivery of entry 1, with nothing left to deliver."""
    return CursorMove(task_id, id, 1, 0, 0, False, "", None, True)._replace(**changes)


def dead(task_id: str, id: str = "hook", seq: int = 1) -> DeadLetter:
    return DeadLetter(task_id, id, seq, 8, "it said 500", time.time_ns() // 1_000_000)


def snapshot(task_id: str, seq: int = 1, sub: int = 0, artifacts: bytes = b"[]") -> Snapshot:
    return Snapshot(seq, sub, b'{"id":"%b"}' % task_id.encode(), artifacts)


def query(**changes: Any) -> ListQuery:
    return ListQuery(SCOPE, "", TaskState.UNSPECIFIED, None, None, 100, False)._replace(**changes)


def token(name: str, /, **changes: Any) -> Token:
    made = Token(name, sha256(name.encode()).digest(), f"the {name}", "ci", ("default",), ("agent:*",), 1000)
    return made._replace(**changes)


def key(kid: str, agent: str = "agent", **changes: Any) -> SigningKey:
    return SigningKey(agent, kid, "EdDSA", b'{"x":"%b"}' % kid.encode(), b"sealed", 1000)._replace(**changes)


def audited(number: int, **changes: Any) -> Audited:
    return Audited(1000 + number, "roost:ci", "token.create", f"token {number}", "done", "127.0.0.1")._replace(
        **changes
    )


class Cache:
    """The tokens and keys that a host knows if it reads only changes."""

    def __init__(self, store: Identities) -> None:
        self.store = store
        self.version = 0
        self.tokens: dict[str, Token] = {}
        self.keys: dict[tuple[str, str], SigningKey] = {}

    async def refresh(self) -> None:
        changes = await self.store.read_identities(self.version)
        assert changes.version >= self.version
        if changes.version == self.version:
            assert (changes.tokens, changes.keys) == ([], [])
        self.version = changes.version
        self.tokens.update({token.id: token for token in changes.tokens})
        self.keys.update({(key.agent, key.kid): key for key in changes.keys})

    async def follow_until(self, done: asyncio.Future[Any]) -> None:
        while not done.done():
            await self.refresh()
            await asyncio.sleep(0)
        await self.refresh()

    async def misses_nothing(self) -> bool:
        whole = Cache(self.store)
        await whole.refresh()
        return (self.version, self.tokens, self.keys) == (whole.version, whole.tokens, whole.keys)
