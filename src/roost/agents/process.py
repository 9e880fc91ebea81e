"""`Agent(process=True)`: each run has a process of its own, with a clean environment, and can be stopped hard.

The function runs there; the journal stays here. Every call of `task` crosses a socket pair
and is done on the real Run, so that steps, answers and re-runs are the same as in process.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
from collections.abc import Mapping

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
from roost.engine.run import Run, Unwind
from roost.protocol.entries import StepRecord
from roost.protocol.types import Message

log = logging.getLogger("roost.agents")

KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SYSTEMROOT")
TERM_GRACE_S = 2.0


class ProcessFailed(Exception):
    """The agent's process raised, or died without a word."""


class ProcessInvoker:
    def __init__(self, file: str, agent: str, join_s: float, env: Mapping[str, str]) -> None:
        self.file = file
        self.agent = agent
        self.join_s = join_s
        self.env = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | dict(env)

    async def __call__(self, run: Run) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "roost.agents.child",
                str(theirs.fileno()),
                stdin=asyncio.subprocess.DEVNULL,
                pass_fds=[theirs.fileno()],
                env=self.env,
                start_new_session=True,
            )
        reader, writer = await asyncio.open_connection(sock=ours)
        try:
            new = run.live.new
            scope = new.scope
            start = Start(
                self.file,
                self.agent,
                scope.tenant,
                scope.owner,
                new.id,
                new.context_id,
                run.received,
                self.join_s,
            )
            writer.write(pack("start", start))
            while (frame := await receive(reader)) is not None:
                if frame.op == "end":
                    return
                await self._do(run, frame, writer)
            code = await process.wait()
            raise ProcessFailed(f"the agent's process ended with code {code} before its function did")
        finally:
            writer.close()
            await _stop(process)

    async def _do(self, run: Run, frame: ProcessFrame, writer: asyncio.StreamWriter) -> None:
        if frame.op == "text":
            run.text(unpack(str, frame), self.join_s)
            await run.pace()
        elif frame.op == "artifact":
            piece = unpack(ArtifactFrame, frame)
            run.artifact(piece.artifact, append=piece.append, last_chunk=piece.last_chunk, metadata=piece.metadata)
            await run.pace()
        elif frame.op == "status":
            status = unpack(StatusFrame, frame)
            run.status(status.state, status.message, status.metadata)
            await run.pace()
        elif frame.op == "flush":
            run.flush_text()
        elif frame.op == "recall":
            await self._answer(writer, await run.begin_step(unpack(str, frame)))
        elif frame.op == "record":
            await run.end_step(unpack(StepRecord, frame))
            await self._answer(writer, None)
        elif frame.op == "ask":
            asked = unpack(AskFrame, frame)
            await self._answer(writer, await run.ask(asked.state, asked.question))
        elif frame.op == "reply":
            run.reply(unpack(Message, frame))
            raise Unwind
        else:
            raise ProcessFailed(unpack(str, frame))

    @staticmethod
    async def _answer(writer: asyncio.StreamWriter, body: object) -> None:
        writer.write(pack("answer", body))
        await writer.drain()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the process and all that it started: asked first, then killed."""
    if process.returncode is not None:
        return
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(TimeoutError, asyncio.CancelledError):
        await asyncio.wait_for(process.wait(), TERM_GRACE_S)
    if process.returncode is None:
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
