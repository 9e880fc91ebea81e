"""Follows one task and yields each of its events once, across lost connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from roost.cli.client import HostClient, ReceivedEvent
from roost.cli.errors import CommandFailed, CommandRefused, Dropped, Unreachable
from roost.cli.options import command
from roost.protocol.states import TERMINAL
from roost.protocol.types import SendMessageRequest, StreamResponse, Task, TaskStatus

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 5.0
TRIES = 30


class Follow:
    def __init__(self, client: HostClient, agent: str, task_id: str, note: Callable[[str], None]) -> None:
        self.client = client
        self.agent = agent
        self.task_id = task_id
        self.note = note
        self.status: TaskStatus | None = None
        """The latest status; None before the first one, and after a Message without a task."""
        self.last: int | None = None
        self.over = False
        self.tries = 0

    def send(self, request: SendMessageRequest) -> Iterator[ReceivedEvent]:
        """Send the message once and follow its task. After a lost connection the message is not sent again."""
        opened = False
        try:
            for event in self.client.send(self.agent, request):
                opened = True
                yield self._seen(event)
        except Dropped:
            if not opened:
                raise CommandFailed(self._unconfirmed()) from None
        if not opened:
            raise CommandFailed(self._unconfirmed())
        if not self.over:
            self._wait()
            yield from self.watch()

    def watch(self) -> Iterator[ReceivedEvent]:
        while not self.over:
            try:
                for event in self._open():
                    self.tries = 0
                    yield self._seen(event)
            except Unreachable:
                if self.last is None:
                    raise
            except Dropped:
                pass
            except CommandRefused as error:
                if error.status != 503:
                    raise
            if not self.over:
                self._wait()

    def _open(self) -> Iterator[ReceivedEvent]:
        if self.last is not None:
            for event in self.client.subscribe(self.agent, self.task_id, self.last):
                if event.id is not None:
                    yield event
            return
        try:
            yield from self.client.subscribe(self.agent, self.task_id, None)
        except CommandRefused as refused:
            if refused.reason != "UNSUPPORTED_OPERATION":
                raise
            yield self._ended(refused)

    def _ended(self, refused: CommandRefused) -> ReceivedEvent:
        """The task itself, as an event. A task that has ended has no stream, but it can be read."""
        body = self.client.task(self.agent, self.task_id)
        task = self.client.parsed(Task, body)
        if task.status.state not in TERMINAL:
            raise refused
        return ReceivedEvent(None, b'{"task":%b}' % body, StreamResponse(task=task))

    def _seen(self, event: ReceivedEvent) -> ReceivedEvent:
        response = event.response
        self.last = self.last if event.id is None else event.id
        if response.message is not None:
            self.status, self.over = None, True
        elif response.task is not None:
            self.task_id = response.task.id
            self.status = response.task.status
        elif response.status_update is not None:
            self.status = response.status_update.status
        self.over = self.over or (self.status is not None and self.status.state in TERMINAL)
        return event

    def _wait(self) -> None:
        if self.tries == TRIES:
            raise CommandFailed(
                f"{self.client.url} did not come back within {TRIES} tries; when it does, "
                + command(self.client.url, "watch", self.task_id, "--agent", self.agent)
                + " continues"
            )
        wait = min(FIRST_WAIT_S * 2**self.tries, LONGEST_WAIT_S)
        self.tries += 1
        self.note(f"the connection was lost; reconnecting in {wait:g} s")
        time.sleep(wait)

    def _unconfirmed(self) -> str:
        return (
            "the connection was lost before the host confirmed the message, and it was not sent again; "
            + command(self.client.url, "tasks", self.agent)
            + " shows whether it arrived"
        )
