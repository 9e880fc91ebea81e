"""Results and streams for clients, and the clients that wait for them."""

from __future__ import annotations

from typing import NamedTuple

from roost.engine.bodies import LARGE, BodyReader, Made
from roost.engine.extension import ReaderView
from roost.engine.follower import SEND_ENDS, Follower
from roost.engine.journal import as_of
from roost.engine.live_tasks import LiveTasks
from roost.engine.ports import JournalReader
from roost.engine.run import Run
from roost.engine.store_types import NewTask
from roost.engine.views import splice, split, task_bytes
from roost.identity.quotas import QuotaSlot


class AsOf(NamedTuple):
    """The task that a response shows, the entry that it includes last, and how much of its history it has."""

    new: NewTask
    seq: int
    history_length: int | None


class SendResult(NamedTuple):
    """A Task or a Message, as JSON. Exactly one is set."""

    task: bytes | None
    message: bytes | None
    replayed: bool = False
    """The message had been answered before."""
    as_of: AsOf | None = None
    """The place in the journal from which the task can be read again."""

    def json(self) -> bytes:
        """The SendMessageResponse, which is also the first StreamResponse of a stream."""
        return b'{"task":%b}' % self.task if self.task is not None else b'{"message":%b}' % (self.message or b"")

    def json_parts(self) -> tuple[bytes, bytes, bytes]:
        """The same in parts, so that a large task need not be copied."""
        if self.task is not None:
            return b'{"task":', self.task, b"}"
        return b'{"message":', self.message or b"", b"}"

    def shown(self, view: ReaderView | None) -> SendResult:
        """The result with what the reader's extensions add."""
        return self if view is None or self.task is None else self._replace(task=view.task(self.task))

    @property
    def is_large(self) -> bool:
        return self.task is not None and len(self.task) > LARGE


NO_OPENING = SendResult(None, None)
"""In place of an opening that has been sent."""


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

    def __init__(
        self, lives: LiveTasks, history_length: int | None, view: ReaderView | None, reader: BodyReader | None
    ) -> None:
        self.lives = lives
        self.history_length = history_length
        self.view = view
        self.reader = reader

    def attach(self, run: Run) -> None:
        self.run, live = run, run.live
        self.follower = self.lives.follow(live, live.shown_seq, SEND_ENDS, self.view, self.reader)
        place = AsOf(live.new, live.shown_seq, self.history_length)
        opening = SendResult(task_bytes(live.task, self.history_length), None, False, place).shown(self.view)
        self.stream = TaskStream(opening, live.shown_seq, self.follower)

    def detach(self) -> None:
        self.follower.release()


async def within_budget(
    journal: JournalReader, results: list[SendResult], reader: BodyReader | None, view: ReaderView | None
) -> SendResult:
    """Return the one result, as soon as there is room for it. The list is emptied.

    While there is none, the task is not kept: it is read again as of the same entry.
    """
    result = results.pop()
    if reader is None or not result.is_large or result.as_of is None:
        return result
    place, found = result.as_of, [Made(result.task or b"")]
    result = result._replace(task=None)

    async def make() -> Made:
        task = await as_of(journal, place.new, place.seq)
        history = place.history_length
        body = splice(*split(task)) if history is None else task_bytes(task, history)
        return Made(body if view is None else view.task(body))

    key = ("as of", place.new.id, *place[1:], *(() if view is None else view.uris))
    made = await reader.read(len(found[0].data), key, make, found)
    return result._replace(task=made.data)
