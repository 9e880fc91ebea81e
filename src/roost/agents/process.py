"""`Agent(process=True)`: each turn has a process of its own, with a clean environment, and can be stopped hard.

The function runs in that process, the journal stays in this one. Every call of `Turn` there (child.py) crosses a
socket pair and is made here on the engine's turn, so that steps, answers and re-runs are the same as in process.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import Mapping

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
from roost.engine.turn import Turn
from roost.protocol.codec import encode
from roost.protocol.entries import StepRecord
from roost.protocol.types import Message

KEPT_VARIABLES = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "SYSTEMROOT")
"""Environment variables of the host that the process gets."""
TERM_GRACE_S = 2.0
"""Seconds between SIGTERM and SIGKILL."""


class ProcessFailed(Exception):
    """The function raised in the agent's process, or the process ended before the function did."""


class ProcessInvoker:
    """Calls the function of one agent in a new process for each turn."""

    def __init__(self, file: str, agent: str, env: Mapping[str, str]) -> None:
        self.file = file
        self.agent = agent
        self.env = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ} | dict(env)

    async def __call__(self, turn: Turn) -> None:
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
            start = Start(
                self.file,
                self.agent,
                turn.tenant,
                turn.caller,
                turn.task_id,
                turn.context_id,
                [encode(message) for message in turn.messages],
                turn.rerun,
            )
            writer.write(pack("start", start))
            while (frame := await receive(reader)) is not None:
                if frame.op == "end":
                    return
                await _forward(frame, turn, writer)
            code = await process.wait()
            raise ProcessFailed(f"the agent's process ended with code {code} before its function did")
        finally:
            writer.close()
            await _stop(process)


async def _forward(frame: ProcessFrame, turn: Turn, writer: asyncio.StreamWriter) -> None:
    """Make the call of a frame on the turn."""
    match frame.op:
        case "text":
            turn.text(unpack(str, frame))
            await turn.pace()
        case "joined_text":
            joined = unpack(JoinedFrame, frame)
            turn.text(joined.piece, joined.join_s)
            await turn.pace()
        case "flush_text":
            turn.flush_text()
        case "artifact":
            piece = unpack(ArtifactFrame, frame)
            turn.artifact(piece.artifact, append=piece.append, last_chunk=piece.last_chunk, metadata=piece.metadata)
            await turn.pace()
        case "status":
            status = unpack(StatusFrame, frame)
            turn.status(status.state, status.message, status.metadata)
            await turn.pace()
        case "usage":
            usage = unpack(UsageFrame, frame)
            turn.usage(usage.tokens, usage.cost_usd)
            await turn.pace()
        case "reply":
            turn.reply(unpack(Message, frame))
        case "become_task":
            turn.become_task()
        case "commit":
            await turn.commit()
            await _answer(writer, None)
        case "read_task":
            await _answer(writer, encode(await turn.read_task()))
        case "begin_step":
            await _answer(writer, await turn.begin_step(unpack(str, frame)))
        case "end_step":
            await turn.end_step(unpack(StepRecord, frame))
            await _answer(writer, None)
        case "ask":
            asked = unpack(AskFrame, frame)
            await _answer(writer, encode(await turn.ask(asked.state, asked.question)))
        case "error":
            raise ProcessFailed(unpack(str, frame))
        case _:
            raise ProcessFailed(f"the agent's process sent a frame that the host does not know: {frame.op!r}")


async def _answer(writer: asyncio.StreamWriter, body: object) -> None:
    writer.write(pack("answer", body))
    await writer.drain()


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the process and everything that it has started: with SIGTERM, then with SIGKILL."""
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
