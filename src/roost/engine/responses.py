"""What a client is given: an answer, a stream, and what it has at a task while it waits for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from roost.engine.follower import SEND_ENDS, Follower
from roost.engine.run import Run
from roost.engine.views import task_bytes
from roost.protocol.states import TERMINAL

if TYPE_CHECKING:
    from roost.engine.engine import Engine


class SendResult(NamedTuple):
    """Exactly one is set: the Task or the Message, as JSON."""

    task: bytes | None
    message: bytes | None
    replayed: bool = False
    """The message had been answered before."""

    def json(self) -> bytes:
        """The SendMessageResponse, which is also the first StreamResponse of a stream."""
        return b'{"task":%b}' % self.task if self.task is not None else b'{"message":%b}' % (self.message or b"")


class TaskStream(NamedTuple):
    """An opening Task or Message, then what `follower` brings (nothing after a Message)."""

    opening: SendResult
    position: int | None
    """The seq that the opening includes; None where it carries no id."""
    follower: Follower | None


class ResultWaiter:
    """A client that waits for its task to end or to ask."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def attach(self, run: Run) -> None:
        self.run, live = run, run.live
        self.settled = live.when_settled()
        self.over = live.state in TERMINAL and not live.dirty and not live.in_flight
        """A cancel came between the answer and its run."""

    def detach(self) -> None:
        if self.settled.cancel():
            self.engine.released(self.run.live)


class StreamWaiter:
    """A client that follows its task from the message on."""

    def __init__(self, engine: Engine, history_length: int | None) -> None:
        self.engine = engine
        self.history_length = history_length

    def attach(self, run: Run) -> None:
        self.run, live = run, run.live
        self.follower = self.engine.follow(live, live.shown_seq, SEND_ENDS)
        opening = SendResult(task_bytes(live.task, self.history_length), None)
        self.stream = TaskStream(opening, live.shown_seq, self.follower)

    def detach(self) -> None:
        self.engine.release(self.follower)
