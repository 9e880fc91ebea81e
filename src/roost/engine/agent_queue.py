"""The queue of one agent: how many runs at once, who waits, and one turn at a time in a context."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from roost.engine.hosted import HostedAgent
from roost.engine.run import Run
from roost.engine.store_types import NewTask

ContextKey = tuple[str, str, str]


class AgentQueue:
    def __init__(self, hosted: HostedAgent, launch: Callable[[AgentQueue, Run], None]) -> None:
        self.hosted = hosted
        self.launch = launch
        self.running: set[Run] = set()
        self.ready: deque[Run] = deque()
        self.turns: dict[ContextKey, deque[Run]] = {}
        """A context is here while one of its runs is running or ready; the deque holds those behind it."""
        self.expected: dict[Run, bool] = {}
        """Runs that will come, and whether it is their turn already."""
        self.waiting = 0
        self.reserved = [0, 0]
        """Messages that are being committed: those that will run at once, and those that will wait."""

    def reserve(self, new: NewTask) -> bool | None:
        """A place for a message: whether it will have to wait, or None if too many wait already."""
        limits = self.hosted.profile.limits
        behind = not self.hosted.profile.parallel and _key(new) in self.turns
        waits = behind or len(self.running) + len(self.ready) + self.reserved[0] >= limits.concurrency
        if waits and self.waiting + self.reserved[1] >= limits.queue:
            return None
        self.reserved[waits] += 1
        return waits

    def unreserve(self, waits: bool) -> None:
        self.reserved[waits] -= 1

    def expect(self, run: Run) -> None:
        """Keep the turn of a run that is to be submitted later."""
        if self.hosted.profile.parallel:
            return
        behind = self.turns.get(_key(run.live.new))
        self.expected[run] = behind is None
        if behind is None:
            self.turns[_key(run.live.new)] = deque()
        else:
            behind.append(run)
            self.waiting += 1

    def forget(self, run: Run) -> None:
        """It will not come after all."""
        first = self.expected.pop(run, None)
        if first:
            self._next_turn(run)
        elif first is False:
            self.turns[_key(run.live.new)].remove(run)
            self.waiting -= 1

    def submit(self, run: Run) -> None:
        first = self.expected.pop(run, None)
        if first is not None:
            if first:
                self._admit(run)
            return  # otherwise it stands behind others, who let it in
        if not self.hosted.profile.parallel:
            key = _key(run.live.new)
            behind = self.turns.get(key)
            if behind is not None:
                behind.append(run)
                self.waiting += 1
                return
            self.turns[key] = deque()
        self._admit(run)

    def left_queue(self) -> None:
        """One that waited for its turn among all hosts does so no more."""
        self.waiting -= 1

    def withdraw(self, run: Run) -> bool:
        """Take back a run that has not started."""
        if run in self.running:
            return False
        behind = self.turns.get(_key(run.live.new))
        if behind is not None and run in behind:
            behind.remove(run)
            self.waiting -= 1
            return True
        if run in self.ready:
            self.ready.remove(run)
            self.waiting -= 1
            self._next_turn(run)
            return True
        return False

    def ended(self, run: Run) -> None:
        self.running.discard(run)
        self._next_turn(run)
        while self.ready and len(self.running) < self.hosted.profile.limits.concurrency:
            self.waiting -= 1
            self._start(self.ready.popleft())

    def _next_turn(self, run: Run) -> None:
        if self.hosted.profile.parallel:
            return
        key = _key(run.live.new)
        behind = self.turns[key]
        if behind:
            self.waiting -= 1
            following = behind.popleft()
            if following in self.expected:
                self.expected[following] = True
            else:
                self._admit(following)
        else:
            del self.turns[key]

    def _admit(self, run: Run) -> None:
        if len(self.running) < self.hosted.profile.limits.concurrency and not self.ready:
            self._start(run)
        else:
            self.ready.append(run)
            self.waiting += 1

    def _start(self, run: Run) -> None:
        self.running.add(run)
        self.launch(self, run)


def _key(new: NewTask) -> ContextKey:
    return new.scope.tenant, new.scope.owner, new.context_id
