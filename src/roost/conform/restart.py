"""The user's command that crashes the host and starts it again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable

from roost.conform.connections import Http
from roost.conform.target import card_url
from roost.conform.wire import NoAnswer

POLL_S = 0.1


def restarting(command: str, url: str, limit: float) -> Callable[[], Awaitable[None]]:
    """Runs it, then waits until somebody answers at the card's place; all that within the limit, in seconds.

    A command that does not end is ended, with all that it has begun.
    """

    async def restart() -> None:
        try:
            async with asyncio.timeout(limit):
                await _run(command)
                await _answers(card_url(url), limit)
        except TimeoutError:
            raise OSError(f"`{command}` and the start took longer than {limit:g} s: give a longer --timeout") from None

    return restart


async def _run(command: str) -> None:
    process = await asyncio.create_subprocess_shell(command, stdin=asyncio.subprocess.DEVNULL, start_new_session=True)
    try:
        if await process.wait():
            raise OSError(f"`{command}` ended with {process.returncode}")
    finally:
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


async def _answers(url: str, limit: float) -> None:
    http = Http(limit)
    try:
        while True:
            try:
                await http.fetch("GET", url)
                return
            except NoAnswer:
                await asyncio.sleep(POLL_S)
    finally:
        await http.close()
