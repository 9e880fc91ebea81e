"""The agent's own process: `python -m roost.agents.child FD`, started by process.py."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
import traceback
from collections import deque
from pathlib import Path

from roost.agents.agent import Agent
from roost.agents.modules import load_module
from roost.agents.process_frames import (
    ArtifactFrame,
    AskFrame,
    JoinedFrame,
    ProcessFrame,
    Start,
    StatusFrame,
    UsageFrame,
    pack,
    receive,
    unpack,
)
from roost.engine.turn import Step, Turn, Unwind
from roost.extensions.data import TokenUsage
from roost.protocol.codec import decoder
from roost.protocol.entries import Received, StepRecord
from roost.protocol.types import Artifact, JSONObject, Message, Task, TaskState


class PipeTurn(Turn):
    """A turn whose task is in the host's process. Each call is sent there and made on the engine's turn."""

    def __init__(self, start: Start, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._start = start
        self._messages = [decoder(Received)(message) for message in start.messages]
        self._reader = reader
        self._writer = writer
        self._calls: deque[asyncio.Future[ProcessFrame]] = deque()
        """The calls that wait for their answers, which come in the same order."""
        self._cancelled = False
        self._closed = False

    async def receive_answers(self) -> None:
        """Hand each answer to its call until the host closes the connection; calls after that leave the function."""
        failure: BaseException = Unwind()
        try:
            while (frame := await receive(self._reader)) is not None:
                call = self._calls.popleft()
                if not call.done():
                    call.set_result(frame)
        except ValueError as error:  # a frame that is too large
            failure = error
        self._closed = True
        for call in self._calls:
            if not call.done():
                call.set_exception(failure)

    def stop(self) -> None:
        """Note that the host stops this process."""
        self._cancelled = True

    @property
    def task_id(self) -> str:
        return self._start.task_id

    @property
    def context_id(self) -> str:
        return self._start.context_id

    @property
    def agent_id(self) -> str:
        return self._start.agent_id

    @property
    def caller(self) -> str:
        return self._start.caller

    @property
    def tenant(self) -> str:
        return self._start.tenant

    @property
    def messages(self) -> list[Received]:
        return self._messages

    @property
    def rerun(self) -> bool:
        return self._start.rerun

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    @property
    def closed(self) -> bool:
        return self._closed

    async def read_task(self) -> Task:
        return decoder(Task)(unpack(bytes, await self._call("read_task")))

    def text(self, piece: str, join_s: float = 0.0) -> None:
        if join_s:
            self._send("joined_text", JoinedFrame(piece, join_s))
        else:
            self._send("text", piece)

    def flush_text(self) -> None:
        self._send("flush_text")

    def artifact(
        self, artifact: Artifact, *, append: bool, last_chunk: bool = False, metadata: JSONObject | None = None
    ) -> None:
        self._send("artifact", ArtifactFrame(artifact, append, last_chunk, metadata))

    def status(self, state: TaskState, message: Message | None = None, metadata: JSONObject | None = None) -> None:
        self._send("status", StatusFrame(state, message, metadata))

    def usage(self, tokens: TokenUsage, cost_usd: float | None = None) -> None:
        self._send("usage", UsageFrame(tokens, cost_usd))

    def reply(self, message: Message) -> None:
        self._send("reply", message)

    def become_task(self) -> None:
        self._send("become_task")

    async def pace(self) -> None:
        await self._drain()

    async def commit(self) -> None:
        await self._call("commit")

    async def ask(self, state: TaskState, question: Message) -> Received:
        return decoder(Received)(unpack(bytes, await self._call("ask", AskFrame(state, question))))

    async def begin_step(self, name: str) -> Step:
        return unpack(Step, await self._call("begin_step", name))

    async def end_step(self, record: StepRecord) -> None:
        await self._call("end_step", record)

    def _send(self, op: str, body: object = None) -> None:
        if self._closed:
            raise Unwind
        self._writer.write(pack(op, body))

    async def _call(self, op: str, body: object = None) -> ProcessFrame:
        self._send(op, body)
        call: asyncio.Future[ProcessFrame] = asyncio.get_running_loop().create_future()
        self._calls.append(call)
        await self._drain()
        return await call

    async def _drain(self) -> None:
        try:
            await self._writer.drain()
        except ConnectionError:
            raise Unwind from None


async def main(descriptor: int) -> None:
    """Run one turn. SIGTERM cancels the function, as a cancel does in process; the host kills one that continues."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    frame = await receive(reader)
    if frame is None:
        return
    start = unpack(Start, frame)
    turn = PipeTurn(start, reader, writer)
    current = asyncio.current_task()
    assert current is not None

    def stop() -> None:
        turn.stop()
        current.cancel()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop)
    answers = asyncio.create_task(turn.receive_answers())
    last = pack("end")
    try:
        await load(Path(start.file), start.agent_id).invoker()(turn)
    except Unwind:
        pass
    except asyncio.CancelledError:
        return
    except BaseException:
        last = pack("error", traceback.format_exc())
    finally:
        answers.cancel()
        loop.remove_signal_handler(signal.SIGTERM)  # it comes after the last frame too, when the loop is closed
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with contextlib.suppress(ConnectionError):  # the host may have gone
        writer.write(last)
        writer.close()
        await writer.wait_closed()  # until all of it is sent


def load(file: Path, agent_id: str) -> Agent:
    """Find the agent in its author's file."""
    for value in vars(load_module(file)).values():
        if isinstance(value, Agent) and value.id == agent_id:
            return value
    raise LookupError(f"{file} has no agent {agent_id!r}: one with process=True must be a module's own variable")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
