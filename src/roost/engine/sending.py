"""SendMessage and SendStreamingMessage: a message through the intake, and what its client gets for it."""

from __future__ import annotations

import asyncio

from roost.engine.bodies import BodyReader
from roost.engine.extension import Incoming, ReaderView
from roost.engine.intake import Intake, Repeated
from roost.engine.journal import as_of
from roost.engine.live_tasks import LiveTasks
from roost.engine.repeats import Repeats
from roost.engine.responses import NO_OPENING, AsOf, ResultWaiter, SendResult, StreamWaiter, TaskStream, within_budget
from roost.engine.run import Run
from roost.engine.views import task_bytes, trim_task
from roost.protocol.errors import Moved


class Sending:
    def __init__(self, lives: LiveTasks, intake: Intake, repeats: Repeats) -> None:
        self.lives = lives
        self.store = lives.store
        self.intake = intake
        self.repeats = repeats

    async def send(self, incoming: Incoming, view: ReaderView | None, reader: BodyReader | None) -> SendResult:
        """Accept the message, and return its task when it has ended or asks; or at once, if the client wants that."""
        configuration = incoming.request.configuration
        waiting = ResultWaiter(self.lives)
        try:
            await self.intake.accept(incoming, waiting)
        except Repeated as repeated:
            repeat = [(await self.repeats.send(repeated.reserved, incoming.request)).shown(view)]
            return await within_budget(self.store, repeat, reader, view)
        run, live = waiting.run, waiting.run.live
        accepted = live.shown_seq
        history = None if configuration is None else configuration.history_length
        at_once = configuration is not None and configuration.return_immediately
        try:
            if run.decision is not None:
                reply = await _decided(run)
                if reply is not None:
                    return SendResult(None, reply)
            if waiting.over or at_once:
                body, seq = await self.lives.look(live, lambda task, seq: (task_bytes(task, history), seq))
                found = [SendResult(body, None, False, AsOf(live.new, seq, history)).shown(view)]
            else:
                body = await waiting.settled
                place = AsOf(live.new, live.shown_seq, history)
                found = [SendResult(body if history is None else trim_task(body, history), None, False, place)]
                if view is not None:
                    found = [found[0].shown(view)]
        except Moved:
            if not self.store.shared:
                raise
            found = [(await self._elsewhere(live.new.id, accepted, history, at_once)).shown(view)]
            body = b""
        finally:
            waiting.detach()
        if not found[0].is_large:
            return found[0]
        del body, waiting, run, live  # they are as large, and there may be no room for long
        return await within_budget(self.store, found, reader, view)

    async def _elsewhere(self, task_id: str, accepted: int, history: int | None, at_once: bool) -> SendResult:
        """Return the task as accepted, or as it ends or asks, after another host took it over."""
        live = await self.lives.load(task_id)
        if live is None:
            raise Moved
        try:
            seq = accepted if at_once else await self.repeats.settled_after(live, accepted)
            body = task_bytes(await as_of(self.store, live.new, seq), history)
            return SendResult(body, None, False, AsOf(live.new, seq, history))
        finally:
            self.lives.unhold(live)

    async def stream(self, incoming: Incoming, view: ReaderView | None, reader: BodyReader | None) -> TaskStream:
        """Accept the message, and follow its task from there on."""
        stream = await self._stream(incoming, view, reader)
        if reader is None or not stream.opening.is_large:
            return stream
        openings, stream = [stream.opening], stream._replace(opening=NO_OPENING)
        try:
            return stream._replace(opening=await within_budget(self.store, openings, reader, view))
        except BaseException:
            stream.release()
            raise

    async def _stream(self, incoming: Incoming, view: ReaderView | None, reader: BodyReader | None) -> TaskStream:
        configuration = incoming.request.configuration
        history = None if configuration is None else configuration.history_length
        following = StreamWaiter(self.lives, history, view, reader)
        try:
            await self.intake.accept(incoming, following)
        except Repeated as repeated:
            return await self.repeats.stream(repeated.reserved, incoming.request, view, reader)
        if following.run.decision is not None:
            try:
                reply = await _decided(following.run)
            except BaseException:
                following.detach()
                raise
            if reply is not None:
                following.detach()
                return TaskStream(SendResult(None, reply), None, None)
        return following.stream


async def _decided(run: Run) -> bytes | None:
    """Wait until a direct agent has replied, and return the reply; None if the exchange became a task."""
    assert run.decision is not None
    reply = await asyncio.shield(run.decision)
    await run.live.commit()
    return reply
