"""Results and streams for clients, and the clients that wait for them."""

from __future__ import annotations

from typing import NamedTuple

from roost.engine.extension import ReaderView
from roost.engine.follower import SEND_ENDS, Follower
from roost.engine.live_tasks import LiveTasks
from roost.engine.run import Run
from roost.engine.views import task_bytes
from roost.identity.quotas import QuotaSlot


class SendResult(NamedTuple):
    """A Task or a Message, as JSON. Exactly one is set."""

    task: bytes | None
    message: bytes | None
    replayed: bool = False
    """The message had been answered before."""

    def json(self) -> bytes:
        """The SendMessageResponse, which is also the first StreamResponse of a stream."""
        return b'{"task":%b}' % self.task if self.task is not None else b'{"message":%b}' % (self.message or b"")

    def shown(self, view: ReaderView | None) -> SendResult:
        """The result with what the reader's extensions add."""
        return self if view is None or self.task is None else self._replace(task=view.task(self.task))


class TaskStream(NamedTuple):
    """An opening Task or Message, then what `follower` brings (nothing after a Message)."""

    opening: SendResult
    position: int | None
    """The seq that the opening includes; None where it carries no id."""
    follower: Follower | None
    slot: QuotaSlot | None = None
    """The stream's place among those that its caller may have open at the same time."""

    def release(self) -> None:
        """End the stream, and let everything go that it holds."""
        if self.follower is not None:
            self.follower.release()
        if self.slot is not None:
            self.slot.leave()


class ResultWaiter:
    """A client that waits until its task ends or asks."""

    run: Run

    def __init__(self, lives: LiveTasks) -> None:
        self.lives = lives

    def attach(self, run: Run) -> None:
        self.run, live = run, run.live
        self.settled = live.when_settled()
        self.over = live.over
        """A cancel came between the answer and its run."""

    def detach(self) -> None:
        if self.settled.cancel():
            self.lives.release(self.run.live)


class StreamWaiter:
    """A client that follows its task from the message on."""

    run: Run

    def __init__(self, lives: LiveTasks, history_length: int | None, view: ReaderView | None) -> None:
        self.lives = lives
        self.history_length = history_length
        self.view = view

    def attach(self, run: Run) -> None:
        self.run, live = run, run.live
        self.follower = self.lives.follow(live, live.shown_seq, SEND_ENDS, self.view)
        opening = SendResult(task_bytes(live.task, self.history_length), None).shown(self.view)
        self.stream = TaskStream(opening, live.shown_seq, self.follower)

    def detach(self) -> None:
        self.follower.release()
