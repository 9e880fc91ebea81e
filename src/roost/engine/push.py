"""Push notifications: the journal is the outbox, a config is a cursor into it.

kick -> Hook -> slot of its host -> entries after the cursor -> POST, one at a time -> PushCursors -> the store

An entry counts as delivered only after a 2xx response, so each one is sent at least once. A webhook at rest (everything
is delivered, and the task waits or is over) is a row in the store and nothing else. A webhook of an active task is a
small object here, and there is a coroutine only while there is something to send. When this worker is lost, another
takes its webhooks over as they become due.
"""

from __future__ import annotations

import asyncio
import logging
import traceback
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager
from itertools import islice
from weakref import WeakValueDictionary

from roost.engine.extension import Extensions
from roost.engine.leases import Worker
from roost.engine.ports import Store
from roost.engine.push_cursors import Hook, PushCursors
from roost.engine.push_delivery import Delivery, PushSettings, jittered
from roost.engine.stats import Stats
from roost.engine.store_types import Position, Push, PushConfig, StoreUnavailable

log = logging.getLogger("roost.push")

TROUBLE_S = 1.0
LOOK_S = 1.0
LOOK_TASKS = 500
COUNT_EVERY = 5
TAKE = 200
BUSY = 2000
"""Hooks that work at the same time; beyond that, no more are taken from the store."""
AMISS = 10_000
CLOSE_S = 2.0
ANY_SUB = 2**62


class Pusher:
    def __init__(
        self, store: Store, worker: Worker, settings: PushSettings, extensions: Extensions, stats: Stats
    ) -> None:
        self.store = store
        self.worker = worker
        self.sender, self.seal, _ = settings
        self.stats = stats
        self.moves = PushCursors(store, worker, self._drop)
        self.delivery = Delivery(store, settings, extensions, stats, self.moves, self._drop)
        self.held: dict[str, dict[str, Hook]] = {}
        """The webhooks that this worker holds, by task id and config id."""
        self.running: set[asyncio.Task[None]] = set()
        self.locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self.leaving: dict[tuple[str, str], asyncio.Task[None]] = {}
        """Calls in progress of hooks that were dropped."""
        self.changing: set[tuple[str, str]] = set()
        """Configs whose row is being replaced or deleted."""
        self.asking = 0
        self.changed: set[tuple[str, str]] = set()
        """Configs that were changed while the store was asked what we hold, so that its answer may be old."""
        self.unsure: set[str] = set()
        """Tasks whose configs may be ours without this process knowing."""
        self.amiss = False
        """The same for every task, because a response of the store was lost."""
        self.rounds: Iterator[str] = iter(())
        self.hurry = asyncio.Event()
        self.watching: asyncio.Task[None] | None = None
        self.closing = False

    def start(self) -> None:
        self.watching = asyncio.get_running_loop().create_task(self._watch(), name="push")

    async def close(self) -> None:
        """Give calls in progress a moment to end, and release everything to other hosts."""
        self.closing = self.delivery.closing = True
        if self.watching is not None:
            self.watching.cancel()
            await asyncio.gather(self.watching, return_exceptions=True)
        if self.running:
            await asyncio.wait(self.running, timeout=CLOSE_S)
        for task in self.running:
            task.cancel()
        await asyncio.gather(*self.running, return_exceptions=True)
        for hook in [hook for hooks in self.held.values() for hook in hooks.values()]:
            if hook.timer is not None:
                hook.timer.cancel()
            if not self.moves.is_awaited(hook):
                self.moves.note(hook, hook.move(delay_s=0.0, keep=False))
        await self.moves.close()
        self.held.clear()

    def lapse(self) -> None:
        """The lease is lost: other hosts call the webhooks that this one held."""
        for hook in [hook for hooks in self.held.values() for hook in hooks.values()]:
            self._drop(hook)
        for task in self.running:
            task.cancel()
        self.moves.lapse()

    # What is held

    def hold_new(self, config: PushConfig) -> None:
        """Hold a webhook that a commit of this worker has created."""
        if not self.closing:
            self._hold(Hook(config))

    async def hold_task(self, task_id: str) -> None:
        """Hold the webhooks of a task that a commit may have given to this worker."""
        if self.closing:
            return
        try:
            with self._ask():
                for push in await self.store.read_pushes(task_id):
                    if push.due is not None and not push.paused:
                        self._adopt(push)
        except StoreUnavailable:
            self.unsure.add(task_id)

    def kick(self, task_ids: Iterable[str]) -> None:
        """Deliver what is new of these tasks."""
        if not self.held:
            return
        for task_id in task_ids:
            hooks = self.held.get(task_id)
            if hooks is not None:
                for hook in hooks.values():
                    hook.kicked = True
                    self._go(hook)

    async def put(self, config: PushConfig) -> bool:
        """Create or replace a config; False if there is no such task."""
        async with self._change(config.task_id, config.id):
            done = await self.store.put_push(config, self.worker.name)
            if done and not self.closing:
                self._hold(Hook(config))
        return done

    async def delete(self, task_id: str, config_id: str) -> None:
        async with self._change(task_id, config_id):
            await self.store.delete_push(task_id, config_id)

    @asynccontextmanager
    async def _change(self, task_id: str, config_id: str) -> AsyncIterator[None]:
        """Change one config of a task at a time. What is known of it, or being written of it, is dropped first."""
        key = (task_id, config_id)
        lock = self.locks.setdefault(task_id, asyncio.Lock())
        async with lock:
            self.changing.add(key)
            try:
                hook = self.held.get(task_id, {}).get(config_id)
                if hook is not None:
                    self._drop(hook)
                    await self.moves.forget(hook)
                yield
            except BaseException:
                self.unsure.add(task_id)
                raise
            finally:
                self.changing.discard(key)
                if self.asking:
                    self.changed.add(key)

    @contextmanager
    def _ask(self) -> Iterator[None]:
        """Remember which configs change while the store is asked what we hold, so that an old answer is not used."""
        self.asking += 1
        try:
            yield
        finally:
            self.asking -= 1
            if not self.asking:
                self.changed.clear()

    def _adopt(self, push: Push) -> None:
        """Continue with a webhook that is due, if the store says that this worker holds it."""
        config = push.config
        key = (config.task_id, config.id)
        if push.holder is None:
            self.hurry.set()
        if push.holder != self.worker.name:
            return
        if key in self.changing or key in self.changed:
            self.unsure.add(config.task_id)
            return
        known = self.held.get(config.task_id, {}).get(config.id)
        if known is not None and known.config.sealed == config.sealed:
            self._go(known)
        else:
            self._hold(Hook.of(push))

    def _hold(self, hook: Hook) -> None:
        hooks = self.held.setdefault(hook.config.task_id, {})
        before = hooks.get(hook.config.id)
        if before is not None:
            self._drop(before)
            hooks = self.held.setdefault(hook.config.task_id, {})
        hooks[hook.config.id] = hook
        hook.after = self.leaving.get((hook.config.task_id, hook.config.id))
        self._go(hook)

    def _drop(self, hook: Hook) -> None:
        hook.lost = True
        if hook.running is not None:
            key = (hook.config.task_id, hook.config.id)
            self.leaving[key] = hook.running
            hook.running.add_done_callback(lambda task: self._left(key, task))
        if hook.timer is not None:
            hook.timer.cancel()
            hook.timer = None
        hooks = self.held.get(hook.config.task_id)
        if hooks is not None and hooks.get(hook.config.id) is hook:
            del hooks[hook.config.id]
            if not hooks:
                del self.held[hook.config.task_id]

    def _left(self, key: tuple[str, str], task: asyncio.Task[None]) -> None:
        if self.leaving.get(key) is task:
            del self.leaving[key]

    # Delivery

    def _go(self, hook: Hook) -> None:
        if hook.running is not None:
            hook.again = True
        elif hook.timer is None and not hook.lost and not self.closing:
            hook.running = asyncio.get_running_loop().create_task(self._work(hook))
            self.running.add(hook.running)
            hook.running.add_done_callback(self.running.discard)

    def _later(self, hook: Hook, delay_s: float) -> None:
        def now() -> None:
            hook.timer = None
            self._go(hook)

        if not hook.lost and not self.closing:
            hook.timer = asyncio.get_running_loop().call_later(delay_s, now)

    async def _work(self, hook: Hook) -> None:
        delay: float | None = 0.0
        try:
            if hook.after is not None:
                await asyncio.wait([hook.after])
                hook.after = None
            while delay == 0.0 and not hook.lost and not self.closing:
                delay = await self.delivery.turn(hook)
        except StoreUnavailable as error:
            log.debug("%s waits for the store: %s", hook, error)
            delay = TROUBLE_S
        except Exception as error:  # its text may hold a secret
            trace = "".join(traceback.format_tb(error.__traceback__))
            log.error("%s failed with %s\n%s", hook, type(error).__name__, trace)
            delay = TROUBLE_S
        finally:
            hook.running = None
        if hook.lost:
            if hook.again:  # the task moved while its config was put away
                await self.hold_task(hook.config.task_id)
        elif delay:
            self._later(hook, delay)
        elif hook.again:
            self._go(hook)

    # In the background

    async def _watch(self) -> None:
        passes = 0
        down = False
        while True:
            try:
                await self._take()
                await self._look()
                if passes % COUNT_EVERY == 0:
                    self.stats.push_outbox, self.stats.push_dead = await self.store.outbox()
                passes += 1
                down = False
            except StoreUnavailable as error:
                if not down:
                    log.warning("webhooks that are due cannot be looked for: %s", error)
                down = self.amiss = True
            except Exception:
                log.exception("webhooks that are due cannot be looked for")
            self.hurry.clear()
            try:
                async with asyncio.timeout(jittered(LOOK_S)):
                    await self.hurry.wait()
            except TimeoutError:
                continue

    async def _take(self) -> None:
        """Hold webhooks that are due and have no living holder."""
        if self.amiss:
            with self._ask():
                for push in await self.store.list_pushes(failing=False, limit=AMISS):
                    if push.due is not None and not push.paused and push.holder == self.worker.name:
                        self._adopt(push)
            self.amiss = False
        unsure, self.unsure = self.unsure, set()
        for task_id in unsure:
            await self.hold_task(task_id)
        while (room := BUSY - len(self.running)) > 0:
            limit, worker = min(TAKE, room), self.worker.name
            with self._ask():
                pushes = await self.store.hold_pushes(worker, limit)
                for push in pushes if worker == self.worker.name else ():
                    key = (push.config.task_id, push.config.id)
                    if key in self.changing or key in self.changed:
                        self.unsure.add(push.config.task_id)
                    else:
                        self._hold(Hook.of(push))
            if len(pushes) < limit:
                return

    async def _look(self) -> None:
        """A wake-up from another process may be lost, so check tasks that have not been heard of for a while."""
        if not self.store.shared:
            return
        chosen = list(islice(self.rounds, LOOK_TASKS))
        if not chosen:
            self.rounds = iter(list(self.held))
            chosen = list(islice(self.rounds, LOOK_TASKS))
        known: dict[str, int] = {}
        for task_id in chosen:
            for hook in self.held.get(task_id, {}).values():
                if hook.running is None and hook.timer is None and not hook.kicked:
                    known[task_id] = min(hook.cursor, known.get(task_id, hook.cursor))
                hook.kicked = False
        if known:
            positions = [Position(task_id, cursor, ANY_SUB) for task_id, cursor in known.items()]
            updates = await self.store.read_updates(positions, 1)
            self.kick({update.task_id for update in updates if update.entries})
