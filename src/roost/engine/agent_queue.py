"""The queue of one agent: how many runs at once, who waits, and one turn at a time in a context."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from roost.engine.hosted import HostedAgent
from roost.engine.run import Run
from roost.engine.store_types import NewTask
from roost.protocol.errors import TooManyRequests

ContextKey = tuple[str, str, str]


class AgentQueue:
    """Runs keep the agent object that they were accepted with; `replace` changes it for later ones.

    launch: starts a run.
    """

    def __init__(self, hosted: HostedAgent, launch: Callable[[AgentQueue, Run], None]) -> None:
        self.hosted = hosted
        self.launch = launch
        self.running: set[Run] = set()
        self.ready: deque[Run] = deque()
        self.turns: dict[ContextKey, deque[Run]] = {}
        """A context is here while one of its runs is running or ready; the deque holds those behind it."""
        self.expected: dict[Run, bool] = {}
        """Runs that will be submitted, and whether it is their turn already."""
        self.announced = 0
        """Runs that recovery will submit after a delay."""
        self.waiting = 0
        self.reserved = [0, 0]
        """Messages that are being committed: those that will run at once, and those that will wait."""

    def replace(self, hosted: HostedAgent) -> None:
        self.hosted = hosted
        self._start_ready()

    @property
    def empty(self) -> bool:
        return not (self.running or self.waiting or self.expected or self.announced or any(self.reserved))

    def reserve(self, new: NewTask) -> bool:
        """Reserve a place for a message, and say whether it will have to wait. TooManyRequests if the queue is full."""
        profile = self.hosted.profile
        behind = not profile.parallel and _key(new) in self.turns
        waits = behind or len(self.running) + len(self.ready) + self.reserved[0] >= profile.limits.concurrency
        if waits and self.waiting + self.reserved[1] >= profile.limits.queue:
            raise TooManyRequests(f"Agent {profile.id!r} has too many messages waiting; try again later", retry_after=1)
        self.reserved[waits] += 1
        return waits

    def unreserve(self, waits: bool) -> None:
        self.reserved[waits] -= 1

    def announce(self) -> None:
        """Count a run that is to be submitted later."""
        self.announced += 1

    def arrive(self) -> None:
        """The announced run is submitted now, or forgotten."""
        self.announced -= 1

    def expect(self, run: Run) -> None:
        """Keep the turn of a run that is to be submitted later."""
        if run.hosted.profile.parallel:
            return
        behind = self.turns.get(_key(run.live.new))
        self.expected[run] = behind is None
        if behind is None:
            self.turns[_key(run.live.new)] = deque()
        else:
            behind.append(run)
            self.waiting += 1

    def forget(self, run: Run) -> None:
        """Give up the turn of a run that will not be submitted after all."""
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
        if not run.hosted.profile.parallel:
            key = _key(run.live.new)
            behind = self.turns.get(key)
            if behind is not None:
                behind.append(run)
                self.waiting += 1
                return
            self.turns[key] = deque()
        self._admit(run)

    def joined_queue(self) -> None:
        """Count a run that waits for its turn among all hosts."""
        self.waiting += 1

    def left_queue(self) -> None:
        """The run does not wait for its turn among all hosts any more."""
        self.waiting -= 1

    def withdraw(self, run: Run) -> bool:
        """Take back a run that has not started; False if it has."""
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
        self._start_ready()

    def _start_ready(self) -> None:
        while self.ready and len(self.running) < self.hosted.profile.limits.concurrency:
            self.waiting -= 1
            self._start(self.ready.popleft())

    def _next_turn(self, run: Run) -> None:
        if run.hosted.profile.parallel:
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
