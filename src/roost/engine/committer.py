"""Group commit: what many tasks wrote since the last commit goes to the store together."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from roost.engine.live import DIRTY, LOST, LiveTask
from roost.engine.ports import Journal
from roost.engine.stats import Stats, size_of
from roost.engine.store_types import Append, OutcomeUnknown, StoreUnavailable, Taken
from roost.protocol.errors import Moved, Unavailable

log = logging.getLogger("roost.engine")

GROUP_ENTRIES = 4096
GROUPS_AT_ONCE = 2
RETRY_MAX_S = 1.0
CLOSE_S = 8.0
"""Seconds for the last commits when the host stops."""


class Committer:
    """Commits up to two groups at once, of different tasks, so that the store never waits for the next one."""

    def __init__(
        self, journal: Journal, stats: Stats, moved: Callable[[list[LiveTask]], None] = lambda lives: None
    ) -> None:
        self.journal = journal
        self.stats = stats
        self.moved = moved
        """Called with the tasks that have been committed."""
        self.dirty: list[LiveTask] = []
        self.sleepers: list[asyncio.Future[None]] = []
        self.workers: list[asyncio.Task[None]] = []
        self.closing = False
        self.failed_at = float("-inf")
        """When the last commit failed, by the monotonic clock."""

    def start(self) -> None:
        loop = asyncio.get_running_loop()
        self.workers = [loop.create_task(self._work(), name=f"committer {number}") for number in range(GROUPS_AT_ONCE)]

    def touch(self, live: LiveTask) -> None:
        """Commit what the task has written, soon."""
        self.dirty.append(live)
        self._wake()

    async def close(self) -> None:
        """Commit what is written, then stop."""
        self.closing = True
        self._wake()
        done, late = await asyncio.wait(self.workers, timeout=CLOSE_S) if self.workers else (set(), set())
        if late:
            log.error("the store does not answer: what was not acknowledged is not committed")
            for worker in late:
                worker.cancel()
        await asyncio.gather(*done, *late, return_exceptions=True)

    async def _work(self) -> None:
        while True:
            lives, group = self._gather()
            if group:
                await self._commit(lives, group)
                if self.dirty or self.closing:
                    self._wake()
            elif self.closing and not self.dirty:
                return
            else:
                sleeper = asyncio.get_running_loop().create_future()
                self.sleepers.append(sleeper)
                await sleeper

    def _wake(self) -> None:
        for sleeper in self.sleepers:
            if not sleeper.done():
                sleeper.set_result(None)
        self.sleepers.clear()

    def _gather(self) -> tuple[list[LiveTask], list[Append]]:
        """Take what can be committed now. A task with an append in progress has to wait."""
        lives: list[LiveTask] = []
        group: list[Append] = []
        later: list[LiveTask] = []
        size = seen = 0
        for live in self.dirty:
            seen += 1
            if live.phase is LOST:
                continue
            if live.phase is not DIRTY:  # its last append is not committed yet
                later.append(live)
                continue
            append = live.take()
            lives.append(live)
            group.append(append)
            size += len(append.entries)
            if size >= GROUP_ENTRIES:
                break
        self.dirty[:seen] = later
        return lives, group

    async def _commit(self, lives: list[LiveTask], group: list[Append]) -> None:
        delay = 0.05
        uncertain = False
        while group:
            started = time.perf_counter()
            try:
                results = await self.journal.commit(group)
            except Exception as error:
                self.stats.commit_failures += 1
                unforeseen = None if isinstance(error, StoreUnavailable) else error
                log.error("the store did not commit, nothing of it was acknowledged: %s", error, exc_info=unforeseen)
                self.failed_at = time.monotonic()
                if isinstance(error, OutcomeUnknown):
                    uncertain = not self.closing
                else:
                    self._refuse_new()
                if not uncertain:
                    lives, group = self._give_up(lives, group)
                for live in lives:
                    live.delayed()
                await asyncio.sleep(delay)
                delay = min(delay * 2, RETRY_MAX_S)
                continue
            self.stats.commit_seconds.observe(time.perf_counter() - started)
            for live, append, refusal in zip(lives, group, results, strict=True):
                if refusal is None:
                    self._count(live, append)
                    if live.phase is not LOST:
                        live.committed()
                elif isinstance(refusal, Taken):
                    live.refused(refusal)
                else:
                    log.warning("task %s has another writer now", live.new.id)
                    live.refused(Moved())
            self.moved(lives)
            return

    def _count(self, live: LiveTask, append: Append) -> None:
        scope = live.new.scope
        self.stats.entries += len(append.entries)
        self.stats.wrote(scope, append.create is not None, size_of(append))
        for state in live.flying_states.values():
            self.stats.transition(scope.agent, state)

    def _refuse_new(self) -> None:
        """Refuse messages that came in the meantime and are not on record yet, so that they need not wait."""
        for live in self.dirty:
            if (not live.created or live.goes_on) and not live.lost:
                live.refused(_unavailable())

    def _give_up(self, lives: list[LiveTask], group: list[Append]) -> tuple[list[LiveTask], list[Append]]:
        """Refuse new messages at once, and return the emissions of agents, which are tried until the store is back."""
        keep: list[tuple[LiveTask, Append]] = []
        for live, append in zip(lives, group, strict=True):
            if append.create is not None or append.goes_on or self.closing:
                live.refused(_unavailable())
            else:
                keep.append((live, append))
        return [live for live, _ in keep], [append for _, append in keep]


def _unavailable() -> Unavailable:
    return Unavailable("the store cannot write now; try again later", retry_after=1)
