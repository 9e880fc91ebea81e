"""The agent's own process: `python -m roost.agents.child FD`, started by process.py."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import signal
import socket
import sys
import traceback
from pathlib import Path
from typing import Any

from roost.agents.agent import Agent
from roost.agents.process_frames import (
    ArtifactFrame,
    AskFrame,
    ProcessFrame,
    Start,
    StatusFrame,
    pack,
    receive,
    unpack,
)
from roost.agents.python import AsyncInvoker, ThreadInvoker
from roost.engine.ids import now_us
from roost.engine.ports import NewTask, Scope
from roost.engine.run import Run, Unwind
from roost.protocol.entries import Received, StepRecord
from roost.protocol.types import Artifact, JSONObject, Message, TaskState


class _Place:
    """The little of a live task that a run in this process needs."""

    def __init__(self, new: NewTask) -> None:
        self.new = new


class RemoteRun(Run):
    """A Run whose journal is in the host's process."""

    def __init__(self, start: Start, agent: Agent, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scope = Scope(start.tenant, start.owner, start.agent)
        place: Any = _Place(NewTask(start.task_id, scope, start.context_id, now_us()))
        super().__init__(place, _Hosted(agent), start.received)
        self.reader = reader
        self.writer = writer

    def check(self) -> None:
        return None

    def text(self, piece: str, join_s: float = 0.0) -> None:
        self.writer.write(pack("text", piece))

    def flush_text(self) -> None:
        self.writer.write(pack("flush"))

    def status(self, state: TaskState, message: Message | None = None, metadata: JSONObject | None = None) -> None:
        self.writer.write(pack("status", StatusFrame(state, message, metadata)))

    def artifact(
        self, artifact: Artifact, *, append: bool, last_chunk: bool = False, metadata: JSONObject | None = None
    ) -> None:
        self.writer.write(pack("artifact", ArtifactFrame(artifact, append, last_chunk, metadata)))

    async def pace(self) -> None:
        await self.writer.drain()

    async def begin_step(self, name: str) -> StepRecord | None:
        self.occurrences[name] = self.occurrences.get(name, 0) + 1
        return unpack(StepRecord | None, await self._call("recall", name))  # type: ignore[arg-type]  # a union

    async def end_step(self, record: StepRecord) -> None:
        await self._call("record", record)

    async def ask(self, state: TaskState, question: Message) -> Received:
        return unpack(Received, await self._call("ask", AskFrame(state, question)))

    def reply(self, message: Message) -> None:
        self.writer.write(pack("reply", message))

    async def _call(self, op: str, body: Any) -> ProcessFrame:
        self.writer.write(pack(op, body))
        await self.writer.drain()
        answer = await receive(self.reader)
        if answer is None:
            sys.exit(1)  # the host is gone, or wants this process to end
        return answer


class _Hosted:
    def __init__(self, agent: Agent) -> None:
        self.profile = agent.profile

    async def run(self, run: Run) -> None:
        return None

    async def cancel(self, run: Run) -> None:
        return None


async def main(descriptor: int) -> None:
    """SIGTERM cancels the function, as a cancel does in process; who does not stop is killed by the host."""
    current = asyncio.current_task()
    assert current is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, current.cancel)
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    frame = await receive(reader)
    if frame is None:
        return
    start = unpack(Start, frame)
    try:
        agent = load(Path(start.file), start.agent)
        assert agent.handler is not None
        is_async = inspect.iscoroutinefunction(agent.handler) or inspect.isasyncgenfunction(agent.handler)
        call = AsyncInvoker(agent.handler, 0) if is_async else ThreadInvoker(agent.handler, 0)
        await call(RemoteRun(start, agent, reader, writer))
    except Unwind:
        pass
    except asyncio.CancelledError:
        return
    except BaseException:
        writer.write(pack("error", traceback.format_exc()))
        await writer.drain()
        return
    writer.write(pack("end"))
    await writer.drain()


def load(file: Path, agent_id: str) -> Agent:
    sys.path.insert(0, str(file.parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    spec.loader.exec_module(module)
    for value in vars(module).values():
        if isinstance(value, Agent) and value.id == agent_id:
            return value
    raise LookupError(f"{file} has no agent {agent_id!r}: one with process=True must be a module's own variable")


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1])))
